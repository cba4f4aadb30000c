"""What each fault of a network adapter does to a node: its sysfs, its counters and, where a driver says so, the log."""

from collections.abc import Iterator
from contextlib import contextmanager

from fleetwell.lab.fault_injection import FaultError, Injection
from fleetwell.lab.kernel_log import Line
from fleetwell.lab.machine import Nic
from fleetwell.lab.nic_state import NicState

_LOST_COMMANDS = 8
_FLAPS = 3


def degraded(injection: Injection) -> None:
    """Up, and slower than its neighbours: half the rate, or half the PCIe lanes. Nothing says a word."""
    nic = _chosen(injection, None)
    what = injection.word("what", "rate")
    if what not in {"rate", "pcie"}:
        raise FaultError(f"what must be rate or pcie, not {what!r}; nothing was changed")
    with _changing(injection, nic) as state:
        if what == "rate":
            state.rate_gbps = injection.integer("gbps", nic.rate_gbps // 2)
        else:
            state.pcie_width = injection.integer("lanes", 4)


def down(injection: Injection) -> None:
    """The port loses its link. The driver logs that for Ethernet only, so nothing is said."""
    nic = _chosen(injection, "mlx5_core")
    with _changing(injection, nic) as state:
        state.down = True
        _count(state, link_downed=1)


def flap(injection: Injection) -> None:
    """The port goes down and comes back, faster than anybody looks: only its counters tell."""
    nic = _chosen(injection, "mlx5_core")
    times = injection.integer("times", _FLAPS)
    with _changing(injection, nic) as state:
        state.down = False
        _count(state, link_downed=times, link_error_recovery=times)


def efa_dead(injection: Injection) -> None:
    """The device stops answering its driver, which gives up command after command and then the queue."""
    nic = _chosen(injection, "efa")
    with _changing(injection, nic) as state:
        _count(state, submitted_cmds=_LOST_COMMANDS, no_completion_cmds=_LOST_COMMANDS)
    command = "The device didn't send any completion for admin cmd CREATE_QP(1) status 0"
    injection.say(
        Line(f"infiniband {nic.name}: {command} (id 96)"),
        Line(f"infiniband {nic.name}: Admin queue is closed"),
    )


def counting(injection: Injection) -> None:
    """One of its counters rises, and nothing else."""
    nic = _chosen(injection, None)
    counter = injection.word("counter", "symbol_error" if nic.driver != "efa" else "rdma_read_wr_err")
    folder = injection.hardware.root / "sys/class/infiniband" / nic.name
    there = {file.name for place in ("ports/1/counters", "**/hw_counters") for file in folder.glob(f"{place}/*")}
    if counter not in there:
        raise FaultError(
            f"{nic.name} has no counter {counter!r}; nothing was changed.\nhint: one of {', '.join(sorted(there))}"
        )
    with _changing(injection, nic) as state:
        _count(state, **{counter: injection.integer("by", 1000)})


def _count(state: NicState, **more: int) -> None:
    for name, by in more.items():
        state.counters[name] = state.counters.get(name, 0) + by


@contextmanager
def _changing(injection: Injection, nic: Nic) -> Iterator[NicState]:
    with injection.hardware.update() as state:
        yield state.nics.setdefault(nic.name, NicState())


def _chosen(injection: Injection, driver: str | None) -> Nic:
    state = injection.hardware.state
    present = {
        nic.name: nic
        for nic in state.machine.nics
        if driver in {None, nic.driver} and nic.name not in state.missing_nics
    }
    kind = {None: "network adapter", "efa": "EFA interface"}.get(driver, "InfiniBand adapter")
    if not present:
        raise FaultError(f"this machine has no {kind} (left); nothing was changed")
    name = injection.word("nic", list(present)[-1])
    if name not in present:
        raise FaultError(f"{name} is no {kind} that is there; nothing was changed.\nhint: one of {', '.join(present)}")
    return present[name]
