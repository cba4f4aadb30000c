"""Outputs of ``dcgmi`` for tests, written from what its forms are known to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PASSED: Mapping[str, Any] = {"status": "Pass"}


def result4(gpu: int, status: str = "Pass", *warnings: Mapping[str, Any]) -> dict[str, Any]:
    """One result of DCGM 4."""
    row: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
    return {**row, "warnings": list(warnings)} if warnings else row


def warning(said: str, number: int | None = None, severity: int | None = None) -> dict[str, Any]:
    """One warning of DCGM 4."""
    given = {"warning": said, "error_id": number, "error_severity": severity}
    return {key: value for key, value in given.items() if value is not None}


def diag4(*tests: tuple[str, Sequence[Mapping[str, Any]]], **more: Any) -> str:
    """``dcgmi diag -j`` of DCGM 4, one category."""
    return json.dumps(_diag("DCGM Diagnostic", tests, more) | {"metadata": {"version": "4.2.3"}})


def diag3(*tests: tuple[str, Sequence[Mapping[str, Any]]], **more: Any) -> str:
    """``dcgmi diag -j`` of DCGM 3."""
    return json.dumps(_diag("DCGM GPU Diagnostic", tests, more))


def _diag(
    root: str, tests: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], more: Mapping[str, Any]
) -> dict[str, Any]:
    rows = [{"name": name, "results": list(results)} for name, results in tests]
    return {root: {"test_categories": [{"category": "Hardware", "tests": rows}], **more}}


def health(overall: str = "Healthy", incidents: Mapping[str, Mapping[str, tuple[str, list[str]]]] | None = None) -> str:
    """``dcgmi health -c -j``; incidents: GPU → system → (health, the message in pieces)."""
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if incidents:
        gpus = {
            gpu: {
                "value": "Warning",
                "children": {
                    "Errors": {
                        "children": {
                            system: {"value": value, "overflow": pieces} for system, (value, pieces) in systems.items()
                        }
                    }
                },
            }
            for gpu, systems in incidents.items()
        }
        body["GPU"] = {"children": gpus}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=1)


_HEALTH_HEAD = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | {overall:<57}|
"""
_HEALTH_END = "+---------------------------+----------------------------------------------------------+\n"


def health_table(overall: str = "Healthy", rows: Sequence[tuple[str, str]] = ()) -> str:
    """``dcgmi health -c``."""
    body = "".join(f"| {left:<26}| {right:<57}|\n" for left, right in rows)
    return _HEALTH_HEAD.format(overall=overall) + body + _HEALTH_END


_DIAG_BORDER = "+---------------------------+------------------------------------------------+\n"


def diag_table(rows: Sequence[tuple[str, str]]) -> str:
    """``dcgmi diag -r N``: a row whose second cell is empty begins a section."""
    body = ""
    for left, right in rows:
        if right:
            body += f"| {left:<26}| {right:<47}|\n"
        else:
            body += f"|-----  {left}  ".ljust(28, "-") + "+" + "-" * 48 + "|\n"
    return (
        "Successfully ran diagnostic for group.\n"
        + _DIAG_BORDER
        + "| Diagnostic                | Result                                         |\n"
        + "+===========================+================================================+\n"
        + body
        + _DIAG_BORDER
    )


METADATA = (("Metadata", ""), ("DCGM Version", "3.3.5"), ("Driver Version Detected", "550.54.15"))
