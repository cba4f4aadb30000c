"""The endpoint: hears the launchers of a run, lets ``Generations`` decide, and carries its instructions out.

It runs inside launcher 0. It is reachable by anyone who reaches the port, so strangers cost it little: few connections,
a short time to say hello, bounded lines, and the first thing that is not a message closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import TYPE_CHECKING

import structlog

from .generations import Generations
from .protocol import (
    MAX_LINE,
    Draining,
    Exited,
    Hello,
    Pong,
    ProtocolError,
    Ready,
    Refused,
    Status,
    Upward,
    WorkerFailed,
    decode_upward,
    encode,
)
from .seats import Drop, Instruction, Record, Send, Stage, Terms

if TYPE_CHECKING:
    from .run_record import RunRecord
    from .settings import LaunchSettings

_HELLO_LIMIT = 5.0  # seconds for a stranger to say who it is
_TICK = 0.25
_BIND_PAUSE = 0.5
_log = structlog.get_logger()


class Coordinator:
    """Serves one run at one port until it is closed."""

    def __init__(self, settings: LaunchSettings, record: RunRecord) -> None:
        self._settings = settings
        self._record = record
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None
        history, orphan = record.read()
        limits = settings.limits
        terms = Terms(
            settings.nnodes, settings.run_id, settings.max_restarts, limits.rendezvous, limits.silence, limits.ending
        )
        self._generations = Generations(
            terms,
            coordinator=uuid.uuid4().hex,
            number_after=self._number_after,
            history=history,
            orphan=orphan,
            now=time.monotonic(),
        )

    async def open(self) -> int:
        """Bind the endpoint and return its port; a predecessor that still holds it is waited for."""
        settings = self._settings
        host = "127.0.0.1" if settings.nnodes == 1 else None
        deadline = time.monotonic() + settings.limits.rendezvous
        while True:
            try:
                self._server = await asyncio.start_server(self._serve, host, settings.port, limit=MAX_LINE, backlog=64)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("cannot listen at the rendezvous endpoint yet", port=settings.port, error=str(error))
                await asyncio.sleep(_BIND_PAUSE)
        self._ticker = asyncio.create_task(self._tick())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self, linger: float) -> None:
        """Stop serving. What was said is delivered first: the launchers hang up when the run is over for them."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        if self._generations.stage is Stage.FINISHED and self._connections:
            await asyncio.wait(self._connections, timeout=linger)
        for writer in list(self._writers.values()):
            with contextlib.suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 1.0)
        self._writers.clear()
        for writer in self._connections.values():
            writer.close()  # what was written is still delivered; the reader sees the end and its task returns
        if self._connections:
            await asyncio.wait(self._connections, timeout=1.0)

    def _number_after(self, at_least: int) -> int:
        try:
            return self._record.number_after(at_least)
        except OSError as error:
            _log.error("no number for the next generation; trying again", error=str(error))
            return 0

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._carry_out(self._generations.tick(time.monotonic()))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= 2 * self._settings.nnodes + 16:
            writer.close()
            return
        self._connections[task] = writer
        peer = writer.get_extra_info("peername")
        node: int | None = None
        try:
            hello = await asyncio.wait_for(_message(reader), _HELLO_LIMIT)
            node = self._seated(hello, writer) if isinstance(hello, Hello) else None
            while node is not None and self._writers.get(node) is writer:
                message = await _message(reader)
                if message is None or not self._heard(node, message):
                    break
        except (ProtocolError, ConnectionError, TimeoutError) as error:
            _log.warning("closed a connection", peer=str(peer), node=node, error=str(error)[:200])
        finally:
            self._connections.pop(task, None)
            if node is not None and self._writers.get(node) is writer:
                del self._writers[node]
                self._carry_out(self._generations.disconnected(node, time.monotonic()))
            writer.close()

    def _seated(self, hello: Hello, writer: asyncio.StreamWriter) -> int | None:
        out = self._generations.hello(hello.node, hello, time.monotonic())
        first = out[0]
        if isinstance(first, Send) and isinstance(first.message, Refused):
            writer.write(encode(first.message))
            return None
        former = self._writers.pop(hello.node, None)
        if former is not None:
            former.close()
        self._writers[hello.node] = writer
        self._carry_out(out)
        return hello.node

    def _heard(self, node: int, message: Upward) -> bool:
        now, core = time.monotonic(), self._generations
        seat = core.seats.get(node)
        if seat is None:
            return False
        seat.heard = now
        out: list[Instruction]
        match message:
            case Ready():
                out = core.ready(node, message, now)
            case Status():
                out = [*core.status(node, message), Send(node, Pong())]
            case WorkerFailed():
                out = core.worker_failed(message, now)
            case Exited():
                out = core.exited(node, message, now)
            case Draining():
                out = core.draining(node, message, now)
            case Hello():
                return False
        self._carry_out(out)
        return True

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(node, message):
                    writer = self._writers.get(node)
                    if writer is not None and not writer.is_closing():
                        writer.write(encode(message))
                case Drop(node, why):
                    _log.warning("hung up on a launcher", node=node, why=why)
                    writer = self._writers.pop(node, None)
                    if writer is not None:
                        writer.close()
                case Record(event, fields):
                    _log.info(
                        event.replace("_", " "),
                        **{key: value for key, value in fields.items() if value and key != "root"},
                    )
                    try:
                        self._record.append(event, fields)
                    except OSError as error:
                        _log.error("an event of the run is not recorded", happened=event, error=str(error))


async def _message(reader: asyncio.StreamReader) -> Upward | None:
    """Read one message; None at the end of the stream."""
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        message = f"a line is longer than {MAX_LINE} bytes"
        raise ProtocolError(message) from error
    return decode_upward(line)
