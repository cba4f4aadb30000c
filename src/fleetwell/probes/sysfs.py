"""The child that reads sysfs for :mod:`.pci` and :mod:`.efa`: quick to read, but a read of a sick device can hang."""

from __future__ import annotations

from pathlib import Path

from fleetwell.probes import efa, pci, report

PROBE = "sysfs"


def main() -> None:
    """Look once."""
    given = report.settings()
    host_root = Path(str(given.get("host_root", "/")))
    gpus, nics = given.get("expected"), given.get("expected_nics")
    known, known_nics = given.get("known"), given.get("known_nics")
    report.leave(
        pci.look(
            host_root,
            gpus if isinstance(gpus, int) else None,
            {str(uuid): str(address) for uuid, address in known.items()} if isinstance(known, dict) else {},
        ),
        efa.look(
            host_root,
            nics if isinstance(nics, int) else None,
            [str(name) for name in known_nics] if isinstance(known_nics, list) else [],
        ),
    )


if __name__ == "__main__":
    main()
