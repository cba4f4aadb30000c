"""Just enough HTTP to ask a metadata server, without the 20 ms of CPU that importing the library's client costs.

HTTP/1.0, so that the server closes the connection after its answer and sends it in one piece.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

TIMEOUT = 2.0
LIMIT = 64 * 1024


class SilentError(Exception):
    """The server gave no answer that is one."""


def ask(url: str, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Send one request and give status and body.

    :param url: the server, ``http://HOST[:PORT]``.
    :raises SilentError: it cannot be reached, is too slow, or speaks another language.
    """
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    lines = [f"{method} {path} HTTP/1.0", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    try:
        with socket.create_connection((host, int(port or 80)), timeout=TIMEOUT) as link:
            link.sendall("\r\n".join([*lines, "", ""]).encode())
            received = b""
            while len(received) <= LIMIT and (more := link.recv(LIMIT)):
                received += more
    except (OSError, ValueError) as error:
        raise SilentError(str(error) or type(error).__name__) from error
    head, separator, body = received.partition(b"\r\n\r\n")
    version, _, rest = head.partition(b" ")
    status = rest[:3]
    if not separator or not version.startswith(b"HTTP/1.") or not status.isdigit() or len(received) > LIMIT:
        raise SilentError(f"its answer is no HTTP, or longer than {LIMIT} bytes")
    return int(status), body.decode(errors="replace")
