"""What client and server of a served store say to each other, both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from ottla.metadata.served import frames
from ottla.metadata.served.frames import FrameError
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

BYTES = bytes(range(256))
OPERATIONS: list[Operation] = [
    Create("/a", BYTES, True),
    Create("/b"),
    CreateSequential("/a/n_", BYTES),
    Set("/a", BYTES, 3),
    Set("/a", b""),
    Delete("/a", 4),
    Delete("/ä"),
    Check("/a", 5),
]


def read(data: bytes) -> frames.Frame | None:
    async def one() -> frames.Frame | None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await frames.read(reader)

    return asyncio.run(one())


def test_operations_arrive_as_they_were_meant() -> None:
    packed = frames.pack_operations(OPERATIONS)
    assert packed[0] == ["Create", "/a", BYTES.decode("latin-1"), True]
    received = read(frames.encode({"id": 1, "operations": packed}))
    assert received is not None and received["id"] == 1
    unpacked = frames.unpack_operations(received["operations"])
    assert unpacked == OPERATIONS
    assert [type(each) for each in unpacked] == [type(each) for each in OPERATIONS]


def test_nodes_and_results_arrive_whole() -> None:
    node = Node(BYTES, 1, 2, 3, 4)
    assert frames.unpack_node(frames.pack_node(node)) == node
    assert frames.unpack_node(frames.pack_node(None)) is None
    done = [Committed("/a", 0), Committed("/b", -1)]
    packed = frames.pack_committed(done)
    assert packed == [["/a", 0], ["/b", -1]]
    assert frames.unpack_committed(packed) == done


@pytest.mark.parametrize("kind", [NodeExistsError, NoNodeError, NotEmptyError, BadVersionError])
def test_refusals_arrive_as_what_they_are(kind: Callable[[str], StoreError]) -> None:
    sent = kind("/a")
    packed = frames.pack_error(sent)
    assert packed == {"refused": type(sent).__name__, "path": "/a"}
    error = frames.unpack_error(packed)
    assert type(error) is type(sent) and error.path == "/a"


def test_a_frame_is_its_length_and_its_text() -> None:
    frame = frames.encode({"path": "/ä"})
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert json.loads(frame[4:]) == {"path": "/ä"}
    assert read(frame + b"more") == {"path": "/ä"}
    for cut in range(len(frame)):
        assert read(frame[:cut]) is None, "the connection has ended"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0\0\2[]", "a frame is no object"),
        (b"\0\0\0\1{", "a frame is no JSON"),
        (b"\0\0\0\1\xff", "a frame is no JSON"),
        ((256 * 1024 * 1024 + 1).to_bytes(4, "big"), "a frame of 268435457 bytes"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        read(data)
    assert read((256 * 1024 * 1024).to_bytes(4, "big")) is None, "the largest length is waited for"


def test_an_operation_that_nobody_knows_is_named() -> None:
    with pytest.raises(FrameError, match="there is no operation 'Rename'"):
        frames.unpack_operations([["Rename", "/a"]])
