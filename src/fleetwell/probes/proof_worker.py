"""A worker of the proof: ``python -m fleetwell.probes.proof_worker SETTINGS``, one stage on one device or on all.

It prints what it finds as it goes, one JSON object a line. Stages: ``driver`` asks NVML, ``device`` tests one device,
``links`` copies between all, ``collective`` is one rank of an all-reduce.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fleetwell.probes import driver, proof_compute, proof_cpu, proof_links, proof_memory, report
from fleetwell.probes.proof_device import CannotTellError, Device, DeviceFailedError, Links
from fleetwell.probes.proof_rows import Gpu, Row, Tell, Told, line, observed
from fleetwell.probes.proof_thresholds import CPU, thresholds
from fleetwell.probes.proof_time import Time

if TYPE_CHECKING:
    import torch

Guard = Callable[[], AbstractContextManager[None]]
UNUSABLE = "device"
"""Check that stands for all of a device's, where it could not be used at all."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker is told."""

    stage: str
    level: str
    host_root: str = "/"
    cpu: bool = False
    deadline: float = 300.0
    expected: int | None = None
    devices: tuple[Gpu, ...] = ()
    """The devices that this worker tests; the only ones that CUDA shows it, in this order."""
    rank: int = 0
    ranks: int = 1
    store: str = ""
    proof: int = 0
    """Process id of the proof, so that its other workers are not taken for somebody else's."""

    def encode(self) -> dict[str, object]:
        """Give it as :func:`fleetwell.probes.launch.module` takes it."""
        return dict(msgspec.to_builtins(self))


def component(gpu: Gpu) -> str:
    """Name a device; one without a UUID is the host's processor."""
    return f"gpu/{gpu.uuid}" if gpu.uuid else "host"


def main() -> None:
    """Run one stage."""
    given = msgspec.convert(report.settings(), Settings)
    {"driver": _driver, "device": _device, "links": _links, "collective": _collective}[given.stage](given, _tell)
    sys.stdout.flush()
    os._exit(0)


def _tell(told: Told) -> None:
    sys.stdout.write(line(told))
    sys.stdout.flush()


def attempt(check: str, on: str, found: Callable[[], Iterable[Told]], guard: Guard, tell: Tell) -> bool:
    """Carry out a check and tell what it finds; say whether the device can be tested further."""
    try:
        with guard():
            for told in found():
                tell(told)
    except CannotTellError as error:
        tell(Row(check, on, "UNKNOWN", str(error)))
    except DeviceFailedError as error:
        tell(Row(check, on, "BAD", str(error)))
        return False
    return True


def checks(device: Device, level_name: str, clock: Time, tell: Tell, guard: Guard) -> None:
    """Test one device."""
    limits = thresholds()
    level = limits.level(level_name, cpu=device.model == CPU)
    model = limits.model(device.model)

    def memory() -> Iterator[Told]:
        yield proof_memory.memory(device, level, limits.patterns, clock)

    def compute() -> Iterator[Told]:
        yield from proof_compute.compute(device, level, limits, clock)

    def host_link() -> Iterator[Told]:
        yield proof_links.host_link(device, level, model)

    wanted = [(proof_memory.CHECK, memory), (proof_compute.CHECK, compute)]
    if level.copy_mib:
        wanted.append((proof_links.HOST_LINK, host_link))
    for check, found in wanted:
        if not attempt(check, device.component, found, guard, tell):
            return


def _driver(given: Settings, tell: Tell) -> None:
    """Ask the driver what is there and what it complains of, and whether CUDA can be used at all."""
    try:
        from fleetwell.probes import nvml  # noqa: PLC0415 (a machine without the binding can still say so)
        from fleetwell.probes.nvml_samples import Samples  # noqa: PLC0415
    except ImportError as error:
        tell(Row("driver", "host", "UNKNOWN" if given.expected else "OK", f"NVML cannot be asked: {error}"))
        return
    host_root = Path(given.host_root)
    alone = Samples(None, "", "", time.clock_gettime(time.CLOCK_BOOTTIME))  # Rates are the agent's own looks' to judge.
    seen = json.loads(nvml.look(host_root, given.expected, {}, alone).encode())
    gpus = seen["inventory"]["gpus"]
    if seen["absent"]:
        tell(Row("driver", "host", "UNKNOWN" if given.expected else "OK", seen["absent"]))
    elif not seen["observations"]:
        tell(Row("driver", "host", "OK", f"{len(gpus)} GPUs answer and the driver has no complaint"))
    for one in seen["observations"]:
        tell(observed("driver", one))
    trouble = "" if given.cpu or not gpus else _no_cuda(host_root)
    if trouble:
        tell(Row(proof_compute.CHECK, "host", "UNKNOWN", f"{trouble}: nothing was computed"))
        return
    for gpu in gpus:
        tell(Gpu(uuid=gpu["uuid"], name=gpu["name"]))


def _no_cuda(host_root: Path) -> str:
    path = driver.cuda(host_root)
    if path is None:
        return f"no libcuda.so.1 in any driver root below {host_root}"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed here"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return f"{path} cannot be loaded ({error})"
    return ""


