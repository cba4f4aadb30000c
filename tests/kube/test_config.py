"""Where the API server is, and what is said when that cannot be found out."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleetwell.kube.config import ConnectionConfig, ExecPlugin, load
from fleetwell.kube.errors import ConfigError


def _write(path: Path, server: str, user: dict[str, object] | None = None) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "lab",
                "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "pki/ca.crt"}}],
                "users": [{"name": "u", "user": user or {"tokenFile": "token"}}],
                "contexts": [
                    {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "fw"}},
                    {"name": "broken", "context": {"cluster": "missing", "user": "u"}},
                ],
            }
        )
    )
    return path


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("FLEETWELL_SERVICE_ACCOUNT_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def _service_account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir()
    for name, text in {"token": "t", "ca.crt": "ca", "namespace": "gpu\n"}.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def test_a_kubeconfigs_relative_files_stand_beside_it(tmp_path: Path) -> None:
    config = load(_write(tmp_path / "config", "https://one:6443/"))
    assert config.server == "https://one:6443"
    assert config.namespace == "fw"
    assert config.ca_file == tmp_path / "pki/ca.crt"
    assert config.token_file == tmp_path / "token"


def test_the_file_given_wins_over_the_environment_and_that_over_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = _service_account(tmp_path / "account", monkeypatch)
    (tmp_path / "home/.kube").mkdir(parents=True)
    _write(tmp_path / "home/.kube/config", "https://home")
    in_pod = load(service_account=account)
    assert (in_pod.server, in_pod.namespace, in_pod.token_file) == ("https://[fd00::1]:443", "gpu", account / "token")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{_write(tmp_path / 'two', 'https://two')}")
    assert load(service_account=account).server == "https://two"
    assert load(_write(tmp_path / "three", "https://three"), service_account=account).server == "https://three"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert load(service_account=account).server == "https://home"


def test_an_exec_plugin_is_kept(tmp_path: Path) -> None:
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "aws",
            "args": ["eks"],
            "env": [{"name": "A", "value": "b"}],
        }
    }
    config = load(_write(tmp_path / "config", "https://one", dict(user)))
    assert config.exec_plugin == ExecPlugin("client.authentication.k8s.io/v1", "aws", ("eks",), (("A", "b"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "kubectl config view"), ("clusters: 3\ncontexts: []", "kubectl config view"), ("[]", "kubectl config view")],
)
def test_an_unreadable_kubeconfig_is_named_with_the_next_step(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as failed:
        load(path)
    assert str(path) in str(failed.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        load()
    path = _write(tmp_path / "config", "https://one")
    with pytest.raises(ConfigError, match="'nowhere' not found"):
        load(path, "nowhere")
    with pytest.raises(ConfigError, match="'missing' is referred to but not defined"):
        load(path, "broken")
    with pytest.raises(ConfigError, match="password"):
        load(_write(tmp_path / "config", "https://one", {"username": "u", "password": "p"}))


def test_another_folder_can_be_named_for_the_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = _service_account(tmp_path / "account", monkeypatch)
    monkeypatch.setenv("FLEETWELL_SERVICE_ACCOUNT_DIR", str(account))
    config = load()
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "gpu")
    assert (config.ca_file, config.token_file) == (account / "ca.crt", account / "token")


def test_secrets_are_not_shown() -> None:
    config = ConnectionConfig(server="https://x", token="hush", client_key_data=base64.b64encode(b"hush").decode())
    assert "hush" not in repr(config)
    assert "aHVzaA" not in repr(config)


def test_a_pod_does_not_pay_for_the_kubeconfig_loader() -> None:
    script = (
        "import sys, fleetwell.kube.informer, fleetwell.kube.lease, fleetwell.kube.recorder, fleetwell.kube.heartbeat\n"
        "print(sorted({'lightkube', 'yaml', 'pydantic', 'httpx'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"
