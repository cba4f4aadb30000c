"""``fleetwell manifests``: everything a cluster needs before agents and controller start, as YAML for kubectl."""

from __future__ import annotations

import sys

import click
import yaml

from fleetwell.api.manifests import manifests


@click.command("manifests")
@click.option("--crds-only", is_flag=True, help="Only the CustomResourceDefinitions.")
def command(*, crds_only: bool) -> None:
    """Print CRDs, accounts, rights and admission policies: `fleetwell manifests | kubectl apply -f -`."""
    documents = manifests()
    if crds_only:
        documents = [document for document in documents if document["kind"] == "CustomResourceDefinition"]
    yaml.safe_dump_all(documents, sys.stdout, sort_keys=False)
