"""Where the bytes of frames lie while they come in, and which memory is used again."""

from __future__ import annotations

from weakref import ref

import pytest

from ottla.wire.frame import BufferPool, FrameReader

LIMIT = 1_000_000


def begin(reader: FrameReader, size: int, have: int = 6) -> None:
    """Receives the size of a frame and so many bytes of it."""
    room = reader.receive_buffer()
    room[: 4 + have] = size.to_bytes(4, "big") + bytes(have)
    assert reader.received(4 + have) == []


def test_how_much_is_received_at_once() -> None:
    assert len(FrameReader(LIMIT).receive_buffer()) == 65_536
    assert len(FrameReader(LIMIT, BufferPool()).receive_buffer()) == 262_144


@pytest.mark.parametrize(
    ("shared_bytes", "size", "is_set_aside"),
    [(262_144, 7, True), (262_144, 16_380, True), (262_144, 16_381, False), (64, 60, True), (64, 61, False)],
)
def test_a_small_frame_waits_for_its_rest_in_the_shared_buffer(
    shared_bytes: int, size: int, is_set_aside: bool
) -> None:
    pool = BufferPool(shared_bytes)
    reader = FrameReader(LIMIT, pool)
    begin(reader, size)
    room = reader.receive_buffer()
    assert (room.obj is pool.shared.obj) is is_set_aside
    assert len(room) == (shared_bytes - 10 if is_set_aside else size - 6)
    room[: size - 6] = bytes(size - 6)
    assert [len(frame) for frame in reader.received(size - 6)] == [size]


def test_what_a_frame_has_outgrown_is_for_others() -> None:
    pool = BufferPool(64)
    reader = FrameReader(LIMIT, pool)
    begin(reader, 300_000)
    outgrown = reader.receive_buffer()
    assert len(outgrown) == 65_536 - 6, "twice what has come would be less than the smallest"
    reader.received(len(outgrown))
    larger = reader.receive_buffer()
    assert larger.obj is not outgrown.obj
    assert len(larger) == 131_072 - 65_536
    assert pool.take(60_000, 1).obj is outgrown.obj


class Memory(bytearray):
    """Can be asked whether anybody keeps it."""


def test_thirty_two_megabytes_are_kept_to_be_used_again() -> None:
    pool = BufferPool(64)
    kept = []
    for size in (32 * 1024 * 1024 - 10, 11, 10, 1):
        memory = Memory(size)
        kept.append(ref(memory))
        pool.give_back(memoryview(memory))
        del memory
    assert [each() is not None for each in kept] == [True, False, True, False]
