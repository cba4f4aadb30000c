"""What is wrong with a policy beyond its types: found before it is enforced, each with its place and what to write."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from fleetwell.api.fields import seconds, words
from fleetwell.api.policy import PolicySpec, ProofLevel, Remedy, Rule
from fleetwell.health.catalogue import CATALOGUE

_GLOB = frozenset("*?[")
_LEAST_PROOF = {ProofLevel.NONE: 0.0, ProofLevel.QUICK: 15.0, ProofLevel.MEDIUM: 240.0, ProofLevel.LONG: 1800.0}
"""Seconds below which a level cannot end on eight GPUs: the sustained load alone is 45 s (medium) and 300 s (long) for
each of several products (``probes/data/proof_thresholds.toml``), and memory is written and read back besides."""


def problems(spec: PolicySpec) -> list[str]:
    """Give everything that is wrong with a policy, as ``place: what, and what to do``; empty when it is good."""
    found = [*_durations(spec), *_replacement(spec), *_proof(spec)]
    names: set[str] = set()
    for index, rule in enumerate(spec.rules):
        place = f"rules[{index}] ({rule.name})"
        if rule.name in names:
            found.append(f"{place}: another rule has this name; give each its own")
        names.add(rule.name)
        found += [
            f"{place}.{problem}" for problem in (*_faults(rule), *_shadowed(spec.rules[:index], rule), *_ladder(rule))
        ]
        if (
            any(rung.remedy is Remedy.REPLACE for rung in rule.ladder)
            and spec.replacement.provider == "none"
            and rule.quarantine
        ):
            found.append(
                f"{place}.ladder: asks for replace, and replacement.provider is none; set a provider or drop the rung"
            )
    if not spec.selector.match_labels and not spec.selector.instance_types:
        found.append("selector: selects every node; name labels or instance types")
    if not spec.pool_labels:
        found.append("poolLabels: is empty, so all nodes would share one budget; name at least one label")
    return found


def _proof(spec: PolicySpec) -> Iterator[str]:
    """A proof that cannot end in time holds every release until the ladder climbs: that is never meant."""
    level, deadline = spec.proof.level, spec.proof.deadline
    least = _LEAST_PROOF[level]
    with contextlib.suppress(ValueError):  # one that cannot be read is named with the other durations
        if seconds(deadline) < least:
            yield f"proof.deadline: {deadline} is too short for level {level}; allow {words(least)} or lower the level"


def _faults(rule: Rule) -> Iterator[str]:
    for name in rule.faults:
        if _GLOB & set(name):
            if not any(fnmatchcase(known, name) for known in CATALOGUE):
                yield f"faults: {name!r} matches no fault of the catalogue"
        elif name not in CATALOGUE:
            close = difflib.get_close_matches(name, [str(known) for known in CATALOGUE], n=1)
            hint = f"; did you mean {close[0]}?" if close else "; docs/conditions-and-faults.md lists them"
            yield f"faults: the catalogue has no fault {name!r}{hint}"


def _shadowed(earlier: Iterable[Rule], rule: Rule) -> Iterator[str]:
    """The first rule that names a fault applies, so a later one that names nothing new never does."""
    taken = [glob for before in earlier for glob in before.faults]
    mine = [known for known in CATALOGUE if any(fnmatchcase(known, glob) for glob in rule.faults)]
    if mine and all(any(fnmatchcase(known, glob) for glob in taken) for known in mine):
        yield "faults: rules above take all of them, so this rule never applies; move it up"


def _ladder(rule: Rule) -> Iterator[str]:
    ranks = [rung.remedy.recovery.rank for rung in rule.ladder]
    if ranks != sorted(ranks):
        order = " < ".join(remedy.value for remedy in Remedy)
        yield f"ladder: a stronger remedy stands before a weaker one; the order is {order}"
    if len(set(ranks)) != len(ranks):
        yield "ladder: a remedy is named twice; raise its attempts instead"
    if not rule.ladder and rule.quarantine:
        yield "ladder: is empty; write `person` where nothing is to be tried"


def _replacement(spec: PolicySpec) -> Iterator[str]:
    if spec.replacement.provider == "template" and spec.replacement.template is None:
        yield "replacement.template: is missing, and the provider is template; say which object to create"
    if spec.replacement.provider == "none" and spec.replacement.template is not None:
        yield "replacement.provider: is none, so the template is never used; set it to template"


def _durations(spec: PolicySpec) -> Iterator[str]:
    texts = {
        "pace.interval": spec.pace.interval,
        "proof.deadline": spec.proof.deadline,
        "release.quiet": spec.release.quiet,
        "release.settleDeadline": spec.release.settle_deadline,
        "replacement.capacityDeadline": spec.replacement.capacity_deadline,
    }
    for index, rule in enumerate(spec.rules):
        place = f"rules[{index}] ({rule.name})"
        texts[f"{place}.tolerate"] = rule.tolerate
        texts[f"{place}.drain.after"] = rule.drain.after
        texts[f"{place}.drain.deadline"] = rule.drain.deadline
        texts |= {f"{place}.ladder[{at}].deadline": rung.deadline for at, rung in enumerate(rule.ladder)}
    for place, text in texts.items():
        try:
            seconds(text)
        except ValueError as error:
            yield f"{place}: {error}"
