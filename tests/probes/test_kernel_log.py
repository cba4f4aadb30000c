"""Following the kernel log: a regular file in its form, and the device's ways through a pipe."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetwell.probes.kernel_log import BUSY, CHUNK, KernelLogTail, split


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[list[bytes]] = []
        self.tail = KernelLogTail(path, self.batches.append, poll_interval=0.01)

    @property
    def records(self) -> list[bytes]:
        return [record for batch in self.batches for record in batch]

    def write(self, text: str) -> None:
        with self.path.open("ab") as file:
            file.write(text.encode())


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "kmsg")


async def test_what_is_there_comes_first_and_then_what_is_added(log: Log) -> None:
    log.write("6,0,1,-;one\n6,1,2,-;two\n SUBSYSTEM=pci\n")
    log.tail.start()
    assert log.tail.caught_up.is_set()
    assert log.records == [b"6,0,1,-;one\n", b"6,1,2,-;two\n SUBSYSTEM=pci\n"]
    log.write("3,2,3,-;three\n")
    await until(lambda: len(log.records) == 3)
    log.tail.close()


async def test_a_line_that_is_still_being_written_is_waited_for(log: Log) -> None:
    log.write("6,0,1,-;one\n6,1,2,-;tw")
    log.tail.start()
    assert len(log.records) == 1
    log.write("o\n")
    await until(lambda: len(log.records) == 2)
    assert log.records[1] == b"6,1,2,-;two\n"
    log.tail.close()


async def test_after_a_reboot_the_new_file_is_read_from_its_beginning(log: Log) -> None:
    log.write("6,0,1,-;before\n")
    log.tail.start()
    new = log.path.with_suffix(".new")
    new.write_bytes(b"6,0,1,-;after\n")
    new.replace(log.path)
    await until(lambda: log.records[-1:] == [b"6,0,1,-;after\n"])
    log.tail.close()


async def test_a_log_that_is_not_there_is_a_failure_that_says_so(log: Log) -> None:
    log.tail.start()
    assert "No such file" in log.tail.failure
    assert not log.tail.caught_up.is_set()
    log.tail.close()


async def test_a_flood_comes_in_bounded_batches_with_the_loop_running_in_between(log: Log) -> None:
    log.write("".join(f"6,{number},1,-;the same line again and again\n" for number in range(100_000)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while not log.tail.caught_up.is_set():
            turns += 1
            await asyncio.sleep(0)

    log.tail.start()
    async with asyncio.timeout(10):
        await count()
    assert len(log.records) == 100_000
    assert turns > 10
    assert max(map(len, log.batches)) * 30 < 2 * CHUNK
    log.tail.close()


async def test_a_character_device_is_read_record_by_record_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO whose status says that it is a device: reads that would block, and a reader in the loop."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    monkeypatch.setattr(stat, "S_ISCHR", stat.S_ISFIFO)
    batches: list[list[bytes]] = []
    tail = KernelLogTail(path, batches.append)
    holder = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    tail.start()
    os.write(holder, b"6,0,1,-;one\n")
    await until(lambda: bool(batches))
    assert batches == [[b"6,0,1,-;one\n"]]
    tail.close()
    os.close(holder)


async def test_a_busy_file_is_read_in_few_batches(log: Log) -> None:
    log.write("6,0,1,-;before\n")
    log.tail.start()
    for number in range(1, 2001):
        log.write(f"6,{number},1,-;line\n")
        if number % 20 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(log.records) == 2001)
    log.tail.close()
    assert len(log.batches) < 50


async def test_a_busy_device_is_left_alone_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets keep records apart as the device does."""
    device, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    device.setblocking(False)
    monkeypatch.setattr(os, "open", lambda *_: os.dup(device.fileno()))
    monkeypatch.setattr(stat, "S_ISCHR", stat.S_ISSOCK)
    batches: list[list[bytes]] = []
    tail = KernelLogTail(tmp_path / "kmsg", batches.append)
    tail.start()
    kernel.setblocking(False)
    for number in range(200):
        kernel.send(b"6,%d,1,-;line\n" % number)
        if number % BUSY == BUSY - 1:
            await asyncio.sleep(0.001)
    await until(lambda: sum(map(len, batches)) == 200)
    kernel.send(b"3,200,1,-;the last\n")
    await until(lambda: batches[-1][-1:] == [b"3,200,1,-;the last\n"])
    tail.close()
    device.close()
    kernel.close()
    assert len(batches) < 200 / BUSY / 2


async def test_overwritten_records_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bytes | OSError] = [BrokenPipeError(), b"6,9,1,-;nine\n", BlockingIOError()]

    def read(_fd: int, _size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    batches: list[list[bytes]] = []
    tail = KernelLogTail(tmp_path / "kmsg", batches.append)
    tail._fd = os.open(os.devnull, os.O_RDONLY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        tail._read_device()
    assert batches == [[b"6,9,1,-;nine\n"]]
    os.close(tail._fd)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel's own log is not readable here")
async def test_the_kernels_own_log_can_be_followed() -> None:
    batches: list[list[bytes]] = []
    tail = KernelLogTail(Path("/dev/kmsg"), batches.append)
    tail.start()
    async with asyncio.timeout(10):
        await tail.caught_up.wait()
    tail.close()
    assert not tail.failure


def test_a_record_whose_properties_may_still_come_is_kept_back() -> None:
    records, rest = split(b"6,0,1,-;one\n A=b\n6,1,2,-;two\n", whole=False)
    assert records == [b"6,0,1,-;one\n A=b\n"]
    assert rest == b"6,1,2,-;two\n"


def test_an_endless_line_is_thrown_away() -> None:
    started = time.monotonic()
    assert split(b"x" * (CHUNK + 1), whole=True) == ([], b"")
    assert time.monotonic() - started < 1
