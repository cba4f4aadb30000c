"""The node's process: looks at the hardware, says what it found, and does what it is asked to do at most once.

Probes and kernel log → :mod:`.sources` → triage (:mod:`fleetwell.health.triage`, pure) → :mod:`.publish`; beside it
:mod:`.operations`. It never acts by itself: no API server, no action.
"""
