"""The child that runs ``nvidia-smi`` and judges what it prints.

NVML is asked by another child. This one asks through the tool that people trust, which goes another way through the
driver at times: it is optional, and what both see is judged by the same rules.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleetwell.probes import report
from fleetwell.probes.driver import command
from fleetwell.probes.nvidia_smi_findings import Findings
from fleetwell.probes.nvidia_smi_reading import PROBE, Asked, read
from fleetwell.probes.tool import NoAnswerError, ask

TOOL = "nvidia-smi"
INNER_SHARE = 0.8
"""Part of the supervisor's deadline after which the tool is given up here, so that the reason can still be told."""
EXIT_BAD_ARGUMENT = 2


def main() -> None:
    """Look once."""
    given = report.settings()
    expected, deadline = given.get("expected"), given.get("deadline")
    known = {str(uuid): str(pci) for uuid, pci in dict(given.get("known") or {}).items()}  # type: ignore[call-overload]  # JSON from the agent
    try:
        seen = look(
            Path(str(given.get("host_root", "/"))),
            expected if isinstance(expected, int) else None,
            known,
            deadline=float(deadline) if isinstance(deadline, int | float) else 30.0,
            in_container=bool(given.get("in_container", False)),
        )
    except NoAnswerError as error:
        sys.exit(f"{error}")
    report.leave(seen)


def look(
    host_root: Path,
    expected: int | None,
    known: dict[str, str],
    *,
    deadline: float = 30.0,
    in_container: bool = False,
) -> Findings:
    """Run the tool and judge it.

    :param expected: how many GPUs the machine must have, where that is known.
    :param known: UUID → PCI address of the GPUs that this machine was seen to have.
    :param deadline: the supervisor's, in seconds.
    :raises NoAnswerError: it hung, or said nothing that could be judged: the supervisor then says so of the probe.
    """
    tool = command(host_root, TOOL)
    if tool is None:
        seen = Findings(PROBE)
        seen.absent(f"no {TOOL} in any driver root below {host_root}")
        return seen
    output, code = ask(tool, ["-q", "-x"], deadline * INNER_SHARE)
    if code == EXIT_BAD_ARGUMENT:
        output, code = ask(tool, ["-q"], deadline * INNER_SHARE / 2)
    required = bool(expected or known)
    asked = Asked(code=code, expected=expected, known=known, in_container=in_container, required=required)
    seen = read(output, asked)
    if seen.noted == {("ProbeNonsense", "host")}:
        raise NoAnswerError(f"{TOOL} gave no answer that makes sense (exit code {code}): {seen.last_said}")
    return seen


if __name__ == "__main__":
    main()
