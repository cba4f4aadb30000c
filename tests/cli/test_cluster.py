import pytest

from fleetwell.cli.cluster import finish
from fleetwell.kube.errors import KubeError, Undecodable


def said_of(error: KubeError, capsys: pytest.CaptureFixture[str]) -> str:
    async def work() -> None:
        raise error

    with pytest.raises(SystemExit):
        finish(work())
    return capsys.readouterr().err


def test_an_object_of_another_version_is_no_trouble_with_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_of(Undecodable("LIST remediationpolicies: unknown field `x`"), capsys)
    assert "unknown field `x`" in said
    assert "hint: fleetwell manifests | kubectl apply -f -" in said
    assert "cluster-info" not in said
