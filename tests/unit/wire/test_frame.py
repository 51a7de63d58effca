from __future__ import annotations

import ctypes
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ProtocolError
from ottla.wire.frame import HEAD_BYTES, SHARED_BUFFER_BYTES, BufferPool, FrameReader

LIMIT = 100 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(reader: FrameReader, data: bytes) -> list[memoryview]:
    """What one `recv_into` of at most these bytes does; all of them must fit."""
    room = reader.receive_buffer()
    room[: len(data)] = data
    return reader.received(len(data))


def pump(reader: FrameReader, data: bytes, chunk_bytes: int) -> list[bytes]:
    """Receives the data in chunks, as a socket would give it, and copies the frames out."""
    frames = []
    position = 0
    while position < len(data):
        room = reader.receive_buffer()
        chunk = data[position : position + min(chunk_bytes, len(room))]
        room[: len(chunk)] = chunk
        frames += [bytes(frame) for frame in reader.received(len(chunk))]
        position += len(chunk)
    return frames


BODY_SIZES = st.sampled_from([0, 1, 3, 100, 4096, 16_380, 16_381, 16_384, 70_000, 200_000, 262_144, 300_000])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.lists(BODY_SIZES, max_size=8),
    chunk_bytes=st.sampled_from([1, 3, 5, 1000, 65_536, 262_144, 1_000_000]),
    shared_bytes=st.sampled_from([64, 65_536, SHARED_BUFFER_BYTES]),
    seed=st.integers(0, 99),
)
def test_the_same_frames_come_out_however_the_bytes_come_in(
    sizes: list[int], chunk_bytes: int, shared_bytes: int, seed: int
) -> None:
    if chunk_bytes < 1000:
        sizes = [min(size, 2000) for size in sizes]
    rng = Random(seed)
    bodies = [rng.randbytes(size) for size in sizes]
    reader = FrameReader(LIMIT, BufferPool(shared_bytes))
    assert pump(reader, b"".join(map(framed, bodies)), chunk_bytes) == bodies
    assert not reader.is_mid_frame


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_readers_that_share_a_pool_do_not_disturb_each_other(seed: int) -> None:
    rng = Random(seed)
    pool = BufferPool(4096)
    readers = [FrameReader(LIMIT, pool) for _ in range(4)]
    bodies = [[rng.randbytes(rng.choice((0, 5, 3000, 20_000, 150_000))) for _ in range(5)] for _ in readers]
    streams = [b"".join(map(framed, each)) for each in bodies]
    positions = [0] * len(readers)
    frames: list[list[bytes]] = [[] for _ in readers]
    while any(position < len(stream) for position, stream in zip(positions, streams, strict=True)):
        i = rng.randrange(len(readers))
        room = readers[i].receive_buffer()
        chunk = streams[i][positions[i] :][: min(len(room), rng.choice((1, 2, 700, 100_000)))]
        room[: len(chunk)] = chunk
        positions[i] += len(chunk)
        frames[i] += [bytes(frame) for frame in readers[i].received(len(chunk))]
    assert frames == bodies


def test_many_frames_in_one_read_are_writable_views_of_the_shared_buffer() -> None:
    pool = BufferPool()
    frames = feed(FrameReader(LIMIT, pool), framed(b"one") + framed(b"two") + framed(b""))
    assert [bytes(frame) for frame in frames] == [b"one", b"two", b""]
    assert all(frame.obj is pool.shared.obj and not frame.readonly for frame in frames)


def test_a_large_frame_is_received_straight_into_its_own_buffer() -> None:
    pool = BufferPool()
    reader = FrameReader(LIMIT, pool)
    body = bytes(200_000) + b"end"
    assert feed(reader, framed(body)[:150_000]) == []
    assert reader.is_mid_frame
    room = reader.receive_buffer()
    assert room.obj is not pool.shared.obj
    assert len(room) == len(framed(body)) - 150_000
    (frame,) = feed(reader, framed(body)[150_000:])
    assert frame == body
    assert frame.obj is room.obj
    assert reader.receive_buffer().obj is pool.shared.obj