def _device(given: Settings, tell: Tell) -> None:
    clock = Time(given.deadline)
    gpu = given.devices[0]
    if given.cpu:
        checks(proof_cpu.CpuDevice(component(gpu)), given.level, clock, tell, contextlib.nullcontext)
        return
    try:
        (handle,) = _taken(given)
        (device,) = _cuda_devices(given)
    except CannotTellError as error:
        tell(Row(UNUSABLE, component(gpu), "UNKNOWN", str(error)))
        return
    from fleetwell.probes import proof_torch, proof_vitals  # noqa: PLC0415 (imports torch)

    tested = proof_torch.TorchDevice(device, component(gpu), gpu.name, lambda: proof_vitals.vitals(handle))
    checks(tested, given.level, clock, tell, proof_torch.failures)


def _taken(given: Settings) -> list[Any]:
    """Open NVML and make sure that nobody else uses the devices; give NVML's handles.

    :raises CannotTellError: somebody does, or it cannot be told.
    """
    from fleetwell.probes import proof_vitals  # noqa: PLC0415 (needs NVML's binding)
    from fleetwell.probes.nvml_binding import pynvml  # noqa: PLC0415

    limit = thresholds().limits.idle_memory_mib
    try:
        if not proof_vitals.opened(Path(given.host_root)):
            raise CannotTellError(f"no {driver.LIBRARY} in any driver root below {given.host_root}")
        handles = [proof_vitals.handle(gpu.uuid) for gpu in given.devices]
    except (OSError, pynvml.NVMLError) as error:
        raise CannotTellError(f"NVML cannot be asked who uses it: {error}") from error
    for gpu, handle in zip(given.devices, handles, strict=True):
        why = proof_vitals.why_not_yet(handle, limit, given.proof, Time(proof_vitals.PATIENCE))
        if why:
            raise CannotTellError(f"{component(gpu)}: {why}" if len(handles) > 1 else why)
    return handles


def _cuda_devices(given: Settings, *, own: int | None = None) -> list[torch.device]:
    """Load CUDA from the driver's root and open the devices, or the one of them that is this process's own.

    :raises CannotTellError: they cannot be opened.
    """
    path = driver.cuda(Path(given.host_root))
    if path is None:
        raise CannotTellError(f"no libcuda.so.1 in any driver root below {given.host_root}")
    try:
        # torch asks for libcuda.so.1 by name, and gets the one that is loaded already. By itself it would search the
        # image's own paths, where no runtime class has put the driver.
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CannotTellError(f"{path} cannot be loaded: {error}") from error
    import torch  # noqa: PLC0415 (takes seconds)

    from fleetwell.probes.proof_torch import failures  # noqa: PLC0415 (imports torch)

    with failures():
        shown = torch.cuda.device_count()
        if shown != len(given.devices):
            raise CannotTellError(f"CUDA shows {shown} of the {len(given.devices)} devices that it was asked for")
        devices = [torch.device("cuda", index) for index in (range(shown) if own is None else [own])]
        for device in devices:
            torch.zeros(1, device=device)
    return devices


def _links(given: Settings, tell: Tell) -> None:
    limits = thresholds()
    clock = Time(given.deadline)
    names = tuple(component(gpu) for gpu in given.devices)
    level = limits.level(given.level, cpu=given.cpu)
    links: Links
    guard: Guard = contextlib.nullcontext
    if given.cpu:
        links = proof_cpu.CpuLinks(names)
    else:
        try:
            _taken(given)
            devices = _cuda_devices(given)
        except CannotTellError as error:
            tell(Row(proof_links.PEER_LINKS, "host", "UNKNOWN", str(error)))
            return
        from fleetwell.probes import proof_torch  # noqa: PLC0415 (imports torch)

        links, guard = proof_torch.TorchLinks(tuple(devices), names, given.devices[0].name), proof_torch.failures
    model = limits.model(links.model)
    attempt(proof_links.PEER_LINKS, "host", lambda: proof_links.peer_links(links, level, model, clock), guard, tell)


def _collective(given: Settings, tell: Tell) -> None:
    on = component(given.devices[given.rank])
    own = msgspec.structs.replace(given, devices=(given.devices[given.rank],))
    if importlib.util.find_spec("torch") is None:
        tell(Row(proof_links.COLLECTIVE, on, "UNKNOWN", "torch is not installed here"))
        return
    try:
        if not given.cpu:
            _taken(own)
            _cuda_devices(given, own=given.rank)
    except CannotTellError as error:
        tell(Row(proof_links.COLLECTIVE, on, "UNKNOWN", str(error)))
        return
    import torch  # noqa: PLC0415 (takes seconds)

    from fleetwell.probes import proof_collective, proof_torch  # noqa: PLC0415 (import torch)

    device = torch.device("cpu") if given.cpu else torch.device("cuda", given.rank)
    model = CPU if given.cpu else own.devices[0].name
    rank = proof_collective.Rank(device, on, model, given.rank, given.ranks, Path(given.store))
    level = thresholds().level(given.level, cpu=given.cpu)

    def summed() -> Iterator[Told]:
        told: list[Told] = []
        rank.run(level, given.deadline, told.append)
        yield from told

    attempt(proof_links.COLLECTIVE, on, summed, proof_torch.failures, tell)


if __name__ == "__main__":
    main()
