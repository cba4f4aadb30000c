"""Times as Kubernetes writes them on its own objects, and names made for ours."""

from __future__ import annotations

import datetime as dt
import hashlib

_NODE_PART = 220
"""Of a node's name: a name has at most 253 characters, and those of operations are longer than their incident's."""


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


def incident_name(node: str, uid: str, opened: dt.datetime) -> str:
    """Name an incident: the node's name, and a hash that differs by the node's UID and the moment of its opening.

    A name is never used twice, though incidents are pruned: operations are named after their incident, and an agent
    does not look twice at a name that it has brought to its end.
    """
    digest = hashlib.sha256(f"{uid} {opened.isoformat()}".encode()).hexdigest()[:8]
    return f"{node[:_NODE_PART].rstrip('-.')}-{digest}"
