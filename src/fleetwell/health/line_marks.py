"""Tells by a glance at its bytes whether a kernel line can say anything that we watch for.

A busy or hostile host writes hundreds of thousands of lines; only those with one of these marks are read. A test holds
every line that the readers understand against this.
"""

from __future__ import annotations

from typing import Final

from fleetwell.health.driver_line import NVRM_WORDS

XID: Final = b"NVRM: Xid"
_ALWAYS: Final[tuple[bytes, ...]] = (b"",)

BY_START: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"NVRM": (XID, *(word.encode() for word in NVRM_WORDS)),
    b"nvid": (
        b"SXid",
        b"PCIe Bus Error",
        b"device recovery failed",
        b"can't recover",
        b"inaccessible",
        b"Version mismatch",
    ),
    b"efa ": _ALWAYS,
    b"infi": (
        b"Failed to ",
        b"The device ",
        b"Admin queue",
        b"Reading reg",
        b"Device isn't",
        b"Reset ind",
        b"BARs",
        b"EFA d",
    ),
    b"mlx5": (
        b"compromised",
        b"unrecoverable",
        b"Will cause a leak",
        b"WATCHDOG",
        b"TX timeout detected",
        b"_one failed with error code",
        b"initializing state, aborting",
        b"Port module event",
        b"insufficient power",
        b"Link down",
        b"PCIe Bus Error",
        b"device recovery failed",
        b"can't recover",
        b"inaccessible",
        b"igh temperature",
    ),
    b"INFO": (b" blocked ",),
    b"watc": (b"soft lockup",),
    b"BUG:": (b"soft lockup", b"unable to handle", b"NULL pointer"),
    b"Oops": (b": ",),
    b"gene": (b"protection fault",),
    b"kern": (b" BUG at ",),
    b"Unab": (b"handle kernel",),
    b"NMI ": (b"soft lockup",),
    b"RIP:": (b"[mlx5_", b"[nvidia"),
    b"NETD": (b"WATCHDOG",),
    b"EDAC": (b" UE ",),
    b"mce:": (b"Machine Check", b"Uncorrected", b"System Fatal"),
    b"[Har": (b"Machine Check", b"Uncorrected", b"System Fatal"),
    b"Out ": (b"rocess ",),
    b"Memo": (b"rocess ", b"failure: 0x"),
    b"nvme": (b"timeout", b"is down", b"Removing", b"Disabling"),
    b"md/r": (b"Disk failure",),
    b"blk_": (b" error, dev ",),
    b"prin": (b" error, dev ",),
    b"I/O ": (b" error, dev ",),
    b"crit": (b" error, dev ",),
    b"Buff": (b"I/O error",),
    b"EXT4": (b"read-only",),
    b"XFS ": (b"hut",),
    b"BTRF": (b"forced readonly",),
    b"Abor": (b"journal",),
}
"""What a line that begins so must hold, one of: lines with another beginning must hold one of ``ANYWHERE``."""

ANYWHERE: Final = (
    b"ink is ",
    b"Link down",
    b"Link Down",
    b"ink status",
    b"libnccl",
    b"[nvidia",
    b"[mlx5_",
    b"event severity: fatal",
    b"\\x0aNVRM",
)


def may_matter(body: bytes) -> bool:
    """Say whether a line may be one that the readers understand; wrongly yes is cheap, wrongly no must not be."""
    for word in BY_START.get(body[:4], ANYWHERE):
        if word in body:
            return True
    # A program may bear a name that begins like one of the above, and crash in the collective library.
    return b"libnccl" in body or b"\\x0aNVRM" in body
