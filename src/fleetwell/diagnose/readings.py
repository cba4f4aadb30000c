"""Hands each input to its reader, and says what that leaves open."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fleetwell.diagnose import bug_report as reports
from fleetwell.diagnose import dcgm_discovery, driver_version, logs
from fleetwell.diagnose.bug_report import BugReport, Part
from fleetwell.diagnose.examination import Examination
from fleetwell.diagnose.given import Given
from fleetwell.health.stimuli import Event, NewBoot
from fleetwell.probes import attribute, dcgm_reading, efa, infiniband, nvidia_smi_reading, pci, protocol
from fleetwell.probes.inventory import Expected, instance_types
from fleetwell.probes.report import Report

_GARBAGE: Final = "ProbeNonsense"
_EMPTY: Final = "ProbeSilent"


def nvidia_smi(examination: Examination, given: Given, must: Expected) -> None:
    """Read an output of ``nvidia-smi``, in any form."""
    text = _whole(examination, given)
    if text:
        _nvidia_smi(examination, text, given.name, must)


def dcgm(examination: Examination, given: Given, must: Expected) -> None:
    """Read an output of ``dcgmi health``, ``dcgmi diag`` or ``dcgmi discovery -l``, in any form.

    Its GPU numbers are the driver's own order: where nvidia-smi was given too, it tells their UUIDs.
    """
    text = _whole(examination, given)
    if not text:
        return
    _learn_driver(examination, text)
    found = dcgm_discovery.count(text)
    if found is not None:
        _take(examination, dcgm_discovery.judge(found, must.gpus, dcgm_discovery.nameless(text)), given.name)
    else:
        asked = dcgm_reading.Asked(uuids={str(number): uuid for number, uuid in enumerate(examination.uuids)})
        _take(examination, dcgm_reading.read(text, asked), given.name)


def kernel_log(examination: Examination, given: Given, must: Expected) -> None:
    """Read a kernel log, in any form. What it holds is judged once the snapshots are in."""
    del must

    def read(known: Examination) -> Iterator[Event | NewBoot]:
        yield from logs.printed(known, given.lines(), given.name, given.saved)
        if given.cut:
            known.problem(_GARBAGE, given.cut)

    examination.log(read)


def bug_report(examination: Examination, given: Given, must: Expected) -> None:
    """Read an nvidia-bug-report."""
    report = reports.split(given.lines())
    if given.cut:
        examination.problem(_GARBAGE, given.cut)
    if not report.begins:
        examination.problem(_GARBAGE, f"{given.name} is no nvidia-bug-report, or its beginning is missing")
    elif not report.ends:
        examination.problem(_GARBAGE, f"{given.name} has no last line: its script hung or was ended, or it was cut")
    if report.overflow:
        examination.problem(_GARBAGE, f"only {reports.KEPT_LINES} lines of one part of {given.name} were read")
    _learn_driver(examination, "\n".join(report.lines(Part.DRIVER)))
    query = "\n".join(report.lines(Part.NVIDIA_SMI))
    if query.strip():
        _nvidia_smi(examination, f"{query}\n", f"{given.name}: {Part.NVIDIA_SMI.value}", must)
    elif report.begins:
        examination.blind(f"how the GPUs are now: {given.name} has no output of nvidia-smi --query")
    any_log = _kernel_parts(examination, report, given.name, given.saved)
    if report.begins and not any_log and not query.strip():
        examination.problem(_EMPTY, f"{given.name} has neither kernel messages nor nvidia-smi --query")


def _kernel_parts(examination: Examination, report: BugReport, name: str, saved: float) -> bool:
    """Read the kernel's messages of this boot, from wherever the report has them; say whether it has any."""
    current = [part for part in (Part.KERNEL, Part.JOURNAL) if any(map(str.strip, report.lines(part)))]
    if not current and any(map(str.strip, report.lines(Part.KERNEL_FILES))):
        current = [Part.KERNEL_FILES]
    for part in current:
        _log(examination, report.lines(part), f"{name}: {part.value}", saved)
    if report.begins and not current:
        examination.blind(f"what happened: {name} has no kernel messages")
    if any("NVRM: Xid" in line or "SXid" in line for line in report.lines(Part.EARLIER_BOOT)):
        examination.blind(f"{name}: Xids of earlier boots are in it and were not judged")
    return bool(current)


def host_tree(examination: Examination, root: Path, must: Expected) -> None:
    """Read a sysfs/proc tree: a copy, or a machine's own."""
    looks = (
        pci.look(root, must.gpus, {}),
        efa.look(root, must.nics, [], gbps=must.efa_gbps or 0.0),
        infiniband.look(
            root,
            must.infiniband,
            {},
            gbps=must.infiniband_gbps or 0.0,
            must_be_up=must.infiniband_up,
            gpus=must.gpus,
        ),
    )
    if not [taken for report in looks if (taken := _take(examination, report, str(root)))]:
        examination.problem(_EMPTY, f"{root} has no GPU and no adapter to judge below sys/")
    _learn_driver(examination, attribute.text(root / "proc/driver/nvidia/version"))


def say_what_is_missing(examination: Examination, must: Expected) -> None:
    """Say which expectations nothing that was given can check."""
    if not examination.looked:
        examination.blind(
            "how the machine is now: only a look shows it; a kernel log says what happened, never that all is well"
        )
        if must.gpus is not None:
            examination.blind(f"whether all {must.gpus} GPUs are there: give --nvidia-smi, --dcgm or --host-root")
    if must.nics is not None and "efa" not in examination.counted:
        examination.blind(f"whether all {must.nics} EFA interfaces are there: give --host-root")
    if must.infiniband is not None and "infiniband" not in examination.counted:
        examination.blind(f"whether all {must.infiniband} InfiniBand adapters are there: give --host-root")


def say_what_was_not_counted(examination: Examination, must: Expected, instance_type: str) -> None:
    """Say that a GPU may be missing and nobody would see it, where nothing tells how many there must be.

    :param instance_type: the one that was said, if one was.
    """
    if must.gpus is not None:
        return
    if instance_type:
        near = difflib.get_close_matches(instance_type, instance_types(), n=1)
        meant = f" (it has {near[0]})" if near else ""
        said = f"how many GPUs a {instance_type} must have: the table does not have it{meant}"
        examination.blind(f"{said}; use --expect gpus=N")
    elif examination.looked:
        examination.blind("whether a GPU is missing: nothing says how many there must be; use --expect gpus=N")


def _whole(examination: Examination, given: Given) -> str:
    text = given.text()
    if given.cut:
        examination.problem(_GARBAGE, given.cut)
    if not text.strip():
        if not given.cut:
            examination.problem(_EMPTY, f"{given.name} is empty")
        return ""
    return text


def _nvidia_smi(examination: Examination, text: str, name: str, must: Expected) -> None:
    _learn_driver(examination, text)
    asked = nvidia_smi_reading.Asked(expected=must.gpus)
    _take(examination, nvidia_smi_reading.read(text, asked), name)


def _log(examination: Examination, lines: list[str], name: str, saved: float) -> None:
    examination.log(lambda known: logs.printed(known, lines, name, saved))


def _take(examination: Examination, report: Report, name: str) -> bool:
    """Put a reader's report before the examination; say whether there was anything to judge."""
    (one,) = protocol.read(report.encode().encode(), (report.probe,))
    examination.look(one, f"{name}: {report.probe}")
    return not one.absent


def _learn_driver(examination: Examination, text: str) -> None:
    examination.driver = examination.driver or driver_version.find(text)
