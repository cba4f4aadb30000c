"""What runs in the lab's cluster, as manifests: device plugin, agent, a policy, a training job.

A pod of the lab is a local process, so its command is this very Python and its paths are paths of this machine; in
everything else these are the manifests of a real cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleetwell.kube.resource import Raw
from fleetwell.lab.site import DEVICE_RESOURCE, NAMESPACE, POOL, Site

IMAGE = "fleetwell/lab"
_EVERYTHING = [{"operator": "Exists"}]
_NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
_HOST_IP = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
_POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
METRICS_ADDRESS = "$(POD_IP):$(KUBERNETES_SERVICE_PORT)"
"""Each node has a loopback address; the API server's port, which it has on another one, tells labs apart."""

_REPORTS: list[Raw] = [
    _HOST_IP,
    {"name": "FLEETWELL_REPORT_URL", "value": "http://$(HOST_IP):$(KUBERNETES_SERVICE_PORT)"},
    # In a cluster the token is mounted where a job looks for it by itself; the lab's kubelet cannot mount.
    {"name": "FLEETWELL_REPORT_TOKEN_FILE", "value": "$(FLEETWELL_LAB_VOLUMES)/fleetwell/token"},
]
_REPORT_TOKEN = {
    "name": "fleetwell",
    "projected": {
        "sources": [
            {
                "serviceAccountToken": {
                    "path": "token",
                    "audience": "fleetwell.io/job-reports",
                    "expirationSeconds": 3600,
                }
            }
        ]
    },
}
"""What lets a job report a worker's death to its node's agent, as in docs/job-reports.md."""

AGENT_ARGUMENTS = (
    *("--nvml-interval", "5s", "--nvml-deadline", "5s", "--sysfs-interval", "10s"),
    *("--boot-grace", "5s", "--heartbeat", "10s"),
)
"""Shorter than an agent's defaults: a virtual machine boots in seconds, and its owner is watching."""

CONTROLLER_ARGUMENTS = (
    *("--agent-stale-after", "45s"),
    *("--replacement-kind", "lab.fleetwell.io/v1/MachineReplacement"),
)


def device_plugin() -> Raw:
    """Give the DaemonSet of the GPU device plugin."""
    return _daemonset("nvidia-device-plugin", "kube-system", [sys.executable, "-m", "fleetwell.lab.device_plugin"])


def agent(site: Site, arguments: tuple[str, ...] = ()) -> Raw:
    """Give the DaemonSet of fleetwell's agent; it runs on every node, whatever taint that has."""
    reboot = f"{sys.executable} -m fleetwell.lab.power {site.root} $(NODE_NAME)"
    command = [
        sys.executable,
        *("-m", "fleetwell", "agent"),
        *("--node-name", "$(NODE_NAME)"),
        *("--host-root", "$(FLEETWELL_HOST_ROOT)"),
        *("--state-dir", "$(FLEETWELL_HOST_ROOT)/var/lib/fleetwell"),
        *("--metrics-address", METRICS_ADDRESS),
        *("--reboot-command", reboot),
        *("--maintenance", "off"),  # Else the metadata server of the machine on which the lab runs would be asked.
        *AGENT_ARGUMENTS,
        *arguments,
    ]
    return _daemonset("fleetwell-agent", NAMESPACE, command, account="fleetwell-agent")


def replacement_rights() -> list[Raw]:
    """Give the controller's rights on the one kind that it may create to have a machine replaced."""
    name = "fleetwell-controller-replacements"
    rule = {
        "apiGroups": ["lab.fleetwell.io"],
        "resources": ["machinereplacements"],
        "verbs": ["get", "list", "watch", "create"],
    }
    kinds = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    account = {"kind": "ServiceAccount", "name": "fleetwell-controller", "namespace": NAMESPACE}
    return [
        {**kinds, "kind": "ClusterRole", "rules": [rule]},
        {**kinds, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]},
    ]


