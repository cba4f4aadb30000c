"""Tells in which driver a task or a processor is stuck: the kernel says so in a line of its own, and then in its stack.

A stack with the GPU's or a network adapter's driver in it leaves open what is wrong. Not so where the processor stands
in the adapter's own driver, or where the adapter has just not sent what it was given: that adapter is dead, and was
seen to stay so for days on a node that was Ready (NVSentinel #1334).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fleetwell.health.driver_line import DriverKind, DriverLine
from fleetwell.health.vocabulary import HOST, Component

_STACK_SECONDS: Final = 2.0
"""The stack is printed within this."""
_NOT_SENT_SECONDS: Final = 3600.0
"""Ours: the transmit watchdog comes after 15 s, a soft lockup after 20, a hung task after 120, and each again."""
_OF_ADAPTER: Final = frozenset({DriverKind.NIC_FRAME, DriverKind.NIC_INSTRUCTION, DriverKind.NIC_TASK_HUNG})
FRAMES: Final = frozenset({DriverKind.DRIVER_FRAME, DriverKind.NIC_FRAME, DriverKind.NIC_INSTRUCTION})


class Stuck(NamedTuple):
    """Something that is stuck in a driver that we watch."""

    fault: str
    component: Component
    text: str
    pid: int | None
    unit: str


class StuckTasks:
    """Joins the lines; holds one task and one adapter at a time."""

    def __init__(self) -> None:
        self._task: tuple[DriverLine, str, float] | None = None
        self._not_sent: tuple[Component, float] | None = None

    def began(self, line: DriverLine, text: str, at: float) -> None:
        """Note a task that is stuck somewhere."""
        self._task = (line, text, at)

    def not_sent(self, adapter: Component, at: float) -> None:
        """Note that an adapter of the driver did not send what it was given."""
        self._not_sent = (adapter, at)

    def frame(self, kind: DriverKind, text: str, at: float) -> Stuck | None:
        """Take a line of a stack that is in a driver; None where no task waits for one."""
        if self._task is None or abs(at - self._task[2]) > _STACK_SECONDS:
            return None
        if self._task[0].kind is DriverKind.OOPS and kind in _OF_ADAPTER:
            return None
        (line, head, _), self._task = self._task, None
        both = kind in _OF_ADAPTER or line.kind is DriverKind.OOPS
        return self.judge(kind, line, f"{head} {text.strip()}" if both else head, at)

    def judge(self, kind: DriverKind, line: DriverLine, text: str, at: float) -> Stuck:
        """Say what is wrong, from what shows the driver."""
        if line.kind is DriverKind.OOPS:
            return Stuck("DriverCrashed", HOST, text, line.pid, line.unit)
        if kind not in _OF_ADAPTER:
            return Stuck("DriverTaskHung", HOST, text, line.pid, line.unit)
        adapter, since = self._not_sent or (HOST, float("-inf"))
        if kind is DriverKind.NIC_INSTRUCTION or abs(at - since) <= _NOT_SENT_SECONDS:
            return Stuck("NicTransmitStuck", adapter, text, line.pid, line.unit)
        return Stuck("NicDriverTaskHung", HOST, text, line.pid, line.unit)
