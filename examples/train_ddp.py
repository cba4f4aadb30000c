"""A small, real data-parallel job: under ``fleetwell run`` it survives, and ends with the loss of a run that had to.

    fleetwell run --nproc-per-node 4 --run-dir /tmp/run examples/train_ddp.py --steps 300

Order of data, initial weights and dropout depend on seeds and position only, so two runs of the same size that end
with the same number of steps end with the same loss, to the last bit, whatever happened to one of them in between.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fleetwell import train

SAMPLES, FEATURES, CLASSES, BATCH = 4096, 64, 10, 16


class Order:
    """The order of samples: a permutation per epoch, and a position that is saved with the model."""

    def __init__(self, rank: int, world: int, seed: int) -> None:
        """Start at the beginning."""
        self.rank, self.world, self.seed, self.position = rank, world, seed, 0

    def next(self) -> torch.Tensor:
        """Return this rank's next batch of sample numbers."""
        per_epoch = SAMPLES // (BATCH * self.world)
        epoch, at = divmod(self.position, per_epoch)
        generator = torch.Generator().manual_seed(self.seed * 1000 + epoch)
        order = torch.randperm(SAMPLES, generator=generator)
        self.position += 1
        begin = (at * self.world + self.rank) * BATCH
        return order[begin : begin + BATCH]

    def state_dict(self) -> dict[str, object]:
        """Return the position."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, object], /) -> None:
        """Go to a position."""
        self.position = int(str(state["position"]))


def model_for(device: torch.device) -> nn.Module:
    """Return a model of 0.8 MB, which is some buckets of 0.1 MB: their order is what equality hangs on."""
    layers: list[nn.Module] = []
    width = FEATURES
    for following in (256, 256, 256, 128):
        layers += [nn.Linear(width, following), nn.LayerNorm(following), nn.GELU(), nn.Dropout(0.1)]
        width = following
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)).to(device)


def check_gpu() -> None:
    """In the lab: raise as CUDA would when this rank's virtual GPU is gone. With real GPUs CUDA does it."""
    if "FLEETWELL_NVML_STATE" in os.environ:
        from fleetwell.lab import cuda  # noqa: PLC0415 - the lab exists only in the lab

        cuda.synchronize()


def digest(model: nn.Module) -> str:
    """Return a checksum of the weights."""
    total = hashlib.sha256()
    for tensor in model.state_dict().values():
        total.update(tensor.detach().cpu().numpy().tobytes())
    return total.hexdigest()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="a small data-parallel job")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-ms", type=float, default=float(os.environ.get("STEP_MS", "0")), help="pace for the eye")
    parser.add_argument("--checkpoint-dir", type=Path, default=None, help="default: RUN_DIR/checkpoints")
    parser.add_argument("--every", type=int, default=25, help="steps between periodic checkpoints")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    job = train.init()
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(model_for(job.device), bucket_cap_mb=0.1)
    torch.manual_seed(options.seed * 1000 + job.rank)  # dropout differs from rank to rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    order = Order(job.rank, job.world, options.seed)

    source = torch.Generator().manual_seed(options.seed)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source).to(job.device)
    labels = (inputs @ torch.randn(FEATURES, CLASSES, generator=source).to(job.device)).argmax(1)

    def loss_of_next() -> torch.Tensor:
        batch = order.next()
        return nn.functional.cross_entropy(model(inputs[batch]), labels[batch])

    run_dir = job.run_dir or Path("run")
    directory = options.checkpoint_dir or run_dir / "checkpoints"
    checkpointer = train.Checkpointer(directory, every=options.every, keep=2)
    resumed = checkpointer.resume(model, optimizer, rehearse=loss_of_next, extra={"order": order})
    if job.rank == 0:
        print(f"generation {job.generation}: {job.world} ranks, from step {resumed} of {options.steps}", flush=True)

    for step in train.steps(options.steps, checkpointer):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of_next()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        check_gpu()
        optimizer.step()
        if job.rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        time.sleep(options.step_ms / 1000)

    model.eval()
    with torch.no_grad():
        final = nn.functional.cross_entropy(model(inputs[:512]), labels[:512]).double()
    dist.all_reduce(final)
    if job.rank == 0:
        result = {"loss": repr(final.item() / job.world), "steps": options.steps, "world": job.world}
        run_dir.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**result, "weights_sha256": digest(model.module)}, indent=1)
        (run_dir / "result.json").write_text(text + "\n", encoding="utf-8")
        print(f"finished: loss {result['loss']}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
