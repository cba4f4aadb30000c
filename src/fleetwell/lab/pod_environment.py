"""What a pod of the lab finds around it: its variables, its service account, its devices, its node's host tree."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from fleetwell.kube.config import SERVICE_ACCOUNT_VARIABLE
from fleetwell.kube.objects import Container, Pod
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.pod_tokens import ACCOUNT, VOLUMES

HOST_ROOT_VARIABLE = "FLEETWELL_HOST_ROOT"
VOLUMES_VARIABLE = "FLEETWELL_LAB_VOLUMES"
TERMINATION_VARIABLE = "FLEETWELL_TERMINATION_LOG"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_MAP_KEY = re.compile(r"metadata\.(labels|annotations)\['(?P<key>[^']+)'\]")


def variables(
    pod: Pod,
    container: Container,
    *,
    address: str,
    hardware: Hardware,
    devices: tuple[str, ...],
    folder: Path,
    api_server: str,
) -> dict[str, str]:
    """Give a container's environment: what every process of the lab needs, then what its spec says."""
    programs = Path(sys.executable).parent
    server = urlsplit(api_server)
    env = {
        "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "HOSTNAME": pod.spec.hostname or pod.metadata.name,
        HOST_ROOT_VARIABLE: str(hardware.root),
        TERMINATION_VARIABLE: str(_message(hardware, pod, container)),
        VOLUMES_VARIABLE: str(folder / VOLUMES),
        "KUBERNETES_SERVICE_HOST": server.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(server.port),
        # "void" is what the NVIDIA runtime reads as: no device for this container.
        "NVIDIA_VISIBLE_DEVICES": ",".join(devices) or "void",
        **hardware.environment(),
    }
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    if (folder / ACCOUNT).is_dir():
        env[SERVICE_ACCOUNT_VARIABLE] = str(folder / ACCOUNT)
    for variable in container.env:
        source = variable.value_from
        if source is None:
            env[variable.name] = expand(variable.value, env)
        elif source.field_ref is not None:
            env[variable.name] = field(pod, source.field_ref.field_path, address)
    return env


def kubelets_folder(hardware: Hardware, pod: Pod) -> Path:
    """Give where the kubelet keeps what it has of a pod, on its node: the termination messages."""
    return hardware.root / "var/lib/kubelet/pods" / pod.metadata.uid


def _message(hardware: Hardware, pod: Pod, container: Container) -> Path:
    """Give where one run of a container may write why it ends; each run has a file of its own."""
    return kubelets_folder(hardware, pod) / "containers" / container.name / secrets.token_hex(4)


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as Kubernetes does: an unknown name stays as it is, ``$$`` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match.group(0) == "$$" else env.get(match.group(1), match.group(0))

    return _REFERENCE.sub(value, text)


def field(pod: Pod, path: str, address: str) -> str:
    """Read a downward-API field of a pod."""
    if match := _MAP_KEY.fullmatch(path):
        values = pod.metadata.labels if match.group(1) == "labels" else pod.metadata.annotations
        return values.get(match.group("key"), "")
    known = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": address,
        "status.hostIP": address,
    }
    if path not in known:
        message = f"the lab's kubelet knows no field {path!r}; it knows {', '.join(known)}, labels and annotations"
        raise ValueError(message)
    return known[path]
