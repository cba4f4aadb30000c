"""What runs on CUDA, run by torch on the processor: the same operations, with faults put into their results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fleetwell.probes.proof_compute import compute  # noqa: E402 (after the check that torch is there)
from fleetwell.probes.proof_device import CannotTellError, DeviceFailedError  # noqa: E402
from fleetwell.probes.proof_links import host_link, peer_links  # noqa: E402
from fleetwell.probes.proof_memory import memory  # noqa: E402
from fleetwell.probes.proof_rows import Measured, Row  # noqa: E402
from fleetwell.probes.proof_thresholds import Model, thresholds  # noqa: E402
from fleetwell.probes.proof_time import Time  # noqa: E402
from fleetwell.probes.proof_torch import TorchBlock, TorchDevice, TorchLinks, TorchProduct, failures  # noqa: E402
from probes.proof_devices import WARM, small  # noqa: E402

CPU = torch.device("cpu")
MIB = 1 << 20
DATA = thresholds()


def device(number: int = 1) -> TorchDevice:
    return TorchDevice(CPU, f"gpu/GPU-{number}", "NVIDIA X1", lambda: WARM, chunk=MIB, memory=8 * MIB)


def test_memory_holds_every_pattern_of_every_level() -> None:
    row = memory(device(), small("long"), DATA.patterns, Time(60))
    assert (row.verdict, row.said[:5]) == ("OK", "4 MiB")


@pytest.mark.parametrize("bit", [0, 17, 63])
def test_a_flipped_bit_is_found_where_it_is(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write = TorchBlock.write

    def flip(block: TorchBlock, *given: object) -> None:
        write(block, *given)  # type: ignore[arg-type]  # passed on as it came
        if given[1] == MIB // 8 * 2:
            block.held.view(torch.uint8)[8 * 1234 + bit // 8] ^= 1 << bit % 8

    monkeypatch.setattr(TorchBlock, "write", flip)
    row = memory(device(), small("medium"), DATA.patterns, Time(60))
    assert row.verdict == "BAD"
    assert f"byte offset {2 * MIB + 8 * 1234:#x} " in row.said
    assert "1 bits flipped" in row.said


def test_the_words_of_a_pattern_are_those_that_its_rule_says() -> None:
    for pattern in DATA.patterns.values():
        (block, *_) = device().hold(8 * MIB)
        assert isinstance(block, TorchBlock)
        block.write(pattern, 1 << 40)
        mask = (1 << 64) - 1
        for word in (0, 1, 777):
            should = (((1 << 40) + word) * pattern.times & mask) ^ pattern.flip
            assert int(block.held[word]) & mask == should


def test_too_little_memory_to_test_any_is_no_pass() -> None:
    with pytest.raises(CannotTellError, match="too few"):
        device().hold(2 * MIB)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("size", [64, 512])
def test_a_right_product_is_well_within_its_bounds_and_equal_to_itself(dtype: str, size: int) -> None:
    product = device().product(dtype, size, seed=3)
    element, total = product.deviation()
    assert element <= DATA.bounds[dtype].element * 0.75
    assert total <= DATA.bounds[dtype].total * 0.75
    assert product.repeat(2) == 0
    assert product.digest() == device().product(dtype, size, seed=3).digest()
    assert product.digest() != device().product(dtype, size, seed=4).digest()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_an_element_that_is_off_is_found_against_the_reference(dtype: str) -> None:
    product = device().product(dtype, 64, seed=1)
    product.first[5, 6] += 64  # Eight times the product's root mean square, as a flipped exponent would give.
    element, total = product.deviation()
    bound = DATA.bounds[dtype]
    assert element > bound.element or total > bound.total
    product.first[5, 6] = float("nan")
    assert not product.deviation()[1] <= bound.total


def test_the_least_bit_of_a_repetition_is_found() -> None:
    product = device().product("float32", 64, seed=1)
    product.first.view(torch.int32)[3, 4] ^= 1
    assert product.repeat(2) == 2


def test_a_device_passes_the_whole_check_under_load() -> None:
    told = list(compute(device(), small("medium", size=64, seconds=0.05), DATA, Time(60)))
    rows = {row.check: row for row in told if isinstance(row, Row)}
    assert rows["compute"].verdict == "OK"
    assert {one.what for one in told if isinstance(one, Measured)} >= {"TFLOP/s float16", "TFLOP/s float32"}


def test_copies_arrive_the_same() -> None:
    assert host_link(device(), small("medium"), Model()).verdict == "OK"
    links = TorchLinks((CPU, CPU, CPU), ("gpu/a", "gpu/b", "gpu/c"), "NVIDIA X1")
    (row,) = peer_links(links, small("medium"), Model(), Time(60))
    assert row.said.startswith("6 pairs")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("CUDA error: uncorrectable ECC error encountered", DeviceFailedError),
        ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be …", DeviceFailedError),
        ("CUDA error: system not yet initialized", CannotTellError),
        ("CUDA error: no kernel image is available for execution on the device", CannotTellError),
    ],
)
def test_an_error_of_cuda_blames_the_device_only_where_it_can_be_nothing_else(
    said: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=said.partition("\n")[0]), failures():
        raise RuntimeError(said)


def test_no_memory_is_no_fault_of_the_device() -> None:
    with pytest.raises(CannotTellError), failures():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_a_product_is_made_of_the_same_numbers_everywhere() -> None:
    assert isinstance(device().product("float32", 8, 1), TorchProduct)
