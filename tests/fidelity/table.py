"""Prints one screen: for each kind of input how many there are, and how many verdicts are right."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from fidelity.harness import Case, Outcome, ask, cases, judge


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """Ask all cases; the exit code is 1 while any answer is wrong."""
    counts: dict[str, Counter[str]] = {}
    others: list[tuple[Case, Outcome, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases()):
            place = Path(folder) / str(number)
            place.mkdir()
            outcome = ask(case, place)
            said = judge(case, outcome)
            counts.setdefault(case.topic, Counter())[said] += 1
            if said != "right":
                others.append((case, outcome, said))
    words = ("right", "wrong", "could not tell")
    say(f"{'':<24}{'inputs':>8}{'right':>8}{'wrong':>8}{'could not tell':>16}")
    for topic, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        row = [count.total(), *(count[word] for word in words)]
        say(f"{topic:<24}{row[0]:>8}{row[1]:>8}{row[2]:>8}{row[3]:>16}")
    for case, outcome, said in others:
        found = ", ".join(f"{one['fault']} on {one['component']}" for one in outcome.counting)
        answer = f"{outcome.answer.get('verdict')}/{outcome.answer.get('recovery')} {found or outcome.complaint[:120]}"
        must = f"{case.verdict}/{case.recovery} {list(case.faults)}"
        known = f" (known: {case.known_wrong})" if case.known_wrong else ""
        say(f"{said}: {case.topic}: {case.name}: {answer}; must be {must}{known}")
    return 1 if any(said == "wrong" and not case.known_wrong for case, _, said in others) else 0


if __name__ == "__main__":
    sys.exit(main())
