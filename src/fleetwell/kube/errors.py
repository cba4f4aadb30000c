"""What can go wrong at the API server, one class for each answer that callers treat differently.

| class | the request | do |
|---|---|---|
| ``ApiError`` and below | was answered with an error | by class |
| ``Unreachable`` | was not answered; ``sent`` says whether it may have been carried out | read again, then decide |
| ``Fenced`` | was not sent: we may no longer be the leader | stop acting |
| ``Undecodable`` | was answered with something this version cannot read | report; never take it for "empty" |
| ``ConfigError`` | could not be made | fix the file it names |
"""

# ruff: noqa: N818 (named for what happened, as the API server names it)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

MULTIPLE_BUDGETS_TEXT = "more than one PodDisruptionBudget"
"""How the eviction subresource words its 500 when two budgets select one pod (kubernetes #75957)."""

DISRUPTION_BUDGET_CAUSE = "DisruptionBudget"
"""The cause in a 429 that comes from a PodDisruptionBudget and not from API priority and fairness."""


class Cause(msgspec.Struct, frozen=True):
    """One cause inside a Status: for ``Invalid``, which field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """What a Status says about the object, as far as it is used."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The API server's error body."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class KubeError(Exception):
    """Anything that kept a request to the API server from its purpose."""


class ConfigError(KubeError):
    """The way to the API server cannot be made out from files and environment."""


class Fenced(KubeError):
    """A mutating request was not sent because leadership may have passed to another."""


class Undecodable(KubeError):
    """The server's answer does not have the form that this version reads."""


class Unreachable(KubeError):
    """The server did not answer in time or the connection broke; ``sent`` False means that nothing reached it."""

    def __init__(self, request: str, why: str, *, sent: bool) -> None:
        self.request = request
        self.sent = sent
        outcome = "it may have been carried out" if sent else "nothing was sent"
        super().__init__(f"{request}: {why}; {outcome}")


class ApiError(KubeError):
    """The API server refused a request."""

    def __init__(self, request: str, status: Status, *, retry_after: float | None = None) -> None:
        self.request = request
        self.status = status.code
        self.reason = status.reason
        self.message = status.message
        self.details = status.details or Details()
        self.causes: tuple[Cause, ...] = self.details.causes or ()
        self.retry_after = retry_after
        super().__init__(f"{request}: {status.code} {status.reason or 'Error'}: {status.message}")


class BadRequest(ApiError):
    """400: the request itself is malformed; asking again will not help."""


class Unauthorized(ApiError):
    """401: the server does not know who asks: the token is missing, expired or for another cluster."""


class Forbidden(ApiError):
    """403: the server knows who asks, and RBAC or an admission policy says no."""


class NotFound(ApiError):
    """404: there is no such object, or no such kind."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or a precondition (UID, resourceVersion) does not hold."""


class AlreadyExists(ApiError):
    """409 on create: an object of that name is there."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class UnsupportedPatch(ApiError):
    """415: the kind does not take this form of patch (custom resources: no strategic merge)."""


class Invalid(ApiError):
    """422: the server's validation refused the object; ``fields`` names what is wrong."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that were refused, in the server's notation."""
        return tuple(cause.field for cause in self.causes if cause.field)


class TooManyRequests(ApiError):
    """429: not now; ``disruption_budget`` tells a PodDisruptionBudget's no from an overloaded API server's."""

    @property
    def disruption_budget(self) -> bool:
        """Whether a PodDisruptionBudget refused an eviction (else API priority and fairness, nothing was done)."""
        return any(cause.reason == DISRUPTION_BUDGET_CAUSE for cause in self.causes)


class ServerError(ApiError):
    """5xx: the server failed; whether the request was carried out is not known."""

    @property
    def multiple_budgets(self) -> bool:
        """Whether an eviction failed because more than one PodDisruptionBudget selects the pod."""
        return MULTIPLE_BUDGETS_TEXT in self.message


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    415: UnsupportedPatch,
    422: Invalid,
    429: TooManyRequests,
}
_SHOWN = 500


def from_response(request: str, code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Make the error for an answer outside 2xx; a body that is no Status (a proxy's page, a 429 text) is quoted."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status()
    message = status.message or body[:_SHOWN].decode(errors="replace").strip() or "(no message)"
    return from_status(
        request,
        Status(code=code, reason=status.reason, message=message, details=status.details),
        retry_after=_seconds(headers.get("Retry-After")),
    )


def from_status(request: str, status: Status, *, retry_after: float | None = None) -> ApiError:
    """Make the error for a Status, which also comes inside a watch."""
    kind = _BY_STATUS.get(status.code, ServerError if status.code >= 500 else ApiError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    if status.reason == "Expired":
        kind = Expired
    if retry_after is None and status.details is not None and status.details.retry_after_seconds:
        retry_after = float(status.details.retry_after_seconds)
    return kind(request, status, retry_after=retry_after)


def _seconds(value: Any) -> float | None:
    """Read ``Retry-After`` in seconds; a date is treated as absent, since the API server never sends one."""
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None
