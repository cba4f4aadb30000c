"""What a pod of the lab finds around it: its variables, its service account, its devices, its node's host tree."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fleetwell.kube.bodies import BoundTo
from fleetwell.kube.client import Client
from fleetwell.kube.objects import Container, Pod
from fleetwell.lab.controlplane import ControlPlane
from fleetwell.lab.hardware import Hardware
from fleetwell.lab.pki import write_secret

TOKEN_SECONDS = 3600
HOST_ROOT_VARIABLE = "FLEETWELL_HOST_ROOT"
TERMINATION_VARIABLE = "FLEETWELL_TERMINATION_LOG"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_MAP_KEY = re.compile(r"metadata\.(labels|annotations)\['(?P<key>[^']+)'\]")


def variables(
    pod: Pod, container: Container, *, address: str, hardware: Hardware, devices: tuple[str, ...], folder: Path
) -> dict[str, str]:
    """Give a container's environment: what every process of the lab needs, then what its spec says."""
    programs = Path(sys.executable).parent
    env = {
        "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "HOSTNAME": pod.spec.hostname or pod.metadata.name,
        HOST_ROOT_VARIABLE: str(hardware.root),
        TERMINATION_VARIABLE: str(folder / f"{container.name}.termination"),
        # "void" is what the NVIDIA runtime reads as: no device for this container.
        "NVIDIA_VISIBLE_DEVICES": ",".join(devices) or "void",
        **hardware.environment(),
    }
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    if (folder / "kubeconfig").exists():
        env["KUBECONFIG"] = str(folder / "kubeconfig")
    for variable in container.env:
        source = variable.value_from
        if source is None:
            env[variable.name] = expand(variable.value, env)
        elif source.field_ref is not None:
            env[variable.name] = field(pod, source.field_ref.field_path, address)
    return env


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


async def write_service_account(client: Client, pod: Pod, plane: ControlPlane, folder: Path) -> None:
    """Write a token of the pod's service account, bound to the pod and so to its node, and a kubeconfig that reads it.

    In a cluster these are three files below /var/run/secrets; a process of the lab has no mounts of its own.
    """
    token = await client.create_token(
        pod.spec.service_account_name,
        pod.metadata.namespace,
        bound_to=BoundTo("Pod", pod.metadata.name, pod.metadata.uid),
        expiration_seconds=TOKEN_SECONDS,
    )
    new = write_secret(folder / "token.new", token.encode())
    new.replace(folder / "token")
    kubeconfig: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "lab",
                "cluster": {"server": plane.url, "certificate-authority": str(plane.certificate_authority)},
            }
        ],
        "users": [{"name": "pod", "user": {"tokenFile": str(folder / "token")}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "lab", "user": "pod", "namespace": pod.metadata.namespace}}
        ],
        "current-context": "lab",
    }
    # JSON is YAML, and this file is for programs.
    write_secret(folder / "kubeconfig", msgspec.json.encode(kubeconfig))
