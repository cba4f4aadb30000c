from pathlib import Path

import pytest

from fleetwell.lab import machine
from fleetwell.lab.machine import Architecture, MachineError


@pytest.mark.parametrize(
    ("name", "gpus", "model", "efa", "links"),
    [
        ("p5.48xlarge", 8, "NVIDIA H100 80GB HBM3", 32, 18),
        ("p6-b200.48xlarge", 8, "NVIDIA B200", 8, 18),
        ("g6e.24xlarge", 4, "NVIDIA L40S", 2, 0),
        ("g6.xlarge", 1, "NVIDIA L4", 0, 0),
    ],
)
def test_a_machine_of_the_lab_has_what_its_instance_type_has(
    name: str, gpus: int, model: str, efa: int, links: int
) -> None:
    described = machine.load(name)

    assert described.instance_type == name
    assert (described.gpu.count, described.gpu.name, described.gpu.nvlinks) == (gpus, model, links)
    assert described.efa_count == efa


def test_every_description_that_comes_with_the_lab_can_be_read() -> None:
    assert {machine.load(name).instance_type for name in machine.names()} == set(machine.names())


def test_b200_lists_two_mlx5_devices_beside_its_efa() -> None:
    others = [nic for nic in machine.load("p6-b200.48xlarge").nics if nic.driver != "efa"]

    assert [(nic.name, nic.vendor_id) for nic in others] == [("ibp203s0", 0x15B3), ("ibp204s0", 0x15B3)]


def test_an_interface_is_named_by_its_bus() -> None:
    assert machine.load("p5.48xlarge").nics[0].name == "rdmap79s0"
    assert machine.load("p5.48xlarge").gpu.architecture is Architecture.HOPPER


def test_an_unknown_type_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(MachineError, match=r"no machine description .*nothing\.toml(?s:.*)g6\.xlarge"):
        machine.load("nothing")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("0000:31:00.0", "31:00", "not PCI addresses"),
        ("nvlinks = 0", "nvlinks = 99", "99 NVLinks"),
        ("mig = false", "migg = false", "mig"),
        ('["0000:31:00.0"]', '["0000:32:00.0", "0000:31:00.0"]', "bus order"),
        ('["0000:31:00.0"]', '["0000:31:00.0", "0000:31:00.0"]', "given twice"),
        ('["0000:31:00.0"]', "[]", "0 GPUs"),
    ],
)
def test_a_description_that_no_machine_can_be_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    text = (Path(machine.__file__).with_name("machines") / "g6.xlarge.toml").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace(old, new), encoding="utf-8")

    with pytest.raises(MachineError, match=complaint):
        machine.load(wrong)
