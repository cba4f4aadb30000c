import os
from pathlib import Path

import pytest

from fleetwell.diagnose import logs
from fleetwell.diagnose.examination import Examination
from fleetwell.health.stimuli import Event

LOADING = "[    9.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20  Mon Jun  2 13:13:04 UTC 2025"
LOST = "[   99.000000] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."


def read(known: Examination, *lines: str) -> list[str]:
    events = [one for one in logs.printed(known, lines, "log", 0.0) if isinstance(one, Event)]
    return [seen.fault for event in events for seen in event.observations]


def test_a_record_that_another_log_had_is_not_read_again() -> None:
    known = Examination()
    assert read(known, LOST) == ["GpuFallenOffBus"]
    assert read(known, LOST, LOADING) == []


def test_what_dmesg_adds_to_a_line_is_taken_off() -> None:
    for line in (LOST.replace("] ", "][  T512] "), f"\x1b[32m{LOST}\x1b[0m", f"              {LOST[15:]}"):
        assert read(Examination(), line) == ["GpuFallenOffBus"], line


def test_the_log_itself_tells_the_drivers_layout_of_the_registers() -> None:
    line = "[   99.0] NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)"
    known = Examination()
    assert read(known, LOADING, line) == ["NvlinkDown"]
    assert not known.driver, "an input that says it counts more than a log"


def test_a_ring_is_read_without_waiting_for_more(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_bytes(b"6,0,100,-;one\n SUBSYSTEM=pci\n6,1,200,-;two\n")
    assert logs.ring(file) == [b"6,0,100,-;one\n SUBSYSTEM=pci\n", b"6,1,200,-;two\n"]
    with pytest.raises(FileNotFoundError):
        logs.ring(tmp_path / "none")


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel's ring cannot be read here")
def test_this_machines_own_ring_is_read() -> None:
    assert isinstance(logs.ring(Path("/dev/kmsg")), list)


def test_records_that_were_overwritten_are_a_blindness_and_no_gap() -> None:
    known = Examination()
    events = list(logs.recorded(known, [b"3,700,99,-;NVRM: Xid (PCI:0000:05:00): 79, gone\n"], 0.0))
    assert [seen.fault for event in events for seen in event.observations] == ["GpuFallenOffBus"]
    assert "700 records of the kernel log are overwritten" in known.answer().blind[0]
