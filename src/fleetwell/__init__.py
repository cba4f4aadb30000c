"""fleetwell keeps GPU fleets on Kubernetes well."""

__version__ = "0.1.0"
