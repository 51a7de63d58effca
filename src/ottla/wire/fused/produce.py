"""Produce by hand, versions 3-12: requests as slices of their frame, responses as whole frames.

A request that cannot be read this way goes to the declared codec, which either reads it or says what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire.apis.produce import NodeEndpoint, ProduceRequest
from ottla.wire.compiler import struct_encoder
from ottla.wire.fused.fallbacks import FALLBACKS
from ottla.wire.fused.tags import skip_tags, tag_section
from ottla.wire.header import response_frame_prefix
from ottla.wire.primitives import STRING_BYTES_MAX, read_unsigned_varint, write_string, write_unsigned_varint

FIRST_FLEXIBLE = 9
SERVED_VERSIONS = range(3, 13)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_INDEX_AND_SIZE = struct.Struct(">ii")
_LEADER = struct.Struct(">iiB")

# No transactional id, acks, time-out, one topic, its name's length; then one partition, its index and records' length.
_SINGLE_PLAIN = struct.Struct(">hhiih")
_SINGLE_PLAIN_PARTITION = struct.Struct(">iii")
_SINGLE_FLEXIBLE = struct.Struct(">BhiBB")
_SINGLE_FLEXIBLE_PARTITION = struct.Struct(">BiB")
_unpack_plain, _unpack_plain_partition = _SINGLE_PLAIN.unpack_from, _SINGLE_PLAIN_PARTITION.unpack_from
_unpack_flexible, _unpack_flexible_partition = _SINGLE_FLEXIBLE.unpack_from, _SINGLE_FLEXIBLE_PARTITION.unpack_from

PartitionRecords = tuple[int, memoryview | None]
SingleProduce = tuple[int, int, str, int, memoryview]
"""Acks, time-out in ms, topic, partition, records."""


class ProducePlan(NamedTuple):
    """What a produce request asks for. The records are slices of the request's frame, writable if the frame is."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[PartitionRecords]]]


_plan_of = partial(tuple.__new__, ProducePlan)
"""From a tuple that already has the right fields, without NamedTuple's slower constructor."""


class ProduceResult(NamedTuple):
    """What became of one partition's records."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls here
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch, for a producer that asked the wrong broker (version 10 and later)."""


# --- requests -------------------------------------------------------------------------------------------------------


def decode_produce(view: memoryview, version: int, position: int = 0) -> ProducePlan:
    """The request whose body starts at `position`; raises DecodeError for anything that is not one."""
    if version not in SERVED_VERSIONS:
        return _decode_declared(view, version, position)
    single = read_single_produce(view, version, position)
    if single is not None:
        acks, timeout_ms, topic, index, records = single
        return _plan_of((None, acks, timeout_ms, [(topic, [(index, records)])]))
    try:
        decode = _decode_flexible if version >= FIRST_FLEXIBLE else _decode_plain
        plan, end = decode(view, position)
        if end <= len(view):
            return plan
    except (struct.error, IndexError, ValueError, DecodeError):
        pass
    plan = _decode_declared(view, version, position)
    FALLBACKS["produce"] += 1
    return plan


def read_single_produce(view: memoryview, version: int, position: int) -> SingleProduce | None:
    """A request of one topic and one partition, without transaction or tags: nearly every request there is.

    None means that the request is something else, or nothing at all: `decode_produce` knows.
    """
    try:
        if version >= FIRST_FLEXIBLE:
            no_transaction, acks, timeout_ms, topic_count, name_bytes = _unpack_flexible(view, position)
            start = position + _SINGLE_FLEXIBLE.size
            end = start + name_bytes - 1
            partition_count, index, size = _unpack_flexible_partition(view, end)
            records_start = end + _SINGLE_FLEXIBLE_PARTITION.size
            if size > 127:
                size, records_start = read_unsigned_varint(view, records_start - 1)
            records_end = records_start + size - 1
            if (
                no_transaction
                or topic_count != 2
                or not 0 < name_bytes < 128
                or partition_count != 2
                or size < 1
                or view[records_end] | view[records_end + 1] | view[records_end + 2]
            ):
                return None
        else:
            no_transaction, acks, timeout_ms, topic_count, name_bytes = _unpack_plain(view, position)
            start = position + _SINGLE_PLAIN.size
            end = start + name_bytes
            partition_count, index, size = _unpack_plain_partition(view, end)
            records_start = end + _SINGLE_PLAIN_PARTITION.size
            records_end = records_start + size
            if (
                no_transaction != -1
                or topic_count != 1
                or name_bytes < 0
                or partition_count != 1
                or size < 0
                or records_end > len(view)
            ):
                return None
        return acks, timeout_ms, str(view[start:end], "utf-8"), index, view[records_start:records_end]
    except (struct.error, IndexError, ValueError, DecodeError):
        return None


