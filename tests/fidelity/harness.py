"""Reads the cases, puts each through the real command, and says whether the answer is right.

A case is data: what is given, and what must come out. Its inputs are texts, so that a reader of the file sees both.
"""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from fidelity import machine, smi
from fleetwell.cli import cli

FOLDER = Path(__file__).parent / "cases"
_OPTIONS = {
    "kernel_log": "--kernel-log",
    "nvidia_smi": "--nvidia-smi",
    "dcgm": "--dcgm",
    "bug_report": "--bug-report",
    "host_root": "--host-root",
}
_EXITS = {"OK": 0, "CONFIG": 0, "BAD": 1, "UNKNOWN": 2}
_FORMS = {"long": smi.long_form, "xml": smi.xml_form}


@dataclass(frozen=True)
class Case:
    """One public input and the right answer to it."""

    topic: str
    name: str
    source: str
    given: Mapping[str, Any]
    verdict: str
    recovery: str
    faults: tuple[str, ...] = ()
    """Faults of the findings that count; for OK those that count are none."""
    components: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    known_wrong: str = ""
    """Why it comes out wrong for now: then it must come out wrong."""


@dataclass(frozen=True)
class Outcome:
    """What the command answered."""

    exit_code: int
    answer: Mapping[str, Any] = field(default_factory=dict)
    complaint: str = ""

    @property
    def counting(self) -> list[Mapping[str, Any]]:
        """The findings whose verdict is the whole's; none where all is well."""
        verdict = self.answer.get("verdict")
        return [one for one in self.answer.get("findings", ()) if one["verdict"] == verdict and verdict != "OK"]


def cases() -> Iterator[Case]:
    """Give all cases, in the order of their files."""
    for path in sorted(FOLDER.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            fields = dict(row)
            given = {key: fields.pop(key) for key in _OPTIONS if key in fields}
            for key in ("faults", "components", "args"):
                if key in fields:
                    fields[key] = tuple(fields[key])
            yield Case(topic=path.stem, given=given, **fields)


def ask(case: Case, folder: Path) -> Outcome:
    """Put a case through ``fleetwell diagnose``."""
    arguments = ["diagnose", "-o", "json", *case.args]
    for key, value in case.given.items():
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            arguments += [_OPTIONS[key], str(_write(folder / f"{key}-{number}", one))]
    result = CliRunner().invoke(cli, arguments)
    if result.exit_code == 3 or not result.stdout.startswith("{"):
        return Outcome(result.exit_code, complaint=result.output)
    return Outcome(result.exit_code, json.loads(result.stdout))


def judge(case: Case, outcome: Outcome) -> str:
    """Give ``right``, ``wrong`` or ``could not tell``."""
    answer = outcome.answer
    if answer.get("verdict") == "UNKNOWN" and case.verdict != "UNKNOWN":
        return "could not tell"
    # A sound machine has no finding that is more than a note.
    right = answer.get("verdict") == case.verdict and answer.get("recovery") == case.recovery
    right = right and {one["fault"] for one in outcome.counting} == set(case.faults)
    if case.components is not None:
        right = right and {one["component"] for one in outcome.counting} == set(case.components)
    mild = case.recovery in {"none", "restartWorkload"} and case.verdict != "UNKNOWN"
    return "right" if right and outcome.exit_code == (0 if mild else _EXITS[case.verdict]) else "wrong"


def _write(path: Path, value: Any) -> Path:
    if isinstance(value, str):
        path.write_text(value, encoding="utf-8", newline="")
        return path
    if "tree" in value or "machine" in value:
        for name, text in (value.get("tree") or machine.tree(value["machine"])).items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                file.symlink_to(text.removeprefix("-> "))
            elif text.startswith("hex "):
                file.write_bytes(bytes.fromhex(text.removeprefix("hex ")))
            else:
                file.write_text(f"{text}\n", encoding="utf-8")
        path.mkdir(exist_ok=True)
        return path
    if "form" in value:
        text = _FORMS[value["form"]](
            value["gpus"], value.get("changes", {}), value.get("attached"), value.get("board", "h100")
        )
    else:
        text = value["text"] * value.get("times", 1)
    text = value.get("before", "") + text + value.get("after", "")
    raw = text.encode()
    raw = raw[: int(len(raw) * value.get("keep", 1.0))]
    raw = gzip.compress(raw) if value.get("gzip") else raw
    path.write_bytes(raw[: int(len(raw) * value.get("keep_packed", 1.0))])
    return path
