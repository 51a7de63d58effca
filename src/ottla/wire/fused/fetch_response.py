"""Fetch responses by hand, versions 4-17: bytes and file ranges in the order they go to the socket.

The records never pass through here: a `FileSlice` is put between the bytes around it, and only its length counts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.errors import EncodeError
from ottla.base.types import FileSlice
from ottla.wire.apis.fetch import NodeEndpoint
from ottla.wire.compiler import struct_encoder
from ottla.wire.fused.fetch_request import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS, SERVED_VERSIONS, TopicRef
from ottla.wire.fused.tags import tag_section
from ottla.wire.primitives import write_string, write_unsigned_varint

Piece = bytes | FileSlice
RecordPiece = bytes | memoryview | FileSlice
Records = RecordPiece | list[RecordPiece] | None


class FetchResult(NamedTuple):
    """What one partition gives. `aborted` holds (producer id, first offset) and is None unless read_committed."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """Epoch and its end offset, for a follower whose log has to be cut (version 12 and later)."""
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch, for a reader that asked the wrong broker (version 12 and later)."""
    records: Records = None


_INT32 = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqx")
_DIVERGING = struct.Struct(">iqx")
_LEADER = struct.Struct(">iix")

# Frame size, response header and all fields before the topics (version 12: before their count).
_PREFIX_4 = struct.Struct(">iiii")
_PREFIX_7 = struct.Struct(">iiihii")
_PREFIX_12 = struct.Struct(">iixihi")
# The fixed fields of a partition up to the count of aborted transactions.
_FIXED_4 = struct.Struct(">ihqq")
_FIXED_5 = struct.Struct(">ihqqq")
# The same with an empty or null list of aborted transactions and all that follows up to the records' size.
_SHORT_4 = struct.Struct(">ihqqii")
_SHORT_5 = struct.Struct(">ihqqqii")
_SHORT_11 = struct.Struct(">ihqqqiii")
_SHORT_12 = struct.Struct(">ihqqqBi")


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicRef, Sequence[FetchResult]]],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Piece]:
    """The whole response frame, size included, as pieces to send one after the other."""
    if version not in SERVED_VERSIONS:
        raise EncodeError(f"fetch responses are made for versions 4-17, not {version}")
    writer = _Writer()
    try:
        if version >= FIRST_FLEXIBLE:
            _write_flexible(writer, version, topics)
            writer.run.append(_endpoints_tag(version, node_endpoints))
            count = write_unsigned_varint(len(topics) + 1)
            size, pieces = writer.close(_PREFIX_12.size - 4 + len(count))
            prefix = _PREFIX_12.pack(size, correlation_id, throttle_ms, error_code, session_id) + count
        else:
            _write_plain(writer, version, topics)
            if version >= 7:
                size, pieces = writer.close(_PREFIX_7.size - 4)
                prefix = _PREFIX_7.pack(size, correlation_id, throttle_ms, error_code, session_id, len(topics))
            else:
                size, pieces = writer.close(_PREFIX_4.size - 4)
                prefix = _PREFIX_4.pack(size, correlation_id, throttle_ms, len(topics))
    except struct.error as e:
        raise EncodeError(f"a fetch result does not fit its field: {e}") from e
    pieces[0] = prefix + pieces[0]  # type: ignore[operator]
    return pieces


class _Writer:
    """Collects bytes, and closes the run whenever a file range comes."""

    __slots__ = ("byte_count", "pieces", "run")

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.run: list[bytes] = []
        self.byte_count = 0
        """Of what is in `pieces`."""

    def add_records(self, records: RecordPiece) -> None:
        if type(records) is FileSlice:
            if records.length:
                if self.run:
                    joined = b"".join(self.run)
                    self.run.clear()
                    self.pieces.append(joined)
                    self.byte_count += len(joined)
                self.pieces.append(records)
                self.byte_count += records.length
        else:
            self.run.append(records)  # type: ignore[arg-type]

    def close(self, prefix_bytes: int) -> tuple[int, list[Piece]]:
        """The size to announce, given how much will stand before, and the pieces; the first one is bytes."""
        last = b"".join(self.run)
        if last or not self.pieces:
            self.pieces.append(last)
        return prefix_bytes + self.byte_count + len(last), self.pieces


