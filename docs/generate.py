"""Writes the tables of these pages that come from data: ``python docs/generate.py``.

A test fails while a page and the data differ.
"""

# ruff: noqa: INP001 (a script that is run by its path, not a package)
from __future__ import annotations

import sys
from pathlib import Path

from fleetwell.agent.exit_codes import EXIT_CODES
from fleetwell.health.catalogue import CATALOGUE, XIDS, Fault, for_xid
from fleetwell.health.vocabulary import Clears, ConditionType
from fleetwell.lab.faults import FAULTS

FOLDER = Path(__file__).parent


def faults() -> str:
    """Give the fault table, one section for each node condition."""
    lines: list[str] = []
    for condition in ConditionType:
        lines += [f"### {condition.value}", "", "| fault | what it means | class | verdict | asks for | ends by |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_row(fault) for fault in CATALOGUE.values() if fault.condition is condition]
        lines.append("")
    return "\n".join(lines).rstrip()


def _row(fault: Fault) -> str:
    ends = f"time, {fault.seconds:.0f} s" if fault.clears is Clears.TIME else fault.clears.value
    cells = (f"`{fault.name}`", fault.means, fault.fault_class.value, fault.verdict.value, fault.recovery.value, ends)
    return f"| {' | '.join(cells)} |"


def departures() -> str:
    """Give the Xids for which fleetwell does not do what the vendor's immediate action says."""
    lines = ["| Xid | vendor's action | here | why |", "|---|---|---|---|"]
    for rule in (for_xid(xid) for xid in XIDS):
        if rule.departure:
            cells = (str(rule.xid), rule.bucket, f"{rule.verdict}, {rule.recovery}", rule.departure)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def lab_faults() -> str:
    """Give the faults that the lab can let happen."""
    lines = ["| fault | what happens | needs `--gpu` | parameters |", "|---|---|---|---|"]
    for fault in FAULTS.values():
        parameters = ", ".join(f"`{name}`" for name in fault.parameters)
        lines.append(f"| `{fault.name}` | {fault.sentence} | {'yes' if fault.needs_gpu else 'no'} | {parameters} |")
    return "\n".join(lines)


def exit_codes() -> str:
    """Give the exit codes that make the agent look, then those that are known and do not."""
    lines = []
    for title, looks in (("makes it look", True), ("does not", False)):
        lines += [f"| {title} | what it is | why |", "|---|---|---|"]
        rows = (row for row in EXIT_CODES.values() if (row.look is not None) is looks)
        lines += [f"| {row.code} | {row.means} | {row.why} |" for row in rows]
        lines.append("")
    return "\n".join(lines).rstrip()


PARTS = {
    "conditions-and-faults.md": {"faults": faults, "departures": departures},
    "job-reports.md": {"exit-codes": exit_codes},
    "lab.md": {"lab-faults": lab_faults},
}
"""Page → name of each generated part of it → what makes it."""


def rewritten(name: str) -> str:
    """Give a page with its generated parts as they should be."""
    page = (FOLDER / name).read_text(encoding="utf-8")
    for part, make in PARTS[name].items():
        begin, end = f"<!-- generated: {part} -->", f"<!-- end: {part} -->"
        head, found, rest = page.partition(begin)
        _, ended, tail = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{name} has no part between {begin} and {end}; it was left as it is")
        page = f"{head}{begin}\n\n{make()}\n\n{end}{tail}"
    return page


def main() -> None:
    """Write the pages that are not as they should be."""
    for name in PARTS:
        after = rewritten(name)
        if after != (FOLDER / name).read_text(encoding="utf-8"):
            (FOLDER / name).write_text(after, encoding="utf-8")
            sys.stderr.write(f"{name} was written anew\n")


if __name__ == "__main__":
    main()
