"""Reads the journal's JSON lines (``journalctl -o json``).

The journal says how an entry came: only ``_TRANSPORT=kernel`` is the kernel's log, and in it only facility 0 is the
kernel itself. ``MESSAGE`` is an array of bytes where the text is not printable.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_MAX_LINE: Final = 65_536
_MAX_TEXT: Final = 2048
_KERNEL_FACILITY: Final = 0


class _Fields(msgspec.Struct):
    """What is read of an entry: of whatever type, since anybody may write entries."""

    message: Any = msgspec.field(name="MESSAGE", default=msgspec.UNSET)
    transport: Any = msgspec.field(name="_TRANSPORT", default=None)
    facility: Any = msgspec.field(name="SYSLOG_FACILITY", default=None)
    source: Any = msgspec.field(name="_SOURCE_MONOTONIC_TIMESTAMP", default=None)
    monotonic: Any = msgspec.field(name="__MONOTONIC_TIMESTAMP", default=None)
    real: Any = msgspec.field(name="__REALTIME_TIMESTAMP", default=None)
    boot_id: Any = msgspec.field(name="_BOOT_ID", default=None)
    identifier: Any = msgspec.field(name="SYSLOG_IDENTIFIER", default=None)
    pid: Any = msgspec.field(name="_PID", default=None)
    payload: Any = msgspec.field(name="jsonPayload", default=None)
    """Where Cloud Logging puts the entry."""


_decoder: Final = msgspec.json.Decoder(_Fields)


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the journal."""

    text: str
    from_kernel: bool
    at: float | None
    uptime: float | None
    boot_id: str


def parse_journal(line: str) -> JournalEntry | None:
    """Read one line; None when it is no entry of a journal."""
    if len(line) > _MAX_LINE:
        return None
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(entry.payload, dict) and entry.message is msgspec.UNSET:
        entry = msgspec.convert(entry.payload, _Fields)
    if entry.message is msgspec.UNSET:
        return None
    facility = _number(entry.facility)
    # With --output-fields there is no transport. An entry that names nobody is then taken to be the kernel's.
    by_kernel = entry.transport == "kernel" or (
        entry.transport is None and entry.pid is None and (entry.identifier is None or entry.identifier == "kernel")
    )
    from_kernel = by_kernel and facility in {None, _KERNEL_FACILITY}
    source = _number(entry.source)
    monotonic = source if source is not None else _number(entry.monotonic)
    real = _number(entry.real)
    boot_id = entry.boot_id
    return JournalEntry(
        text=_text(entry.message),
        from_kernel=from_kernel,
        at=None if real is None else real / 1e6,
        uptime=None if monotonic is None else monotonic / 1e6,
        boot_id=boot_id[:64] if isinstance(boot_id, str) else "",
    )


def _text(message: object) -> str:
    if isinstance(message, str):
        return message[:_MAX_TEXT]
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte <= 0xFF for byte in message[:_MAX_TEXT]):
        return bytes(message[:_MAX_TEXT]).decode("utf-8", "replace")
    return ""  # Too large for the journal to print (null), or of a form that it never has.


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 1 << 63 else None
    text = value[-1] if isinstance(value, list) and value else value
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 else None
