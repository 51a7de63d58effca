"""Metadata responses by hand, all versions: topics are encoded apart from the frame, so that a broker can keep them.

`encode_metadata_topic` makes one topic's bytes for one version; they stay right until the topic changes.
`encode_metadata_response` only joins such bytes with the brokers around them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.errors import EncodeError
from ottla.base.types import NIL_UUID, Uuid
from ottla.wire.header import response_frame_prefix
from ottla.wire.primitives import write_string, write_unsigned_varint

FIRST_FLEXIBLE = 9
SERVED_VERSIONS = range(14)
OPERATIONS_NOT_ASKED = -0x80000000

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class MetadataBroker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataPartition(NamedTuple):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int] = ()


class _Shape(NamedTuple):
    """The layout of a partition with certain numbers of replicas, and those numbers as they are written."""

    layout: struct.Struct
    replica_count: bytes
    isr_count: bytes
    offline_count: bytes


_shapes: dict[tuple[bool, bool, bool, int, int, int], _Shape] = {}


def _shape(flexible: bool, epochs: bool, offline: bool, replicas: int, isr: int, gone: int) -> _Shape:
    counts = [write_unsigned_varint(n + 1) if flexible else _INT32.pack(n) for n in (replicas, isr, gone)]
    form = ">hiii" if epochs else ">hii"
    form += f"{len(counts[0])}s{replicas}i{len(counts[1])}s{isr}i"
    if offline:
        form += f"{len(counts[2])}s{gone}i"
    return _Shape(struct.Struct(form + ("x" if flexible else "")), *counts)


def encode_metadata_topic(
    version: int,
    *,
    name: str | None,
    topic_id: Uuid = NIL_UUID,
    error_code: int = 0,
    is_internal: bool = False,
    partitions: Sequence[MetadataPartition] = (),
    authorized_operations: int = OPERATIONS_NOT_ASKED,
) -> bytes:
    """One topic as it stands in a response of this version."""
    flexible = version >= FIRST_FLEXIBLE
    if name is None and version < 12:
        raise EncodeError(f"a topic without a name cannot be told in version {version}")
    out = [_INT16.pack(error_code), write_string(name, compact=flexible)]
    if version >= 10:
        out.append(topic_id)
    if version >= 1:
        out.append(b"\x01" if is_internal else b"\x00")
    out.append(_count(len(partitions), flexible))
    try:
        _append_partitions(out, version, partitions)
        if version >= 8:
            out.append(_INT32.pack(authorized_operations))
    except struct.error as e:
        raise EncodeError(f"a partition of {name} does not fit its fields: {e}") from e
    if flexible:
        out.append(b"\x00")
    return b"".join(out)


def _append_partitions(out: list[bytes], version: int, partitions: Sequence[MetadataPartition]) -> None:
    flexible, epochs, offline = version >= FIRST_FLEXIBLE, version >= 7, version >= 5
    for error_code, index, leader_id, leader_epoch, replicas, isr, gone in partitions:
        key = (flexible, epochs, offline, len(replicas), len(isr), len(gone))
        shape = _shapes.get(key)
        if shape is None:
            shape = _shapes[key] = _shape(*key)
        layout, replica_count, isr_count, offline_count = shape
        rows = (replica_count, *replicas, isr_count, *isr)
        if epochs:
            out.append(layout.pack(error_code, index, leader_id, leader_epoch, *rows, offline_count, *gone))
        elif offline:
            out.append(layout.pack(error_code, index, leader_id, *rows, offline_count, *gone))
        else:
            out.append(layout.pack(error_code, index, leader_id, *rows))


def encode_metadata_response(
    version: int,
    correlation_id: int,
    *,
    brokers: Sequence[MetadataBroker],
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[bytes],
    throttle_ms: int = 0,
    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED,
    error_code: int = 0,
) -> bytes:
    """The whole response frame, size included. `topics` are what `encode_metadata_topic` made for this version."""
    if version not in SERVED_VERSIONS:
        raise EncodeError(f"metadata responses are made for versions 0-13, not {version}")
    flexible = version >= FIRST_FLEXIBLE
    out = [b""]
    if version >= 3:
        out.append(_INT32.pack(throttle_ms))
    out.append(_count(len(brokers), flexible))
    for broker in brokers:
        out += (_INT32.pack(broker.node_id), write_string(broker.host, compact=flexible), _INT32.pack(broker.port))
        if version >= 1:
            out.append(write_string(broker.rack, compact=flexible))
        if flexible:
            out.append(b"\x00")
    if version >= 2:
        out.append(write_string(cluster_id, compact=flexible))
    if version >= 1:
        out.append(_INT32.pack(controller_id))
    out.append(_count(len(topics), flexible))
    out += topics
    if 8 <= version <= 10:
        out.append(_INT32.pack(cluster_authorized_operations))
    if version >= 13:
        out.append(_INT16.pack(error_code))
    if flexible:
        out.append(b"\x00")
    out[0] = response_frame_prefix(1 if flexible else 0, correlation_id, sum(map(len, out)))
    return b"".join(out)


def _count(count: int, flexible: bool) -> bytes:
    return write_unsigned_varint(count + 1) if flexible else _INT32.pack(count)
