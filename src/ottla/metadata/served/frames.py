"""What client and server say to each other: a length and a JSON object, so that a person can read along.

A request has an `id`, which its reply repeats. A message without one is the server's own: paths that have changed.
Contents of nodes are bytes of any kind and travel as Latin-1 text.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from typing import Any

from ottla.metadata.store import (
    BadVersionError,
    Check,
    Committed,
    Create,
    CreateSequential,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
)

Frame = dict[str, Any]

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 256 * 1024 * 1024
_BYTES = "latin-1"

_OPERATIONS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Create, CreateSequential, Set, Delete, Check)}
_ERRORS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (NodeExistsError, NoNodeError, NotEmptyError, BadVersionError)
}


class FrameError(Exception):
    """The other side does not speak this protocol."""


def encode(frame: Frame) -> bytes:
    text = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()
    return _LENGTH.pack(len(text)) + text


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None at the end of the connection."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME_BYTES:
            raise FrameError(f"a frame of {length} bytes")
        frame = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except ValueError as e:
        raise FrameError(f"a frame is no JSON: {e}") from e
    if not isinstance(frame, dict):
        raise FrameError("a frame is no object")
    return frame


def pack_operations(operations: Sequence[Operation]) -> list[list[Any]]:
    return [[type(operation).__name__, *map(_pack, operation)] for operation in operations]


def unpack_operations(packed: list[list[Any]]) -> list[Operation]:
    operations: list[Operation] = []
    for name, *fields in packed:
        kind = _OPERATIONS.get(name)
        if kind is None:
            raise FrameError(f"there is no operation {name!r}")
        has_data = "data" in kind._fields
        operations.append(kind(*(_unpack(field) if has_data and at == 1 else field for at, field in enumerate(fields))))
    return operations


def pack_node(node: Node | None) -> list[Any] | None:
    return None if node is None else [_pack(field) for field in node]


def unpack_node(packed: list[Any] | None) -> Node | None:
    return None if packed is None else Node(_unpack(packed[0]), *packed[1:])


def pack_committed(committed: Sequence[Committed]) -> list[list[Any]]:
    return [list(done) for done in committed]


def unpack_committed(packed: list[list[Any]]) -> list[Committed]:
    return [Committed(*done) for done in packed]


def pack_error(error: StoreError) -> Frame:
    return {"refused": type(error).__name__, "path": error.path}


def unpack_error(frame: Frame) -> StoreError:
    error: StoreError = _ERRORS[frame["refused"]](frame["path"])
    return error


def _pack(value: Any) -> Any:
    return value.decode(_BYTES) if isinstance(value, bytes) else value


def _unpack(text: str) -> bytes:
    return text.encode(_BYTES)
