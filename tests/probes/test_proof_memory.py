"""The proof's test of device memory."""

from __future__ import annotations

import pytest

from fleetwell.probes.proof_cpu import CpuDevice
from fleetwell.probes.proof_device import WORD, CannotTellError
from fleetwell.probes.proof_memory import memory
from fleetwell.probes.proof_rows import Row
from fleetwell.probes.proof_thresholds import thresholds
from probes.proof_devices import Clock, FaultyDevice, small


def judged(device: CpuDevice, level: str = "medium") -> Row:
    return memory(device, small(level), thresholds().patterns, Clock().time())


def test_memory_that_holds_passes() -> None:
    row = judged(FaultyDevice())
    assert row.verdict == "OK"
    assert "97% of the free memory" not in row.said  # It says what was really held.
    assert "6 patterns" in row.said


def test_a_single_stuck_bit_is_found_with_its_gpu_and_offset() -> None:
    device = FaultyDevice(component="gpu/GPU-7", stuck={1: {37: 1 << 44}})
    row = judged(device)
    words = device.hold(0)[0].words
    assert row.verdict == "BAD"
    assert row.detail.startswith(f"GpuProofFailed on gpu/GPU-7: byte offset {(words + 37) * WORD:#x} ")
    assert "1 bits flipped" in row.said
    assert "1 words are wrong" in row.said


@pytest.mark.parametrize("bit", [0, 31, 63])
def test_a_stuck_bit_is_found_wherever_it_is_in_the_word(bit: int) -> None:
    assert judged(FaultyDevice(stuck={0: {0: 1 << bit}})).verdict == "BAD"


def test_a_stuck_bit_is_found_by_the_quick_level_too() -> None:
    assert judged(FaultyDevice(stuck={0: {5: 1 << 3}}), "quick").verdict == "BAD"


def test_memory_that_answers_at_two_addresses_is_found_by_the_patterns_that_depend_on_the_address() -> None:
    row = judged(FaultyDevice(aliased=True))
    assert row.verdict == "BAD"
    assert "pattern address" in row.said


def test_each_pattern_but_those_of_one_word_has_an_inverse() -> None:
    patterns = thresholds().patterns
    for one, other in (("zeros", "ones"), ("checkerboard", "inverted checkerboard"), ("mixed", "inverted mixed")):
        assert patterns[one].flip ^ patterns[other].flip == (1 << 64) - 1
        assert patterns[one].times == patterns[other].times


def test_a_test_that_ran_out_of_time_is_no_pass_and_says_how_far_it_came() -> None:
    clock = Clock()
    with pytest.raises(CannotTellError, match="out of time after 0 of 6"):
        memory(FaultyDevice(), small("medium"), thresholds().patterns, clock.time(0))


def test_the_processors_own_memory_passes() -> None:
    level = thresholds().cpu_levels["quick"]
    assert memory(CpuDevice(), level, thresholds().patterns, Clock().time()).verdict == "OK"
