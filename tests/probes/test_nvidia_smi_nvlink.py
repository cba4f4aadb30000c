"""What nvidia-smi prints of NVLinks, and what it means."""

from __future__ import annotations

import pytest

from fleetwell.health.vocabulary import Recovery, Verdict
from fleetwell.probes.nvidia_smi_reading import Asked, read
from probes.verdicts import faults, recovery, snapshot, worst

H100 = "NVIDIA H100 80GB HBM3"


def uuid(index: int) -> str:
    return f"GPU-{index:08d}-aaaa-bbbb-cccc-{index:012d}"


def links(*gpus: str, model: str = H100) -> str:
    """Each GPU's links: ``x`` active, ``-`` not; none at all: the tool says that all are inactive."""
    lines = []
    for index, states in enumerate(gpus):
        lines.append(f"GPU {index}: {model} (UUID: {uuid(index)})")
        for link, state in enumerate(states):
            lines.append(f"\t Link {link}: {'26.562 GB/s' if state == 'x' else '<inactive>'}")
        if not states:
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
    return "\n".join(lines) + "\n"


def down(*where: tuple[int, int]) -> set[tuple[str, str]]:
    return {("NvlinkDown", f"nvlink/{uuid(gpu)}/{link}") for gpu, link in where}


def test_a_machine_whose_links_are_all_active_is_well() -> None:
    report = read(links("xxx", "xxx"), Asked(code=0, expected=2))
    assert faults(report) == set()
    assert "host" in snapshot(report).covered


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (links("xx-x"), down((0, 2))),
        (links("xxx", "x-x", "xxx"), down((1, 1))),
        (links("xxx", "---"), down((1, 0), (1, 1), (1, 2))),
        (links("xx", ""), down((1, 0), (1, 1))),
        (links("xxx", "x-x", "xxx", model="NVIDIA RTX A6000"), down((1, 1))),
    ],
)
def test_a_link_that_others_have_is_down(text: str, found: set[tuple[str, str]]) -> None:
    report = read(text)
    assert faults(report) == found
    assert (worst(report), recovery(report)) == (Verdict.BAD, Recovery.RESET_GPU)


def test_a_link_that_every_gpu_of_a_full_board_must_have_is_down() -> None:
    assert faults(read(links(*["x" * 17 + "-"] * 8))) == down(*((gpu, 17) for gpu in range(8)))


@pytest.mark.parametrize(
    "text",
    [
        links("xx--", "xx--", model="NVIDIA A100 80GB PCIe"),
        links("xx--", "xx--", "----", "----", model="NVIDIA A100 80GB PCIe"),
        links("----", "----", model="NVIDIA RTX A6000"),
        links("", "", model="NVIDIA H100 NVL"),
        links("xxxx--", "xx-xx-", model="Tesla V100-SXM2-16GB"),
    ],
)
def test_a_link_that_may_rightly_lead_nowhere_is_told_and_is_no_fault(text: str) -> None:
    report = read(text)
    assert faults(report) == set()
    assert any("inactive" in said or "is active" in said for said in snapshot(report).blind)


def test_a_board_without_any_active_link_has_not_joined_its_fabric() -> None:
    whole, part = read(links(*[""] * 8)), read(links("", ""))
    assert {fault for fault, _ in faults(whole)} == {fault for fault, _ in faults(part)} == {"FabricIncomplete"}
    assert (worst(whole), worst(part)) == (Verdict.BAD, Verdict.UNKNOWN)


def counts(*rows: str, gpu: int = 0) -> str:
    return f"GPU {gpu}: {H100} (UUID: {uuid(gpu)})\n" + "".join(f"\t Link {row}\n" for row in rows)


def test_a_count_of_errors_is_a_note_since_one_look_gives_no_rate() -> None:
    report = read(counts("0: Replay Errors: 0", "0: CRC Errors: 0", "1: Replay Errors: 7", "1: Recovery Errors: 1"))
    assert faults(report) == {("NvlinkNoted", f"nvlink/{uuid(0)}/1")}
    assert worst(report) is Verdict.OK


def test_what_newer_gpus_count_beside_errors_is_none() -> None:
    text = counts("0: Tx packets: 12345", "0: Effective BER: 15e-255", "0: FEC Errors - 0: 99", "0: CRC Errors: N/A")
    assert faults(read(text)) == set()


def test_states_and_counts_in_one_text_are_of_the_same_gpus() -> None:
    text = "$ nvidia-smi nvlink -s\n" + links("xx") + "$ nvidia-smi nvlink -e\n" + counts("0: Replay Errors: 3")
    assert faults(read(text)) == {("NvlinkNoted", f"nvlink/{uuid(0)}/0")}


def test_a_list_of_gpus_before_the_links_is_a_list() -> None:
    listed = "".join(f"GPU {index}: {H100} (UUID: {uuid(index)})\n" for index in (0, 1))
    assert faults(read(listed + links("xx", "x-"), Asked(expected=2))) == down((1, 1))


@pytest.mark.parametrize("text", [links("xx", "xx"), counts("0: Replay Errors: 0", "0: CRC Errors: 0")])
def test_links_that_were_cut_off_are_no_pass(text: str) -> None:
    lines = text.rstrip("\n").split("\n")
    for number, line in enumerate(lines):
        cut = "\n".join([*lines[:number], line[: len(line) // 2]])
        assert worst(read(cut)) is Verdict.UNKNOWN, cut[-80:]


def test_a_gpu_that_shows_fewer_links_than_its_equals_was_cut_off() -> None:
    assert worst(read(links("xx", "xx").rpartition("\t")[0])) is Verdict.UNKNOWN
    both = counts("0: Replay Errors: 0", "1: Replay Errors: 0") + counts("0: Replay Errors: 0", gpu=1)
    assert worst(read(both)) is Verdict.UNKNOWN


def test_fewer_gpus_than_there_must_be_are_missing() -> None:
    assert ("GpuMissing", "host") in faults(read(links("xx", "xx"), Asked(expected=8)))
