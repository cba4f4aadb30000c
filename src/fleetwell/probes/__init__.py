"""One file per source of truth about a node, and the supervised children in which they run.

A probe that talks to a driver can hang in the kernel for ever, so nothing in here that touches hardware is called in
the agent's own process: modules that are run as ``python -m fleetwell.probes.<name>`` are *children* and import as
little as they can (their start is paid in every cycle); the rest is the agent's side of it.

===================  =======  ===========================================================================
module               side     what it does
===================  =======  ===========================================================================
:mod:`.child`        agent    starts, bounds, kills, abandons and watches a child
:mod:`.protocol`     agent    reads what a child printed
:mod:`.report`       child    prints it
:mod:`.nvml`         child    NVML: count, lost, recovery action, memory, heat, PCIe, NVLink, fabric
:mod:`.nvidia_smi`   child    the tool, where it is installed
:mod:`.dcgm`         child    DCGM's health, where it is installed
:mod:`.sysfs`        child    runs :mod:`.pci`, :mod:`.efa` and :mod:`.infiniband` in one process
:mod:`.proof`        child    the active test before release (its parts: ``proof_*``)
:mod:`.kernel_log`   agent    tails ``/dev/kmsg`` (reading a ring never hangs)
:mod:`.inventory`    agent    what the node must have
===================  =======  ===========================================================================
"""

SYSFS_PROBES = ("pci", "efa", "infiniband")
"""Whose reports the sysfs child owes, in order. Here, since the agent must not load what the child does."""
