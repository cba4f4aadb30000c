import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetwell.lab import machine
from fleetwell.lab.hardware import GpuInUseError, Hardware, HardwareError
from fleetwell.lab.kernel_log import Facility, Level
from lab.nvml_child import Ask, Clock


def read(hardware: Hardware, path: str) -> str:
    return (hardware.root / path).read_text(encoding="utf-8").rstrip("\n")


def records(hardware: Hardware) -> list[str]:
    lines = hardware.kernel_log.read_text(encoding="ascii").splitlines()
    return [line for line in lines if not line.startswith(" ")]


def test_pci_devices_are_reached_through_links_inside_the_tree(node: Hardware) -> None:
    device = node.root / "sys/bus/pci/devices/0000:53:00.0"

    assert device.is_symlink()
    assert device.resolve().is_relative_to(node.root.resolve())
    values = {name: (device / name).read_text(encoding="ascii").strip() for name in ("vendor", "device", "class")}
    assert values == {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
    assert (device / "driver").resolve().name == "nvidia"
    assert read(node, "sys/bus/pci/devices/0000:53:00.0/current_link_speed") == "32.0 GT/s PCIe"
    assert read(node, "sys/bus/pci/devices/0000:ca:00.0/numa_node") == "1"


def test_efa_looks_as_its_driver_shows_it(make_node: Callable[[str], Hardware]) -> None:
    node = make_node("p5.48xlarge")
    folder = node.root / "sys/class/infiniband"
    assert len(list(folder.iterdir())) == 32
    efa = folder / "rdmap79s0"

    assert (efa / "device/vendor").read_text(encoding="ascii") == "0x1d0f\n"
    assert (efa / "device/driver").resolve().name == "efa"
    assert (efa / "ports/1/state").read_text(encoding="ascii") == "4: ACTIVE\n"
    assert (efa / "ports/1/rate").read_text(encoding="ascii") == "100 Gb/sec (4X EDR)\n"
    assert (efa / "ports/1/hw_counters/rx_drops").read_text(encoding="ascii") == "0\n"
    assert (efa / "hw_counters/keep_alive_rcvd").read_text(encoding="ascii") == "1\n"
    assert not (efa / "ports/1/hw_counters/retrans_pkts").exists()
    assert read(node, "sys/class/infiniband_verbs/uverbs0/ibdev") == "rdmap79s0"


def test_b200_shows_retransmissions_and_its_mlx5_devices(make_node: Callable[[str], Hardware]) -> None:
    node = make_node("p6-b200.48xlarge")
    folder = node.root / "sys/class/infiniband"
    names = sorted(path.name for path in folder.iterdir())

    assert [name for name in names if name.startswith("ibp")] == ["ibp203s0", "ibp204s0"]
    assert len(names) == 10
    assert (folder / "rdmap79s0/ports/1/hw_counters/retrans_pkts").exists()
    assert (folder / "ibp203s0/ports/1/counters/link_downed").exists()
    assert (folder / "ibp203s0/device/driver").resolve().name == "mlx5_core"


def test_the_host_says_what_it_is(node: Hardware) -> None:
    assert read(node, "sys/class/dmi/id/product_name") == "p5.48xlarge"
    assert read(node, "sys/class/dmi/id/sys_vendor") == "Amazon EC2"
    assert read(node, "sys/class/dmi/id/product_serial") == node.state.dmi_serial
    assert read(node, "proc/sys/kernel/random/boot_id") == node.boot_id
    assert read(node, "proc/stat") == "btime 1800000000"
    assert sorted(path.name for path in (node.root / "dev").glob("nvidia[0-9]*")) == [f"nvidia{n}" for n in range(8)]
    assert (node.library_folder / "libnvidia-ml.so.1").resolve().is_file()


def test_identities_follow_from_the_seed(tmp_path: Path, mock_nvml: Path) -> None:
    described = machine.load("g6.xlarge")
    made = [
        Hardware.create(described, tmp_path / str(number), seed, library=mock_nvml).state
        for number, seed in enumerate(["one", "one", "two"])
    ]
    uuids = [state.gpus[0].uuid for state in made]
    serials = [state.gpus[0].serial for state in made]

    assert uuids[0] == uuids[1] != uuids[2]
    assert serials[0] == serials[1] != serials[2]
    assert made[0].dmi_serial == made[1].dmi_serial != made[2].dmi_serial
    assert made[0].boot_id != made[1].boot_id
    assert len(serials[0]) == 13


def test_a_folder_that_holds_a_machine_is_not_overwritten(node: Hardware) -> None:
    before = node.boot_id
    with pytest.raises(HardwareError, match="holds a machine already"):
        Hardware.create(machine.load("g6.xlarge"), node.root, "seed")
    assert node.boot_id == before


def test_a_boot_begins_the_kernel_log_and_a_reboot_begins_it_again(node: Hardware, clock: Clock) -> None:
    clock.now += 5
    node.write_kernel("NVRM: something", Level.ERROR)
    node.write_kernel("from a program", Level.INFO, Facility.USER)
    before, first = node.boot_id, records(node)
    assert first[0].startswith("5,0,0,-;Linux version")
    assert first[-2:] == [
        f"3,{len(first) - 2},5000000,-;NVRM: something",
        f"14,{len(first) - 1},5000000,-;from a program",
    ]

    clock.now += 60
    after = node.reboot()

    assert after == node.boot_id != before
    assert read(node, "proc/sys/kernel/random/boot_id") == after
    assert records(node)[0].startswith("5,0,0,-;Linux version")
    assert "NVRM: something" not in node.kernel_log.read_text(encoding="ascii")
    assert node.state.booted_at == clock.now


def test_a_reboot_ends_what_is_volatile_and_keeps_what_is_lasting(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.driver.init_error = 18
        state.gpus[0].volatile.lost = True
        state.gpus[1].volatile.ecc_uncorrected = 1
        state.gpus[1].lasting.ecc_uncorrected = 1
        state.gpus[1].lasting.rows_failed = True
        state.missing_nics.add("rdmap201s0")

    node.reboot()

    assert ask(
        node,
        "sorted(d)",
        "p.nvmlDeviceGetTotalEccErrors(d[1], 1, 0)",
        "p.nvmlDeviceGetTotalEccErrors(d[1], 1, 1)",
        "p.nvmlDeviceGetRemappedRows(d[1])",
    ) == [list(range(8)), 0, 1, [0, 0, 0, 1]]
    assert len(list((node.root / "sys/class/infiniband").iterdir())) == 2


def test_replaced_hardware_is_other_hardware_without_faults(node: Hardware, ask: Ask) -> None:
    with node.update() as state:
        state.gpus[0].lasting.rows_failed = True
        state.missing_nics.add("rdmap201s0")
    before = node.state

    node.replace("other")

    after = node.state
    assert not {gpu.uuid for gpu in before.gpus} & {gpu.uuid for gpu in after.gpus}
    assert after.dmi_serial != before.dmi_serial
    assert after.boot_id != before.boot_id
    assert ask(node, "p.nvmlDeviceGetUUID(d[0])", "p.nvmlDeviceGetRemappedRows(d[0])") == [
        after.gpus[0].uuid,
        [0, 0, 0, 0],
    ]
    assert len(list((node.root / "sys/class/infiniband").iterdir())) == 3


def test_a_reset_heals_one_gpu_and_only_it(node: Hardware) -> None:
    with node.update() as state:
        for index in (0, 1):
            state.gpus[index].volatile.rows_pending = True
            state.gpus[index].volatile.ecc_uncorrected = 2
        state.gpus[0].lasting.rows_failed = True

    node.reset_gpu(0)

    state = node.state
    assert not state.gpus[0].volatile.rows_pending
    assert state.gpus[0].volatile.ecc_uncorrected == 0
    assert state.gpus[0].lasting.rows_failed
    assert state.gpus[1].volatile.rows_pending


def test_a_held_gpu_is_not_reset_until_its_holder_is_gone(node: Hardware) -> None:
    node.hold(0, os.getpid())
    with pytest.raises(GpuInUseError) as refused:
        node.reset_gpu(0)
    assert refused.value.pids == (os.getpid(),)

    node.release(os.getpid())
    node.reset_gpu(0)


def test_a_dead_process_holds_nothing(node: Hardware) -> None:
    with subprocess.Popen(["true"]) as gone:
        node.hold(0, gone.pid)
        gone.wait()
    node.reset_gpu(0)


def test_a_lost_gpu_cannot_be_reset(node: Hardware) -> None:
    with node.update() as state:
        state.gpus[0].volatile.lost = True
    with pytest.raises(HardwareError, match="reboot the node"):
        node.reset_gpu(0)


def test_a_change_that_fails_half_way_changes_nothing(node: Hardware) -> None:
    def change() -> None:
        with node.update() as state:
            state.gpus[0].volatile.lost = True
            raise KeyError

    with pytest.raises(KeyError):
        change()
    assert not node.state.gpus[0].volatile.lost
