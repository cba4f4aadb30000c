"""Asks the provider for announced maintenance, as a source of its own kind: it can never make a node look bad.

That the metadata server does not answer says nothing about the machine, so silence is blind and nothing more, and what
was announced before stays until the provider says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from fleetwell.agent.assessment import Assessment
from fleetwell.agent.settings import Settings
from fleetwell.agent.sources import ChildSource, failure
from fleetwell.health.vocabulary import Snapshot
from fleetwell.probes.child import Outcome

log = structlog.get_logger(__name__)

PROBE = "maintenance"
VENDOR = "sys/class/dmi/id/sys_vendor"
VENDORS = {"Amazon EC2": "ec2", "Google": "gce"}


class MaintenanceSource(ChildSource):
    """The child that asks, and how its silence is taken."""

    def _fail(self, outcome: Outcome) -> None:
        fault, said = failure(outcome)
        log.warning("the provider was not asked for announced maintenance", fault=fault, why=said)
        boot_id = self._assessment.boot.boot_id
        self._assessment.take(Snapshot(probe=PROBE, at=self._wall(), boot_id=boot_id, blind=(f"{fault}: {said}",)))


def maintenance_source(settings: Settings, assessment: Assessment) -> ChildSource | None:
    """Make the source for this machine's provider; None where there is none to ask."""
    provider = settings.maintenance
    if provider == "auto":
        provider = provider_of(settings.host_root)
    if provider == "off":
        return None

    def asked() -> dict[str, object]:
        return {"provider": provider, "url": settings.metadata_url}

    return MaintenanceSource(PROBE, (PROBE,), settings.maintenance_timing, asked, assessment)


def provider_of(host_root: Path) -> str:
    """Tell the provider by the vendor that the machine's firmware names; ``off`` where it is another."""
    try:
        vendor = (host_root / VENDOR).read_text(errors="replace").strip()
    except OSError:
        return "off"
    return VENDORS.get(vendor, "off")
