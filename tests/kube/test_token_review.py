"""Whose token it is, as the API server says."""

from __future__ import annotations

from typing import Any

import pytest

from fleetwell.kube.client import Client
from fleetwell.kube.errors import Forbidden, Undecodable
from fleetwell.kube.token_review import Bearer, review
from kube.fake_api import Answer, FakeApi, status

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
EXTRA = {
    "authentication.kubernetes.io/pod-name": ["train-0"],
    "authentication.kubernetes.io/pod-uid": ["u0"],
    "authentication.kubernetes.io/node-name": ["gpu-1"],
}


def reviewed(**changed: Any) -> Answer:
    user = {"username": "system:serviceaccount:ml:trainer", "uid": "s", "extra": EXTRA}
    return Answer(body={"status": {"authenticated": True, "user": user, "audiences": ["ours"], **changed}})


async def test_a_good_token_tells_its_pod_and_its_node(api: FakeApi, client: Client) -> None:
    api.answer("POST", PATH, reviewed())
    assert await review(client, "t", "ours") == Bearer(
        username="system:serviceaccount:ml:trainer", pod="ml/train-0", pod_uid="u0", node="gpu-1"
    )
    (seen,) = api.asked("POST")
    assert seen.body["spec"] == {"token": "t", "audiences": ["ours"]}


@pytest.mark.parametrize(
    "changed", [{"authenticated": False, "error": "expired"}, {"audiences": []}, {"audiences": ["theirs"]}]
)
async def test_a_token_that_is_not_good_for_us_is_nobodys(
    api: FakeApi, client: Client, changed: dict[str, Any]
) -> None:
    api.answer("POST", PATH, reviewed(**changed))
    assert await review(client, "t", "ours") is None


async def test_a_token_of_no_pod_is_bound_to_nothing(api: FakeApi, client: Client) -> None:
    api.answer("POST", PATH, reviewed(user={"username": "system:serviceaccount:ml:trainer"}))
    bearer = await review(client, "t", "ours")
    assert bearer is not None
    assert (bearer.pod, bearer.pod_uid, bearer.node) == ("", "", "")


async def test_an_answer_that_cannot_be_had_or_read_is_an_error_and_no_verdict(api: FakeApi, client: Client) -> None:
    api.answer("POST", PATH, status(403, "Forbidden", "no"), Answer(body=["what"]))
    with pytest.raises(Forbidden):
        await review(client, "t", "ours")
    with pytest.raises(Undecodable):
        await review(client, "t", "ours")
