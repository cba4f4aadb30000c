"""What neighbours show: another result, or another rate."""

from __future__ import annotations

from fleetwell.probes.proof_agreement import agreement
from fleetwell.probes.proof_rows import Measured, Row
from probes.proof_devices import H100


def products(*digests: str, what: str = "product bfloat16 inputs 1", model: str = H100) -> list[Measured]:
    return [Measured(what, f"gpu/GPU-{at}", model, digest=digest) for at, digest in enumerate(digests)]


def rates(*each: float, model: str = H100) -> list[Measured]:
    return [Measured("TFLOP/s bfloat16", f"gpu/GPU-{at}", model, rate=rate) for at, rate in enumerate(each)]


def judged(measured: list[Measured]) -> list[Row]:
    return list(agreement(measured, 0.8))


def test_devices_with_the_same_bits_agree() -> None:
    (row,) = judged(products("a", "a", "a") + products("b", "b", "b", what="product bfloat16 inputs 2"))
    assert row.verdict == "OK"
    assert "3 devices agree bit for bit on 2 products" in row.said


def test_the_majority_names_the_device_that_computes_something_else() -> None:
    (row,) = judged(products("a", "a", "x", "a"))
    assert (row.verdict, row.component) == ("BAD", "gpu/GPU-2")


def test_a_device_that_differs_in_many_products_is_told_once() -> None:
    many = [one for number in range(5) for one in products("a", "x", "a", what=f"inputs {number}")]
    assert len(judged(many)) == 1


def test_of_a_pair_nobody_can_tell_which_is_wrong() -> None:
    (row,) = judged(products("a", "x"))
    assert (row.verdict, row.component) == ("UNKNOWN", "host")
    assert "no majority tells which is wrong" in row.said


def test_two_against_two_is_no_majority() -> None:
    (row,) = judged(products("a", "x", "a", "x"))
    assert row.verdict == "UNKNOWN"


def test_different_models_are_not_compared() -> None:
    assert judged(products("a") + products("x", model="NVIDIA L4")) == []


def test_a_device_far_slower_than_its_neighbours_is_named() -> None:
    (row,) = judged(rates(640, 650, 655, 400))
    assert (row.verdict, row.component) == ("BAD", "gpu/GPU-3")
    assert "less than 80% of it" in row.said


def test_a_little_slower_is_not_far_slower_and_of_two_none_is() -> None:
    assert judged(rates(640, 650, 655, 560)) == []
    assert judged(rates(640, 400)) == []
