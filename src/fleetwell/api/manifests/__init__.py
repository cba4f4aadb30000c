"""Everything that has to be in a cluster before agents and controller start, in the order in which it is applied."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from fleetwell.api import schema

FILES = ("rbac.yaml", "admission.yaml")


def manifests() -> list[dict[str, Any]]:
    """Give the CRDs, then namespace, accounts and rights, then the admission policies."""
    documents = schema.crds()
    for name in FILES:
        documents += list(yaml.safe_load_all(resources.files(__name__).joinpath(name).read_text(encoding="utf-8")))
    return documents
