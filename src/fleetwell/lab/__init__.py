"""A real control plane and virtual GPU nodes on one machine, with faults on demand.

Imported by the tests, the demo and ``fleetwell lab`` only: nothing that runs in a cluster may depend on it.
"""
