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
:mod:`.nvml`         child    NVML: count, lost, recovery action, row remap, ECC, temperature, NVLink
:mod:`.sysfs`        child    runs :mod:`.pci` and :mod:`.efa` in one process
:mod:`.proof`        child    the active test before release
:mod:`.kernel_log`   agent    tails ``/dev/kmsg`` (reading a ring never hangs)
:mod:`.inventory`    agent    what the node must have
===================  =======  ===========================================================================
"""
