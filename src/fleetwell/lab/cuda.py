"""The lab's stand-in for CUDA's view of a GPU.

Training in the lab computes on the CPU, and this is where its rank learns what a rank on a GPU would learn from its
next kernel launch.
Nothing happens outside the lab (``FLEETWELL_NVML_STATE`` is not set), so a training script may call it always.
"""

import os
import time
from pathlib import Path

# When this process began, as near as this module can tell: some errors only hit those who were there.
_started = time.time()
_TEXTS = {
    214: "uncorrectable ECC error encountered",
    719: "unspecified launch failure",
}
_HINT = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)

_seen: tuple[int, int, int] | None = None
_errors: dict[str, tuple[int, float | None]] = {}
_indexes: dict[str, str] = {}


def _forked() -> None:
    global _started  # noqa: PLW0603  # a fact about the process, and there is one process
    _started = time.time()


os.register_at_fork(after_in_child=_forked)


def synchronize(uuid: str | None = None) -> None:
    """Raise RuntimeError as ``torch.cuda.synchronize`` would, when this process's GPU can no longer compute.

    ``uuid`` is the GPU; without it, the LOCAL_RANK-th of NVIDIA_VISIBLE_DEVICES (UUIDs or indexes). One stat when
    nothing has changed since the last call.
    """
    state = os.environ.get("FLEETWELL_NVML_STATE")
    if not state:
        return
    _refresh(Path(state))
    device = uuid or _own_device()
    code, before = _errors.get(device, (0, None)) if device else (0, None)
    if code and (before is None or before > _started):
        message = f"CUDA error: {_TEXTS.get(code, 'unknown error')}\n{_HINT}"
        raise RuntimeError(message)


def _own_device() -> str | None:
    visible = [name for name in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if name]
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if rank >= len(visible):
        return None  # a process without a GPU of its own
    return _indexes.get(visible[rank], visible[rank])


def _refresh(path: Path) -> None:
    global _seen, _errors, _indexes  # a cache of the one state file that this process has
    status = path.stat()
    now = (status.st_ino, status.st_mtime_ns, status.st_size)
    if now == _seen:
        return
    errors: dict[str, tuple[int, float | None]] = {}
    indexes: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split(" ")
        if words[0] != "device":
            continue
        if words[2] == "uuid":
            indexes[words[1]] = words[3]
        elif words[2] == "cuda-error":
            errors[indexes[words[1]]] = (int(words[3]), None if words[4] == "-" else float(words[4]))
    _seen, _errors, _indexes = now, errors, indexes
