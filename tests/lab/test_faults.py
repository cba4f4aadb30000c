import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetwell.lab.faults import FAULTS, FaultError, inject
from fleetwell.lab.hardware import Hardware
from lab.nvml_child import Ask

ACTION = "p.nvmlDeviceGetFieldValues(d[1], [230])[0].value.uiVal"


def log(hardware: Hardware) -> list[str]:
    return hardware.kernel_log.read_text(encoding="ascii").splitlines()


def pci(hardware: Hardware, name: str, address: str = "0000:64:00.0") -> str:
    return (hardware.root / "sys/bus/pci/devices" / address / name).read_text(encoding="ascii").strip()


def test_every_fault_is_explained_in_a_sentence() -> None:
    assert all(spec.sentence.endswith((".", ").")) and name == spec.name for name, spec in FAULTS.items())


def test_a_lost_gpu_shows_in_log_nvml_pci_and_to_cuda(node: Hardware, ask: Ask) -> None:
    lines = inject(node, "gpu-lost", 1)

    assert lines[0] == "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert lines[-1].startswith("NVRM: Xid (PCI:0000:64:00): 154, ")
    assert lines[-1].endswith("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    assert [line.partition(";")[2] for line in log(node)[-len(lines) :]] == list(lines)
    assert all(line.startswith("3,") for line in log(node)[-len(lines) :])
    assert ask(node, "p.nvmlDeviceGetCount()", "sorted(d)") == [8, [0, 2, 3, 4, 5, 6, 7]]
    assert pci(node, "current_link_width") == "63"
    assert (node.root / "sys/bus/pci/devices/0000:64:00.0/config").read_bytes() == b"\xff" * 64
    assert "device 1 cuda-error 719 -" in node.state_file.read_text(encoding="ascii")


def test_a_lost_gpu_comes_back_with_a_reboot_unless_it_is_dead(node: Hardware, ask: Ask) -> None:
    inject(node, "gpu-lost", 1)
    inject(node, "gpu-lost", 2, returns="false")

    node.reboot()

    assert ask(node, "p.nvmlDeviceGetCount()") == 7
    assert pci(node, "current_link_width") == "16"
    assert not (node.root / "sys/bus/pci/devices/0000:75:00.0").is_symlink()
    assert not (node.root / "dev/nvidia2").exists()


def test_a_gpu_can_be_lost_without_an_xid(node: Hardware, ask: Ask) -> None:
    lines = inject(node, "gpu-lost-silent", 0)

    assert lines == (
        "NVRM: The NVIDIA GPU 0000:53:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert ask(node, "0 in d") is False


def test_a_missing_gpu_says_nothing(small: Hardware, ask: Ask) -> None:
    before = log(small)
    assert inject(small, "gpu-missing", 3) == ()
    assert ask(small, "p.nvmlDeviceGetCount()") == 3
    assert log(small) == before


def test_a_failed_row_remap_stays_through_reset_and_reboot(node: Hardware, ask: Ask) -> None:
    (line,) = inject(node, "row-remap-failed", 1)
    assert "): 64, " in line
    assert line.endswith("All reserved rows for bank are remapped")

    node.reset_gpu(1)
    node.reboot()

    assert ask(node, "p.nvmlDeviceGetRemappedRows(d[1])", ACTION) == [[0, 0, 0, 1], 0]
    assert "cuda-error" not in node.state_file.read_text(encoding="ascii")


def test_a_pending_row_remap_is_done_by_a_reset(node: Hardware, ask: Ask) -> None:
    (line,) = inject(node, "row-remap-pending", 1)
    assert "): 63, " in line
    assert ask(node, "p.nvmlDeviceGetRemappedRows(d[1])") == [0, 1, 1, 0]

    node.reset_gpu(1)

    assert ask(node, "p.nvmlDeviceGetRemappedRows(d[1])") == [0, 1, 0, 0]


@pytest.mark.parametrize(("spent", "neighbour", "rows"), [(False, 63, [0, 1, 1, 0]), (True, 64, [0, 0, 0, 1])])
def test_a_double_bit_error_brings_its_neighbours(
    node: Hardware, ask: Ask, *, spent: bool, neighbour: int, rows: list[int]
) -> None:
    lines = inject(node, "ecc-dbe", 1, spent=spent, pid=77, process="train,a: 79")

    assert "): 48, pid=77, name=train,a: 79, An uncorrectable" in lines[0]
    assert f"): {neighbour}, " in lines[1]
    assert lines[2].endswith("to 0x1 (GPU Reset Required)")
    assert ask(
        node,
        "p.nvmlDeviceGetTotalEccErrors(d[1], 1, 0)",
        "p.nvmlDeviceGetTotalEccErrors(d[1], 1, 1)",
        "p.nvmlDeviceGetRemappedRows(d[1])",
        ACTION,
    ) == [1, 1, rows, 1]


def test_a_contained_error_counts_and_asks_for_nothing(node: Hardware, ask: Ask) -> None:
    (line,) = inject(node, "ecc-contained", 1)
    assert "): 94, pid=4242, name=python3, Contained: " in line
    assert ask(node, "p.nvmlDeviceGetTotalEccErrors(d[1], 1, 0)", ACTION) == [1, 0]


@pytest.mark.parametrize(("fault", "form"), [("nvlink-down", "): 74, "), ("nvlink5", "): 149, NETIR_LINK_EVT  Fatal ")])
def test_a_failed_link_is_inactive(node: Hardware, ask: Ask, fault: str, form: str) -> None:
    (line,) = inject(node, fault, 1, link="8")
    assert form in line
    assert "link 8(" in line or "Link 08 (" in line
    assert ask(
        node,
        "[p.nvmlDeviceGetNvLinkState(d[1], link) for link in (7, 8)]",
        "p.nvmlDeviceGetNvLinkErrorCounter(d[1], 8, 0)",
    ) == [[1, 0], 12]


def test_a_gsp_timeout_asks_for_a_reset(node: Hardware, ask: Ask) -> None:
    lines = inject(node, "gsp-timeout", 1)
    assert "): 119, " in lines[0]
    assert "GPU1 GSP!" in lines[0]
    assert ask(node, ACTION) == 1


def test_a_missing_efa_is_gone_everywhere_and_stays_away(node: Hardware) -> None:
    inject(node, "efa-missing", nic="rdmap79s0")
    node.reboot()

    assert not (node.root / "sys/class/infiniband/rdmap79s0").is_symlink()
    assert not (node.root / "sys/bus/pci/devices/0000:4f:00.0").is_symlink()
    assert not (node.root / "dev/infiniband/uverbs0").exists()
    assert len(list((node.root / "sys/class/infiniband").iterdir())) == 2
    assert not any("rdmap79s0" in line for line in log(node))


def test_a_hot_gpu_has_no_margin_and_throttles(node: Hardware, ask: Ask) -> None:
    inject(node, "gpu-hot", 1)
    assert ask(
        node,
        "p.nvmlDeviceGetMarginTemperature(d[1])",
        "p.nvmlDeviceGetCurrentClocksEventReasons(d[1])",
    ) == [-3, 0x48]


def test_a_driver_mismatch_ends_with_a_reboot(node: Hardware, ask: Ask) -> None:
    lines = inject(node, "driver-mismatch")
    assert lines[0].startswith("NVRM: API mismatch: the client has the version 575.57.08")
    assert ask(node, "0") == {"error": 18}

    node.reboot()

    assert ask(node, "p.nvmlDeviceGetCount()") == 8


def test_an_echo_from_user_space_looks_like_an_xid_and_changes_nothing(node: Hardware, ask: Ask) -> None:
    (line,) = inject(node, "userspace-echo", 1)
    assert "): 79, " in line
    assert log(node)[-1].startswith("10,")  # facility 1
    assert ask(node, "len(d)") == 8


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({}, "NVRM: Xid (PCI:0000:64:00): 13, pid=4242, name=python3, Graphics SM Warp Exception"),
        ({"form": "bare"}, "NVRM: Xid (PCI:0000:64:00): 13"),
        ({"form": "legacy"}, "NVRM: Xid (0000:64:00): 13, "),
        ({"form": "function"}, "NVRM: Xid (PCI:0000:64:00.0): 13, "),
        ({"gpu_instance": 2}, "NVRM: Xid (PCI:0000:64:00 GPU-I:02): 13, "),
        ({"gpu_instance": 2, "compute_instance": "0"}, "NVRM: Xid (PCI:0000:64:00 GPU-I:02 GPU-CI:00): 13, "),
        ({"process": "nvc:[driver]"}, "NVRM: Xid (PCI:0000:64:00): 13, pid=4242, name=nvc:[driver], "),
    ],
)
def test_an_xid_can_have_any_head(node: Hardware, parameters: dict[str, str | int], line: str) -> None:
    (written,) = inject(node, "xid:13", 1, **parameters)
    assert written.startswith(line)


