"""The child that asks the provider's metadata server for announced maintenance.

A server that does not answer is blind and never a fault; what cannot be read is no answer either, and what was
announced before then stays. A whole answer without a notice ends it: the event was cancelled, or is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleetwell.probes import maintenance_events as events
from fleetwell.probes import report
from fleetwell.probes.maintenance_http import SilentError, ask
from fleetwell.probes.report import Report

PROBE = "maintenance"
FAULT = "MaintenanceAnnounced"
SERVER = "http://169.254.169.254"
"""Both providers' metadata server, by its address: a name would need a DNS server that answers."""
TOKEN = "/latest/api/token"  # noqa: S105 (the path of a token, not one)

Reader = Callable[[str], list[events.Notice]]
EC2: Mapping[str, Reader] = {
    events.SCHEDULED: events.ec2_scheduled,
    events.REBALANCE: events.ec2_rebalance,
    events.SPOT: events.ec2_spot,
}
GCE: Mapping[str, Reader] = {
    events.NOW: events.gce_now,
    events.UPCOMING: events.gce_upcoming,
    events.PREEMPTED: events.gce_preempted,
}
NOTHING_YET = {events.UPCOMING: {404, 503}}
"""Statuses by which a server says that there is no notice; 404 for every other path."""

MOVED = {301, 302, 307, 308}


class RefusedError(Exception):
    """The server answered, but not what was asked."""


def main() -> None:
    """Ask once."""
    given = report.settings()
    report.leave(look(str(given.get("provider", "")), str(given.get("url") or SERVER)))


def look(provider: str, url: str) -> Report:
    """Ask.

    :param provider: ``ec2`` or ``gce``.
    :param url: where the metadata server is.
    """
    seen = Report(PROBE)
    notices: list[events.Notice] = []
    whole = True
    try:
        headers = _ec2_headers(url) if provider == "ec2" else {"Metadata-Flavor": "Google"}
        for path, read in (EC2 if provider == "ec2" else GCE).items():
            try:
                body = _get(url, path, headers)
                notices += read(body) if body is not None else []
            except (RefusedError, ValueError) as error:
                seen.blind(f"{path}: {error}")
                whole = False
    except SilentError as error:
        seen.blind(f"the metadata server at {url} does not answer: {error}")
        whole = False
    if notices:
        _tell(seen, notices)
    elif whole:
        seen.covers("host")
    return seen


def _tell(seen: Report, notices: list[events.Notice]) -> None:
    """One finding for all of them, the first that is due before the others."""
    first, *others = sorted(notices, key=lambda notice: notice.due or 0.0)
    more = f"; then {'; '.join(str(other) for other in others)}" if others else ""
    recovery = "replace" if any(notice.recovery == "replace" for notice in notices) else "none"
    seen.fault(FAULT, "host", f"{first}{more}", recovery=recovery)


def _ec2_headers(url: str) -> dict[str, str]:
    """Fetch a session token; a server that knows none is asked without."""
    status, body = ask(url, "PUT", TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": "60", "Content-Length": "0"})
    return {"X-aws-ec2-metadata-token": body.strip()} if status == 200 and body.strip().isprintable() else {}


def _get(url: str, path: str, headers: dict[str, str]) -> str | None:
    """Fetch one path; None where there is no notice."""
    status, body = ask(url, "GET", path, headers)
    if status in MOVED:  # Google's server wants a folder to be asked for with a stroke at its end.
        name, mark, query = path.partition("?")
        status, body = ask(url, "GET", f"{name}/{mark}{query}", headers)
    if status in NOTHING_YET.get(path, {404}):
        return None
    if status != 200:
        raise RefusedError(f"the server answered with {status}")
    return body


if __name__ == "__main__":
    main()
