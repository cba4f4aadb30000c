"""What a child prints: one JSON object. Only the standard library, since every cycle pays for a child's imports.

The words are those of :mod:`fleetwell.health.vocabulary`; they are checked when the agent reads the report.
"""

from __future__ import annotations

import json
import os
import signal
import sys

EVIDENCE_LIMIT = 240
BLIND_LIMIT = 32
ENDURANCE = 10
"""Seconds beyond its deadline after which a child ends itself: its agent may have been killed and cannot do it."""


class Report:
    """Collects what one look found."""

    def __init__(self, probe: str) -> None:
        self.probe = probe
        self._observations: list[dict[str, str]] = []
        self._covered: dict[str, None] = {}
        self._blind: dict[str, None] = {}
        self._gpus: list[dict[str, str]] = []
        self._nics: list[dict[str, str]] = []
        self._absent = ""

    def fault(self, fault: str, component: str, evidence: str, *, verdict: str = "", recovery: str = "") -> None:
        """Note a fault; verdict and recovery are the catalogue's where they are not given."""
        seen = {"fault": fault, "component": component, "evidence": evidence[:EVIDENCE_LIMIT]}
        if verdict:
            seen["verdict"] = verdict
        if recovery:
            seen["recovery"] = recovery
        self._observations.append(seen)
        self.covers(component)

    def covers(self, *components: str) -> None:
        """Note that these were judged: what is not named in a fault is OK."""
        self._covered.update(dict.fromkeys(components))

    def blind(self, question: str) -> None:
        """Note a question that this machine cannot answer."""
        if len(self._blind) < BLIND_LIMIT:
            self._blind[question[:EVIDENCE_LIMIT]] = None

    def gpu(self, uuid: str, pci: str, serial: str = "", name: str = "") -> None:
        """Note a GPU that is there."""
        self._gpus.append({"uuid": uuid, "pci": pci, "serial": serial, "name": name})

    def nic(self, name: str, pci: str = "", driver: str = "") -> None:
        """Note a network device that is there."""
        self._nics.append({"name": name, "pci": pci, "driver": driver})

    def absent(self, reason: str) -> None:
        """Say that what this probe asks is not on this machine at all."""
        self._absent = reason[:EVIDENCE_LIMIT]

    def encode(self) -> str:
        """Give the report as the agent reads it."""
        return json.dumps(
            {
                "probe": self.probe,
                "observations": self._observations,
                "covered": list(self._covered),
                "blind": list(self._blind),
                "inventory": {"gpus": self._gpus, "nics": self._nics},
                "absent": self._absent,
            }
        )


def settings() -> dict[str, object]:
    """Read what the agent passes to a child: one JSON object as the only argument.

    Also sets the alarm that ends this process when nobody is left to end it. The signal's default action is taken by
    the kernel, so it works in the middle of a driver call.
    """
    given = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    if not isinstance(given, dict):
        raise SystemExit("usage: give the probe's settings as one JSON object")
    deadline = given.get("deadline")
    if isinstance(deadline, int | float):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, deadline + ENDURANCE)
    return given


def leave(*reports: Report) -> None:
    """Print the reports, one a line, and end without running anything else's clean-up."""
    sys.stdout.write("".join(report.encode() + "\n" for report in reports))
    sys.stdout.flush()
    os._exit(0)
