"""Identifiers and plain values that cross layers. No behaviour that needs IO, except closing what a FileSlice holds."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, NewType, Protocol, TypeAlias

ReadBuffer: TypeAlias = bytes | bytearray | memoryview
WriteBuffer: TypeAlias = bytearray | memoryview

Uuid = NewType("Uuid", bytes)
"""Sixteen raw bytes, most significant first, as on the wire. Bytes hash and compare faster than `uuid.UUID`."""

NIL_UUID = Uuid(bytes(16))


def uuid_to_text(value: Uuid) -> str:
    """Kafka's text form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    """The inverse of `uuid_to_text`; raises ValueError on anything else."""
    if "+" in text or "/" in text:
        # The decoder knows the signs of plain base64 besides the two that stand for them here.
        raise ValueError(f"not a Kafka uuid: {text!r}")
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as e:
        raise ValueError(f"not a Kafka uuid: {text!r}") from e
    if len(raw) != 16:
        raise ValueError(f"not a Kafka uuid: {text!r}")
    return Uuid(raw)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OpenFile(Protocol):
    """A file that stays open while somebody holds it, however it is renamed or deleted meanwhile."""

    @property
    def fd(self) -> int: ...


class FileSlice(NamedTuple):
    """A range of a log file on its way to a socket.

    It carries the open file itself, so the descriptor lives at least as long as the slice is queued.
    """

    file: OpenFile
    position: int
    length: int


class Endpoint(NamedTuple):
    """Where a broker listens: `listener` is the listener's name, not its security protocol."""

    listener: str
    host: str
    port: int
