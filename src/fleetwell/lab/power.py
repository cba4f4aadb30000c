"""The reboot command of a virtual node: what ``systemctl reboot`` is on a real one.

``python -m fleetwell.lab.power ROOT NODE`` asks the lab's machines for the restart of NODE and returns when it has
begun; the caller is a process of that node and will be ended by it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleetwell.lab.host import HostError, ask
from fleetwell.lab.site import Site


def main() -> int:
    """Ask for the restart."""
    root, node = sys.argv[1:]
    try:
        ask(Site(Path(root)), "request-reboot", node=node)
    except HostError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
