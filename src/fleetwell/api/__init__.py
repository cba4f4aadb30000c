"""The custom resources of group ``fleetwell.io`` as types: one definition for code, CRD schema and documentation.

Specs and statuses live in one file per resource and import only words; :mod:`fleetwell.api.resources` puts Kubernetes
metadata around them for the client. Types are msgspec structs, whose decoding errors name the place
(``$.spec.rules[0].tolerate``), and the CRDs are made from them by :mod:`fleetwell.api.schema`.
"""

GROUP = "fleetwell.io"
VERSION = "v1alpha1"
