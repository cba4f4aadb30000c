"""The kernel's first lines of a boot, as far as somebody who looks for GPUs and RDMA interfaces could care."""

from collections.abc import Iterator

from fleetwell.lab.kernel_log import Facility, Level, Line
from fleetwell.lab.nvml_state import NodeState


def lines(state: NodeState) -> Iterator[Line]:
    """Yield the boot's lines in order, for the devices that are there."""
    machine = state.machine
    yield Line("Linux version 6.1.141-155.222.amzn2023.x86_64 (lab) #1 SMP PREEMPT_DYNAMIC", Level.NOTICE)
    yield Line("Command line: BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p1 ro console=ttyS0", Level.INFO)
    yield Line(f"DMI: {machine.dmi_vendor} {machine.instance_type}/, BIOS 1.0 10/16/2017", Level.INFO)
    for index, gpu in enumerate(state.gpus):
        if not gpu.lasting.absent:
            address = machine.gpu.pci[index]
            tags = {"SUBSYSTEM": "pci", "DEVICE": f"+pci:{address}"}
            text = f"pci {address}: [10de:{machine.gpu.device_id:04x}] type 00 class 0x030200"
            yield Line(text, Level.INFO, tags=tags)
    yield Line("systemd[1]: Detected virtualization amazon.", Level.INFO, Facility.DAEMON)
    yield Line("nvidia: loading out-of-tree module taints kernel.", Level.WARNING)
    version = machine.driver_version
    yield Line(f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build", Level.WARNING)
    for nic in machine.nics:
        if nic.name not in state.missing_nics and nic.driver == "efa":
            yield Line(
                f"efa {nic.pci}: Setup irq:{64 + int(nic.pci[5:7], 16)} name:efa-mgmnt@pci:{nic.pci}", Level.INFO
            )
            yield Line(f"infiniband {nic.name}: IB device registered", Level.INFO)
