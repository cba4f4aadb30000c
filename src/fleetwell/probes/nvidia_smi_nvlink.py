"""Reads what ``nvidia-smi nvlink --status`` and ``nvlink -e`` print, and says which links are down.

A link that is not active may rightly be so: a bridge joins two cards only, and a part of a board is let out with links
that lead nowhere. So it is compared: with the other GPUs of the model, with what a whole board has, and only of a lone
GPU with its own other links. A count of errors is of the GPU's life; one look gives no rate, so it is a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetwell.probes import nvidia_smi_csv
from fleetwell.probes.nvidia_smi_document import Document, Field, Links
from fleetwell.probes.nvidia_smi_findings import GpuJudge
from fleetwell.probes.nvml_limits import limits

_STATE = re.compile(r"\s+Link (?P<link>\d{1,3}): (?:(?P<up>\d+(?:\.\d+)? GB/s)|<?inactive>?)\s*", re.IGNORECASE)
_COUNT = re.compile(
    r"\s+Link (?P<link>\d{1,3}): (?P<what>[A-Z][\w ()/-]{0,60}?(?: - \d{1,2})?): (?P<value>N/A|[\d.]+(?:e[+-]?\d+)?)\s*"
)
_NONE = re.compile(r"\s*(?:NVML: )?Unable to retrieve NVLink information as all links are inactive\s*", re.IGNORECASE)
_ERRORS = re.compile(r"(?:Replay|Recovery|CRC|ECC|Flit CRC|Data CRC)\b.*Errors?")
"""Counters of which a sound link has none; of the others some count what is sent, some what was set right by design."""
_BRIDGED = re.compile(r"\b(?:PCIe|NVL|RTX|Quadro|GeForce|TITAN|A2|A10|A16|A30|A40|GP100|GV100)\b")
"""Models whose links lead to a bridge that may or may not be there."""


def take(lines: list[str]) -> tuple[Document | None, list[str]]:
    """Cut the links out of loose lines; give them, and the lines that are left."""
    if not any(_is_link(line) for line in lines):
        return None, lines
    document, rest = Document("nvlink"), []
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        if nvidia_smi_csv.is_listed(line.rstrip("\n")):
            parts.append((line.rstrip("\n"), []))
        elif not _is_link(line):
            rest.append(line)
        elif parts:
            parts[-1][1].append(line)
        else:
            document.incomplete = "a link stands below no GPU"
    first = next((number for number, (_, told) in enumerate(parts) if told), 0)
    rest += [row for row, _ in parts[:first]]  # GPUs before the first links are those of a list.
    found: dict[str, Links] = {}
    for row, told in parts[first:]:
        links = found.setdefault(row, Links())
        for line in told:
            _note(links, line)
    document.gpus = nvidia_smi_csv.listing(list(found)).gpus
    for gpu, links in zip(document.gpus, found.values(), strict=True):
        gpu.links = links
        if not links.states and not links.counts and not links.none_active:
            document.incomplete = f"it says nothing of the links of GPU {gpu.one(Field.INDEX)}"
    return document, rest


def judge(judges: Mapping[str, GpuJudge], sliced: set[str]) -> str:
    """Judge the links of all GPUs of a document; give what makes no sense, empty where all does.

    :param sliced: GPUs that are divided: their links are switched off.
    """
    all_links = {one: judge.gpu.links for one, judge in judges.items() if judge.gpu.links is not None}
    for component, links in all_links.items():
        judges[component].judged.add("links")
        _counts(judges[component], component, links)
    models: dict[str, dict[str, Links]] = {}
    for component, links in all_links.items():
        if component in sliced:
            judges[component].seen.blind(f"nvidia-smi: the NVLinks of {component} are off under MIG")
        elif links.states or links.none_active:
            models.setdefault(judges[component].gpu.one(Field.NAME), {})[component] = links
    cut = _cut(judges)
    for model, of_model in models.items() if not cut else ():
        _model(model, of_model, judges)
    return cut


def _cut(judges: Mapping[str, GpuJudge]) -> str:
    """Say where equal GPUs do not show as many links."""
    shown: dict[tuple[str, str], set[int]] = {}
    for judge in judges.values():
        links, model = judge.gpu.links, judge.gpu.one(Field.NAME)
        for what, of_gpu in (("state", links.states), ("counters", links.counts)) if links else ():
            if of_gpu:
                shown.setdefault((model, what), set()).add(len(of_gpu))
    for (_, what), numbers in shown.items():
        if len(numbers) > 1:
            return f"of equal GPUs one shows the {what} of {min(numbers)} links and another of {max(numbers)}"
    return ""


def _model(model: str, gpus: Mapping[str, Links], judges: Mapping[str, GpuJudge]) -> None:
    """Judge the links of the GPUs of one model."""
    bridged = _BRIDGED.search(model) is not None
    active = {component: links.active() for component, links in gpus.items()}
    most = max(map(len, active.values()))
    full = sum(len(links) == most for links in active.values())
    if not most:
        _none_active(gpus, judges, bridged=bridged, board=_links_of(model) > 0 and len(gpus) == limits().board)
        return
    every = sorted({link for links in active.values() for link in links})
    for component, links in gpus.items():
        up = active[component]
        down = every if links.none_active else sorted(links.states.keys() - up)
        if not down:
            continue
        if len(up) < most and (full * 2 > len(gpus) or not bridged):
            why = f"{full} of {len(gpus)} equal GPUs have {most} active and this one {len(up)}"
        elif len(up) == most and not bridged and (len(gpus) == 1 or len(up) < _links_of(model)):
            why = f"{len(up)} others of this GPU are active"
        else:
            said = f"{len(down)} NVLinks of {component} are inactive; the machine may be built so"
            judges[component].seen.blind(f"nvidia-smi: {said}")
            continue
        for link in down:
            name = f"nvlink/{component.removeprefix('gpu/')}/{link}"
            judges[component].seen.fault("NvlinkDown", name, f"NVLink {link} is inactive; {why}")


def _none_active(gpus: Mapping[str, Links], judges: Mapping[str, GpuJudge], *, bridged: bool, board: bool) -> None:
    """Judge GPUs of which none has an active link: a fabric that was not joined, or a machine that has none."""
    for component in gpus:
        if bridged:
            judges[component].seen.blind(f"nvidia-smi: no NVLink of {component} is active; it may have no bridge")
        elif board:
            judges[component].fault("FabricIncomplete", "no NVLink of any GPU of the board is active")
        else:
            said = "no NVLink of any GPU is active; a machine that has a part of a board may be built so"
            judges[component].seen.fault("FabricIncomplete", component, said, verdict="UNKNOWN", recovery="none")


def _counts(judge: GpuJudge, component: str, links: Links) -> None:
    for link, counts in links.counts.items():
        risen = [f"{what} {value}" for what, value in counts if _ERRORS.fullmatch(what) and _more_than_none(value)]
        if risen:
            said = f"NVLink {link}, since the last reset or longer: {', '.join(risen)}; one look gives no rate"
            judge.seen.fault("NvlinkNoted", f"nvlink/{component.removeprefix('gpu/')}/{link}", said)


def _more_than_none(value: str) -> bool:
    return value != "N/A" and float(value) > 0


def _links_of(model: str) -> int:
    return next((number for part, number in limits().nvlinks.items() if part in model), 0)


def _is_link(line: str) -> bool:
    return bool(_STATE.fullmatch(line) or _COUNT.fullmatch(line) or _NONE.fullmatch(line))


def _note(links: Links, line: str) -> None:
    state, count = _STATE.fullmatch(line), _COUNT.fullmatch(line)
    if state:
        links.states[int(state["link"])] = state["up"] is not None
    elif count:
        links.counts.setdefault(int(count["link"]), []).append((count["what"], count["value"]))
    else:
        links.none_active = True
