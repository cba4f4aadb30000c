"""The node's process: looks at the hardware, says what it found, and does what it is asked to do at most once.

Probes and kernel log → :mod:`.sources` → triage (:mod:`fleetwell.health.triage`, pure) → :mod:`.publish`; beside it
:mod:`.operations`. It never acts by itself: no API server, no action.

Whatever of the agent is imported first, structlog is imported here before it, and without rich: structlog's renderer
for people would bring it along, 5 MiB that every node would hold for tracebacks in colour.
"""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # what makes an import fail, as the language has it
    try:
        import structlog  # noqa: F401 (see above)
    finally:
        del sys.modules["rich"]
