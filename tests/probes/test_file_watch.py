"""Being woken by a regular file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetwell.probes import file_watch, kernel_log
from fleetwell.probes.file_watch import FileWatch
from fleetwell.probes.kernel_log import KernelLogTail


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "kmsg"
    made.touch()
    return made


async def test_a_write_and_a_replacement_wake(path: Path) -> None:
    stirs: list[int] = []
    watch = FileWatch(path, lambda: stirs.append(1))
    with path.open("ab") as file:
        file.write(b"line\n")
    await until(lambda: len(stirs) == 1)
    new = path.with_suffix(".new")
    new.touch()
    new.replace(path)
    await until(lambda: len(stirs) == 2)
    watch.close()


async def test_a_flood_wakes_seldom_and_its_end_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "WATCHED_INTERVAL", 60.0)
    records: list[bytes] = []
    tail = KernelLogTail(path, records.extend)
    tail.start()
    with path.open("ab", buffering=0) as file:
        for number in range(500):
            file.write(b"6,%d,1,-;line\n" % number)
            if number % 100 == 0:
                await asyncio.sleep(0)
    await until(lambda: len(records) == 500)
    tail.close()


async def test_a_line_is_read_within_50_ms_of_its_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "WATCHED_INTERVAL", 60.0)
    records: list[bytes] = []
    tail = KernelLogTail(path, records.extend)
    tail.start()
    took = []
    for number in range(10):
        await asyncio.sleep(0.015)
        began = time.monotonic()
        with path.open("ab") as file:
            file.write(b"6,%d,1,-;line\n" % number)
        await until(lambda number=number: len(records) > number)  # type: ignore[misc]  # a default binds the loop's value
        took.append(time.monotonic() - began)
    tail.close()
    assert sorted(took)[5] < 0.05


async def test_where_the_kernel_gives_no_watch_the_file_is_polled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "inotify_init1: Too many open files")

    monkeypatch.setattr(file_watch, "FileWatch", refuse)
    records: list[bytes] = []
    tail = KernelLogTail(path, records.extend, poll_interval=0.01)
    tail.start()
    with path.open("ab") as file:
        file.write(b"6,0,1,-;line\n")
    await until(lambda: bool(records))
    tail.close()


async def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inotify_add_watch: No such file"):
        FileWatch(tmp_path / "none", lambda: None)
