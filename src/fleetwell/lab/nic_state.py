"""What was done to one network adapter of a virtual node."""

import msgspec


class NicState(msgspec.Struct):
    """How it differs from the adapter of the machine's description; a reboot zeroes its counters and mends nothing."""

    down: bool = False
    admin_queue_dead: bool = False
    rate_gbps: int | None = None  # None: as fast as it goes
    pcie_width: int | None = None
    counters: dict[str, int] = msgspec.field(default_factory=dict)  # what they have counted beyond a quiet adapter's
