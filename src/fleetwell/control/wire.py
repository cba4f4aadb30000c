"""Times as Kubernetes writes them on its own objects, and names made for ours."""

from __future__ import annotations

import datetime as dt
import hashlib


def rfc3339(at: dt.datetime) -> str:
    """Write a time as Kubernetes' own ``Time`` fields have it: UTC, whole seconds."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> dt.datetime | None:
    """Read a Kubernetes time, with or without fractions; None where there is none or it is not one."""
    if not text:
        return None
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except ValueError:
        return None


def incident_name(node: str, uid: str, number: int) -> str:
    """Name an incident: the node's name, and a hash that differs by the node's UID and the number of the episode.

    Asked for again after an answer was lost, it is the same name.
    """
    digest = hashlib.sha256(f"{uid} {number}".encode()).hexdigest()[:8]
    return f"{node[:240]}-{digest}"
