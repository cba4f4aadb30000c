"""Reads the JSON of ``dcgmi health -c -j`` and ``dcgmi diag -r N -j``, of DCGM 3.x and 4.x.

Every name that a version changed is taken in both forms; everything else that is not as it should be makes the whole
output doubtful, since a reader that finds no failure in a form it does not know would call a broken node well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fleetwell.probes.dcgm_document import Document, Result, Status, entity, status
from fleetwell.probes.dcgm_errors import Error

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
OVERALL = "overall health"
MAX_ENTITY = 0xFFFF
"""Beyond it a number is one of DCGM's blank values, which stand for "not told"."""
NO_MIG = re.compile(r"\bMIG\b", re.IGNORECASE)
"""Diagnostics do not run while a GPU is divided, and say so."""


def read(decoded: Any) -> Document:
    """Read one decoded output."""
    if not isinstance(decoded, dict):
        return Document("diag", problems=["it is no JSON object"])
    roots = [root for root in ROOTS if root in decoded]
    if roots:
        document = _diag(decoded, decoded[roots[0]])
        for root in roots[1:]:  # No version writes both.
            document.results += _diag({}, decoded[root]).results
            document.problems.append("it has the roots of two versions")
        return document
    if "body" in decoded:
        return _health(decoded["body"])
    return Document("diag", problems=[f"its top key is not known: {', '.join(sorted(map(str, decoded)))[:80]}"])


def _diag(whole: dict[str, Any], root: Any) -> Document:
    document = Document("diag")
    if not isinstance(root, dict):
        document.problems.append("its root is no object")
        return document
    for level in (whole, root):
        error = level.get("runtime_error")
        if error and NO_MIG.search(str(error)):
            document.blind.append(f"diagnostics are not possible under MIG: {str(error)[:120]}")
            return document
        if error:
            document.problems.append(f"DCGM had an error while it ran: {str(error)[:120]}")
        document.uuids |= dict(_uuids(level.get("entity_groups")))
    categories = root.get("test_categories")
    if not isinstance(categories, list) or not categories:
        document.problems.append("it has no category of tests")
        return document
    for category in categories:
        tests = category.get("tests") if isinstance(category, dict) else None
        if not isinstance(tests, list) or not tests:
            document.problems.append("a category has no test")
            continue
        for test in tests:
            _test(document, test)
    return document


def _uuids(groups: Any) -> Iterator[tuple[str, str]]:
    for group in groups if isinstance(groups, list) else ():
        for one in group.get("entities") or () if isinstance(group, dict) else ():
            if isinstance(one, dict) and str(one.get("uuid", "")).startswith("GPU-"):
                yield str(one.get("entity_id")), one["uuid"]


def _test(document: Document, test: Any) -> None:
    name = test.get("name") if isinstance(test, dict) else None
    if not isinstance(name, str) or not name:
        document.problems.append("a test has no name")
        return
    rows = test.get("results")
    if not isinstance(rows, list) or not rows:
        document.problems.append(f"the test {name[:40]} has no result")
        rows = []
    worst = False
    for row in rows:
        worst |= _result(document, name, row)
    summary = test.get("test_summary")
    if isinstance(summary, dict) and "status" in summary:
        said = status(str(summary["status"]))
        if said is None:
            document.problems.append(f"the summary of {name[:40]} is {str(summary['status'])[:40]!r}")
        elif said in {Status.FAIL, Status.WARN} and not worst:
            document.results.append(Result(name, said, "", _errors(summary)))


def _result(document: Document, name: str, row: Any) -> bool:
    """Take one result; say whether it is a failure or a warning."""
    if not isinstance(row, dict) or (said := status(str(row.get("status")))) is None:
        shown = str(row.get("status") if isinstance(row, dict) else row)[:40]
        document.problems.append(f"a result of {name[:40]} has a status that is not known: {shown!r}")
        return False
    group = str(row.get("entity_group") or "GPU")
    listed = row.get("gpu_id", row.get("gpu_ids", ""))
    numbers = [row["entity_id"]] if "entity_id" in row else str(listed).strip("[]").split(",")
    for number in numbers:
        shown = str(number).strip()
        if shown.isdecimal() and int(shown) > MAX_ENTITY:
            document.problems.append(f"a result of {name[:40]} is of an entity that is none: {shown[:40]}")
        document.results.append(Result(name, said, entity(group, shown) if shown else "", _errors(row)))
    return said in {Status.FAIL, Status.WARN}


def _errors(row: dict[str, Any]) -> list[Error]:
    """Read the warnings: a list of objects (4.x), a list of texts or one text (3.x)."""
    given = row.get("warnings", row.get("warning"))
    found = []
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, dict):
            said = str(one.get("warning", one.get("message", "")))
            number = _whole(one.get("error_id", one.get("code")))
            found.append(Error(said, number, _whole(one.get("error_severity"))))
        elif one:
            found.append(Error(str(one), _whole(row.get("error_id")), _whole(row.get("error_severity"))))
    return found


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    return int(text) if text.isdecimal() and len(text) < 9 else None


def _health(body: Any) -> Document:
    document = Document("health")
    rows = list(_leaves(body, ()))
    if not rows:
        document.problems.append("its body is empty")
    take_health(document, rows)
    return document


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give every text with the path of names above it."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, path if key in {"children", "value", "overflow", "body"} else (*path, str(key)))
    elif isinstance(node, list):
        for one in node:
            yield from _leaves(one, path)
    elif node is not None:
        yield path, str(node)


def take_health(document: Document, rows: list[tuple[tuple[str, ...], str]]) -> None:
    """Read a health report from its texts and the names above each.

    The names are ``Overall Health``; kind and number of an entity; below it, perhaps under ``Errors``, a system.
    """
    systems: dict[tuple[str, ...], Result] = {}
    # What a part is comes first: JSON's keys are sorted, so there its errors stand before it.
    for path, text in sorted(rows, key=lambda row: status(row[1]) is None):
        names = tuple(name for name in path if name.lower() != "errors")
        said = status(text)
        if names and names[0].lower() == OVERALL:
            if said is None or document.overall is not None:
                document.problems.append(f"overall health is {text[:40]!r}")
            document.overall = said or document.overall
        elif len(names) >= 2:
            system = names[2] if len(names) > 2 else ""
            key = (*names[:2], system)
            if said is not None:
                systems[key] = Result(system, said, entity(names[0], names[1]), [])
            elif key in systems:
                systems[key].errors.append(Error(text))
            else:
                document.problems.append(f"a text that is not understood: {text[:60]!r}")
        elif text.strip():
            document.problems.append(f"a text that is not understood: {text[:60]!r}")
    detailed = {one.entity for one in systems.values() if one.test and one.status is not Status.PASS}
    document.results += [one for one in systems.values() if one.test or one.entity not in detailed]
    if document.overall is None:
        document.problems.append("it does not say how the health is overall")
