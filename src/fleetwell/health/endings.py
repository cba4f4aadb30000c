"""How findings end. Nothing but these rules, and a probe's own OK, takes a finding away."""

from __future__ import annotations

import msgspec

from fleetwell.health.catalogue import fault_or_unknown
from fleetwell.health.stimuli import RemedyDone
from fleetwell.health.triage_state import Kept, Key, TriageState, device_of
from fleetwell.health.vocabulary import HOST, Clears, Component, ConditionType, Observation, Recovery, Source


def ended_by_boot(state: TriageState) -> TriageState:
    """End the event findings of earlier boots whose condition the probes of this boot have found well."""
    old = [
        key
        for key, kept in state.kept.items()
        if kept.finding.clears is Clears.BOOT
        and kept.finding.boot_id != state.boot_id
        and _found_well(state, fault_or_unknown(key.fault).condition)
    ]
    return _without(state, old)


def _found_well(state: TriageState, condition: ConditionType) -> bool:
    """Whether the probes that matter for a condition have each taken a look in this boot that holds nothing bad."""
    probes = state.settings.probes
    required = [name for name, probe in probes.items() if probe.required]
    matter = [name for name in required if condition in probes[name].judges] or required
    matter = matter or [name for name, probe in probes.items() if condition in probe.judges]
    looks = [state.looks.get(name) for name in matter]
    return bool(looks) and all(
        look is not None and look.completed and look.answered and condition not in look.bad for look in looks
    )


def ended_by_remedy(state: TriageState, remedy: RemedyDone) -> TriageState:
    """Note what was done, and with a passed proof end what asked for no more than that."""
    kept = dict(state.kept)
    for key, one in state.kept.items():
        if not _reaches(remedy.component, key.component):
            continue
        done = max(one.done, remedy.recovery, key=lambda recovery: recovery.rank)
        noted = msgspec.structs.replace(one, done=done)
        if remedy.proof_passed and _answers(noted, key, booted=one.finding.boot_id != state.boot_id):
            del kept[key]
        else:
            kept[key] = noted
    return msgspec.structs.replace(state, kept=kept)


def _reaches(done_to: Component, component: Component) -> bool:
    return done_to in {HOST, component} or device_of(done_to) == device_of(component)


def _answers(kept: Kept, key: Key, *, booted: bool) -> bool:
    finding = kept.finding
    if key.source is not Source.EVENT or finding.clears is not Clears.REMEDY:
        return False
    done = max(kept.done, Recovery.REBOOT if booted else Recovery.NONE, key=lambda recovery: recovery.rank)
    if finding.suspected:
        return True  # the proof is what a suspicion asks for
    # What nobody could explain ends by a new boot and a proof, as well as by the person whom it asks for.
    asked = Recovery.REBOOT if fault_or_unknown(finding.fault).unintelligible else finding.recovery
    return done.rank >= asked.rank


def ended_by_time(state: TriageState) -> TriageState:
    """End what ages out and has not been seen for as long as its fault says."""
    old = [
        key
        for key, kept in state.kept.items()
        if kept.finding.clears is Clears.TIME
        and state.now - kept.anchor >= fault_or_unknown(kept.finding.fault).seconds
    ]
    return _without(state, old)


def too_old(state: TriageState, seen: Observation) -> bool:
    """Say whether an event is one that would have aged out by now: read from what the log's ring still holds."""
    entry = fault_or_unknown(seen.fault)
    return entry.clears is Clears.TIME and state.now - seen.at >= entry.seconds


def _without(state: TriageState, keys: list[Key]) -> TriageState:
    if not keys:
        return state
    gone = set(keys)
    return msgspec.structs.replace(state, kept={key: kept for key, kept in state.kept.items() if key not in gone})
