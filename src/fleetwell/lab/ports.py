"""Free ports for a lab's servers, chosen so that several labs can run side by side."""

import random
import socket
from pathlib import Path

_LOWEST = 10240
_EPHEMERAL_DEFAULT = 32768
_TRIES = 200


class NoFreePortError(RuntimeError):
    """No free port was found."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports nobody listens on now, below the range that the kernel gives to outgoing connections.

    A port from that range could be taken by any client between two lives of a server, and a client that calls a
    server which is down could even connect to itself. Random, so that two labs that start at once differ.
    """
    found: list[int] = []
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _first_ephemeral())  # noqa: S311 - spread, not secrecy
        if port not in found and _is_free(host, port):
            found.append(port)
        if len(found) == count:
            return found
    raise NoFreePortError(f"found {len(found)} of {count} free ports on {host} in {_TRIES} tries; nothing was started")


def _first_ephemeral() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        return _EPHEMERAL_DEFAULT
    first = int(text.split()[0])
    # A machine may give nearly all ports to clients; then there is no better range than the usual one.
    return first if first > _LOWEST + _TRIES else _EPHEMERAL_DEFAULT


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As Go's servers do: connections of a former server that linger do not make its port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
