"""The flags of the four programs, and why they differ from what a cluster would use.

The lab shares two cores with agents, training ranks and the tests, so what only costs there is off: fsync (nothing in
a lab must survive a power cut), periodic metrics of the store, loops for clouds, volumes and autoscaling, and the
HTTPS servers of the scheduler and of the controller manager, which nobody asks.
"""

from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"
# The first address of the range is the `kubernetes` Service; the serving certificate names it.
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"

# 40 s upstream. A demo should not wait a minute to see NotReady; twice the kubelet's own 10 s between renewals.
_NODE_GRACE = "20s"
_NODE_PERIOD = "2s"

_CONTROLLERS_OFF = (
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "horizontal-pod-autoscaler-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "node-ipam-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "podcertificaterequest-cleaner-controller",
    "storage-version-migrator-controller",
    "token-cleaner-controller",
    "volumeattributesclass-protection-controller",
)


@dataclass(frozen=True)
class Files:
    """Where a lab keeps what the programs read."""

    root: Path

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        """The store's data."""
        return self.root / "etcd"

    def certificate(self, name: str) -> Path:
        """One certificate."""
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Its private key."""
        return self.pki / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of one user."""
        return self.root / f"{name}.kubeconfig"

    @property
    def audit_policy(self) -> Path:
        """What the API server notes of requests; without this file it notes nothing."""
        return self.root / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """Its notes, one ``audit.k8s.io/v1`` Event a line."""
        return self.root / "logs" / "audit.log"


def etcd(files: Files, port: int) -> list[str]:
    """Return etcd's flags. Its peer port is any free one, for there are no peers."""
    return [
        "--name=lab",
        f"--data-dir={files.etcd}",
        f"--listen-client-urls=http://{LOOPBACK}:{port}",
        f"--advertise-client-urls=http://{LOOPBACK}:{port}",
        f"--listen-peer-urls=http://{LOOPBACK}:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
        # A single member holds an election with itself only; its ticks are all that these set.
        "--heartbeat-interval=500",
        "--election-timeout=5000",
    ]


def apiserver(files: Files, port: int, etcd_port: int) -> list[str]:
    """Return the API server's flags."""
    audit = [f"--audit-policy-file={files.audit_policy}", f"--audit-log-path={files.audit_log}"]
    return [
        *(audit if files.audit_policy.exists() else ()),
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        "--etcd-count-metric-poll-period=0",
        "--etcd-db-metric-poll-interval=0",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={files.certificate('apiserver')}",
        f"--tls-private-key-file={files.key('apiserver')}",
        f"--client-ca-file={files.certificate('ca')}",
        # Without both authorities the others look for a ConfigMap that is never made.
        f"--requestheader-client-ca-file={files.certificate('front-proxy-ca')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files.certificate('front-proxy-client')}",
        f"--proxy-client-key-file={files.key('front-proxy-client')}",
        f"--kubelet-client-certificate={files.certificate('apiserver-kubelet-client')}",
        f"--kubelet-client-key={files.key('apiserver-kubelet-client')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-signing-key-file={files.key('service-account')}",
        f"--service-account-key-file={files.pki / 'service-account.pub'}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        # A loopback address is refused as an endpoint of the `kubernetes` Service, every ten seconds anew.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
    ]


def scheduler(files: Files) -> list[str]:
    """Return the scheduler's flags."""
    return [*_client(files, "kube-scheduler"), "--kube-api-qps=100", "--kube-api-burst=200"]


def controller_manager(files: Files) -> list[str]:
    """Return the controller manager's flags."""
    return [
        *_client(files, "kube-controller-manager"),
        "--kube-api-qps=100",
        "--kube-api-burst=200",
        f"--service-account-private-key-file={files.key('service-account')}",
        f"--root-ca-file={files.certificate('ca')}",
        "--use-service-account-credentials=true",
        f"--node-monitor-period={_NODE_PERIOD}",
        f"--node-monitor-grace-period={_NODE_GRACE}",
        f"--controllers=*,{','.join(f'-{name}' for name in _CONTROLLERS_OFF)}",
    ]


def _client(files: Files, name: str) -> list[str]:
    return [f"--kubeconfig={files.kubeconfig(name)}", "--leader-elect=false", "--secure-port=0", "--profiling=false"]
