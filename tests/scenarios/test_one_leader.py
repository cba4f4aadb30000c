"""S27: of two controllers only one acts, whatever happens to the one that leads.

In the field an API failure or a request that hangs let the old leader go on acting after its lease had run out (Python
client, leader election). The account is the API server's own audit log, in which each process is known by the token it
came with.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fleetwell.api.incident import Phase
from fleetwell.control.main import LEASE, LOST
from fleetwell.kube.errors import NotFound
from fleetwell.kube.resource import LEASES
from fleetwell.lab.processes import LabProcess
from fleetwell.lab.site import NAMESPACE
from scenarios import audit
from scenarios.field import Field
from scenarios.partition import link_to

pytestmark = pytest.mark.controlplane

NODES = 3
CONTROLLER = False
AUDIT = True
AGENT_ARGUMENTS = ("--nvml-interval", "1s", "--boot-grace", "2s")

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 5.0, 3.5, 0.7
TIMES = (
    *("--lease-duration", f"{LEASE_SECONDS:g}"),
    *("--renew-deadline", f"{RENEW_SECONDS:g}"),
    *("--retry-period", f"{RETRY_SECONDS:g}"),
)
TAKEOVER = LEASE_SECONDS + 2 * RETRY_SECONDS + 10.0
"""Seconds within which the other leads, a busy machine allowed for."""

REST = 0.5
"""Seconds without a request after which none is on its way."""

LATE = 1.0
"""Seconds in which a request that was held up on its way is answered, once the way is free."""


async def holder(field: Field) -> str:
    try:
        return (await field.client.get(LEASES, LEASE, NAMESPACE)).spec.holder_identity or ""
    except NotFound:
        return ""


async def leads(field: Field, name: str) -> bool:
    return await holder(field) == name


async def start(field: Field, name: str, kubeconfig: Path | None = None) -> LabProcess:
    way = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
    arguments = (*TIMES, "--identity", name, *way)
    return await asyncio.to_thread(partial(field.lab.start_controller, *arguments, name=name))


@asynccontextmanager
async def two_controllers(field: Field, kubeconfig: Path | None = None) -> AsyncIterator[tuple[LabProcess, LabProcess]]:
    """Give the leader and the one that stands by; both are ended at the end, whatever state they are in."""
    running = []
    try:
        running.append(await start(field, "first", kubeconfig))
        await field.until("the first leads", partial(leads, field, "first"))
        running.append(await start(field, "second"))
        waits = field.lab.site.logs / "second.log"

        async def stands_by() -> bool:
            return "waiting for leadership" in waits.read_text(encoding="utf-8")

        await field.until("the second stands by", stands_by)
        yield running[0], running[1]
    finally:
        for process in running:
            process.signal(signal.SIGCONT)
            await asyncio.to_thread(process.stop, 10.0)
        for name in ("first", "second"):
            (field.lab.site.logs / f"{name}.log").unlink(missing_ok=True)


async def policy(field: Field, *, tolerate: str) -> None:
    """What follows the tolerance is the effect that falls due; the node then stays quarantined."""
    rule = {"name": "all", "faults": ["*"], "tolerate": tolerate, "drain": {"after": "10m"}}
    await field.policy(rules=[rule], budget={"maxUnavailablePercent": 100}, release={"quiet": "1s"})


async def exited(process: LabProcess) -> bool:
    return not process.is_running()


async def in_phase(field: Field, node: str, phase: Phase) -> bool:
    return await field.phase(node) is phase


async def at_rest(field: Field) -> bool:
    """The leader waits for time to pass. One that is stopped with a request on its way sends the rest of it later."""

    def asked() -> int:
        ours = [it for it in audit.requests(field.lab.plane.audit_log) if it.user.username == audit.CONTROLLER]
        return sum(it.about.resource != "leases" for it in ours)

    before = asked()
    await asyncio.sleep(REST)
    return asked() == before


class Account:
    """Who wrote what, by the API server's own log."""

    def __init__(self, field: Field) -> None:
        everything = audit.requests(field.lab.plane.audit_log)
        self.ours = [it for it in everything if it.user.username == audit.CONTROLLER]
        # Each of the two that led has written the Lease; the later of the last two terms is the taker's.
        terms = [it for it in self.ours if it.about.resource == "leases" and it.about.name == LEASE and it.granted]
        senders = list(dict.fromkeys(it.sender for it in terms))
        assert len(senders) >= 2, "nobody took over"
        self.old, self.new = senders[-2:]
        self.taken_at = next(it for it in terms if it.sender == self.new).received_at

    def of(self, sender: str) -> list[audit.Request]:
        """What one process changed, or tried to, besides Events, which tell of the past."""
        return [it for it in self.ours if it.sender == sender and it.about.resource != "events"]

    def check(self) -> None:
        """Every write of the one comes before the take-over, every write of the other from it on."""
        late = [str(it) for it in self.of(self.old) if it.received_at >= self.taken_at and it.granted]
        assert late == [], "the old leader wrote after its time"
        early = [str(it) for it in self.of(self.new) if it.received_at < self.taken_at and it.granted]
        assert early == [], "the new leader wrote before its time"


