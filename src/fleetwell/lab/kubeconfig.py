"""Kubeconfig files of a lab: one user each, all data inside, so that the file can be copied anywhere."""

import base64
from pathlib import Path

import yaml

from fleetwell.lab.pki import KeyPair, write_secret


def kubeconfig(server: str, authority: bytes, user: str, credentials: KeyPair | str) -> str:
    """Return the text of a kubeconfig for one user.

    ``authority`` is the PEM certificate that the server's is checked against; ``credentials`` is a client certificate
    or a bearer token.
    """
    if isinstance(credentials, str):
        login = {"token": credentials}
    else:
        login = {
            "client-certificate-data": _base64(credentials.certificate),
            "client-key-data": _base64(credentials.key),
        }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "lab", "cluster": {"server": server, "certificate-authority-data": _base64(authority)}},
        ],
        "users": [{"name": user, "user": login}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }
    return yaml.safe_dump(content, sort_keys=False)


def write_kubeconfig(path: Path, server: str, authority: bytes, user: str, credentials: KeyPair | str) -> Path:
    """Write the kubeconfig of one user (mode 0600) and return its path."""
    return write_secret(path, kubeconfig(server, authority, user, credentials).encode())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