def _size_of(records: Records) -> int:
    """The bytes of all records of a partition; -1 is null."""
    if type(records) is FileSlice:
        return records.length
    if records is None:
        return -1
    if type(records) is list:
        return sum(piece.length if type(piece) is FileSlice else len(piece) for piece in records)
    return len(records)


def _write_plain(writer: _Writer, version: int, topics: Sequence[tuple[TopicRef, Sequence[FetchResult]]]) -> None:
    run = writer.run
    for topic, results in topics:
        assert isinstance(topic, str), "topics have names before version 13"
        run += (write_string(topic, compact=False), _INT32.pack(len(results)))
        for result in results:
            index, error, high_watermark, stable, start, aborted, preferred, _, _, records = result
            size = _size_of(records)
            if aborted:
                _append_plain_aborted(run, version, result, size)
            else:
                none = -1 if aborted is None else 0
                if version >= 11:
                    run.append(_SHORT_11.pack(index, error, high_watermark, stable, start, none, preferred, size))
                elif version >= 5:
                    run.append(_SHORT_5.pack(index, error, high_watermark, stable, start, none, size))
                else:
                    run.append(_SHORT_4.pack(index, error, high_watermark, stable, none, size))
            if records:
                _add(writer, records)


def _append_plain_aborted(run: list[bytes], version: int, result: FetchResult, size: int) -> None:
    aborted = result.aborted or ()
    run.append((_FIXED_5 if version >= 5 else _FIXED_4).pack(*result[: 5 if version >= 5 else 4]))
    run.append(_INT32.pack(len(aborted)))
    run += [_ABORTED.pack(producer_id, first_offset) for producer_id, first_offset in aborted]
    if version >= 11:
        run.append(_INT32.pack(result.preferred_read_replica))
    run.append(_INT32.pack(size))


def _write_flexible(writer: _Writer, version: int, topics: Sequence[tuple[TopicRef, Sequence[FetchResult]]]) -> None:
    run = writer.run
    for topic, results in topics:
        run += (_topic_ref(topic, version), write_unsigned_varint(len(results) + 1))
        for result in results:
            index, error, high_watermark, stable, start, aborted, preferred, diverging, leader, records = result
            if aborted:
                run += (_FIXED_5.pack(index, error, high_watermark, stable, start), _flexible_aborted(aborted))
                run.append(_INT32.pack(preferred))
            else:
                none = 0 if aborted is None else 1
                run.append(_SHORT_12.pack(index, error, high_watermark, stable, start, none, preferred))
            run.append(write_unsigned_varint(_size_of(records) + 1))
            if records:
                _add(writer, records)
            run.append(b"\x00" if diverging is None and leader is None else _partition_tags(diverging, leader))
        run.append(b"\x00")


def _add(writer: _Writer, records: Records) -> None:
    if type(records) is list:
        for piece in records:
            writer.add_records(piece)
    else:
        writer.add_records(records)  # type: ignore[arg-type]


def _topic_ref(topic: TopicRef, version: int) -> bytes:
    if version < FIRST_WITH_TOPIC_IDS:
        assert isinstance(topic, str), "topics have names before version 13"
        return write_string(topic, compact=True)
    assert isinstance(topic, bytes), "topics have ids from version 13"
    return topic


def _flexible_aborted(aborted: list[tuple[int, int]]) -> bytes:
    rows = [_ABORTED_FLEXIBLE.pack(producer_id, first_offset) for producer_id, first_offset in aborted]
    return write_unsigned_varint(len(rows) + 1) + b"".join(rows)


def _partition_tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    tags = []
    if diverging is not None and diverging != (-1, -1):
        tags.append((0, _DIVERGING.pack(*diverging)))
    if leader is not None and leader != (-1, -1):
        tags.append((1, _LEADER.pack(*leader)))
    return tag_section(tags)


def _endpoints_tag(version: int, node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    if not node_endpoints or version < 16:
        return b"\x00"
    payload = [write_unsigned_varint(len(node_endpoints) + 1)]
    encode = struct_encoder(NodeEndpoint, version, True)
    for endpoint in node_endpoints:
        encode(endpoint, payload.append)
    return tag_section([(0, b"".join(payload))])
