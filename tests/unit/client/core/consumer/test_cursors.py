"""Cursors, fetch sessions and the planner: what is asked for, what answers do, and what applications get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.consumer.cursors import Cursor, Cursors, OffsetAndMetadata, Stage
from ottla.client.core.consumer.fetch_planner import FetchCall, FetchPlanner
from ottla.client.core.consumer.fetched_data import Converters
from ottla.client.core.consumer.handout import Handout
from ottla.client.core.consumer.options import EARLIEST, LATEST, ConsumerSettings
from ottla.client.core.metadata import MetadataCache, PartitionLeader
from ottla.client.errors import (
    ClientError,
    CorruptRecordError,
    LogTruncationError,
    NoOffsetError,
    OffsetOutOfRangeError,
    PartitionError,
    UnassignedPartitionError,
)
from ottla.machines.reader_session import FetchSession, Wanted
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker
from ottla.wire.apis.fetch import (
    AbortedTransaction,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from ottla.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = Uuid(b"t" * 16)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Reader:
    """A planner with two partitions, led by the brokers 1 and 2, and a hand to answer for them."""

    def __init__(self, partitions: tuple[TopicPartition, ...] = (FIRST,), **settings: object) -> None:
        self.metadata = MetadataCache()
        self.metadata.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2, 3)],
                topics=[
                    MetadataResponseTopic(
                        name="t",
                        topic_id=TOPIC_ID,
                        partitions=[
                            MetadataResponsePartition(partition_index=index, leader_id=1 + index, leader_epoch=0)
                            for index in range(2)
                        ],
                    )
                ],
            ),
            0,
        )
        names = {"bootstrap.servers": "h:1", **{name.replace("_", "."): value for name, value in settings.items()}}
        self.settings = ConsumerSettings.parse(names)
        self.cursors = Cursors()
        self.planner = FetchPlanner(self.settings, self.cursors, self.metadata)
        self.handout = Handout(self.cursors)
        self.cursors.replace(partitions)
        for cursor in self.cursors.all():
            cursor.seek(0)

    def call(self, now_ms: int = 0) -> FetchCall:
        (call,) = self.planner.plan(now_ms)
        return call

    def answer(self, records: bytes = b"", now_ms: int = 0, **fields: object) -> FetchCall:
        call = self.call(now_ms)
        self.planner.answered(call, response(records, **fields), now_ms)
        return call


def response(records: bytes = b"", **fields: object) -> FetchResponse:
    partition = FetchablePartitionResponse(records=records, high_watermark=100, **fields)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])])


def batch(base_offset: int, count: int = 3, **fields: object) -> bytes:
    rows = [(None, b"%d" % (base_offset + number), (), 1000) for number in range(count)]
    return build_batch(rows, base_offset=base_offset, **fields)  # type: ignore[arg-type]


# Cursors


@pytest.mark.parametrize(("reset", "stage"), [(EARLIEST, Stage.AWAITS_RESET), (None, Stage.HALTED)])
def test_without_a_commit_the_reset_policy_decides(reset: int | None, stage: Stage) -> None:
    cursor = Cursor(FIRST)
    cursor.take_committed(None, reset=reset)
    assert cursor.stage is stage
    assert isinstance(cursor.error, NoOffsetError) == (reset is None)


def test_a_committed_offset_is_where_reading_starts() -> None:
    cursor = Cursor(FIRST)
    assert not cursor.has_position
    cursor.take_committed(OffsetAndMetadata(7, "", 3), reset=None)
    assert (cursor.position, cursor.fetch_offset, cursor.fetch_epoch, cursor.stage) == (7, 7, 3, Stage.READY)
    assert cursor.committable() == OffsetAndMetadata(7, "", 3)


def validating(epoch: int = 4) -> Cursor:
    cursor = Cursor(FIRST)
    cursor.seek(50, 3)
    cursor.take_leader_epoch(epoch)
    return cursor


def test_a_newer_leader_is_asked_before_it_is_read_from() -> None:
    assert validating(4).stage is Stage.AWAITS_VALIDATION
    assert validating(3).stage is Stage.READY
    without_epoch = Cursor(FIRST)
    without_epoch.seek(50)
    without_epoch.take_leader_epoch(4)
    assert without_epoch.stage is Stage.READY


def test_leaders_that_change_again_are_asked_under_their_own_epochs() -> None:
    cursor = validating(4)
    cursor.take_leader_epoch(5)
    assert (cursor.stage, cursor.leader_epoch) == (Stage.AWAITS_VALIDATION, 5)
    cursor.take_validation(3, 50, reset=LATEST)
    assert cursor.stage is Stage.READY
    # The topic is another one now.
    cursor.take_leader_epoch(0)
    assert (cursor.stage, cursor.leader_epoch) == (Stage.AWAITS_VALIDATION, 0)
    cursor.take_validation(-1, -1, reset=EARLIEST)
    assert cursor.stage is Stage.AWAITS_RESET


@pytest.mark.parametrize(
    ("answer", "reset", "stage", "position"),
    [
        ((3, 50), LATEST, Stage.READY, 50),
        ((3, 80), LATEST, Stage.READY, 50),
        ((3, 30), LATEST, Stage.READY, 30),
        ((2, 20), LATEST, Stage.READY, 20),
        ((-1, -1), LATEST, Stage.AWAITS_RESET, 50),
        ((3, 30), None, Stage.HALTED, 50),
    ],
)
def test_truncation(answer: tuple[int, int], reset: int | None, stage: Stage, position: int) -> None:
    cursor = validating()
    cursor.take_validation(*answer, reset=reset)
    assert (cursor.stage, cursor.position) == (stage, position)
    if stage is Stage.HALTED:
        assert isinstance(cursor.error, LogTruncationError)
        assert cursor.error.offset == 30


def test_cursors_of_partitions_that_stay_are_kept() -> None:
    cursors = Cursors()
    cursors.add([FIRST, SECOND])
    cursors.of(SECOND).seek(9)
    cursors.remove([FIRST])
    assert cursors.partitions == {SECOND}
    assert cursors.committable() == {SECOND: OffsetAndMetadata(9)}
    assert cursors.committable([FIRST]) == {}
    with pytest.raises(UnassignedPartitionError):
        cursors.of(FIRST)


# Sessions


@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=5), min_size=1, max_size=12))
def test_a_session_tells_the_broker_exactly_what_is_wanted(rounds: list[dict[int, int]]) -> None:
    session = FetchSession()
    known: dict[int, int] = {}
    for number, wanted in enumerate(rounds):
        request = session.request(
            {TopicPartition("t", index): Wanted(TOPIC_ID, offset, 0, 1) for index, offset in wanted.items()}
        )
        assert (request.session_id, request.session_epoch) == ((0, 0) if not number else (77, number))
        known = {} if request.session_epoch == 0 else known
        for gone in request.forgotten:
            for index in gone.partitions:
                del known[index]
        for topic in request.topics:
            known.update((entry.partition, entry.fetch_offset) for entry in topic.partitions)
        assert known == wanted
        session.answered(0, 77)


def test_a_session_starts_over_after_an_error_and_without_one_everything_is_named() -> None:
    session = FetchSession()
    wanted = {FIRST: Wanted(TOPIC_ID, 5, 0, 1)}
    session.request(wanted)
    session.answered(0, 77)
    assert session.request(wanted).topics == []
    session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    again = session.request(wanted)
    assert (again.session_id, again.session_epoch, len(again.topics)) == (77, 0, 1)
    session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session.request(wanted).session_id == 0
    session.answered(0, 0)
    assert (session.is_full, len(session.request(wanted).topics)) == (True, 1)


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = FetchSession()
    session.request({FIRST: Wanted(TOPIC_ID, 5, 0, 1)})
    session.answered(0, 77)
    request = session.request({FIRST: Wanted(Uuid(b"n" * 16), 5, 0, 1)})
    assert [gone.topic_id for gone in request.forgotten] == [TOPIC_ID]
    assert [topic.topic_id for topic in request.topics] == [b"n" * 16]


# The planner


def test_each_leader_gets_one_request_at_a_time() -> None:
    reader = Reader((FIRST, SECOND))
    calls = reader.planner.plan(0)
    assert {call.node_id: list(call.turns) for call in calls} == {1: [FIRST], 2: [SECOND]}
    assert reader.planner.plan(0) == []


@pytest.mark.parametrize("end", ["answered", "failed"])
def test_a_new_leader_is_fetched_from_while_the_last_one_is_silent(end: str) -> None:
    reader = Reader()
    silent = reader.call()
    assert silent.node_id == 1
    reader.metadata.learn_leader("t", 0, PartitionLeader(2, 9))
    call = reader.call()
    assert call.node_id == 2
    if end == "answered":
        reader.planner.answered(silent, response(batch(0)), 0)
    else:
        reader.planner.failed(silent, 0)
    assert reader.planner.plan(0) == [], "it still has to answer"
    reader.planner.answered(call, response(batch(0)), 0)
    assert [record.offset for record in reader.handout.take(10)] == [0, 1, 2]
    assert reader.call().node_id == 2


def test_the_next_fetch_is_planned_before_the_last_is_read_and_no_more() -> None:
    reader = Reader()
    reader.answer(batch(0))
    assert reader.answer(batch(3)).request.topics[0].partitions[0].fetch_offset == 3
    assert reader.planner.plan(0) == []
    assert [record.offset for record in reader.handout.take(6)] == [0, 1, 2, 3, 4, 5]
    assert reader.handout.take(1) == []
    assert reader.call().request.topics[0].partitions[0].fetch_offset == 6


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_nobody_waits_at_the_end_of_a_log_while_others_are_being_read(isolation: str) -> None:
    reader = Reader((FIRST, SECOND), isolation_level=isolation)
    reader.metadata.learn_leader("t", 1, PartitionLeader(1, 1))
    for round_number in range(2):
        both = response(batch(3 * round_number), last_stable_offset=100)
        # The open transaction at the end of the second keeps others than its own from being read.
        end = {"high_watermark": 0, "last_stable_offset": 0}
        if isolation == "read_committed":
            end["high_watermark"] = 7
        both.responses[0].partitions.append(FetchablePartitionResponse(partition_index=1, **end))
        reader.planner.answered(reader.call(), both, 0)
    assert reader.planner.plan(0) == []
    reader.cursors.of(FIRST).is_paused = True
    alone = reader.call()
    assert list(alone.turns) == [SECOND]
    reader.planner.failed(alone, 0)
    reader.cursors.of(FIRST).is_paused = False
    assert len(reader.handout.take(4)) == 4
    assert set(reader.call(1000).turns) == {FIRST, SECOND}


class TwoReader(Reader):
    """Of two partitions with one leader; answers are for one of them at a time."""

    def __init__(self, **settings: object) -> None:
        super().__init__((FIRST, SECOND), **settings)
        self.metadata.learn_leader("t", 1, PartitionLeader(1, 1))

    def answer_for(self, partition: TopicPartition, records: bytes = b"", **fields: object) -> None:
        answers = response()
        answers.responses[0].partitions = [
            FetchablePartitionResponse(partition_index=partition.partition, records=records, **fields)  # type: ignore[arg-type]
        ]
        self.planner.answered(self.call(), answers, 0)

    def taken(self, records_max: int) -> list[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self.handout.take(records_max)]


def test_answers_are_handed_out_in_the_order_in_which_they_came() -> None:
    reader = TwoReader()
    reader.answer_for(FIRST, batch(0, 2))
    reader.answer_for(SECOND, batch(0, 2))
    assert reader.taken(1) == [(0, 0)]
    # There is always more of the first, and still it is the other's turn.
    reader.answer_for(FIRST, batch(2, 2))
    assert reader.taken(3) == [(0, 1), (1, 0), (1, 1)]
    reader.answer_for(SECOND, batch(2, 2))
    # What was read to its end may still be there.
    assert [claimed.chunk.topic_partition for claimed in reader.handout.claim(1 << 20)][-2:] == [FIRST, SECOND]


def test_what_was_fetched_of_paused_partitions_does_not_hold_up_others() -> None:
    reader = TwoReader(fetch_max_bytes=100, max_partition_fetch_bytes=100)
    reader.answer_for(FIRST, batch(0, 20))
    assert reader.planner.plan(0) == []
    reader.cursors.of(FIRST).is_paused = True
    assert list(reader.call().turns) == [SECOND]


def test_an_error_is_told_though_others_have_records() -> None:
    reader = TwoReader()
    reader.answer_for(FIRST, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    reader.answer_for(SECOND, batch(0, 2))
    with pytest.raises(ClientError, match="t-0"):
        reader.taken(10)
    assert reader.taken(10) == [(1, 0), (1, 1)]
    # With nothing else to give, it is all there is to say.
    for _ in range(2):
        with pytest.raises(ClientError, match="t-0"):
            reader.taken(10)
        with pytest.raises(ClientError, match="t-0"):
            reader.handout.claim(1)


@pytest.mark.parametrize(("isolation", "lag"), [("read_uncommitted", 95), ("read_committed", 45)])
def test_the_lag_is_what_there_is_to_read(isolation: str, lag: int) -> None:
    reader = Reader(isolation_level=isolation)
    assert reader.cursors.of(FIRST).lag is None
    reader.answer(batch(0, 5), last_stable_offset=50)
    reader.handout.take(5)
    assert reader.cursors.of(FIRST).lag == lag


def test_the_lag_is_known_of_a_partition_that_comes_again() -> None:
    """In a session the broker says nothing of a partition of which nothing is new."""
    reader = Reader()
    told = response()
    told.session_id = 7
    reader.planner.answered(reader.call(), told, 0)
    reader.cursors.replace([])
    reader.cursors.replace([FIRST])
    reader.cursors.of(FIRST).seek(4)
    reader.planner.answered(reader.call(), FetchResponse(session_id=7), 0)
    assert reader.cursors.of(FIRST).lag == 96


def test_records_are_taken_in_pieces_and_the_position_follows() -> None:
    reader = Reader()
    reader.answer(batch(0, 5) + batch(5, 2))
    assert [record.offset for record in reader.handout.take(3)] == [0, 1, 2]
    assert reader.cursors.of(FIRST).position == 3
    assert [record.value for record in reader.handout.take(10)] == [b"3", b"4", b"5", b"6"]
    assert reader.cursors.of(FIRST).position == 7
    assert reader.cursors.of(FIRST).lag == 93


def test_a_batch_is_cut_where_reading_starts() -> None:
    reader = Reader()
    reader.cursors.of(FIRST).seek(4)
    reader.answer(batch(0, 6))
    assert [record.offset for record in reader.handout.take(10)] == [4, 5]


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    reader = Reader()
    call = reader.call()
    reader.cursors.of(FIRST).seek(50)
    reader.planner.answered(call, response(batch(0)), 0)
    assert reader.handout.take(10) == []
    assert reader.call().request.topics[0].partitions[0].fetch_offset == 50


def test_a_seek_drops_what_was_decoded() -> None:
    reader = Reader()
    reader.answer(batch(0, 10))
    assert len(reader.handout.take(2)) == 2
    reader.cursors.of(FIRST).seek(50)
    assert reader.handout.take(10) == []
    assert reader.cursors.of(FIRST).position == 50


def test_a_paused_partition_goes_on_where_it_was() -> None:
    reader = Reader()
    reader.answer(batch(0, 10))
    assert len(reader.handout.take(4)) == 4
    reader.cursors.of(FIRST).is_paused = True
    assert not reader.handout.has_records()
    assert reader.handout.take(10) == []
    reader.cursors.of(FIRST).is_paused = False
    if not reader.handout.has_records():
        reader.answer(batch(0, 10))
    assert [record.offset for record in reader.handout.take(10)] == [4, 5, 6, 7, 8, 9]


def test_aborted_transactions_are_hidden() -> None:
    written = (
        batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        + batch(2, 2, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
        + end_transaction_marker(1, 0, False, 0, 0, base_offset=4)
        + end_transaction_marker(2, 0, True, 0, 0, base_offset=5)
        + batch(6, 2, producer_id=1, producer_epoch=0, base_sequence=2, transactional=True)
        + end_transaction_marker(1, 0, True, 0, 0, base_offset=8)
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    reader = Reader(isolation_level="read_committed")
    reader.answer(written, aborted_transactions=aborted)
    assert [record.offset for record in reader.handout.take(10)] == [2, 3, 6, 7]
    assert reader.handout.take(10) == []
    assert reader.cursors.of(FIRST).position == 9
    careless = Reader()
    careless.answer(written)
    assert [record.offset for record in careless.handout.take(10)] == [0, 1, 2, 3, 6, 7]


def test_a_damaged_batch_is_named_and_can_be_passed_over() -> None:
    damaged = bytearray(batch(3, 2))
    damaged[-2] ^= 1
    reader = Reader()
    reader.answer(batch(0) + bytes(damaged) + batch(5))
    assert [record.offset for record in reader.handout.take(10)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as found:
            reader.handout.take(10)
        assert (found.value.topic_partition, found.value.offset, found.value.next_offset) == (FIRST, 3, 5)
        assert not found.value.retriable
    reader.cursors.of(FIRST).seek(found.value.next_offset)
    reader.answer(batch(5))
    assert [record.offset for record in reader.handout.take(10)] == [5, 6, 7]


def test_checksums_may_be_ignored() -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-2] ^= 1
    reader = Reader(check_crcs=False)
    reader.answer(bytes(damaged))
    assert len(reader.handout.take(10)) == 1


def test_bytes_that_are_no_batch_are_an_error() -> None:
    reader = Reader()
    reader.answer(batch(0) + bytes(100))
    assert len(reader.handout.take(10)) == 3
    with pytest.raises(CorruptRecordError) as found:
        reader.handout.take(10)
    assert found.value.offset == 3


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_out_of_range(reset: str) -> None:
    reader = Reader(auto_offset_reset=reset)
    cursor = reader.cursors.of(FIRST)
    reader.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    if reset == "earliest":
        assert (cursor.stage, cursor.reset_timestamp) == (Stage.AWAITS_RESET, EARLIEST)
    else:
        with pytest.raises(OffsetOutOfRangeError):
            reader.handout.take(1)


def test_what_was_fetched_is_read_before_a_reset() -> None:
    reader = Reader(auto_offset_reset="earliest")
    reader.answer(batch(0))
    reader.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert reader.cursors.of(FIRST).stage is Stage.READY
    assert len(reader.handout.take(10)) == 3


def test_what_is_being_decoded_by_the_column_is_read_before_a_reset() -> None:
    reader = Reader(auto_offset_reset="earliest")
    reader.answer(batch(0))
    ((cursor, turn, _),) = reader.handout.claim(1)
    reader.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (cursor.stage, cursor.turn) == (Stage.READY, turn)
    # Whoever decodes says so when it has been given.
    cursor.position = cursor.fetch_offset
    reader.answer(now_ms=100, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert cursor.stage is Stage.AWAITS_RESET


MOVED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
]
"""What a broker answers if the partition is elsewhere, or another one by now."""


@pytest.mark.parametrize(
    ("code", "asks_for_metadata"), [*((code, True) for code in MOVED), (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, False)]
)
def test_errors_of_a_whole_answer(code: ErrorCode, asks_for_metadata: bool) -> None:
    reader = Reader()
    before_ms = reader.metadata.next_refresh_ms()
    reader.planner.answered(reader.call(), FetchResponse(error_code=code), 1000)
    assert (reader.metadata.next_refresh_ms() < before_ms) == asks_for_metadata
    assert not reader.handout.has_records()
    assert reader.planner.plan(1099) == []
    assert len(reader.planner.plan(1100)) == 1


@pytest.mark.parametrize(
    ("code", "asks_for_metadata", "is_told"),
    [
        *((code, True, False) for code in MOVED),
        (ErrorCode.OFFSET_NOT_AVAILABLE, False, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, True),
        (ErrorCode.CORRUPT_MESSAGE, False, True),
    ],
)
def test_errors_of_a_partition(code: ErrorCode, asks_for_metadata: bool, is_told: bool) -> None:
    reader = Reader()
    before_ms = reader.metadata.next_refresh_ms()
    reader.answer(error_code=code, now_ms=1000)
    assert (reader.metadata.next_refresh_ms() < before_ms) == asks_for_metadata
    assert reader.handout.has_records() == is_told
    if is_told:
        with pytest.raises(ClientError, match="t-0"):
            reader.handout.take(10)
    # A poll may wait now: the next answer may be another one.
    assert not reader.handout.has_records()
    assert reader.planner.plan(1000) == []
    reader.answer(batch(0, 2), now_ms=1100)
    assert [record.offset for record in reader.handout.take(10)] == [0, 1]
    assert reader.handout.take(10) == []


def test_a_near_replica_is_read_from_until_it_errs() -> None:
    reader = Reader(client_rack="here")
    assert reader.call().request.rack_id == "here"
    reader = Reader()
    reader.answer(preferred_read_replica=3)
    call = reader.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert call.node_id == 3
    assert reader.call(200).node_id == 1


def test_a_near_replica_of_a_topic_that_is_gone_is_not_asked() -> None:
    reader = Reader()
    reader.answer(preferred_read_replica=3)
    brokers = [MetadataResponseBroker(node_id=3, host="h", port=3)]
    reader.metadata.update(MetadataResponse(brokers=brokers), 0, is_about_all=True)
    assert reader.planner.plan(0) == []


def test_a_lost_broker_means_new_metadata_and_a_pause() -> None:
    reader = Reader()
    call = reader.call()
    reader.planner.failed(call, 1000)
    assert reader.planner.plan(1000) == []
    assert reader.call(1100).request.session_epoch == 0


def test_a_batch_that_does_not_fit_is_an_error() -> None:
    reader = Reader(max_partition_fetch_bytes=50)
    reader.answer(batch(0, 20)[:80])
    with pytest.raises(PartitionError, match=r"max\.partition\.fetch\.bytes"):
        reader.handout.take(1)


# Deserializers


class Registry:
    """A deserializer that can do nothing with some values while something is away."""

    def __init__(self, *missing: bytes) -> None:
        self.missing = missing
        self.asked: list[bytes | None] = []

    def deserialize(self, topic: str, data: bytes | None) -> int:
        self.asked.append(data)
        if data in self.missing:
            raise ClientError("away", code=ErrorCode.NETWORK_EXCEPTION)
        return int(data or b"")


def test_an_error_that_passes_keeps_the_record_for_the_next_take() -> None:
    reader = Reader()
    reader.answer(batch(0) + batch(3))
    registry = Registry(b"1", b"2")
    convert = Converters(None, registry)
    cursor = reader.cursors.of(FIRST)
    assert [record.value for record in reader.handout.take(10, convert)] == [0]
    for _ in range(2):
        with pytest.raises(ClientError, match="away"):
            reader.handout.take(10, convert)
        assert (cursor.position, cursor.stage, cursor.error) == (1, Stage.READY, None)
        assert reader.handout.has_records()
    registry.missing = (b"2",)
    assert [record.value for record in reader.handout.take(10, convert)] == [1]
    registry.missing = ()
    assert [record.value for record in reader.handout.take(10, convert)] == [2, 3, 4, 5]
    assert (cursor.position, cursor.fetch_offset) == (6, 6)


def test_an_error_that_passes_does_not_hold_up_other_partitions() -> None:
    reader = Reader((FIRST, SECOND))
    reader.metadata.learn_leader("t", 1, PartitionLeader(1, 1))
    both = response(batch(10))
    both.responses[0].partitions.append(FetchablePartitionResponse(partition_index=1, records=batch(0) + batch(3)))
    reader.planner.answered(reader.call(), both, 0)
    registry = Registry(b"10")
    convert = Converters(None, registry)
    assert [record.value for record in reader.handout.take(10, convert)] == [0, 1, 2, 3, 4, 5]
    assert registry.asked.count(b"10") == 1
    with pytest.raises(ClientError, match="away"):
        reader.handout.take(10, convert)


def test_what_waits_for_a_deserializer_does_not_keep_others_from_being_fetched() -> None:
    reader = TwoReader(fetch_max_bytes=1000, max_partition_fetch_bytes=1000)
    reader.answer_for(SECOND, high_watermark=0)
    reader.answer_for(FIRST, batch(0, 60))
    reader.answer_for(FIRST, batch(60, 60))
    assert reader.planner.plan(0) == []
    registry = Registry(b"0")
    convert = Converters(None, registry)
    with pytest.raises(ClientError, match="away"):
        reader.handout.take(10, convert)
    reader.answer_for(SECOND, batch(500, 1))
    assert [record.value for record in reader.handout.take(10, convert)] == [500]
    registry.missing = ()
    assert len(reader.handout.take(1000, convert)) == 120


def test_what_waits_for_a_deserializer_is_given_up_by_a_seek() -> None:
    reader = Reader()
    reader.answer(batch(0))
    with pytest.raises(ClientError, match="away"):
        reader.handout.take(10, Converters(None, Registry(b"0")))
    reader.cursors.of(FIRST).seek(1)
    assert not reader.handout.has_records()
