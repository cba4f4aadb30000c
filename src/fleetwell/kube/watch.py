"""The wire forms of lists and watches, and how a watch's bytes become frames."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from fleetwell.kube.errors import Status, Undecodable, from_status

T = TypeVar("T")

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of one watch event; etcd's own limit for an object is 1.5 MiB."""


@dataclass(frozen=True)
class Listing(Generic[T]):
    """All objects that a list found, as of ``resource_version``."""

    items: list[T]
    resource_version: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    next_page: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """One page of a list, its objects not yet decoded."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _IdentityMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Identity(msgspec.Struct):
    """The part of an object that an informer needs even when the rest cannot be decoded."""

    metadata: _IdentityMeta


class Frame(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK. Errors are raised, not given."""

    type: str
    object: msgspec.Raw


_pages = msgspec.json.Decoder(Page)
_frames = msgspec.json.Decoder(Frame)
_identities = msgspec.json.Decoder(Identity)
_statuses = msgspec.json.Decoder(Status)


def decode_page(what: str, body: bytes) -> Page:
    """Decode the outside of a list."""
    try:
        return _pages.decode(body)
    except msgspec.DecodeError as error:
        msg = f"{what}: the answer is not a list: {error}"
        raise Undecodable(msg) from error


def decode_identity(what: str, raw: msgspec.Raw) -> _IdentityMeta:
    """Decode who an object is."""
    try:
        return _identities.decode(raw).metadata
    except msgspec.DecodeError as error:
        msg = f"{what}: an object without readable metadata: {error}"
        raise Undecodable(msg) from error


async def frames(what: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[Frame, None]:
    """Cut a watch into frames. A last line without its newline was cut off by the connection and is dropped."""
    pending = bytearray()
    async for chunk in chunks:
        pending += chunk
        if len(pending) > LONGEST_LINE:
            msg = f"{what}: a watch event is longer than {LONGEST_LINE} bytes"
            raise Undecodable(msg)
        if b"\n" not in chunk:
            continue
        *lines, rest = bytes(pending).split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            if line:
                yield _frame(what, line)


def _frame(what: str, line: bytes) -> Frame:
    try:
        frame = _frames.decode(line)
        if frame.type != "ERROR":
            return frame
        status = _statuses.decode(frame.object)
    except msgspec.DecodeError as error:
        msg = f"{what}: a watch event cannot be read: {error}"
        raise Undecodable(msg) from error
    raise from_status(what, status)