def test_an_xid_can_name_its_cause(node: Hardware) -> None:
    (line,) = inject(node, "xid:45", 1, caused_by=149)
    assert line.endswith("Ch 00000008 caused by previous Xid 149")


def test_an_xid_that_nobody_knows_is_written_too(node: Hardware) -> None:
    (line,) = inject(node, "xid:777", 1)
    assert line == "NVRM: Xid (PCI:0000:64:00): 777, pid=4242, name=python3, Ch 00000008"


def test_an_xid_with_a_fault_of_its_own_does_all_of_it(node: Hardware, ask: Ask) -> None:
    inject(node, "xid:64", 1)
    assert ask(node, "p.nvmlDeviceGetRemappedRows(d[1])") == [0, 0, 0, 1]


def test_an_xid_line_alone_can_be_had(node: Hardware, ask: Ask) -> None:
    (line,) = inject(node, "xid:79", 1, only_line="true")
    assert "): 79, " in line
    assert ask(node, "len(d)") == 8


def test_clear_makes_everything_well(node: Hardware, ask: Ask) -> None:
    for fault in ("gpu-lost", "row-remap-failed", "gpu-hot", "nvlink-down"):
        inject(node, fault, 1)
    for fault in ("efa-missing", "nvml-crash", "driver-unloaded"):
        inject(node, fault)

    inject(node, "clear")

    assert ask(node, "len(d)", "p.nvmlDeviceGetRemappedRows(d[1])", "p.nvmlDeviceGetMarginTemperature(d[1])") == [
        8,
        [0, 0, 0, 0],
        53,
    ]
    assert len(list((node.root / "sys/class/infiniband").iterdir())) == 3
    assert pci(node, "current_link_speed") == "32.0 GT/s PCIe"