def _decode_plain(view: memoryview, position: int) -> tuple[ProducePlan, int]:
    (length,) = _INT16.unpack_from(view, position)
    position += 2
    transactional_id = None
    if length != -1:
        transactional_id = str(view[position : position + _counted(length)], "utf-8")
        position += length
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(view, position)
    position += 10
    topics = []
    read_index_and_size = _INDEX_AND_SIZE.unpack_from
    for _ in range(_counted(topic_count)):
        (length,) = _INT16.unpack_from(view, position)
        position += 2
        name = str(view[position : position + _counted(length)], "utf-8")
        position += length
        (partition_count,) = _INT32.unpack_from(view, position)
        position += 4
        partitions: list[PartitionRecords] = []
        for _ in range(_counted(partition_count)):
            index, size = read_index_and_size(view, position)
            position += 8
            if size >= 0:
                end = position + size
                partitions.append((index, view[position:end]))
                position = end
            elif size == -1:
                partitions.append((index, None))
            else:
                raise ValueError("negative size")
        topics.append((name, partitions))
    return ProducePlan(transactional_id, acks, timeout_ms, topics), position


def _decode_flexible(view: memoryview, position: int) -> tuple[ProducePlan, int]:
    transactional_id = None
    length, position = _uvarint(view, position)
    if length:
        transactional_id = _name(view, position, length - 1)
        position += length - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    topic_count, position = _uvarint(view, position + 6)
    topics = []
    read_index = _INT32.unpack_from
    for _ in range(_counted(topic_count - 1)):
        length, position = _uvarint(view, position)
        name = _name(view, position, length - 1)
        position += length - 1
        partition_count, position = _uvarint(view, position)
        partitions: list[PartitionRecords] = []
        for _ in range(_counted(partition_count - 1)):
            (index,) = read_index(view, position)
            size, position = _uvarint(view, position + 4)
            if size:
                end = position + size - 1
                partitions.append((index, view[position:end]))
                position = end
            else:
                partitions.append((index, None))
            position = skip_tags(view, position) if view[position] else position + 1
        position = skip_tags(view, position) if view[position] else position + 1
        topics.append((name, partitions))
    # Looking at the number of tags also makes sure that it is there.
    if view[position]:
        position = skip_tags(view, position)
    return ProducePlan(transactional_id, acks, timeout_ms, topics), position


def _uvarint(view: memoryview, position: int) -> tuple[int, int]:
    first = view[position]
    return (first, position + 1) if first < 128 else read_unsigned_varint(view, position)


def _name(view: memoryview, position: int, length: int) -> str:
    if not 0 <= length <= STRING_BYTES_MAX:
        raise ValueError("string length")
    return str(view[position : position + length], "utf-8")


def _counted(count: int) -> int:
    """A count needs no check against the bytes left: every turn of its loop reads, and fails past the end."""
    if count < 0:
        raise ValueError("negative count")
    return count


def _decode_declared(view: memoryview, version: int, position: int) -> ProducePlan:
    request, _ = ProduceRequest.decode(view, version, position)
    topics = [
        (topic.name, [(p.index, None if p.records is None else memoryview(p.records)) for p in topic.partition_data])
        for topic in request.topic_data
    ]
    return ProducePlan(request.transactional_id, request.acks, request.timeout_ms, topics)


# --- responses ------------------------------------------------------------------------------------------------------

_TOPIC_NAME_BYTES_MAX = 249
"""The longest legal topic name: bounds the table of layouts, whatever names a client invents."""

_FIXED_FORMATS = {version: "ihqqq" if version >= 5 else "ihqq" for version in SERVED_VERSIONS}
_FIXED_LAYOUTS = {version: struct.Struct(">" + form) for version, form in _FIXED_FORMATS.items()}

_OFFSETS = struct.Struct(">qqq")
_MARKED_OFFSETS = (2**62 + 1, -1, 2**62 + 2)
"""Values that no reply has by chance, to find the place of the real ones."""

