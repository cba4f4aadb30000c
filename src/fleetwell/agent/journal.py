"""Asks the host's journal for kernel lines that the ring no longer held, through a child that may hang."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from fleetwell.agent.sources import failure
from fleetwell.health.log_gaps import Gap
from fleetwell.health.vocabulary import BootId
from fleetwell.probes import child, launch
from fleetwell.probes.child import SupervisedChild
from fleetwell.probes.journal import Answer

DEADLINE = 30.0


class Journal:
    """The journal of one boot."""

    def __init__(self, host_root: Path, boot_id: BootId, *, deadline: float = DEADLINE) -> None:
        self.child = SupervisedChild("journal")
        self._host_root = host_root
        self._boot_id = boot_id
        self._deadline = deadline

    async def read(self, gaps: Sequence[Gap]) -> Answer:
        """Read what it has of the gaps; where it gives no answer, that it has none and why."""
        asked = {"host_root": str(self._host_root), "boot_id": self._boot_id, "gaps": msgspec.to_builtins(gaps)}
        argv = launch.module("journal", {**asked, "deadline": self._deadline})
        try:
            outcome = await self.child.run(argv, deadline=self._deadline, env=launch.environment())
        except OSError as error:
            return Answer(absent=f"the journal cannot be asked: {error}")
        if not isinstance(outcome, child.Answer):
            fault, said = failure(outcome)
            return Answer(absent=f"the journal gave no answer ({fault}: {said})")
        try:
            return msgspec.json.decode(outcome.output, type=Answer)
        except msgspec.DecodeError as error:
            return Answer(absent=f"the journal's answer cannot be read: {error}")