@pytest.mark.parametrize(("size", "room_bytes"), [(200_000, SHARED_BUFFER_BYTES), (300_000, HEAD_BYTES)])
def test_behind_a_huge_frame_little_is_received_that_would_have_to_be_copied(size: int, room_bytes: int) -> None:
    reader = FrameReader(LIMIT, BufferPool())
    feed(reader, framed(bytes(size))[:1000])
    frames: list[memoryview] = []
    while not frames:
        room = reader.receive_buffer()
        frames = reader.received(len(room))
    assert len(reader.receive_buffer()) == room_bytes


def test_held_frames_stay_while_others_are_received() -> None:
    pool = BufferPool()
    readers = [FrameReader(LIMIT, pool) for _ in range(3)]
    held: list[memoryview] = []
    for number, reader in enumerate(readers):
        # The second one has the start of a frame set aside, which comes back in front of the rest.
        if number == 1:
            assert feed(reader, framed(b"body 1")[:7]) == []
        data = framed(b"body %d" % number)[7 if number == 1 else 0 :]
        room = reader.receive_buffer()
        room[: len(data)] = data
        held += reader.received(len(data))
        pool.hold(room[len(data) :])
    assert [bytes(frame) for frame in held] == [b"body 0", b"body 1", b"body 2"]
    assert len(readers[0].receive_buffer()) < SHARED_BUFFER_BYTES
    pool.reuse()
    assert len(readers[0].receive_buffer()) == SHARED_BUFFER_BYTES


def test_an_announced_frame_gets_memory_only_as_it_arrives() -> None:
    pool = BufferPool()
    readers = [FrameReader(LIMIT, pool) for _ in range(50)]
    for reader in readers:
        feed(reader, LIMIT.to_bytes(4, "big") + b"x" * 100)
    assert sum(len(reader.receive_buffer().obj) for reader in readers) < 50 * 128 * 1024  # type: ignore[arg-type]


def test_buffers_grow_with_what_has_come_and_return_to_the_pool() -> None:
    pool = BufferPool()
    reader = FrameReader(LIMIT, pool)
    body = Random(1).randbytes(3_000_000)
    assert pump(reader, framed(body), 100_000) == [body]
    reader.receive_buffer()
    # A second frame of that size finds the buffer of the first and need not grow.
    feed(reader, framed(body)[:20_000])
    assert len(reader.receive_buffer()) == len(framed(body)) - 20_000


def test_the_pool_keeps_no_more_than_it_may() -> None:
    pool = BufferPool(pooled_bytes_max=100_000)
    readers = [FrameReader(LIMIT, pool) for _ in range(5)]
    for reader in readers:
        feed(reader, framed(bytes(60_000))[:1000])
    for reader in readers:
        reader.close()
    assert pool._spare_bytes == 65_536


@pytest.mark.parametrize(("pooled_bytes_max", "kept_bytes"), [(131_071, 65_536), (131_072, 131_072)])
def test_the_pool_may_be_filled_to_the_last_byte(pooled_bytes_max: int, kept_bytes: int) -> None:
    pool = BufferPool(pooled_bytes_max=pooled_bytes_max)
    for buffer in [pool.take(65_536, 65_536) for _ in range(3)]:
        pool.give_back(buffer)
    assert pool._spare_bytes == kept_bytes


@pytest.mark.parametrize(
    ("needed_bytes", "have_bytes", "size"),
    [
        (1, 1, 65_536),
        (65_536, 65_536, 65_536),
        (65_537, 65_537, 131_072),
        (131_072, 131_072, 131_072),
        (1_000_000, 0, 65_536),
        (1_000_000, 32_768, 65_536),
        (1_000_000, 32_769, 131_072),
        (1_000_000, 262_144, 524_288),
        (1_000_000, 262_145, 1_048_576),
        (1_000_000, 999_999, 1_048_576),
    ],
)
def test_a_buffer_is_twice_what_has_come_or_what_is_needed(needed_bytes: int, have_bytes: int, size: int) -> None:
    assert len(BufferPool().take(needed_bytes, have_bytes)) == size


def test_a_spare_buffer_is_taken_once_and_only_for_its_size() -> None:
    pool = BufferPool()
    small, large = pool.take(65_536, 65_536), pool.take(1_048_576, 1_048_576)
    pool.give_back(small)
    pool.give_back(large)
    assert pool._spare_bytes == 65_536 + 1_048_576
    assert pool.take(1_000_000, 0) is large, "all at once, as it is there"
    assert pool.take(1_000_000, 0) is small, "as much as can be afforded"
    assert pool._spare_bytes == 0
    assert pool.take(1_000_000, 0) is not small


