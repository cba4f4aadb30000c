"""The control plane: what it says when it fails, and the real one."""

import http.client
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from fleetwell.lab import processes, sessions
from fleetwell.lab.controlplane import COMPONENTS, ControlPlane, ControlPlaneError
from fleetwell.lab.controlplane_build import Binaries
from fleetwell.lab.controlplane_files import write_audit_policy
from fleetwell.lab.controlplane_flags import Files, apiserver


def programs(folder: Path, script: str) -> Binaries:
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Binaries(*((str(program), name) for name in COMPONENTS))


def test_a_component_that_dies_is_named_with_its_last_words_and_nothing_stays(tmp_path: Path) -> None:
    script = '[ "$1" = etcd ] && exec sleep 60\necho "flag is not known"; exit 3'
    plane = ControlPlane(tmp_path / "lab", programs=programs(tmp_path, script))
    with pytest.raises(ControlPlaneError) as caught:
        plane.start(lambda _: None)
    text = str(caught.value)
    assert "kube-apiserver ended with exit code 3" in text
    assert "flag is not known" in text
    assert str(plane.log("kube-apiserver")) in text
    assert not any(plane.running().values())


def test_when_nothing_answers_in_time_it_says_who_did_not(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path / "lab", programs=programs(tmp_path, "echo hard at work; exec sleep 60"))
    with pytest.raises(ControlPlaneError, match=r"kube-apiserver was not ready in time(.|\n)*hard at work"):
        plane.start(lambda _: None, deadline_s=0.5)
    assert not any(plane.running().values())


def test_a_port_that_was_taken_meanwhile_is_replaced_by_another(tmp_path: Path) -> None:
    script = "echo 'listen tcp: bind: address already in use'; exit 1"
    plane = ControlPlane(tmp_path / "lab", programs=programs(tmp_path, script))
    said: list[str] = []
    with pytest.raises(ControlPlaneError, match="address already in use"):
        plane.start(said.append)
    assert sum("trying again" in line for line in said) == 2


def test_the_api_server_notes_requests_only_where_that_was_asked_for(tmp_path: Path) -> None:
    files = Files(tmp_path / "lab")
    assert not [flag for flag in apiserver(files, 1, 2) if "audit" in flag]
    write_audit_policy(files)
    noting = [flag for flag in apiserver(files, 1, 2) if "audit" in flag]
    assert noting == [f"--audit-policy-file={files.audit_policy}", f"--audit-log-path={files.audit_log}"]


def test_a_folder_where_nothing_was_started_has_no_control_plane(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="no control plane was started"):
        ControlPlane.attach(tmp_path)
    plane = ControlPlane(tmp_path)
    with pytest.raises(ControlPlaneError, match="was not started"):
        _ = plane.url
    with pytest.raises(ControlPlaneError, match="does not run"):
        plane.pause_apiserver()
    plane.stop()


def get(plane: ControlPlane, path: str, *, timeout: float = 10) -> int:
    context = ssl.create_default_context(cafile=str(plane.certificate_authority))
    port = int(plane.url.rsplit(":", 1)[1])
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.controlplane
@pytest.mark.timeout(1800)  # the first run on a machine builds Kubernetes
def test_a_real_control_plane_comes_up_answers_is_cut_off_and_leaves_no_process(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path / "lab")
    said: list[str] = []
    plane.start(said.append)
    try:
        found = [processes.attach(tmp_path / "lab" / "run" / f"{name}.json") for name in COMPONENTS]
        started = [process for process in found if process is not None]
        assert len(started) == 4
        assert get(plane, "/readyz") == 200
        assert said[-1].startswith(f"the control plane is ready at {plane.url}")
        with pytest.raises(ControlPlaneError, match="already runs"):
            plane.start(said.append)

        if shutil.which("kubectl"):
            kubectl = ["kubectl", "--kubeconfig", str(plane.kubeconfig)]
            spaces = subprocess.run([*kubectl, "get", "ns", "-o", "name"], capture_output=True, text=True, check=True)
            assert "namespace/default" in spaces.stdout.split()
            node = plane.kubeconfig_for(tmp_path / "node", "system:node:n1", groups=["system:nodes"])
            whoami = subprocess.run(
                ["kubectl", "--kubeconfig", str(node), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert whoami.stdout == "system:node:n1"

        again = ControlPlane.attach(plane.root)
        assert again.url == plane.url
        again.pause_apiserver()
        with pytest.raises(TimeoutError):
            get(plane, "/readyz", timeout=0.5)
        again.resume_apiserver()
        assert get(plane, "/readyz") == 200
        again.stop_apiserver()
        with pytest.raises(ConnectionRefusedError):
            get(plane, "/readyz")
        plane.start_apiserver()
        assert get(plane, "/readyz") == 200
        assert all(plane.running().values())
    finally:
        plane.stop()
    assert not any(sessions.members(process.identity) for process in started)
    assert not list((plane.root / "run").iterdir())
