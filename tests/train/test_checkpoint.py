from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import nn

from fleetwell import train
from fleetwell.train import manifest, session
from fleetwell.train.channel import WorkerPhase
from fleetwell.train.fencing import Claim, take
from fleetwell.train.stepping import stride_for

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def job() -> Iterator[session.Job]:
    torch.set_num_threads(1)
    yield train.init()
    dist.destroy_process_group()
    session._job = None


class Place:
    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, object]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, object], /) -> None:
        self.position = int(str(state["position"]))


class Run:
    """A model that draws random numbers, keeps buffers and a place in the data."""

    def __init__(self, directory: Path, *, every: int = 0, keep: int = 2) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.place = Place()
        self.checkpointer = train.Checkpointer(directory, every=every, keep=keep)

    def loss(self) -> torch.Tensor:
        self.place.position += 1
        batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(self.place.position))
        loss: torch.Tensor = self.model(batch).square().mean()
        return loss

    def resume(self) -> int:
        return self.checkpointer.resume(self.model, self.optimizer, rehearse=self.loss, extra={"place": self.place})

    def train_to(self, total: int) -> list[torch.Tensor]:
        for _ in train.steps(total, self.checkpointer):
            self.optimizer.zero_grad()
            self.loss().backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return [tensor.clone() for tensor in self.model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def flip_a_byte(directory: Path, pattern: str) -> None:
    path = next(directory.glob(pattern))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_resumed_run_equals_an_undisturbed_one_with_dropout_and_buffers(tmp_path: Path) -> None:
    undisturbed = Run(tmp_path / "a")
    undisturbed.resume()
    expected = undisturbed.train_to(10)
    first = Run(tmp_path / "b")
    first.resume()
    first.train_to(4)
    second = Run(tmp_path / "b")
    torch.manual_seed(99)
    assert second.resume() == 4
    assert second.place.position == 4
    assert same(second.train_to(10), expected)


def test_a_warm_up_leaves_no_trace(tmp_path: Path) -> None:
    run = Run(tmp_path)
    before = [tensor.clone() for tensor in run.model.state_dict().values()]
    rng = torch.get_rng_state()
    train.warm_up(run.model, run.loss, extra={"place": run.place})
    assert same(list(run.model.state_dict().values()), before)
    assert torch.equal(torch.get_rng_state(), rng)
    assert run.place.position == 0
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, every=2)
    run.resume()
    run.train_to(9)
    assert sorted(item.name for item in tmp_path.glob("step-*")) == ["step-000000008", "step-000000009"]
    assert run.checkpointer.latest() == 9


def test_a_torn_checkpoint_is_ignored_and_its_draft_cleared(tmp_path: Path) -> None:
    run = Run(tmp_path, every=2)
    run.resume()
    run.train_to(4)
    (tmp_path / "step-000000008.tmp-1").mkdir()
    (tmp_path / "step-000000006").mkdir()  # a copy that somebody began
    again = Run(tmp_path)
    assert again.resume() == 4
    assert not (tmp_path / "step-000000008.tmp-1").exists()


def test_a_flipped_byte_is_found_and_the_checkpoint_before_is_taken(tmp_path: Path) -> None:
    run = Run(tmp_path, every=2)
    run.resume()
    run.train_to(4)
    flip_a_byte(tmp_path / "step-000000004", "*.distcp")
    again = Run(tmp_path)
    assert again.resume() == 2
    again.train_to(4)
    assert again.checkpointer.latest() == 4
    assert Run(tmp_path).resume() == 4


def test_with_every_checkpoint_damaged_the_run_stops_and_does_not_start_over(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.resume()
    run.train_to(3)
    flip_a_byte(tmp_path / "step-000000003", "*.distcp")
    with pytest.raises(train.CheckpointDamagedError, match=r"step 3: __0_0\.distcp does not match"):
        Run(tmp_path).resume()


def test_an_altered_manifest_is_no_manifest(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.resume()
    run.train_to(1)
    flip_a_byte(tmp_path / "step-000000001", manifest.NAME)
    assert manifest.read(tmp_path / "step-000000001") is None


def test_an_older_generation_refuses_to_commit(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.resume()
    run.train_to(1)
    take(tmp_path / "fences", Claim("other", 1))
    with pytest.raises(train.StaleGenerationError, match="was not committed"):
        run.checkpointer.save(2)
    assert run.checkpointer.latest() == 1


def test_a_generation_that_was_given_up_may_not_even_start(tmp_path: Path, job: session.Job) -> None:
    take(tmp_path / "fences", Claim(job.run_id, 5))
    run = Run(tmp_path)
    older = session.Job(
        **{name: getattr(job, name) for name in session.Job.__slots__ if name != "generation"}, generation=4
    )
    run.checkpointer._job = older
    with pytest.raises(train.StaleGenerationError, match="must not start"):
        run.resume()


def test_a_drain_saves_at_the_boundary_and_leaves_with_code_0(tmp_path: Path, job: session.Job) -> None:
    run = Run(tmp_path)
    run.resume()
    done = []

    def train_until_asked() -> None:
        for step in train.steps(100, run.checkpointer):
            run.loss().backward()  # type: ignore[no-untyped-call]
            run.optimizer.step()
            done.append(step)
            if step == 5:
                job.channel.ask_drain()

    with pytest.raises(train.Drained) as left:
        train_until_asked()
    job.channel._words[0] = 0
    assert left.value.code == 0
    assert job.channel.phase is WorkerPhase.DRAINED
    assert left.value.step == run.checkpointer.latest() == len(done) == job.channel.saved


def test_steps_before_resume_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(train.NotInitializedError, match="resume"):
        next(iter(train.steps(3, train.Checkpointer(tmp_path))))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("step_s", "cost_s", "stride"),
    [(0.0, 0.0, 1), (5.0, 0.001, 1), (0.1, 0.0002, 1), (0.02, 0.0002, 4), (0.1, 0.0015, 5), (0.0001, 0.0002, 32)],
)
def test_the_agreement_costs_little_and_comes_often(step_s: float, cost_s: float, stride: int) -> None:
    assert stride_for(step_s, cost_s) == stride
