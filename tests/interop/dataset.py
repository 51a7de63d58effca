"""The records every client sends, and what it must get back. No client is named or imported here."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ottla.records.builder import NewRecord, build_batch

Header: TypeAlias = tuple[str, bytes | None]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_BYTES_LIMIT = 1_048_588
"""The broker's `max.message.bytes` unless a topic says otherwise: the size of a whole batch."""

# Any byte may stand in a header's value; kcat prints headers with these three as its punctuation.
_HEADER_BYTES = bytes(set(range(256)) - set(b"\x00=,"))
_FIRST_TIMESTAMP_MS = 1_700_000_000_000


class Sample(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    """None lets the client's clock decide."""


class Received(NamedTuple):
    """A record as a client has read it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


def _values() -> Iterable[bytes]:
    # The lengths at which a zigzag varint grows by a byte, and the ones next to them.
    randomness = random.Random(7)
    for size in (0, 1, 2, 62, 63, 64, 65, 8190, 8191, 8192, 8193):
        yield randomness.randbytes(size)
    yield bytes(300_000)
    yield "ottla · Кафка · 卡夫卡".encode()


def _samples() -> Iterable[Sample]:
    for value in _values():
        yield Sample(b"key", value)
    for key in (None, b"", b"k", b"\x00\xff\n", b"k" * 64, b"k" * 8192):
        yield Sample(key, b"value")
    yield Sample(b"tombstone", None)
    yield Sample(b"", b"")
    yield Sample(None, b"")
    yield Sample(None, None)
    yield Sample(b"one", b"header", (("trace", b"1f"),))
    yield Sample(b"many", b"headers", (("a", b"1"), ("a", b"2"), ("b", b""), ("a", b"1"), ("\u00fc", _HEADER_BYTES)))
    yield Sample(b"null", b"header", (("none", None), ("some", b"x"), ("none", None)))
    yield Sample(b"long", b"header", (("n" * 64, b"v" * 8192),))


# Forwards, backwards and standing still: a client may send any time it likes.
_TIME_STEPS_MS = (0, 5, 5, 3, 1_000, 999, 70_000, 60_000, 60_000, 2)

SAMPLES: tuple[Sample, ...] = tuple(
    sample._replace(timestamp_ms=_FIRST_TIMESTAMP_MS + 100_000 * (i // 10) + _TIME_STEPS_MS[i % 10])
    for i, sample in enumerate(_samples())
)


def numbered(count: int, first: int = 0) -> list[Sample]:
    """Records that say which one they are, for tests of order and completeness."""
    return [Sample(b"%d" % i, b"record %d" % i) for i in range(first, first + count)]


def value_of_batch_size(size: int) -> bytes:
    """The value of the record without key and headers whose batch of one has this size."""
    length = size - len(build_batch([NewRecord(None, b"")]))
    while len(build_batch([NewRecord(None, bytes(length))])) > size:
        length -= 1
    value = random.Random(size).randbytes(length)
    assert len(build_batch([NewRecord(None, value)])) == size
    return value


def assert_same(received: Sequence[Received], sent: Sequence[Sample], *, first_offset: int = 0) -> None:
    """The same bytes, in order, at consecutive offsets, and at the times that were given."""
    assert [r.offset for r in received] == list(range(first_offset, first_offset + len(sent)))
    for got, sample in zip(received, sent, strict=True):
        assert (got.key, got.value, got.headers) == (sample.key, sample.value, sample.headers), f"offset {got.offset}"
        if sample.timestamp_ms is not None:
            assert got.timestamp_ms == sample.timestamp_ms, f"offset {got.offset}"


def offset_at_time(sent: Sequence[Sample], timestamp_ms: int) -> int | None:
    """The offset of the first record that is not older, by looking at all of them."""
    times = (sample.timestamp_ms for sample in sent)
    return next((i for i, time in enumerate(times) if time is not None and time >= timestamp_ms), None)
