"""Kubeconfig files of a lab."""

import base64
import stat
from pathlib import Path

from lightkube import KubeConfig

from fleetwell.lab.kubeconfig import write_kubeconfig
from fleetwell.lab.pki import Authority


def test_a_kubeconfig_with_a_client_certificate_is_read_back_by_a_client(tmp_path: Path) -> None:
    authority = Authority.create("lab-ca")
    pair = authority.issue_client("admin", ("system:masters",))

    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1234", authority.certificate, "admin", pair)

    read = KubeConfig.from_file(path).get()
    assert read is not None
    assert read.cluster.server == "https://127.0.0.1:1234"
    assert base64.b64decode(read.cluster.certificate_auth_data or "") == authority.certificate
    assert read.user is not None
    assert base64.b64decode(read.user.client_cert_data or "") == pair.certificate
    assert base64.b64decode(read.user.client_key_data or "") == pair.key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_kubeconfig_with_a_token_holds_no_certificate_of_the_user(tmp_path: Path) -> None:
    authority = Authority.create("lab-ca")

    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1234", authority.certificate, "agent", "a.b.c")

    read = KubeConfig.from_file(path).get()
    assert read is not None
    assert read.user is not None
    assert (read.user.token, read.user.client_cert_data) == ("a.b.c", None)
