"""GPUs that answer NVML's questions as a test says, without a library: an H100 that is well unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetwell.probes.nvml_binding import Gpu, pynvml
from fleetwell.probes.nvml_questions import Round
from fleetwell.probes.nvml_samples import Samples
from fleetwell.probes.report import Report

NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
NO_SUCH_FUNCTION = pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
UNKNOWN_ERROR = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
LINKS = 18
_WELL: Mapping[str, Any] = {
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
    "nvmlDeviceGetRetiredPages": NOT_SUPPORTED,
    "nvmlDeviceGetRetiredPagesPendingStatus": NOT_SUPPORTED,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetMarginTemperature": 40,
    "nvmlDeviceGetCurrentClocksEventReasons": 1,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetPcieReplayCounter": 0,
}


class FakeGpu:
    """One GPU's answers: ``said`` by NVML's function, an exception is raised."""

    def __init__(self, uuid: str, name: str = "NVIDIA H100 80GB HBM3") -> None:
        self.gpu = Gpu(uuid, name, self)
        self.said: dict[str, Any] = dict(_WELL)
        self.ecc = {"corrected": 0, "uncorrected": 0, "lifetime": 0}
        self.sram = 0
        self.fabric: dict[str, int] = {"state": 3, "status": 0, "healthMask": 0x1AA, "healthSummary": 1}
        self.fabric_error: pynvml.NVMLError | None = None
        self.load = 0
        self.links = dict.fromkeys(range(LINKS), True)
        self.fields: dict[int, int] = {230: 0, 226: 0, 227: 0}
        self.link_fields: dict[tuple[int, int], int] = {(n, at): 0 for n in (161, 162, 163) for at in range(LINKS)}

    def ask(self, name: str, *arguments: Any) -> Any:
        value = self.said[name] if name in self.said else getattr(self, f"_{name}")(*arguments)
        if isinstance(value, pynvml.NVMLError):
            raise value
        return value

    def _nvmlDeviceGetUtilizationRates(self) -> Any:  # noqa: N802 (NVML's name)
        return SimpleNamespace(gpu=self.load)

    def _nvmlDeviceGetTotalEccErrors(self, kind: int, since: int) -> Any:  # noqa: N802
        if since == pynvml.NVML_AGGREGATE_ECC:
            return self.ecc["lifetime"]
        return self.ecc["uncorrected" if kind == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else "corrected"]

    def _nvmlDeviceGetSramEccErrorStatus(self, status: Any) -> None:  # noqa: N802
        status._obj.bThresholdExceeded = self.sram

    def _nvmlDeviceGetGpuFabricInfoV(self, info: Any) -> None:  # noqa: N802
        if self.fabric_error is not None:
            raise self.fabric_error
        for name, value in self.fabric.items():
            setattr(info._obj, name, value)

    def _nvmlDeviceGetGpuFabricInfo(self, _info: Any) -> None:  # noqa: N802
        raise NOT_SUPPORTED

    def _nvmlDeviceGetNvLinkState(self, link: int) -> Any:  # noqa: N802
        return self.links.get(link, pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT))

    def _nvmlDeviceGetFieldValues(self, wanted: list[Any]) -> list[Any]:  # noqa: N802
        found = [self.link_fields.get(one) if isinstance(one, tuple) else self.fields.get(one) for one in wanted]
        return [
            SimpleNamespace(
                nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else 0,
                valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
                value=SimpleNamespace(ullVal=value, uiVal=value),
            )
            for value in found
        ]


class Machine:
    """Several of them, and what their child remembers."""

    def __init__(self, folder: Path, count: int, name: str = "NVIDIA H100 80GB HBM3") -> None:
        self.gpus = [FakeGpu(f"GPU-{number}", name) for number in range(count)]
        self.boot = "boot-1"
        self.now = 1000.0
        self._path = folder / "nvml.json"

    def look(self, later: float = 20.0) -> Report:
        """Look once, so many seconds after the look before."""
        self.now += later
        seen = Report("nvml")
        Round(seen, [one.gpu for one in self.gpus], Samples(self._path, "serial", self.boot, self.now)).judge()
        return seen


def bind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the binding ask these GPUs."""
    own = [name.removeprefix("_") for name in vars(FakeGpu) if name.startswith("_nvml")]
    for name in (*_WELL, *own):
        monkeypatch.setattr(
            pynvml, name, lambda handle, *arguments, asked=name: handle.ask(asked, *arguments), raising=True
        )
