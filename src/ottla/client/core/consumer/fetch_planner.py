"""Which partitions to fetch from which broker, and what an answer does to their cursors.

The next fetch is asked for while what came before still waits to be decoded; a partition has at most two answers
waiting, and all partitions together no more bytes than one answer may have.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ERRORS, ErrorCode
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.client.core.consumer.cursors import NOBODY, Cursor, Cursors, Stage
from ottla.client.core.consumer.fetched_data import FetchedData
from ottla.client.core.consumer.options import ConsumerSettings, Isolation
from ottla.client.core.metadata import NO_LEADER, MetadataCache
from ottla.client.errors import OffsetOutOfRangeError, PartitionError, client_error
from ottla.machines.reader_session import FetchSession, Wanted
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchRequest, FetchResponse

CHUNKS_MAX = 2
PREFERRED_REPLICA_MS = 300_000

_LAST_VERSION_WITH_NAMES = 12

_RETRIED = frozenset(code for code, info in ERRORS.items() if info.retriable) - {ErrorCode.CORRUPT_MESSAGE}
_REFRESHING = frozenset(code for code, info in ERRORS.items() if info.refreshes_metadata)


class FetchCall(NamedTuple):
    """One fetch request on its way. `turns` tells which cursors have been moved meanwhile."""

    node_id: int
    request: FetchRequest
    max_version: int
    turns: dict[TopicPartition, tuple[Cursor, int, int]]
    """Cursor, its turn and the offset asked for."""
    names: dict[Uuid, str]


class FetchPlanner:
    def __init__(self, settings: ConsumerSettings, cursors: Cursors, metadata: MetadataCache) -> None:
        self._settings = settings
        self._cursors = cursors
        self._metadata = metadata
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: set[int] = set()
        self._turn = 0
        self._arrivals = 0

    # Asking

    def node_for(self, cursor: Cursor, now_ms: int) -> int:
        if cursor.preferred_replica >= 0:
            is_there = cursor.preferred_replica in self._metadata.brokers and self._metadata.knows(
                cursor.topic_partition
            )
            if is_there and now_ms < cursor.preferred_until_ms:
                return cursor.preferred_replica
            cursor.preferred_replica = -1
        return self._metadata.leader_of(*cursor.topic_partition)

    def buffered_bytes(self) -> int:
        """What waits to be read, but for partitions that may wait for long: others have to go on."""
        return sum(
            chunk.byte_count
            for cursor in self._cursors.all()
            if not cursor.is_paused and not cursor.is_held_up
            for chunk in list(cursor.chunks)
        )

    @property
    def brokers_in_flight(self) -> int:
        """How many brokers have a fetch to answer; they get no second one meanwhile."""
        return len(self._in_flight)

    def plan(self, now_ms: int) -> list[FetchCall]:
        """The requests to send now, at most one for each broker that is not answering one already."""
        if self.buffered_bytes() > self._settings.fetch_max_bytes:
            return []
        by_node: dict[int, list[Cursor]] = {}
        full: set[int] = set()
        # Whoever was first last time comes last now: an answer has room for some partitions only.
        cursors = self._cursors.all()
        self._turn += 1
        start = self._turn % len(cursors) if cursors else 0
        for cursor in cursors[start:] + cursors[:start]:
            if cursor.in_flight_to != NOBODY and self.node_for(cursor, now_ms) not in (cursor.in_flight_to, NO_LEADER):
                # The broker that was asked may be silent for long. Its answer will not matter.
                cursor.in_flight_to = NOBODY
            if not cursor.can_fetch(now_ms, chunks_max=CHUNKS_MAX):
                if len(cursor.chunks) >= CHUNKS_MAX and not cursor.is_paused and not cursor.is_held_up:
                    full.add(self.node_for(cursor, now_ms))
                continue
            node_id = self.node_for(cursor, now_ms)
            if node_id == NO_LEADER:
                self._metadata.request_update()
            elif node_id not in self._in_flight:
                by_node.setdefault(node_id, []).append(cursor)
        return [
            self._call(node_id, chosen)
            for node_id, chosen in by_node.items()
            # A request about nothing but ends of logs would wait at the broker, and with it the partitions that are
            # about to be read empty. Whoever takes their records makes the next plan.
            if node_id not in full or not all(0 <= cursor.end_offset <= cursor.fetch_offset for cursor in chosen)
        ]

    def _call(self, node_id: int, cursors: list[Cursor]) -> FetchCall:
        settings = self._settings
        wanted: dict[TopicPartition, Wanted] = {}
        for cursor in cursors:
            known = self._metadata.topics[cursor.topic_partition.topic]
            wanted[cursor.topic_partition] = Wanted(
                known.topic_id, cursor.fetch_offset, cursor.leader_epoch, settings.max_partition_fetch_bytes
            )
            cursor.in_flight_to = node_id
        part = self._sessions.setdefault(node_id, FetchSession()).request(wanted)
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
            rack_id=settings.client_rack,
        )
        self._in_flight.add(node_id)
        has_ids = all(entry.topic_id != NIL_UUID for entry in wanted.values())
        return FetchCall(
            node_id,
            request,
            FetchRequest.VERSIONS.stop - 1 if has_ids else _LAST_VERSION_WITH_NAMES,
            {cursor.topic_partition: (cursor, cursor.turn, cursor.fetch_offset) for cursor in cursors},
            {entry.topic_id: partition.topic for partition, entry in wanted.items()},
        )

    # Answers

    def _land(self, call: FetchCall) -> dict[TopicPartition, tuple[Cursor, int, int]]:
        """The `turns` of those that still wait for this broker."""
        self._in_flight.discard(call.node_id)
        landed = {partition: turn for partition, turn in call.turns.items() if turn[0].in_flight_to == call.node_id}
        for cursor, _, _ in landed.values():
            cursor.in_flight_to = NOBODY
        return landed

    def failed(self, call: FetchCall, now_ms: int) -> None:
        """There was no answer: the broker may be gone, and its partitions have moved."""
        turns = self._land(call)
        self._sessions[call.node_id].dropped()
        self._metadata.request_update()
        for cursor, _, _ in turns.values():
            cursor.not_before_ms = now_ms + self._settings.client.retry_backoff_ms
            cursor.preferred_replica = -1

    def answered(self, call: FetchCall, response: FetchResponse, now_ms: int) -> None:
        turns = self._land(call)
        session = self._sessions[call.node_id]
        session.answered(response.error_code, response.session_id)
        if response.error_code:
            for cursor, _, _ in turns.values():
                cursor.not_before_ms = now_ms + self._settings.client.retry_backoff_ms
            if response.error_code in _REFRESHING:
                self._metadata.request_update()
            return
        for topic in response.responses:
            name = topic.topic or call.names.get(topic.topic_id, "")
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                if not answer.error_code:
                    session.end_offsets[partition] = self._end_of(answer)
                asked = turns.get(partition)
                # An answer for a cursor that has been moved is about a place nobody reads any more.
                if asked is not None and asked[0].turn == asked[1]:
                    self._take_answer(call, asked[0], asked[2], answer, now_ms)
        for partition, (cursor, _, _) in turns.items():
            if cursor.end_offset < 0:
                cursor.end_offset = session.end_offsets.get(partition, -1)

    def _end_of(self, answer: FetchablePartitionResponse) -> int:
        is_committed = self._settings.isolation is Isolation.READ_COMMITTED
        return answer.last_stable_offset if is_committed else answer.high_watermark

    def _take_answer(
        self, call: FetchCall, cursor: Cursor, asked_offset: int, answer: FetchablePartitionResponse, now_ms: int
    ) -> None:
        if cursor.stage is not Stage.READY:
            return
        if answer.error_code:
            self._take_error(call, cursor, answer, now_ms)
            return
        cursor.error = None
        cursor.end_offset = self._end_of(answer)
        cursor.log_start_offset = answer.log_start_offset
        if answer.diverging_epoch.epoch >= 0:
            cursor.stage = Stage.AWAITS_VALIDATION
            return
        if answer.preferred_read_replica >= 0:
            cursor.preferred_replica = answer.preferred_read_replica
            cursor.preferred_until_ms = now_ms + PREFERRED_REPLICA_MS
            return
        if answer.records:
            self._take_records(cursor, asked_offset, answer)

    def _take_records(self, cursor: Cursor, asked_offset: int, answer: FetchablePartitionResponse) -> None:
        assert answer.records is not None
        aborted = None
        if self._settings.isolation is Isolation.READ_COMMITTED:
            aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()]
        chunk = FetchedData(
            cursor.topic_partition,
            answer.records,
            start_offset=asked_offset,
            aborted=aborted,
            check_crcs=self._settings.check_crcs,
            classes=cursor.classes,
            arrival=self._arrivals,
        )
        self._arrivals += 1
        if chunk.batches:
            last = chunk.batches[-1][1]
            cursor.fetch_offset = max(asked_offset, last.next_offset)
            cursor.fetch_epoch = max(cursor.fetch_epoch, last.partition_leader_epoch)
        elif len(answer.records) > self._settings.max_partition_fetch_bytes:
            cursor.halt(
                PartitionError(
                    f"the batch at offset {asked_offset} is larger than max.partition.fetch.bytes"
                    f" ({self._settings.max_partition_fetch_bytes}), and this broker does not send it whole;"
                    " raise the setting",
                    topic_partition=cursor.topic_partition,
                    offset=asked_offset,
                    code=ErrorCode.MESSAGE_TOO_LARGE,
                )
            )
            return
        cursor.chunks.append(chunk)

    def _take_error(self, call: FetchCall, cursor: Cursor, answer: FetchablePartitionResponse, now_ms: int) -> None:
        code = answer.error_code
        cursor.not_before_ms = now_ms + self._settings.client.retry_backoff_ms
        if call.node_id == cursor.preferred_replica:
            # What a follower says of its own log does not hold for the leader's (KIP-392).
            cursor.preferred_replica = -1
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # What was fetched before the log was cut is still good to read, and comes first.
            if cursor.position >= cursor.fetch_offset:
                self._out_of_range(cursor)
            return
        if code in _REFRESHING:
            self._metadata.request_update()
        if code not in _RETRIED:
            cursor.complain(client_error(code, where=f"{cursor.topic_partition}: fetching from {cursor.fetch_offset}"))

    def _out_of_range(self, cursor: Cursor) -> None:
        if self._settings.reset is not None:
            cursor.request_reset(self._settings.reset)
            return
        cursor.halt(
            OffsetOutOfRangeError(
                f"offset {cursor.fetch_offset} is not in the log and auto.offset.reset is none;"
                " seek to an offset that is (beginning_offsets, end_offsets)",
                topic_partition=cursor.topic_partition,
                offset=cursor.fetch_offset,
            )
        )
