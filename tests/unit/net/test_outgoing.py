from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.types import FileSlice
from ottla.net.channel import FileTruncatedError, PlainChannel
from ottla.net.file_views import FileViews
from ottla.net.outgoing import FLUSH_BYTES, JOIN_BYTES, SMALL_SLICE_BYTES, Flushed, Outgoing, Piece
from tests.own_thread import patch_own_thread

from .conftest import StoredFile

CONTENT = bytes(n * 7 % 251 for n in range(300_000))


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def stored(tmp_path: Path) -> StoredFile:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    return StoredFile(path)


def channel_of(sock: socket.socket, *, is_peer_local: bool) -> PlainChannel:
    """With windows that most file ranges do not fit into."""
    return PlainChannel(sock, FileViews(read_bytes_max=20_000, window_bytes=49_152), is_peer_local=is_peer_local)


def flush_all(outgoing: Outgoing, theirs: socket.socket, expected_bytes: int) -> bytes:
    received = bytearray()
    while True:
        flushed = outgoing.flush()
        if flushed is Flushed.ALL and len(received) == expected_bytes:
            return bytes(received)
        received += theirs.recv(1 << 16)


piece = st.one_of(
    st.binary(max_size=50),
    st.integers(0, 100_000).map(lambda size: bytes(size)),
    st.tuples(st.integers(0, 200_000), st.integers(1, 100_000)),
    st.tuples(st.integers(0, 200_000), st.integers(SMALL_SLICE_BYTES - 1, SMALL_SLICE_BYTES + 1)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(piece, max_size=12), is_peer_local=st.booleans())
def test_what_arrives_is_the_pieces_in_order(
    sockets: tuple[socket.socket, socket.socket],
    stored: StoredFile,
    plan: list[bytes | tuple[int, int]],
    is_peer_local: bool,
) -> None:
    ours, theirs = sockets
    outgoing = Outgoing(channel_of(ours, is_peer_local=is_peer_local))
    pieces: list[Piece] = [part if isinstance(part, bytes) else FileSlice(stored, *part) for part in plan]
    outgoing.extend(pieces)
    expected = b"".join(
        CONTENT[part.position : part.position + part.length] if isinstance(part, FileSlice) else part for part in pieces
    )
    assert flush_all(outgoing, theirs, len(expected)) == expected
    assert outgoing.sent_bytes == len(expected)
    assert not outgoing


def test_where_sendfile_is_not_supported_the_file_is_read(
    sockets: tuple[socket.socket, socket.socket], stored: StoredFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    patch_own_thread(monkeypatch, os, "sendfile", unsupported)
    outgoing = Outgoing(channel_of(sockets[0], is_peer_local=False))
    outgoing.extend([b"head", FileSlice(stored, 0, len(CONTENT)), b"tail"])
    assert flush_all(outgoing, sockets[1], len(CONTENT) + 8) == b"head" + CONTENT + b"tail"


@pytest.mark.parametrize("is_peer_local", [True, False])
@pytest.mark.parametrize("length", [100, 100_000])
def test_a_range_beyond_the_end_of_its_file_is_an_error(
    sockets: tuple[socket.socket, socket.socket], stored: StoredFile, length: int, is_peer_local: bool
) -> None:
    outgoing = Outgoing(channel_of(sockets[0], is_peer_local=is_peer_local))
    outgoing.extend([FileSlice(stored, len(CONTENT) - 10, length)])
    with pytest.raises(FileTruncatedError):
        while outgoing.flush() is not Flushed.ALL:
            sockets[1].recv(1 << 16)


def test_a_piece_that_is_taken_in_parts_is_not_all_before_its_last_part() -> None:
    class Narrow:
        """Takes a little, then nothing until it is asked again."""

        def __init__(self) -> None:
            self.taken = b""
            self._is_open = True

        def send(self, data: bytes | memoryview, flags: int) -> int:
            self._is_open = not self._is_open
            if self._is_open:
                raise BlockingIOError
            self.taken += bytes(data[:10])
            return min(len(data), 10)

    channel = Narrow()
    outgoing = Outgoing(channel)  # type: ignore[arg-type]
    outgoing.extend([bytes(range(25))])
    assert [outgoing.flush() for _ in range(3)] == [Flushed.BLOCKED, Flushed.BLOCKED, Flushed.ALL]
    assert channel.taken == bytes(range(25))


def test_one_flush_sends_a_bounded_amount(stored: StoredFile) -> None:
    class Bottomless:
        """Takes whatever it is given."""

        def send(self, data: bytes | memoryview, flags: int) -> int:
            return len(data)

        def send_file(self, file_slice: FileSlice, max_bytes: int) -> int:
            return min(file_slice.length, max_bytes)

    outgoing = Outgoing(Bottomless())  # type: ignore[arg-type]
    outgoing.extend([FileSlice(stored, 0, 3 * FLUSH_BYTES)])
    assert outgoing.flush() is Flushed.BUDGET_SPENT
    assert outgoing.sent_bytes == FLUSH_BYTES
    assert outgoing.flush() is Flushed.BUDGET_SPENT
    assert outgoing.flush() is Flushed.ALL


@pytest.mark.parametrize("kind", ["bytes", "slices"])
def test_no_more_is_joined_than_is_worth_a_copy(
    sockets: tuple[socket.socket, socket.socket], stored: StoredFile, kind: str
) -> None:
    ours, theirs = sockets
    channel = channel_of(ours, is_peer_local=False)
    send, sizes = channel.send, []

    def noted(data: bytes | memoryview, flags: int) -> int:
        sizes.append(len(data))
        return send(data, flags)

    channel.send = noted
    outgoing = Outgoing(channel)
    size = 8_000
    pieces: list[Piece] = [
        FileSlice(stored, number * size, size) if kind == "slices" else CONTENT[number * size :][:size]
        for number in range(20)
    ]
    outgoing.extend(pieces)
    assert flush_all(outgoing, theirs, 20 * size) == CONTENT[: 20 * size]
    assert size < max(sizes) <= JOIN_BYTES


class RecordingChannel:
    """Takes everything, or so many bytes at a time."""

    def __init__(self, takes: int = 1 << 30) -> None:
        self.calls: list[tuple[str, int, int]] = []
        """What kind of send, of how many bytes, with which flags or limit."""
        self._takes = takes

    def send(self, data: bytes | memoryview, flags: int) -> int:
        self.calls.append(("send", len(data), flags))
        return min(len(data), self._takes)

    def send_file(self, file_slice: FileSlice, max_bytes: int) -> int:
        self.calls.append(("file", file_slice.length, max_bytes))
        return min(file_slice.length, max_bytes, self._takes)


def sent(channel: RecordingChannel, *pieces: Piece) -> list[tuple[str, int, int]]:
    """What becomes of them until all are out."""
    outgoing = Outgoing(channel)  # type: ignore[arg-type]
    outgoing.extend(pieces)
    while outgoing.flush() is not Flushed.ALL:
        pass
    assert not outgoing and outgoing.sent_bytes == sum(len(p) if isinstance(p, bytes) else p.length for p in pieces)
    return channel.calls


def test_small_pieces_travel_together_and_large_ones_alone(stored: StoredFile) -> None:
    more = socket.MSG_MORE
    small, large = (FileSlice(stored, 0, SMALL_SLICE_BYTES + extra) for extra in (0, 1))
    size = SMALL_SLICE_BYTES
    assert sent(RecordingChannel(), b"head", small, b"tail") == [("send", size + 8, 0)]
    assert sent(RecordingChannel(), b"head", large, b"tail") == [
        ("send", 4, more),
        ("file", size + 1, FLUSH_BYTES - 4),
        ("send", 4, 0),
    ]
    assert sent(RecordingChannel(), small) == [("send", size, 0)]
    assert sent(RecordingChannel(), large) == [("file", size + 1, FLUSH_BYTES)]


@pytest.mark.parametrize(("extra", "sizes"), [(0, [JOIN_BYTES]), (1, [JOIN_BYTES - 10, 11])])
def test_the_limit_of_what_is_joined_is_exact(extra: int, sizes: list[int]) -> None:
    calls = sent(RecordingChannel(), bytes(JOIN_BYTES - 10), bytes(10 + extra))
    assert [size for _, size, _ in calls] == sizes
    assert [flags for _, _, flags in calls] == [socket.MSG_MORE] * (len(sizes) - 1) + [0]


def test_what_is_joined_counts_pieces_of_files_too(stored: StoredFile) -> None:
    small = FileSlice(stored, 0, SMALL_SLICE_BYTES)
    count = JOIN_BYTES // SMALL_SLICE_BYTES
    calls = sent(RecordingChannel(), *[small] * (count + 1))
    assert [size for _, size, _ in calls] == [count * SMALL_SLICE_BYTES, SMALL_SLICE_BYTES]


def test_others_have_their_turn_after_so_many_bytes() -> None:
    channel = RecordingChannel()
    outgoing = Outgoing(channel)  # type: ignore[arg-type]
    outgoing.extend([bytes(FLUSH_BYTES - 1), bytes(FLUSH_BYTES), bytes(1)])
    assert outgoing.flush() is Flushed.BUDGET_SPENT
    assert outgoing.sent_bytes == 2 * FLUSH_BYTES - 1
    outgoing.extend([bytes(FLUSH_BYTES)])
    assert outgoing.flush() is Flushed.ALL
    outgoing.extend([bytes(FLUSH_BYTES), bytes(JOIN_BYTES)])
    assert outgoing.flush() is Flushed.BUDGET_SPENT, "exactly so many are enough"