async def epochs_are_the_new_leaders(field: Field, node: str) -> None:
    """The open incident is the later term's, and the node wears the mark that it put there."""
    incident = await field.incident(node)
    term = (await field.client.get(LEASES, LEASE, NAMESPACE)).spec.lease_transitions
    assert incident is not None
    assert incident.status is not None
    assert incident.status.epoch == term


async def test_s27_a_leader_that_was_stopped_does_nothing_when_it_goes_on(field: Field) -> None:
    """It is stopped while a quarantine is about to fall due, and continued when the other has carried it out."""
    await policy(field, tolerate="6s")
    async with two_controllers(field) as (first, second):
        await field.inject("ecc-dbe", "gpu-1", 0)
        await field.until("the episode is open", partial(in_phase, field, "gpu-1", Phase.TOLERATING))
        await field.until("the first asks for nothing", partial(at_rest, field))
        first.signal(signal.SIGSTOP)
        await field.until("the second leads", partial(leads, field, "second"), TAKEOVER)
        await field.until("the second quarantines", partial(field.quarantined, "gpu-1"), 15.0)

        first.signal(signal.SIGCONT)
        await field.until("the first ends", partial(exited, first), 10.0)
        assert first.exit_code() == LOST
        account = Account(field)
        account.check()
        late = [it for it in account.of(account.old) if it.received_at >= account.taken_at]
        # Giving back a lease that another holds is refused by its resourceVersion; nothing else is even asked for.
        assert [str(it) for it in late if it.about.resource != "leases"] == []
        assert second.is_running()
        await epochs_are_the_new_leaders(field, "gpu-1")


async def test_s27_a_leader_that_is_cut_off_ends_and_what_arrives_late_changes_nothing(
    field: Field, tmp_path: Path
) -> None:
    """Its requests and renewals hang, and what it had sent arrives when the other leads: nothing of it counts."""
    await policy(field, tolerate="3s")
    server = urlsplit(field.lab.plane.url)
    token = await field.client.create_token("fleetwell-controller", NAMESPACE)
    kubeconfig = field.lab.plane.kubeconfig_for(tmp_path / "cut", "fleetwell-controller", token=token)
    assert server.port is not None
    async with link_to(server.port) as link:
        through = f"https://{server.hostname}:{link.port}"
        kubeconfig.write_text(kubeconfig.read_text().replace(field.lab.plane.url, through))
        async with two_controllers(field, kubeconfig) as (first, _):
            await field.inject("ecc-dbe", "gpu-2", 0)
            await field.until("the episode is open", partial(in_phase, field, "gpu-2", Phase.TOLERATING))
            link.cut()
            await field.until("the second leads", partial(leads, field, "second"), TAKEOVER)
            await field.until("the second quarantines", partial(field.quarantined, "gpu-2"), 15.0)

            await field.until("the first ends by its own clock", partial(exited, first), 10.0)
            assert first.exit_code() == LOST
            link.heal()  # what it had still sent arrives now
            await asyncio.sleep(LATE)
            Account(field).check()
            await epochs_are_the_new_leaders(field, "gpu-2")


async def test_s27_a_leader_whose_renewals_hang_stops_acting_and_ends(field: Field) -> None:
    """The API server itself stands still: connections stay open and nothing answers."""
    await policy(field, tolerate="2s")
    async with two_controllers(field) as (first, second):
        await field.inject("ecc-dbe", "gpu-3", 0)
        await field.until("the episode is open", partial(in_phase, field, "gpu-3", Phase.TOLERATING))
        await asyncio.to_thread(field.lab.plane.pause_apiserver)
        try:
            assert await asyncio.to_thread(first.wait, RENEW_SECONDS + 6.0), "it waits for an answer, and leads on"
        finally:
            await asyncio.to_thread(field.lab.plane.resume_apiserver)
        assert first.exit_code() == LOST
        assert second.is_running(), "who leads nothing has nothing to lose"
        await field.until("the second leads", partial(leads, field, "second"), TAKEOVER)
        await field.until("the second quarantines", partial(field.quarantined, "gpu-3"), 15.0)
        Account(field).check()
        await epochs_are_the_new_leaders(field, "gpu-3")
