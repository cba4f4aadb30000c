"""Asks the API server whose token somebody shows: which service account, which pod, on which node."""

from __future__ import annotations

import msgspec

from fleetwell.kube.errors import Undecodable
from fleetwell.kube.meta import Part
from fleetwell.kube.reader import Reader

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_EXTRA = "authentication.kubernetes.io/"


class _User(Part, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] | None = None


class _Status(Part, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Answer(Part, frozen=True):
    status: _Status = _Status()


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """Who a token belongs to; what it is bound to is empty where it is bound to nothing (Kubernetes 1.32 for nodes)."""

    username: str
    pod: str = ""
    pod_uid: str = ""
    node: str = ""


async def review(client: Reader, token: str, audience: str, *, timeout: float = 5.0) -> Bearer | None:
    """Tell whose token it is; None where it is nobody's, has expired, or is not for ``audience``.

    Raises:
        KubeError: the API server could not be asked.
    """
    spec = {"token": token, "audiences": [audience]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    answer = await client.raw("POST", _PATH, body=msgspec.json.encode(body), timeout=timeout)
    try:
        status = msgspec.json.decode(answer, type=_Answer).status
    except msgspec.DecodeError as error:
        msg = f"the answer to a TokenReview cannot be read: {error}"
        raise Undecodable(msg) from error
    if not status.authenticated or audience not in status.audiences:
        return None
    namespace = status.user.username.removeprefix("system:serviceaccount:").partition(":")[0]

    def bound_to(what: str) -> str:
        return next(iter((status.user.extra or {}).get(_EXTRA + what, ())), "")

    pod = bound_to("pod-name")
    return Bearer(
        username=status.user.username,
        pod=f"{namespace}/{pod}" if pod else "",
        pod_uid=bound_to("pod-uid"),
        node=bound_to("node-name"),
    )
