"""Reads any output of ``dcgmi health`` and ``dcgmi diag``, and says what it means for each GPU.

A pass is only what is understood to its end: another top key, an empty category, an error while it ran, an exit code
that nothing explains, or a text that is not known leave the answer open. And a pass is DCGM's alone: it clears what
DCGM itself found and never what another probe did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleetwell.probes import dcgm_json, dcgm_text
from fleetwell.probes.dcgm_document import Document, Result, Status
from fleetwell.probes.dcgm_errors import OPEN, UNHEALTHY, Error, Meaning, looks_at_settings, meaning
from fleetwell.probes.nvidia_smi_findings import Findings
from fleetwell.probes.pasted import around, plain
from fleetwell.probes.proof_thresholds import thresholds

PROBE = "dcgm"
MAX_CHARACTERS = 4 << 20
MAX_LINES = 50_000
_UNREACHABLE = re.compile(
    r"unable to (?:establish a connection|connect)|host ?engine is not|connection (?:is )?not valid|connection refused",
    re.IGNORECASE,
)
_NOT_WATCHED = re.compile(r"health watches not enabled", re.IGNORECASE)
_TIME_OUT = re.compile(r"time(?:d)? ?out", re.IGNORECASE)
_HARMLESS = re.compile(
    r"successfully ran diagnostic.*|health monitor (?:report|systems set successfully\.)", re.IGNORECASE
)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse an object that names a thing twice: which of the two counts would be a guess."""
    whole = dict(pairs)
    if len(whole) < len(pairs):
        raise ValueError("an object names a thing twice")
    return whole


_DECODER = json.JSONDecoder(object_pairs_hook=_once)


@dataclass
class Asked:
    """What is known beside the output itself."""

    code: int | None = None
    """The exit code, where it is known."""
    level: int | None = None
    """The level of the diagnostic that was asked for; None where only its own words tell."""
    uuids: Mapping[str, str] = field(default_factory=dict)
    """DCGM's GPU number → UUID, where that is known."""


def read(text: str, asked: Asked | None = None) -> Findings:
    """Judge one output, JSON or table, with whatever was printed around it."""
    asked = asked or Asked()
    seen = Findings(PROBE)
    if len(text) > MAX_CHARACTERS or text.count("\n") > MAX_LINES:
        return _open(seen, [f"the output has more than {MAX_CHARACTERS} characters or {MAX_LINES} lines"])
    documents, rest = split(plain(text))
    problems, blind = _texts(rest)
    if not documents and not problems and not blind:
        problems.append("dcgmi said nothing")
    failed = False
    for document in documents:
        blind += [f"dcgm: {said}" for said in document.blind]
        failed |= _judge(seen, document, {**document.uuids, **asked.uuids})
        problems += [f"dcgm {document.kind}: {said}" for said in document.problems]
        problems += _too_little(seen, document, asked.level)
    for said in blind:
        seen.blind(said)
    if asked.code and not failed and not blind:
        problems.append(f"dcgmi ended with exit code {asked.code}, which its output does not explain")
    if not problems and any(document.results or document.overall for document in documents):
        passed = {one.entity for document in documents for one in document.results if one.entity}
        uuids = {number: uuid for document in documents for number, uuid in document.uuids.items()} | dict(asked.uuids)
        healthy = {*uuids, *passed} if any(document.kind == "health" for document in documents) else passed
        seen.covers("host", *(_component(number, uuids) for number in sorted(healthy)))
    return _open(seen, problems)


def split(text: str) -> tuple[list[Document], list[str]]:
    """Give the documents in a text, and the lines that belong to none."""
    documents: list[Document] = []
    rest: list[str] = []
    brace = text.find("{")
    while brace >= 0 and not text[:brace].rpartition("\n")[2].strip():
        rest += text[:brace].splitlines()
        try:
            decoded, end = _DECODER.raw_decode(text[brace:])
        except (ValueError, RecursionError) as error:
            cut = Document("output", problems=[f"it is no whole JSON document: {str(error)[:80]}"])
            return [*documents, cut], rest
        documents.append(dcgm_json.read(decoded))
        text = text[brace + end :]
        brace = text.find("{")
    tables: list[list[str]] = []
    within = False
    for line in text.splitlines():
        drawn = line.lstrip()[:1] in {"|", "+"}
        if drawn and not within:
            tables.append([])
        if drawn:
            tables[-1].append(line)
        else:
            rest.append(line)
        within = drawn or (within and not line.strip())
    return [*documents, *(dcgm_text.read(table) for table in tables)], rest


def _texts(rest: list[str]) -> tuple[list[str], list[str]]:
    """Read the loose lines: give what leaves the answer open, and what this machine cannot be asked."""
    problems: list[str] = []
    blind: list[str] = []
    for line in rest:
        said = line.strip()
        if _UNREACHABLE.search(said):
            problems.append(f"DCGM's host engine cannot be reached: {said[:120]}")
        elif dcgm_json.NO_MIG.search(said):
            blind.append(f"dcgm: diagnostics are not possible under MIG: {said[:120]}")
        elif _NOT_WATCHED.search(said):
            problems.append(f"DCGM watches nothing, so it can say nothing: {said[:120]}")
        elif _TIME_OUT.search(said):
            problems.append(f"DCGM did not answer in time: {said[:120]}")
        elif not _HARMLESS.fullmatch(said) and not around(line, "dcgmi"):
            problems.append(f"a line that is not understood: {said[:120]}")
    return problems, blind


