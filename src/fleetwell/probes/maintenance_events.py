"""What providers' metadata servers announce, in one form: what will happen, from when on, and what it asks for.

Reads what was fetched and fetches nothing. A notice that is over, or was cancelled, is none; one that cannot be read
raises, since no answer must pass for "nothing is announced".
"""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import Any, NamedTuple

SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
SPOT = "/latest/meta-data/spot/instance-action"
NOW = "/computeMetadata/v1/instance/maintenance-event"
UPCOMING = "/computeMetadata/v1/instance/upcoming-maintenance?recursive=true&alt=json"
PREEMPTED = "/computeMetadata/v1/instance/preempted"

MACHINE_IS_LEFT = frozenset({"instance-retirement", "instance-stop"})
"""EC2 events after which this machine is not the node's any more; the others are over after a reboot."""
_OVER = frozenset({"completed", "canceled", "cancelled"})
_OVER_AT_GOOGLE = frozenset({"COMPLETED", "COMPLETE", "CANCELLED", "CANCELED"})
_ISO = "%Y-%m-%dT%H:%M:%SZ"
_NONE = {"", "NONE"}


class Notice(NamedTuple):
    """One thing that the provider announced."""

    kind: str
    due: float | None
    """Seconds since the epoch; None where it can come at any time."""
    recovery: str
    detail: str = ""

    def __str__(self) -> str:
        due = "now" if self.due is None else time.strftime(_ISO, time.gmtime(self.due))
        return f"due={due} kind={self.kind}{f' {self.detail}' if self.detail else ''}"


def ec2_scheduled(body: str) -> list[Notice]:
    """Read EC2's scheduled events."""
    notices = []
    for event in _parsed(body, list):
        kind, state = _word(event, "Code"), _word(event, "State").lower()
        description = _word(event, "Description")
        if state in _OVER or description.lower().startswith(tuple(f"[{word}]" for word in _OVER)):
            continue
        recovery = "replace" if kind in MACHINE_IS_LEFT else "none"
        detail = f"event={_word(event, 'EventId')} state={state or '?'}: {description}"
        notices.append(Notice(kind or "unknown", _ec2_time(_word(event, "NotBefore")), recovery, detail))
    return notices


def ec2_rebalance(body: str) -> list[Notice]:
    """Read EC2's recommendation to leave a spot instance that may soon be taken back."""
    noticed = _word(_parsed(body, dict), "noticeTime")
    return [Notice("rebalance-recommendation", None, "replace", f"noticed at {noticed}")]


def ec2_spot(body: str) -> list[Notice]:
    """Read EC2's notice that a spot instance is taken back, two minutes before."""
    action = _parsed(body, dict)
    return [Notice(f"spot-{_word(action, 'action')}", _iso_time(_word(action, "time")), "replace")]


def gce_now(body: str) -> list[Notice]:
    """Read Google's notice of a maintenance that begins within the hour or the minute."""
    said = body.strip()
    if said.upper() in _NONE:
        return []
    if not said.replace("_", "").isalpha() or len(said) > 64:
        raise ValueError(f"maintenance-event is {said[:40]!r}")
    return [Notice(said, None, "none")]


def gce_upcoming(body: str) -> list[Notice]:
    """Read Google's notice of a maintenance that is planned.

    Without one the server answers with an error, an empty object or the word NONE, by machine type and time. Names of
    fields are in camel or snake case, and the whole may lie in an object of its own.
    """
    if body.strip().strip('"').upper() in _NONE:
        return []
    window = _parsed(body, dict)
    if len(window) == 1 and isinstance(inner := next(iter(window.values())), dict):
        window = inner
    fields = {str(name).replace("_", "").lower(): value for name, value in window.items()}
    status = _word(fields, "maintenancestatus")
    if not fields or "error" in fields or status.upper() in _OVER_AT_GOOGLE:
        return []
    begins = _word(fields, "windowstarttime") or _word(fields, "starttime")
    if not begins:
        raise ValueError(f"upcoming-maintenance has no windowStartTime: {body[:80]!r}")
    kind = _word(fields, "type") or "MAINTENANCE"
    reasons = fields.get("maintenancereasons")
    why = f" reasons={','.join(str(one) for one in reasons)[:200]}" if isinstance(reasons, list) and reasons else ""
    movable = " can be rescheduled" if _word(fields, "canreschedule").upper() == "TRUE" else ""
    return [Notice(f"{kind}-maintenance", _iso_time(begins), "none", f"status={status or '?'}{why}{movable}")]


def gce_preempted(body: str) -> list[Notice]:
    """Read Google's notice that a spot machine is taken back."""
    return [Notice("preemption", None, "replace")] if body.strip().upper() == "TRUE" else []


def _parsed(body: str, kind: type) -> Any:
    value = json.loads(body) if body.strip() else kind()
    if not isinstance(value, kind):
        raise ValueError(f"expected a {kind.__name__}, got {body[:80]!r}")  # noqa: TRY004 (it is the text that is wrong)
    return value


def _word(row: object, name: str) -> str:
    if not isinstance(row, dict):
        raise ValueError(f"an event is {row!r:.80}")  # noqa: TRY004 (as above)
    value = row.get(name)
    return str(value) if isinstance(value, str | int) else ""


def _ec2_time(said: str) -> float | None:
    """Read ``21 Jan 2019 09:00:43 GMT``, or ISO 8601, which stand-ins of the server use."""
    try:
        return dt.datetime.strptime(said, "%d %b %Y %H:%M:%S GMT").replace(tzinfo=dt.UTC).timestamp()
    except ValueError:
        return _iso_time(said)


def _iso_time(said: str) -> float | None:
    """Read ISO 8601, as UTC where it does not say; what cannot be read could be any time, so it is taken as now."""
    try:
        moment = dt.datetime.fromisoformat(said)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp()
