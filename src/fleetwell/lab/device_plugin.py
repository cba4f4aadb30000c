"""The lab's GPU device plugin: asks NVML which GPUs there are and offers them to the kubelet.

Like the real one it loads NVML in its own process, so it hangs when NVML hangs, and offers what it saw last.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pynvml

from fleetwell.lab.devices import Device, Offer, write_offer
from fleetwell.lab.hardware import ROOT_VARIABLE
from fleetwell.lab.site import NodeSite

PERIOD_SECONDS = 2.0


def offer() -> list[Device]:
    """List the GPUs that NVML gives a handle for; one that is lost is offered as unhealthy while it is counted."""
    pynvml.nvmlInit()
    try:
        return [_device(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _device(index: int) -> Device:
    try:
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError:
        return Device(f"lost-{index}", healthy=False)
    return Device(uuid if isinstance(uuid, str) else uuid.decode(), healthy=True)


def main() -> None:
    """Offer devices for as long as the pod lives."""
    path = NodeSite(Path(os.environ[ROOT_VARIABLE]).parent).devices
    last: list[Device] | None = None
    while True:
        try:
            devices = offer()
        except pynvml.NVMLError as error:
            print(f"NVML does not answer, offering no device: {error}", flush=True)  # noqa: T201  # a pod's log
            devices = []
        if devices != last:
            write_offer(path, Offer(os.getpid(), devices))
            print(f"offering {sum(device.healthy for device in devices)} devices", flush=True)  # noqa: T201
            last = devices
        time.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    main()