def _daemonset(name: str, namespace: str, command: list[str], account: str = "") -> Raw:
    labels = {"app.kubernetes.io/name": name}
    spec: Raw = {
        "containers": [{"name": name, "image": IMAGE, "command": command, "env": [_NODE_NAME, _POD_IP]}],
        "tolerations": _EVERYTHING,
        "terminationGracePeriodSeconds": 5,
    }
    if account:
        spec |= {"serviceAccountName": account, "priorityClassName": "system-node-critical"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "updateStrategy": {"type": "RollingUpdate"},
        },
    }


def policy(*, mode: str = "Enforce", hang_tolerated: str = "10s") -> Raw:
    """Give the lab's policy: as one would write it for a pool of training nodes, with times for a live demo."""
    reboot, replace = {"remedy": "reboot", "deadline": "3m"}, {"remedy": "replace", "deadline": "3m"}
    drain = {"after": "0s", "deadline": "2m", "onDeadline": "Proceed"}
    return {
        "apiVersion": "fleetwell.io/v1alpha1",
        "kind": "RemediationPolicy",
        "metadata": {"name": "training"},
        "spec": {
            "selector": {"matchLabels": {"fleetwell.io/pool": POOL}},
            "mode": mode,
            "rules": [
                {
                    "name": "broken-memory",
                    "faults": ["GpuRowRemapFailed"],
                    "drain": drain,
                    "ladder": [replace],
                },
                {
                    "name": "no-answer",
                    "faults": ["Probe*", "AgentSilent"],
                    "tolerate": hang_tolerated,
                    "drain": drain,
                    "ladder": [reboot, replace],
                },
                {"name": "everything-else", "faults": ["*"], "drain": drain, "ladder": [reboot, replace]},
            ],
            "budget": {"maxUnavailablePercent": 20},
            "pace": {"maxConcurrent": 1},
            "release": {"quiet": "5s", "settleDeadline": "2m"},
            "proof": {"level": "quick", "deadline": "1m"},
            "replacement": {
                "provider": "template",
                "template": {"apiVersion": "lab.fleetwell.io/v1", "kind": "MachineReplacement"},
                "capacityDeadline": "2m",
            },
        },
    }


def serving() -> Raw:
    """Give a Deployment of somebody else's, which has all GPUs of one node and does not mind where it runs."""
    labels = {"app": "serving"}
    container = {
        "name": "serve",
        "image": IMAGE,
        "command": ["sleep", "infinity"],
        "resources": {"limits": {DEVICE_RESOURCE: "8"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serving", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 2},
            },
        },
    }


def training_job(
    name: str, script: Path, run_dir: Path, endpoint: str, *, nodes: int, ranks_per_node: int, arguments: list[str]
) -> Raw:
    """Give a data-parallel training job: one pod a node under ``fleetwell run``, as an Indexed Job.

    A pod that an eviction takes counts as no failure; each pod asks for all GPUs of a node, so two never share one.
    """
    command = [
        sys.executable,
        *("-m", "fleetwell", "run"),
        *("--nnodes", str(nodes), "--nproc-per-node", str(ranks_per_node)),
        *("--rdzv-endpoint", endpoint, "--run-dir", str(run_dir), "--max-restarts", "20"),
        str(script),
        *arguments,
    ]
    container = {
        "name": "train",
        "image": IMAGE,
        "command": command,
        "env": [_NODE_NAME, {"name": "OMP_NUM_THREADS", "value": "1"}, *_REPORTS],
        "volumeMounts": [{"name": "fleetwell", "mountPath": "/var/run/secrets/fleetwell.io", "readOnly": True}],
        "resources": {"limits": {DEVICE_RESOURCE: "8"}},
    }
    ignored = {"type": "DisruptionTarget", "status": "True"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 6,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [ignored]}]},
            "template": {
                "metadata": {"labels": {"job": name}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 30,
                    "containers": [container],
                    "volumes": [_REPORT_TOKEN],
                },
            },
        },
    }