def _judge(seen: Findings, document: Document, uuids: Mapping[str, str]) -> bool:
    """Judge every result; say whether there was any that is not well."""
    failed = False
    for result in document.results:
        component = _component(result.entity, uuids)
        if result.status in {Status.SKIP, Status.NOT_RUN}:
            why = result.errors[0].said[:120] if result.errors else "no reason is given"
            seen.blind(f"dcgm: {result.test} did not run on {component}: {why}")
        elif result.status is not Status.PASS:
            failed = True
            _failure(seen, document.kind, result, component)
        elif any(error.number for error in result.errors):  # An error was recorded, and it passed all the same (#284).
            _failure(seen, document.kind, replace(result, status=Status.WARN), component)
    if document.overall in {Status.FAIL, Status.WARN} and not failed:
        failed = True
        verdict = "BAD" if document.overall is Status.FAIL else "UNKNOWN"
        seen.fault(UNHEALTHY, "host", f"overall health: {document.overall}, without a reason", verdict=verdict)
    return failed


def _failure(seen: Findings, kind: str, result: Result, component: str) -> None:
    """Note what a failure means; every error of it counts, and one that asks for nothing explains no failure."""
    said = f"{kind}, {result.test or 'overall'}: {result.status}"
    meanings = _meanings(result)
    history = kind == "health" and bool(meanings) and all(one.history for one, _ in meanings)
    explained = False
    for one, error in meanings:
        shown = f"{said}: {error.said}"
        if one.history and kind == "health":
            seen.fault("GpuNoted", component, f"history, no evidence of now: {shown}", verdict="OK", recovery="none")
        elif not one.fault:
            seen.blind(f"dcgm: {result.test} does not fit {component}: {error.said[:120]}")
            explained = True
        elif not one.harmless or result.status is Status.WARN:
            seen.fault(one.fault, component, shown, verdict=one.verdict, recovery=one.recovery)
            explained = True
    if explained or history:
        return
    first = f"{said}: {result.errors[0].said}" if result.errors else said
    if looks_at_settings(result.test):
        seen.fault("DcgmSettings", component, first)
    elif result.status is Status.FAIL:
        bad = "GpuProofFailed" if kind == "diag" else UNHEALTHY
        seen.fault(bad, component, first)
    else:
        seen.fault(UNHEALTHY, component, first, verdict=OPEN.verdict, recovery=OPEN.recovery)


def _meanings(result: Result) -> list[tuple[Meaning, Error]]:
    """Judge the errors one by one, and joined where none of them says anything: a message may come in several parts."""
    found: dict[Meaning, Error] = {}
    for error in result.errors:
        one = meaning(error)
        if one is not None:
            found.setdefault(one, error)
    joined = Error(" ".join(one.said for one in result.errors if one.number is None))
    if not found and (one := meaning(joined)) is not None:
        found[one] = joined
    return list(found.items())


def _too_little(seen: Findings, document: Document, asked: int | None) -> list[str]:
    """Say why a diagnostic that failed nowhere still shows nothing.

    Where nobody says which level was asked for, its tests tell: the highest level that has one of them of its own. What
    that level needs must then have run where it is named. Where it is not, tests may have been chosen by their names.
    """
    if document.kind != "diag" or document.problems or document.blind:
        return []
    ran: dict[str, set[str]] = {}
    left_out: dict[str, set[str]] = {}
    for one in document.results:
        rows = left_out if one.status in {Status.SKIP, Status.NOT_RUN} else ran
        rows.setdefault(_plain(one.test), set()).add(one.entity)
    if not ran:
        return ["dcgm diag: no test ran"]
    known = thresholds()
    named = ran.keys() | left_out.keys()
    diagnostic = known.diagnostic(asked or max(map(known.begins, named)))
    if diagnostic is None:
        return [f"dcgm diag: level {asked} was asked for, which is not known"]
    must = diagnostic.must if asked else diagnostic.must & named
    missing = sorted(test for test in must if test not in ran or left_out.get(test, set()) - ran[test])
    if diagnostic.must - named and not asked:
        names = ", ".join(sorted(diagnostic.must - named))
        seen.blind(f"dcgm: it is no whole level {diagnostic.number}: {names} is not among its tests")
    said = "was asked for" if asked else "is what it names"
    return [f"dcgm diag: level {diagnostic.number} {said}, and {', '.join(missing)} did not run"] if missing else []


def _plain(test: str) -> str:
    """Write a test's name as DCGM 4 does: 3.x has ``Pulse Test`` for ``pulse``, ``GPU Memory`` for ``memory``."""
    return test.strip().lower().removeprefix("gpu ").replace(" ", "_").removesuffix("_test")


def _component(number: str, uuids: Mapping[str, str]) -> str:
    if not number:
        return "host"
    if number.isdecimal():
        return f"gpu/{uuids.get(number) or f'index-{number}'}"
    return number


def _open(seen: Findings, problems: list[str]) -> Findings:
    """Note why the answer is open. It asks for no deed: what is wrong may be DCGM and not the machine."""
    for said in problems[:4]:
        seen.fault("ProbeNonsense", "host", said, recovery="none")
    return seen
