"""What the API server itself noted of every request that may change something: an account that nobody's code keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

CONTROLLER = "system:serviceaccount:fleetwell:fleetwell-controller"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


class _User(msgspec.Struct, frozen=True):
    username: str
    extra: dict[str, list[str]] = {}


class _Object(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """One request that the API server has answered."""

    verb: str
    user: _User
    received_at: str = msgspec.field(name="requestReceivedTimestamp")
    """RFC 3339 with microseconds: in the order of time as text, too."""
    about: _Object = msgspec.field(name="objectRef", default=_Object())
    answer: _Answer = msgspec.field(name="responseStatus", default=_Answer())
    body: dict[str, Any] | None = msgspec.field(name="requestObject", default=None)

    @property
    def sender(self) -> str:
        """The credential that it came with: another one for each process, though the account is the same."""
        found = self.user.extra.get(_CREDENTIAL)
        return found[0] if found else self.user.username

    @property
    def granted(self) -> bool:
        """Whether it changed something."""
        return 200 <= self.answer.code < 300

    def __str__(self) -> str:
        """Say it in one line, for a failed test's message."""
        what = "/".join(part for part in (self.about.resource, self.about.subresource, self.about.name) if part)
        return f"{self.received_at} {self.user.username} {self.verb} {what}: {self.answer.code} {self.body or ''}"


def requests(log: Path) -> list[Request]:
    """All requests so far, by the time of their arrival."""
    lines = log.read_bytes().splitlines(keepends=True)
    found = [msgspec.json.decode(line, type=Request) for line in lines if line.endswith(b"\n")]
    return sorted(found, key=lambda request: request.received_at)


def ends_of_pods(log: Path) -> list[Request]:
    """All requests by which pods were deleted or evicted."""
    return [
        it
        for it in requests(log)
        if (it.about.resource == "pods" and it.verb in {"delete", "deletecollection"} and not it.about.subresource)
        or it.about.subresource == "eviction"
    ]


def grace_of(request: Request) -> int | None:
    """The grace period that a delete or an eviction asks for; None where it leaves the pod its own."""
    body = request.body or {}
    options = body.get("deleteOptions") or {} if body.get("kind") == "Eviction" else body
    grace = options.get("gracePeriodSeconds")
    return None if grace is None else int(grace)
