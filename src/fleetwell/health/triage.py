"""Triage: what was seen goes in, findings that changed come out. Pure and bounded.

The rules. Events and snapshots never end each other's findings. A snapshot's finding ends when the same
probe says OK, several times. An event's finding ends by its catalogue rule: a new boot and a full OK snapshot of it;
the remedy and a passed proof; time. What applications did never touches the node: only its return for different owners
in one place makes a suspicion. A probe that gives no answer is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

import msgspec

from fleetwell.health.bursts import see_event
from fleetwell.health.conditions import Condition, conditions_of, worst_first
from fleetwell.health.endings import ended_by_boot, ended_by_remedy, ended_by_time, too_old
from fleetwell.health.findings_table import FindingsTable
from fleetwell.health.looks import probe_blind, probe_failed, snapshot_taken, unchecked
from fleetwell.health.repetition import repeated
from fleetwell.health.stimuli import Adopt, Event, NewBoot, ProbeBlind, ProbeFailed, RemedyDone, Stimulus, Tick
from fleetwell.health.triage_state import (
    EMPTY,
    Change,
    Kept,
    Key,
    TriageSettings,
    TriageState,
    change_between,
)
from fleetwell.health.vocabulary import BootId, Clears, Finding, Observation, Snapshot, Source


def initial(boot_id: BootId, settings: TriageSettings) -> TriageState:
    """Begin with nothing seen and nothing checked."""
    return TriageState(boot_id=boot_id, settings=settings)


def step(state: TriageState, stimulus: Stimulus, settings: TriageSettings) -> tuple[TriageState, Change]:
    """Take one stimulus in; the same state, stimulus and settings always give the same result."""
    if state.settings is not settings:
        state = msgspec.structs.replace(state, settings=settings)
    after = _next(state, stimulus)
    return after, change_between(state.kept, after.kept)


def findings(state: TriageState) -> tuple[Finding, ...]:
    """Give all findings, the worst first, in a stable order."""
    return tuple(worst_first(kept.finding for kept in state.kept.values()))


def conditions(state: TriageState, now: float) -> tuple[Condition, ...]:
    """Give every condition as it is at ``now``, without its last transition (see ``conditions.transition``)."""
    current = ended_by_time(msgspec.structs.replace(state, now=now))
    return conditions_of(
        [kept.finding for kept in current.kept.values()],
        judges={name: probe.judges for name, probe in state.settings.probes.items()},
        unchecked=unchecked(current),
        adopted=current.adopted,
        overflow=current.overflow,
    )


def settled(state: TriageState) -> bool:
    """Say whether every required probe's latest look is of this boot, complete and without anything bad."""
    required = [name for name, probe in state.settings.probes.items() if probe.required] or list(state.looks)
    looks = [state.looks.get(name) for name in required]
    return bool(looks) and all(look is not None and look.completed and look.answered and not look.bad for look in looks)


def _next(state: TriageState, stimulus: Stimulus) -> TriageState:  # noqa: PLR0911 - one return for each stimulus
    match stimulus:
        case Event():
            return _event(state, stimulus)
        case Snapshot():
            return ended_by_boot(snapshot_taken(state, stimulus))
        case ProbeFailed():
            return probe_failed(state, stimulus)
        case ProbeBlind():
            return probe_blind(state, stimulus)
        case NewBoot():
            return _new_boot(state, stimulus.boot_id)
        case RemedyDone():
            return ended_by_remedy(state, stimulus)
        case Adopt():
            return _adopt(state, stimulus)
        case Tick():
            return ended_by_time(_at(state, stimulus.now))
        case _:
            assert_never(stimulus)


def _event(state: TriageState, event: Event) -> TriageState:
    table = FindingsTable(state)
    repetitions = dict(state.repetitions)
    for seen, times in _runs(event.observations, state.events_until):
        key = None if too_old(state, seen) else see_event(table, seen, state.settings.burst_s, times)
        if repeated(repetitions, seen, event.owners, state.settings) and key is not None and key in table.kept:
            table.kept[key] = _suspected(table.kept[key])
    return msgspec.structs.replace(state, kept=table.kept, repetitions=repetitions, overflow=table.overflow)


def _runs(observations: tuple[Observation, ...], after: float) -> Iterator[tuple[Observation, int]]:
    """Put equal observations that follow one another together, so that a flood costs next to nothing.

    The first is given by itself and the latest with how many more there were: first and last sight stay right.
    """
    first: Observation | None = None
    last: Observation | None = None
    more = 0
    for seen in observations:
        if seen.at <= after:
            continue
        if first is not None and seen.evidence == first.evidence and _same_place(first, seen):
            last, more = seen, more + seen.times
            continue
        if first is not None:
            yield first, first.times
        if last is not None:
            yield last, more
        first, last, more = seen, None, 0
    if first is not None:
        yield first, first.times
    if last is not None:
        yield last, more


def _same_place(one: Observation, other: Observation) -> bool:
    return one is other or msgspec.structs.replace(one, at=other.at, times=other.times) == other


def _suspected(kept: Kept) -> Kept:
    if kept.finding.suspected:
        return kept
    return msgspec.structs.replace(
        kept, finding=msgspec.structs.replace(kept.finding, suspected=True, clears=Clears.REMEDY)
    )


def _new_boot(state: TriageState, boot_id: BootId) -> TriageState:
    if boot_id == state.boot_id:
        return state
    kept = {key: msgspec.structs.replace(one, oks=0) for key, one in state.kept.items()}
    return msgspec.structs.replace(
        state, boot_id=boot_id, kept=kept, looks=EMPTY, history=EMPTY, adopted=EMPTY, overflow=0, events_until=-math.inf
    )


def _adopt(state: TriageState, adopt: Adopt) -> TriageState:
    kept = dict(state.kept)
    for finding in worst_first(adopt.findings)[: max(0, state.settings.max_findings - len(kept))]:
        probe = finding.probe if finding.source is Source.SNAPSHOT else ""
        key = Key(finding.fault, finding.component, finding.source, probe)
        kept.setdefault(key, Kept(finding=finding, adopted=True, anchor=finding.last_seen))
    same_boot = adopt.boot_id == state.boot_id
    return msgspec.structs.replace(
        state,
        kept=kept,
        answered=state.answered | adopt.answered,
        adopted={one.type: one for one in adopt.conditions} if same_boot else EMPTY,
        events_until=adopt.events_until if same_boot else -math.inf,
    )


def _at(state: TriageState, now: float) -> TriageState:
    """Move the time. Where the clock steps back, what runs by time begins anew instead of running for ever."""
    if now >= state.now:
        return msgspec.structs.replace(state, now=now)
    kept = {key: msgspec.structs.replace(one, anchor=min(one.anchor, now)) for key, one in state.kept.items()}
    return msgspec.structs.replace(state, now=now, kept=kept)
