"""Fills a coordinator's machine from its log. Runs in a thread: it touches the log's files and the machine only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from ottla.log.partition_log import PartitionLog
from ottla.machines.coordinator import Decision, ReplayContext, TimerKey, Token
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.control import ControlType, parse_control_key
from ottla.records.reader import read_records
from ottla.wire.message import StoredRecord

EndTransaction = Callable[[int, bool], None]
"""Told of each marker in the log, with its producer and whether it commits."""

Parse = Callable[[bytes, bytes | None], tuple[StoredRecord, StoredRecord | None] | None]
"""Stored key and value to records; None for a key version this broker does not know."""


class Machine(Protocol):
    """What every coordinator's machine can do; the requests it takes are its own."""

    def replay(self, key: StoredRecord, value: StoredRecord | None, context: ReplayContext) -> None: ...

    def timer_fired(self, key: TimerKey, now_ms: int) -> Decision: ...

    def loaded(self, now_ms: int) -> Decision: ...

    def unload(self) -> list[Token]: ...


def replay_log(
    machine: Machine,
    parse: Parse,
    end_transaction: EndTransaction,
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    *,
    buffer_bytes: int,
) -> None:
    """Replays [start_offset, end_offset), batch by batch, however large one of them is."""
    offset = start_offset
    while offset < end_offset:
        found = log.read(offset, buffer_bytes, end_offset=end_offset).data
        if found is None:
            return
        data = memoryview(os.pread(found.file.fd, found.length, found.position))
        before = offset
        for position, header in iter_headers(data):
            _replay_batch(machine, parse, end_transaction, data[position : position + header.size], header)
            offset = header.next_offset
        if offset == before:
            raise OSError(f"{log.topic_partition} holds no whole batch at offset {offset}")


def _replay_batch(
    machine: Machine, parse: Parse, end_transaction: EndTransaction, data: memoryview, header: BatchHeader
) -> None:
    records = read_records(data, header)
    if header.is_control:
        for record in records:
            kind = parse_control_key(record.key)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                end_transaction(header.producer_id, kind is ControlType.COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else -1
    for record in records:
        parsed = parse(record.key, record.value) if record.key is not None else None
        if parsed is not None:
            context = ReplayContext(record.offset, producer_id, header.producer_epoch, record.timestamp)
            machine.replay(*parsed, context)
