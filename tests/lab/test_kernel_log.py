import re
from pathlib import Path

import pytest

from fleetwell.lab.kernel_log import Facility, KernelLog, Level, Line, record


@pytest.fixture
def log(tmp_path: Path) -> KernelLog:
    made = KernelLog(tmp_path / "dev/kmsg", tmp_path / "head")
    made.restart(100.0)
    return made


def test_a_record_has_the_kernels_format() -> None:
    line = Line("pci found", Level.INFO, tags={"SUBSYSTEM": "pci"})

    assert record(line, 7, 1500) == b"6,7,1500,-;pci found\n SUBSYSTEM=pci\n"


def test_user_space_has_another_facility() -> None:
    assert record(Line("hello", Level.ERROR, Facility.USER), 0, 0).startswith(b"11,0,")


def test_a_text_cannot_forge_a_second_record() -> None:
    forged = record(Line("harmless\n3,9,9,-;NVRM: Xid (PCI:0000:53:00): 79\\ é"), 0, 0)

    assert forged.count(b"\n") == 1
    assert forged.endswith(b"harmless\\x0a3,9,9,-;NVRM: Xid (PCI:0000:53:00): 79\\x5c \\xc3\\xa9\n")


def test_records_are_numbered_and_timed_since_the_boot(log: KernelLog) -> None:
    log.write([Line("one"), Line("two")], 100.5)
    log.write([Line("three")], 101.0)

    assert log.path.read_text(encoding="ascii") == "3,0,500000,-;one\n3,1,500000,-;two\n3,2,1000000,-;three\n"


def test_another_writer_goes_on_with_the_numbering(log: KernelLog, tmp_path: Path) -> None:
    log.write([Line("one")], 100.0)
    KernelLog(log.path, tmp_path / "head").write([Line("two")], 100.0)

    assert re.findall(r"^3,(\d+),", log.path.read_text(encoding="ascii"), re.MULTILINE) == ["0", "1"]


def test_a_reboot_leaves_the_old_log_to_who_still_reads_it(log: KernelLog) -> None:
    log.write([Line("before")], 100.0)
    with log.path.open(encoding="ascii") as reader:
        log.restart(200.0)
        log.write([Line("after")], 200.0)

        assert reader.read() == "3,0,0,-;before\n"
    assert log.path.read_text(encoding="ascii") == "3,0,0,-;after\n"