@pytest.mark.parametrize(
    ("fault", "gpu", "parameters", "complaint"),
    [
        ("nonsense", None, {}, "no fault 'nonsense'"),
        ("xid:N", 0, {}, "no fault 'xid:N'"),
        ("gpu-lost", None, {}, "which GPU"),
        ("gpu-lost", 4, {}, "has 0 to 3"),
        ("gpu-lost", 0, {"colour": "red"}, "no parameter colour"),
        ("gpu-lost", 0, {"returns": "maybe"}, "true or false"),
        ("nvlink-down", 0, {}, "no NVLink 14"),
        ("gpu-hot", 0, {"above": "very"}, "must be a number"),
        ("nvml-hang", None, {"where": "never"}, "init or any"),
        ("xid:13", 0, {"form": "odd"}, "form must be one of"),
        ("efa-missing", None, {"nic": "eth0"}, "not an EFA interface"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_and_changes_nothing(
    small: Hardware, fault: str, gpu: int | None, parameters: dict[str, str], complaint: str
) -> None:
    before = (small.state_file.read_bytes(), log(small))
    with pytest.raises(FaultError, match=complaint):
        inject(small, fault, gpu, **parameters)
    assert (small.state_file.read_bytes(), log(small)) == before


def test_a_machine_without_efa_cannot_lose_one(make_node: Callable[[str], Hardware]) -> None:
    with pytest.raises(FaultError, match="no EFA interface"):
        inject(make_node("g6.xlarge"), "efa-missing")


def test_a_crash_is_injected_for_whoever_calls(node: Hardware, ask: Ask) -> None:
    inject(node, "nvml-crash", where="init")
    with pytest.raises(subprocess.CalledProcessError):
        ask(node, "0")


def test_the_state_file_is_replaced_in_one_step(node: Hardware, tmp_path: Path) -> None:
    before = node.state_file.stat().st_ino
    inject(node, "gpu-hot", 1)
    assert node.state_file.stat().st_ino != before
    assert not list(node.state_file.parent.glob(".*.new"))