_single_layouts: dict[tuple[int, int], struct.Struct] = {}


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[ProduceResult]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole response frame, size included."""
    if version not in SERVED_VERSIONS:
        raise EncodeError(f"produce responses are made for versions 3-12, not {version}")
    try:
        if len(topics) == 1 and not node_endpoints:
            name, results = topics[0]
            if len(results) == 1:
                frame = _encode_single(version, correlation_id, name.encode(), results[0], throttle_ms)
                if frame is not None:
                    return frame
        return _encode_many(version, correlation_id, topics, throttle_ms, node_endpoints)
    except struct.error as e:
        raise EncodeError(f"a produce result does not fit its field: {e}") from e


def _encode_single(
    version: int, correlation_id: int, name: bytes, result: ProduceResult, throttle_ms: int
) -> bytes | None:
    """One topic, one partition, nothing to explain: nearly every response there is, as one pack."""
    index, error_code, base_offset, append_time_ms, start_offset, record_errors, message, leader = result
    size = len(name)
    if record_errors or message is not None or leader is not None or size > _TOPIC_NAME_BYTES_MAX:
        return None
    layout = _single_layouts.get((version, size))
    if layout is None:
        layout = _single_layouts[version, size] = _single_layout(version, size)
    if version >= FIRST_FLEXIBLE:
        lead = (layout.size - 4, correlation_id, 0, 2, write_unsigned_varint(size + 1), name, 2, index, error_code)
        return layout.pack(*lead, base_offset, append_time_ms, start_offset, 1, 0, 0, 0, throttle_ms, 0)
    head = (layout.size - 4, correlation_id, 1, size, name, 1, index, error_code)
    if version >= 8:
        return layout.pack(*head, base_offset, append_time_ms, start_offset, 0, -1, throttle_ms)
    if version >= 5:
        return layout.pack(*head, base_offset, append_time_ms, start_offset, throttle_ms)
    return layout.pack(*head, base_offset, append_time_ms, throttle_ms)


def _single_layout(version: int, name_bytes: int) -> struct.Struct:
    fixed = _FIXED_FORMATS[version]
    if version >= FIRST_FLEXIBLE:
        return struct.Struct(f">iiBB{len(write_unsigned_varint(name_bytes + 1))}s{name_bytes}sB{fixed}BBBBiB")
    return struct.Struct(f">iiih{name_bytes}si{fixed}{'ih' if version >= 8 else ''}i")


class AppendedReply:
    """What replies about one partition have in common, while appends to it succeed.

    It is cut out of a reply that `encode_produce_response` has made, and so is the same by construction.
    """

    __slots__ = ("_after", "_before", "_index", "_pack", "_size", "_throttle_ms", "_topic", "_version")

    def __init__(self, version: int, topic: str, index: int, throttle_ms: int = 0) -> None:
        self._version = version
        self._topic = topic
        self._index = index
        self._throttle_ms = throttle_ms
        whole = encode_produce_response(version, 0, [(topic, [ProduceResult(index, 0, *_MARKED_OFFSETS)])], throttle_ms)
        head, _, self._after = whole.partition(_OFFSETS.pack(*_MARKED_OFFSETS))
        self._size, self._before = head[:4], head[8:]
        self._pack = struct.Struct(f">4si{len(self._before)}sqqq{len(self._after)}s").pack

    def encode(self, correlation_id: int, base_offset: int, log_start_offset: int) -> bytes:
        """The whole frame, size included, for a topic that keeps its producers' timestamps."""
        return self._pack(self._size, correlation_id, self._before, base_offset, -1, log_start_offset, self._after)

    def encode_error(self, correlation_id: int, error_code: int) -> bytes:
        return encode_produce_response(
            self._version,
            correlation_id,
            [(self._topic, [ProduceResult(self._index, error_code)])],
            self._throttle_ms,
        )


def _encode_many(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[ProduceResult]]],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    flexible = version >= FIRST_FLEXIBLE
    out = [b"", _count(len(topics), flexible)]
    for name, results in topics:
        out += (write_string(name, compact=flexible), _count(len(results), flexible))
        for result in results:
            out.append(_FIXED_LAYOUTS[version].pack(*result[: 5 if version >= 5 else 4]))
            if version >= 8:
                _append_explanation(out, version, result)
        if flexible:
            out.append(b"\x00")
    out.append(_INT32.pack(throttle_ms))
    if flexible:
        out.append(_endpoints_tag(version, node_endpoints))
    out[0] = response_frame_prefix(1 if flexible else 0, correlation_id, sum(map(len, out)))
    return b"".join(out)


def _append_explanation(out: list[bytes], version: int, result: ProduceResult) -> None:
    flexible = version >= FIRST_FLEXIBLE
    out.append(_count(len(result.record_errors), flexible))
    for batch_index, message in result.record_errors:
        out += (_INT32.pack(batch_index), write_string(message, compact=flexible))
        if flexible:
            out.append(b"\x00")
    out.append(write_string(result.error_message, compact=flexible))
    if not flexible:
        return
    leader = result.current_leader
    if leader is None or version < 10 or leader == (-1, -1):
        out.append(b"\x00")
    else:
        out.append(tag_section([(0, _LEADER.pack(*leader, 0))]))


def _endpoints_tag(version: int, node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    if not node_endpoints or version < 10:
        return b"\x00"
    payload = [write_unsigned_varint(len(node_endpoints) + 1)]
    encode = struct_encoder(NodeEndpoint, version, True)
    for endpoint in node_endpoints:
        encode(endpoint, payload.append)
    return tag_section([(0, b"".join(payload))])


def _count(count: int, flexible: bool) -> bytes:
    return write_unsigned_varint(count + 1) if flexible else _INT32.pack(count)