def test_a_reader_that_is_closed_keeps_nothing_of_its_frame() -> None:
    for sent in (2, 10, 1000):
        pool = BufferPool()
        reader = FrameReader(LIMIT, pool)
        feed(reader, framed(bytes(60_000))[:sent])
        assert reader.is_mid_frame
        reader.close()
        assert not reader.is_mid_frame


def test_detached_frames_survive_the_next_read() -> None:
    pool = BufferPool()
    reader, other = FrameReader(LIMIT, pool), FrameReader(LIMIT, pool)
    kept = reader.detach(feed(reader, framed(b"first") + framed(b"second"))[1:])
    feed(other, framed(b"x" * 100))
    assert [bytes(frame) for frame in kept] == [b"second"]
    assert not kept[0].readonly


def test_detaching_a_large_frame_hands_over_its_buffer() -> None:
    reader = FrameReader(LIMIT, BufferPool())
    body = b"y" * 100_000
    feed(reader, framed(body)[:50_000])
    frames = feed(reader, framed(body)[50_000:])
    kept = reader.detach(frames)
    assert kept[0].obj is frames[0].obj
    assert pump(reader, framed(b"z" * 100_000), 60_000) == [b"z" * 100_000]
    assert kept[0] == body


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ((LIMIT + 1).to_bytes(4, "big"), "over the limit of 104857600"),
        (b"\xff\xff\xff\xff", "cannot have -1 bytes"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS client"),
        (b"SSH-2.0", "SSH"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_a_guess(first: bytes, reason: str) -> None:
    reader = FrameReader(LIMIT)
    with pytest.raises(ProtocolError, match=reason):
        feed(reader, first)


def test_the_limit_itself_is_allowed() -> None:
    reader = FrameReader(1000)
    assert [len(frame) for frame in feed(reader, framed(bytes(1000)))] == [1000]
    with pytest.raises(ProtocolError):
        feed(reader, framed(bytes(1001)))


def test_a_size_split_over_reads_is_mid_frame() -> None:
    reader = FrameReader(LIMIT)
    assert feed(reader, b"\x00\x00") == []
    assert reader.is_mid_frame
    assert [bytes(frame) for frame in feed(reader, b"\x00\x01a")] == [b"a"]
    assert not reader.is_mid_frame


@pytest.mark.parametrize("trusted_bytes", [0, LIMIT])
def test_a_large_frame_does_not_lie_where_copies_to_it_are_slow(trusted_bytes: int) -> None:
    """1 to 15 bytes behind the place that the same byte has in the peer's memory, counted within a page."""
    reader = FrameReader(LIMIT, trusted_bytes=trusted_bytes)
    # So large that malloc always maps memory for it, which begins with a page.
    data = framed(bytes(40_000_000))
    frames: list[memoryview] = []
    position = 0
    while not frames:
        room = reader.receive_buffer()
        chunk = data[position : position + len(room)]
        room[: len(chunk)] = chunk
        frames = reader.received(len(chunk))
        position += len(chunk)
    address = ctypes.addressof(ctypes.c_char.from_buffer(frames[0].cast("c")))
    place_in_peers_page = 4
    assert (address - place_in_peers_page) % 4096 not in range(1, 16)


@pytest.mark.parametrize(("size", "room_bytes"), [(200_000, SHARED_BUFFER_BYTES), (300_000, HEAD_BYTES)])
def test_behind_a_huge_frame_that_was_detached_little_is_received(size: int, room_bytes: int) -> None:
    reader = FrameReader(LIMIT, BufferPool(), trusted_bytes=LIMIT)
    feed(reader, framed(bytes(size))[:1000])
    frames: list[memoryview] = []
    while not frames:
        room = reader.receive_buffer()
        frames = reader.received(len(room))
    reader.detach(frames)
    assert len(reader.receive_buffer()) == room_bytes
    assert feed(reader, framed(b"small")) == [b"small"]
    assert len(reader.receive_buffer()) == SHARED_BUFFER_BYTES
