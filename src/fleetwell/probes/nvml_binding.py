"""NVIDIA's binding of NVML, imported at two thirds of its cost, and what its errors mean to a question.

``pynvml`` imports ``ctypes.util``, and with it ``subprocess``, ``tempfile`` and ``shutil``, for a function that it
never calls: 13 of the 45 ms of CPU that it takes to import, paid again in every child. An empty stand-in is in its
place while pynvml is imported.
"""

from __future__ import annotations

import sys
import types
from typing import Any

_NEEDLESS = "ctypes.util"

if _NEEDLESS in sys.modules:
    import pynvml
else:
    stand_in = types.ModuleType(_NEEDLESS)
    stand_in.__dict__["find_library"] = None
    sys.modules[_NEEDLESS] = stand_in
    try:
        import pynvml
    finally:
        del sys.modules[_NEEDLESS]

__all__ = ["pynvml"]  # What else is here needs no word: it is not imported from elsewhere.

CANNOT_SAY = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NO_PERMISSION,
    }
)
"""This model, or this driver, does not answer the question: blind, never well."""
GONE = {pynvml.NVML_ERROR_GPU_IS_LOST: "GpuLost", pynvml.NVML_ERROR_RESET_REQUIRED: "GpuResetRequired"}
"""The GPU answers nothing any more, and as what that is told."""


class Gpu:
    """A GPU that gave a handle.

    :param handle: a pointer of the binding, which has no types.
    """

    def __init__(self, uuid: str, name: str, handle: Any) -> None:
        self.uuid = uuid
        self.name = name
        self.handle = handle

    @property
    def component(self) -> str:
        """What findings call it."""
        return f"gpu/{self.uuid}"


def field_values(gpu: Gpu, fields: list[int] | list[tuple[int, int]]) -> list[int | None]:
    """Read numbered fields in one call.

    :param fields: numbers, or numbers with the link that is meant.
    :returns: one number each; None where this model or driver does not have it.
    :raises pynvml.NVMLError: the call failed, or a field for another reason than that.
    """
    found: list[int | None] = []
    for field in pynvml.nvmlDeviceGetFieldValues(gpu.handle, fields):
        code = int(field.nvmlReturn)
        if code == pynvml.NVML_SUCCESS:
            wide = field.valueType in {pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG}
            found.append(int(field.value.ullVal if wide else field.value.uiVal))
        elif code in CANNOT_SAY or code in {pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_FOUND}:
            found.append(None)
        else:
            raise pynvml.NVMLError(code)
    return found
