"""The picture of a moment, for commands that read: everything listed once, nothing followed."""

from __future__ import annotations

import datetime as dt

from fleetwell.api.resources import INCIDENTS, NODE_HEALTHS, NODE_OPERATIONS, POLICIES
from fleetwell.control.freshness import Freshness
from fleetwell.control.picture import Picture
from fleetwell.control.settings import Settings
from fleetwell.control.trim import trim_node
from fleetwell.control.wire import parse_time
from fleetwell.kube.client import Client
from fleetwell.kube.resource import LEASES, NODES


async def snapshot(client: Client, now: dt.datetime, settings: Settings | None = None) -> Picture:
    """List everything that decisions look at.

    Whether an agent is fresh is judged here by the time in its Lease, as a look of one moment cannot see it change.
    """
    chosen = settings or Settings()
    moment = -2 * chosen.agent_stale_after
    picture = Picture(Freshness(chosen.agent_stale_after, lambda: moment))
    for policy in (await client.list(POLICIES)).items:
        picture.policy_seen(policy)
    for health in (await client.list(NODE_HEALTHS)).items:
        picture.health_seen(health)
    for node in (await client.list(NODES)).items:
        picture.node_seen(trim_node(node))
        picture.freshness.expect(node.metadata.name)
    for incident in (await client.list(INCIDENTS)).items:
        picture.incident_seen(incident)
    for operation in (await client.list(NODE_OPERATIONS)).items:
        picture.book.operation_seen(operation)
    moment = 0.0
    for lease in (await client.list(LEASES, chosen.namespace)).items:
        renewed = parse_time(lease.spec.renew_time)
        if renewed is not None and (now - renewed).total_seconds() < chosen.agent_stale_after:
            picture.lease_seen(lease)
    picture.agents_fallen_silent()
    for name in picture.nodes:
        picture.look_again(name)
    return picture
