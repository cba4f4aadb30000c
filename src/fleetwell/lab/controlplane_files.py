"""What the programs of one control plane read: its certificates, and a kubeconfig for each of its own clients."""

import msgspec

from fleetwell.lab.controlplane_flags import LOOPBACK, SERVICE_ADDRESS, Files
from fleetwell.lab.kubeconfig import write_kubeconfig
from fleetwell.lab.pki import Authority, KeyPair, signing_key, write_public, write_secret

_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
# Kubernetes knows its own components by these users (RBAC's default bindings).
_CLIENTS = {
    "admin": ("admin", ("system:masters",)),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
}

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        # How a pod is ended stands in the request's body: the grace, and which UID is meant.
        {"level": "Request", "verbs": ["delete", "deletecollection"], "resources": [{"resources": ["pods"]}]},
        {"level": "Request", "resources": [{"resources": ["pods/eviction"]}]},
        {"level": "Metadata"},
    ],
}


def write_audit_policy(files: Files) -> None:
    """Have the API server note every request that may change something, with its sender's credential."""
    files.audit_policy.parent.mkdir(parents=True, exist_ok=True)
    files.audit_policy.write_bytes(msgspec.json.encode(_AUDIT_POLICY))


def write_files(files: Files, url: str) -> None:
    """Make new authorities, certificates and kubeconfigs for a control plane at this address."""
    authority = Authority.create("lab-ca")
    authority.pair.write(files.pki, "ca")
    authority.issue_server("kube-apiserver", dns_names=_SERVER_NAMES, addresses=(LOOPBACK, SERVICE_ADDRESS)).write(
        files.pki, "apiserver"
    )
    authority.issue_client("apiserver-kubelet-client", ("system:masters",)).write(files.pki, "apiserver-kubelet-client")
    front = Authority.create("lab-front-proxy-ca")
    write_public(files.certificate("front-proxy-ca"), front.certificate)
    front.issue_client("front-proxy-client").write(files.pki, "front-proxy-client")
    signing = signing_key()
    write_secret(files.key("service-account"), signing.private)
    write_public(files.pki / "service-account.pub", signing.public)
    for name, (user, groups) in _CLIENTS.items():
        credentials = authority.issue_client(user, groups)
        write_kubeconfig(files.kubeconfig(name), url, authority.certificate, user, credentials)
        if name == "admin":
            credentials.write(files.pki, name)


def read_authority(files: Files) -> Authority:
    """Take up the authority that signs this control plane's clients."""
    return Authority.load(KeyPair(files.certificate("ca").read_bytes(), files.key("ca").read_bytes()))
