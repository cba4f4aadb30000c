"""The checkpoint directory: which checkpoints stand in it, how one gets in at once, and what is cleared away.

step-000000120/            a checkpoint: manifest and files; it appears by one rename
step-000000130.tmp-7/      being written under fence 7, or left by a crash: never read
fences/0000000007          who may write (see ``fencing``)
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from . import manifest as manifests
from .errors import StaleGenerationError
from .fencing import Claim, newest, take

if TYPE_CHECKING:
    from pathlib import Path

_STEP = re.compile(r"step-(\d+)")
_LEFTOVER = re.compile(r"step-\d+\.(?:tmp|old)-(\d+)")


class Shelf:
    """One checkpoint directory, as the one writer (rank 0) sees it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fences = directory / "fences"

    def claim(self, claim: Claim) -> int:
        """Become the writer; refused when a newer generation of the same run already is."""
        holder = newest(self.fences).claim
        if holder and holder.run_id == claim.run_id and holder.generation > claim.generation > 0:
            raise StaleGenerationError(
                f"generation {holder.generation} writes into {self.directory} already; generation {claim.generation} "
                "was given up and must not start. Nothing was changed."
            )
        return take(self.fences, claim)

    def require(self, fence: int) -> None:
        """Raise unless ``fence`` is still the newest."""
        holder = newest(self.fences)
        if holder.number > fence:
            generation = holder.claim.generation if holder.claim else "unknown"
            raise StaleGenerationError(
                f"fence {holder.number} (generation {generation}) was taken in {self.directory} after ours ({fence}): "
                "another generation of this job writes there. This checkpoint was not committed; the others stand."
            )

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that have a sound manifest, newest first."""
        if not self.directory.is_dir():
            return []
        found = [int(hit[1]) for item in self.directory.iterdir() if (hit := _STEP.fullmatch(item.name))]
        return sorted((step for step in found if manifests.read(self.path(step))), reverse=True)

    def path(self, step: int) -> Path:
        """Return where the checkpoint of a step stands."""
        return self.directory / f"step-{step:09d}"

    def draft(self, step: int, fence: int) -> Path:
        """Return where the checkpoint of a step is written before it is one."""
        return self.directory / f"step-{step:09d}.tmp-{fence}"

    def open_draft(self, step: int, fence: int) -> None:
        """Make an empty draft, unless another generation has become the writer."""
        self.require(fence)
        draft = self.draft(step, fence)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)

    def commit(self, manifest: manifests.Manifest) -> None:
        """Make the draft a checkpoint: manifest, fence, rename, and all of it on disk before we return."""
        draft, path = self.draft(manifest.step, manifest.fence), self.path(manifest.step)
        manifests.write(draft, manifest)
        manifests.fsync_directory(draft)
        self.require(manifest.fence)
        if path.exists():  # damaged, or of a generation whose resume went further back
            old = path.with_name(f"{path.name}.old-{manifest.fence}")
            path.rename(old)
            draft.rename(path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            draft.rename(path)
        manifests.fsync_directory(self.directory)

    def clear(self, fence: int, keep: int) -> None:
        """Remove drafts under older fences and all but the newest ``keep`` checkpoints."""
        for item in list(self.directory.iterdir()):
            hit = _LEFTOVER.fullmatch(item.name)
            if hit and int(hit[1]) < fence:
                shutil.rmtree(item, ignore_errors=True)
        for step in self.steps()[keep:]:
            shutil.rmtree(self.path(step), ignore_errors=True)
