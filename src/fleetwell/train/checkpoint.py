"""Checkpoints that are either whole or not there, written together by all ranks on torch.distributed.checkpoint.

All collectives here run in the job's own gloo group. What rank 0 finds out alone (the fence, the listing, the commit)
it tells the others, errors too: either all ranks go on or all raise.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from . import manifest as manifests
from . import session
from .errors import CheckpointDamagedError, CheckpointError, NotInitializedError, StaleGenerationError
from .fencing import Claim
from .manifest import FileSum, Manifest
from .rehearsal import RngState, Stateful, warm_up
from .shelf import Shelf

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
_log = structlog.get_logger()


class _OwnState(msgspec.Struct, frozen=True):
    """What differs from rank to rank."""

    rng: RngState
    extra: dict[str, dict[str, object]]


class Checkpointer:
    """Saves and resumes one training state in ``directory``, which all ranks share.

    ``every``: steps between periodic saves (0: only at drains and the end); ``keep``: checkpoints that stay.
    """

    def __init__(self, directory: str | os.PathLike[str], *, every: int = 0, keep: int = 2) -> None:
        if every < 0 or keep < 1:
            raise ValueError(f"every={every} must not be negative and keep={keep} must be at least 1")
        self._job = session.current()
        self._shelf = Shelf(Path(directory))
        self._every = every
        self._keep = keep
        self._fence = 0
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._extra: Mapping[str, Stateful] = {}
        self.resumed_step: int | None = None
        """Completed steps when this generation began; None before ``resume``."""
        self.saved_step = 0
        """Step of the newest checkpoint of ours."""

    def resume(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        rehearse: Callable[[], torch.Tensor],
        extra: Mapping[str, Stateful] | None = None,
    ) -> int:
        """Warm up, load the newest sound checkpoint if there is one, and return the completed steps.

        ``rehearse`` returns a loss of ``model`` on a batch of the real shape (see ``warm_up``: it leaves no trace).
        ``extra`` are other things to save per rank, by name. All of it is what ``save`` will save.
        """
        job = self._job
        self._model, self._optimizer, self._extra = model, optimizer, extra or {}
        self._fence = self._first(lambda: self._shelf.claim(Claim(job.run_id, job.generation)))
        warm_up(model, rehearse, extra=extra)
        step = self._choose()
        if step:
            self._load(step)
        self._first(lambda: self._shelf.clear(self._fence, self._keep))
        self.resumed_step = self.saved_step = step
        job.channel.saved = step
        return step

    def due(self, completed: int) -> bool:
        """Whether a periodic save is due after this many completed steps."""
        return self._every > 0 and completed % self._every == 0

    def latest(self) -> int:
        """Return the step of the newest checkpoint with a sound manifest; 0: none. Rank 0's view, for all ranks."""
        return self._first(lambda: next(iter(self._shelf.steps()), 0))

    def save(self, step: int) -> None:
        """Save the state after ``step`` completed steps; all ranks call it. Durable when it returns."""
        if self.resumed_step is None or self._model is None or self._optimizer is None:
            raise NotInitializedError("call Checkpointer.resume(...) before saving: it says what the state is")
        job, began = self._job, time.monotonic()
        draft = self._shelf.draft(step, self._fence)
        self._first(lambda: self._shelf.open_draft(step, self._fence))
        model, optimizer = get_state_dict(self._model, self._optimizer)
        state = {"model": model, "optimizer": optimizer}
        save_distributed(state, checkpoint_id=draft, process_group=job.control)
        own = _OwnState(RngState.capture(), {name: item.state_dict() for name, item in self._extra.items()})
        (draft / f"rank-{job.rank:05d}.msgpack").write_bytes(msgspec.msgpack.encode(own))
        sums = self._gather(self._sums(draft))
        manifest = Manifest(step, job.world, job.generation, self._fence, sums)
        self._first(lambda: self._shelf.commit(manifest))
        self.saved_step = job.channel.saved = step
        if job.rank == 0:
            self._shelf.clear(self._fence, self._keep)
            _log.info("checkpoint", step=step, seconds=round(time.monotonic() - began, 3))

    def _sums(self, draft: Path) -> dict[str, FileSum]:
        """Sum up what this rank wrote."""
        rank = self._job.rank
        own = [*draft.glob(f"__{rank}_*.distcp"), draft / f"rank-{rank:05d}.msgpack"]
        if rank == 0:
            own.append(draft / ".metadata")
        return {path.name: manifests.sum_of(path) for path in own}

    def _choose(self) -> int:
        """Agree on the newest checkpoint whose every byte is as it was written; all ranks read a share of it."""
        job = self._job
        steps = self._first(self._shelf.steps)
        complaints = []
        for step in steps:
            found = manifests.read(self._shelf.path(step))
            names = sorted(found.files)[job.rank :: job.world] if found else []
            wrong = manifests.damage(self._shelf.path(step), found, names) if found else "its manifest is gone"
            everyone: list[str | None] = [None] * job.world
            dist.all_gather_object(everyone, wrong, group=job.control)
            wrong = next((item for item in everyone if item), None)
            if wrong is None:
                return step
            complaints.append(f"step {step}: {wrong}")
            if job.rank == 0:
                _log.error("a checkpoint is damaged and is passed over", step=step, why=wrong)
        if complaints:
            raise CheckpointDamagedError(
                f"no checkpoint in {self._shelf.directory} is sound ({'; '.join(complaints)}). Nothing was changed: "
                "restore one, or move the directory away to start from step 0."
            )
        return 0

    def _load(self, step: int) -> None:
        if self._model is None or self._optimizer is None:
            raise NotInitializedError("call Checkpointer.resume(...)")
        job, path = self._job, self._shelf.path(step)
        model, optimizer = get_state_dict(self._model, self._optimizer)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer}
        load_distributed(state, checkpoint_id=path, process_group=job.control)
        set_state_dict(
            self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        found = manifests.read(path)
        if found is None or found.world != job.world:
            world = found.world if found else "unknown"
            raise CheckpointError(
                f"the checkpoint {path} was written by {world} ranks and this job has {job.world}: random numbers and "
                "samplers are per rank, so it resumes at the same size only. Nothing was changed."
            )
        own = msgspec.msgpack.decode((path / f"rank-{job.rank:05d}.msgpack").read_bytes(), type=_OwnState)
        for name, item in self._extra.items():
            item.load_state_dict(own.extra[name])
        own.rng.restore()

    def _gather(self, mine: dict[str, FileSum]) -> dict[str, FileSum]:
        everyone: list[dict[str, FileSum]] = [{} for _ in range(self._job.world)]
        dist.all_gather_object(everyone, mine, group=self._job.control)
        return {name: found for one in everyone for name, found in one.items()}

    def _first(self, work: Callable[[], _T]) -> _T:
        """Let rank 0 do something and all ranks have its result, or its error."""
        outcome: list[tuple[_T | None, str | None, bool]] = [(None, None, False)]
        if self._job.rank == 0:
            try:
                outcome = [(work(), None, False)]
            except (OSError, CheckpointError) as error:
                outcome = [(None, str(error), isinstance(error, StaleGenerationError))]
        dist.broadcast_object_list(outcome, src=0, group=self._job.control)
        value, wrong, stale = outcome[0]
        if wrong is not None:
            raise (StaleGenerationError if stale else CheckpointError)(wrong)
        return value  # type: ignore[return-value]  # without an error there is a value, and None is one of them
