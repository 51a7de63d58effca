"""What the coordinator grants and refuses: identities, time-outs, expiry, offsets, and topics that go away."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.records.builder import NewRecord, build_batch
from ottla.records.hashing import coordinator_partition
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.stored.transaction_state import TransactionLogKey, TransactionLogValue
from tests.broker_process import BrokerProcess
from tests.integration.calls import create_topic, produce
from tests.interop.coordinator_requests import LOADING, CoordinatorType
from tests.interop.transactions.conftest import QUICK_TRANSACTIONS
from tests.interop.transactions.raw_producer import (
    END_NEW,
    END_OLD,
    OFFSETS_NEW,
    PRODUCE_NEW,
    RawProducer,
    committed_offset,
    fetch,
    find_coordinator,
    last_stable_offset,
    until,
)
from tests.interop.transactions.readers import read_all, read_values
from tests.raw_client import RawClient

pytestmark = pytest.mark.interop

STATE_TOPIC = "__transaction_state"
LAST_EPOCH = 32_766
"""The highest a client is given."""


def describe(client: RawClient, transactional_id: str) -> TransactionState:
    response = client.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    assert isinstance(response, DescribeTransactionsResponse)
    return response.transaction_states[0]


def in_state(client: RawClient, transactional_id: str, state: str) -> None:
    until(lambda: describe(client, transactional_id), lambda found: found.transaction_state == state)


# --- identities -------------------------------------------------------------------------------------------------------


def test_each_producer_of_an_id_gets_the_next_epoch(raw: RawClient, new_topic: str) -> None:
    first = RawProducer(raw, new_topic).init()
    second = RawProducer(raw, new_topic).init()
    assert second.identity == (first.producer_id, first.epoch + 1)
    assert RawProducer(raw, f"{new_topic}-other").init().producer_id != first.producer_id


def test_a_producer_that_lost_the_answer_is_told_again(raw: RawClient, new_topic: str) -> None:
    producer = RawProducer(raw, new_topic).init()
    before = producer.identity
    answers = [producer.ask_init(current=before) for _ in range(3)]
    assert [(got.error_code, got.producer_id, got.producer_epoch) for got in answers] == [
        (0, before[0], before[1] + 1)
    ] * 3
    assert producer.ask_init(current=(before[0], before[1] + 1)).producer_epoch == before[1] + 2
    assert producer.ask_init(current=before).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.ask_init(current=(before[0] + 10_000, 0)).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.ask_init(current=(before[0], -1)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(raw: RawClient, new_topic: str, timeout_ms: int) -> None:
    RawProducer(raw, new_topic).init()
    refused = RawProducer(raw, new_topic, timeout_ms=timeout_ms).ask_init()
    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_empty_transactional_id_is_refused(raw: RawClient) -> None:
    assert RawProducer(raw, "").ask_init().error_code == ErrorCode.INVALID_REQUEST


def write_state(client: RawClient, transactional_id: str, value: TransactionLogValue) -> None:
    key = TransactionLogKey(transactional_id=transactional_id)
    record = NewRecord(key.encode_versioned(0), value.encode_versioned(0), (), 1_700_000_000_000)
    partition = coordinator_partition(transactional_id, int(QUICK_TRANSACTIONS["transaction.state.log.num.partitions"]))
    assert produce(client, STATE_TOPIC, bytes(build_batch([record])), partition=partition).error_code == 0


@pytest.mark.parametrize("way", ["init", "recover", "end"])
def test_when_the_epochs_run_out_a_new_producer_id_takes_over(
    own_broker: BrokerProcess, new_topic: str, way: str
) -> None:
    """Nobody waits for 32,766 epochs: a state with the last but one is put into the log, as Kafka would store it."""
    own_broker.overrides |= QUICK_TRANSACTIONS
    own_broker.start()
    with RawClient(own_broker.port, client_id="__admin_client") as raw:
        create_topic(raw, new_topic)
        producer = RawProducer(raw, new_topic).init()
        stored = TransactionLogValue(
            producer_id=producer.producer_id,
            producer_epoch=LAST_EPOCH - 1,
            transaction_timeout_ms=60_000,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=4_000_000_000_000,
            transaction_start_timestamp_ms=-1,
        )
        write_state(raw, new_topic, stored)
    own_broker.kill()
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        old_id = producer.producer_id
        producer = RawProducer(raw, new_topic).init()
        assert producer.identity == (old_id, LAST_EPOCH)
        assert producer.produce(new_topic, b"last epoch", version=PRODUCE_NEW).error_code == 0
        late = producer.batch(new_topic, 0, b"late")
        if way == "end":
            producer.end(commit=True, version=END_NEW)
        else:
            producer.end(commit=True)
            producer.has_ended(commit=True)
            producer.init(current=producer.identity if way == "recover" else (-1, -1))
        assert producer.producer_id != old_id and producer.epoch == 0
        until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 2)
        assert producer.produce(new_topic, b"new id", version=PRODUCE_NEW).error_code == 0
        zombie = RawProducer(raw, new_topic)
        zombie.take(old_id, LAST_EPOCH)
        refused = {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH}
        assert zombie.send_batch(new_topic, 0, late, version=PRODUCE_NEW).error_code in refused
        assert zombie.ask_end(commit=False, version=END_OLD).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        producer.end(commit=True, version=END_NEW)
        until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 4)
    assert read_values(own_broker.bootstrap, new_topic) == [b"last epoch", b"new id"]


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_runs_out_of_time_is_aborted_and_its_producer_shut_out(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str
) -> None:
    create_topic(raw, new_topic, partitions=2)
    slow = RawProducer(raw, new_topic, timeout_ms=1000).init()
    assert slow.add(new_topic, [0, 1]) == [0, 0]
    for partition in (0, 1):
        slow.produce(new_topic, b"too slow", partition=partition)
    assert last_stable_offset(raw, new_topic) == 0
    for partition in (0, 1):
        until(lambda p=partition: last_stable_offset(raw, new_topic, p), lambda offset: offset == 2)  # type: ignore[misc]
    in_state(raw, new_topic, "CompleteAbort")
    assert slow.produce(new_topic, b"later").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert slow.ask_end(commit=True, version=END_OLD).error_code == ErrorCode.PRODUCER_FENCED
    assert read_values(txn_broker.bootstrap, new_topic) == []
    slow.init()
    assert slow.produce(new_topic, b"again", version=PRODUCE_NEW).error_code == 0
    slow.end(commit=True, version=END_NEW)
    until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 4)
    assert read_values(txn_broker.bootstrap, new_topic) == [b"again"]


def test_an_idle_id_expires_and_its_producer_learns_why(own_broker: BrokerProcess, new_topic: str) -> None:
    own_broker.overrides |= QUICK_TRANSACTIONS | {
        "transactional.id.expiration.ms": "1500",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        create_topic(raw, new_topic)
        producer = RawProducer(raw, new_topic).init()
        assert producer.produce(new_topic, b"one", version=PRODUCE_NEW).error_code == 0
        producer.end(commit=True, version=END_NEW)
        until(lambda: describe(raw, new_topic).error_code, lambda code: code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert producer.add(new_topic) == [mapping]
        assert producer.add_offsets(new_topic) == mapping
        assert producer.commit_offset(new_topic, new_topic, 1, version=OFFSETS_NEW) == mapping
        assert producer.ask_end(commit=True, version=END_NEW).error_code == mapping
        for version in (PRODUCE_NEW - 1, PRODUCE_NEW):
            refused = producer.produce(new_topic, b"x", version=version)
            assert refused.error_code == mapping
            assert "expired" in (refused.error_message or "")
        until(lambda: "\n".join(own_broker.log_lines), lambda text: "transactional.id.expiration.ms" in text)
        assert producer.init().epoch == 0
    assert own_broker.tracebacks() == []


# --- what the broker adds itself --------------------------------------------------------------------------------------


def test_the_first_batch_for_each_partition_adds_it(raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic, partitions=3)
    producer = RawProducer(raw, new_topic).init()
    for partition in (2, 0):
        producer.produce(new_topic, b"a", b"b", partition=partition, version=PRODUCE_NEW)
        producer.produce(new_topic, b"c", partition=partition, version=PRODUCE_NEW)
    described = describe(raw, new_topic)
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, list(topic.partitions)) for topic in described.topics] == [(new_topic, [0, 2])]
    producer.end(commit=True, version=END_NEW)
    in_state(raw, new_topic, "CompleteCommit")
    assert [last_stable_offset(raw, new_topic, partition) for partition in range(3)] == [4, 0, 4]


def test_a_new_client_may_abort_what_it_never_began(raw: RawClient, new_topic: str) -> None:
    """It cannot know whether its only batch reached the broker and began the transaction."""
    producer = RawProducer(raw, new_topic).init()
    before = producer.epoch
    producer.end(commit=False, version=END_NEW)
    assert producer.epoch == before + 1
    committed = producer.ask_end(commit=True, version=END_NEW)
    assert committed.error_code == ErrorCode.INVALID_TXN_STATE
    old = RawProducer(raw, f"{new_topic}-old").init()
    assert old.ask_end(commit=False, version=END_OLD).error_code == ErrorCode.INVALID_TXN_STATE


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_new", [False, True])
def test_offsets_count_once_their_transaction_is_committed(raw: RawClient, new_topic: str, is_new: bool) -> None:
    create_topic(raw, new_topic)
    group = f"{new_topic}-group"
    producer = RawProducer(raw, new_topic).init()
    commit_version, end_version = (OFFSETS_NEW, END_NEW) if is_new else (OFFSETS_NEW - 1, END_OLD)

    def store(offset: int) -> None:
        if not is_new:
            assert producer.add_offsets(group) == 0
        assert producer.commit_offset(group, new_topic, offset, version=commit_version) == 0

    def settled() -> tuple[int, int]:
        return until(
            lambda: committed_offset(raw, group, new_topic),
            lambda found: found[0] != ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )

    store(10)
    assert committed_offset(raw, group, new_topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert committed_offset(raw, group, new_topic, require_stable=False) == (0, -1)
    producer.end(commit=True, version=end_version)
    assert settled() == (0, 10)
    store(20)
    assert committed_offset(raw, group, new_topic)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert committed_offset(raw, group, new_topic, require_stable=False) == (0, 10)
    producer.end(commit=False, version=end_version)
    assert settled() == (0, 10)


def test_offsets_that_are_refused(raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    group = f"{new_topic}-group"
    producer = RawProducer(raw, new_topic).init()
    # The group's partition is not in the transaction, and old clients have to put it there themselves.
    assert producer.commit_offset(group, new_topic, 1, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.commit_offset(group, new_topic, 1, version=3) == ErrorCode.INVALID_TXN_STATE
    assert producer.add_offsets(group) == 0
    assert producer.commit_offset(group, new_topic, 1, member=("ghost", 5)) == ErrorCode.ILLEGAL_GENERATION
    too_long = producer.commit_offset(group, new_topic, 1, metadata="x" * 5000)
    assert too_long == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert producer.commit_offset(group, f"{new_topic}-none", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("", new_topic, 1) == ErrorCode.INVALID_GROUP_ID
    producer.end(commit=True)


def join_alone(client: RawClient, group: str) -> tuple[str, int]:
    """The only member of a group, and its generation."""
    find_coordinator(client, group, CoordinatorType.GROUP)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = until(lambda: client.call(request, 3), lambda got: getattr(got, "error_code", 0) not in LOADING)
    assert isinstance(joined, JoinGroupResponse) and joined.error_code == 0, joined
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    synced = client.call(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        ),
        3,
    )
    assert isinstance(synced, SyncGroupResponse) and synced.error_code == 0
    return joined.member_id, joined.generation_id


@pytest.mark.parametrize("version", [OFFSETS_NEW - 1, OFFSETS_NEW])
def test_a_member_of_the_past_commits_nothing(raw: RawClient, new_topic: str, version: int) -> None:
    """Whoever lost its partitions to another member may still have a transaction open (KIP-447)."""
    create_topic(raw, new_topic)
    group = f"{new_topic}-group"
    member_id, generation = join_alone(raw, group)
    producer = RawProducer(raw, new_topic).init()
    if version < OFFSETS_NEW:
        assert producer.add_offsets(group) == 0
    codes = [
        producer.commit_offset(group, new_topic, offset, version=version, member=member)
        for offset, member in (
            (1, (member_id, generation)),
            (2, (member_id, generation - 1)),
            (3, ("nobody", generation)),
        )
    ]
    assert codes == [0, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
    producer.end(commit=True, version=END_NEW)
    assert until(lambda: committed_offset(raw, group, new_topic), lambda found: found[0] == 0) == (0, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_an_open_transaction_survive_a_kill(own_broker: BrokerProcess, new_topic: str, commit: bool) -> None:
    own_broker.overrides |= QUICK_TRANSACTIONS
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        create_topic(raw, new_topic)
        producer = RawProducer(raw, new_topic).init()
        assert producer.commit_offset("group", new_topic, 7, version=OFFSETS_NEW) == 0
    own_broker.kill()
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        pending = until(lambda: committed_offset(raw, "group", new_topic), lambda found: found[0] not in LOADING)
        assert pending[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        producer.client = raw
        producer.end(commit=commit, version=END_NEW)
        found = until(
            lambda: committed_offset(raw, "group", new_topic),
            lambda answer: answer[0] != ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    assert found == (0, 7 if commit else -1)


# --- partitions -------------------------------------------------------------------------------------------------------


def test_one_partition_that_does_not_exist_keeps_all_out(raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    assert producer.add(new_topic, [0, 5]) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert describe(raw, new_topic).transaction_state == "Empty"
    assert producer.add("__consumer_offsets") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("deleted_when", ["before the end", "before a restart"])
def test_a_topic_deleted_in_a_transaction_does_not_hold_it_up(
    own_broker: BrokerProcess, new_topic: str, deleted_when: str
) -> None:
    own_broker.overrides |= QUICK_TRANSACTIONS
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        for name in ("kept", "deleted"):
            create_topic(raw, name)
        producer = RawProducer(raw, "t").init()
        for name in ("kept", "deleted"):
            assert producer.produce(name, b"value", version=PRODUCE_NEW).error_code == 0
        response = raw.call(DeleteTopicsRequest(topic_names=["deleted"], timeout_ms=5000), 5)
        assert isinstance(response, DeleteTopicsResponse) and response.responses[0].error_code == 0
    if deleted_when == "before a restart":
        own_broker.kill()
        own_broker.start()
    with RawClient(own_broker.port) as raw:
        producer.client = raw
        until(lambda: describe(raw, "t").transaction_state, lambda state: state == "Ongoing")
        producer.end(commit=True, version=END_NEW)
        in_state(raw, "t", "CompleteCommit")
        assert last_stable_offset(raw, "kept") == 2
        create_topic(raw, "deleted")
        assert producer.produce("deleted", b"anew", version=PRODUCE_NEW).error_code == 0
        producer.end(commit=True, version=END_NEW)
        in_state(raw, "t", "CompleteCommit")
    assert read_values(own_broker.bootstrap, "kept") == [b"value"]
    assert read_values(own_broker.bootstrap, "deleted") == [b"anew"]
    assert own_broker.tracebacks() == []


@pytest.mark.parametrize("version", [END_OLD, END_NEW])
def test_where_a_broker_needs_nobody_else_a_transaction_has_ended_when_its_end_is_answered(
    raw: RawClient, new_topic: str, version: int
) -> None:
    """Otherwise the next transaction of a quick client would be told to wait (KIP-890 makes it try again)."""
    create_topic(raw, new_topic, partitions=2)
    producer = RawProducer(raw, new_topic).init()
    for number in range(1, 20):
        for partition in (0, 1):
            batch = producer.batch(new_topic, partition, b"%d" % number)
            assert producer.send_batch(new_topic, partition, batch, version=PRODUCE_NEW).error_code == 0
        producer.end(commit=True, version=version)
        assert describe(raw, new_topic).transaction_state == "CompleteCommit"
        assert [last_stable_offset(raw, new_topic, partition) for partition in (0, 1)] == [2 * number] * 2


def test_a_transaction_over_many_partitions(txn_broker: BrokerProcess, raw: RawClient, new_topic: str) -> None:
    count = 100
    create_topic(raw, new_topic, partitions=count)
    producer = RawProducer(raw, new_topic).init()
    assert producer.add(new_topic, range(count)) == [0] * count
    for partition in range(count):
        assert producer.produce(new_topic, b"%d" % partition, partition=partition).error_code == 0
    producer.end(commit=True)
    in_state(raw, new_topic, "CompleteCommit")
    found = read_all(txn_broker.bootstrap, new_topic, range(count))
    assert found == {partition: [(0, b"%d" % partition)] for partition in range(count)}


def write_marker(client: RawClient, topic: str, producer: tuple[int, int], coordinator_epoch: int) -> int:
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    response = client.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert isinstance(response, WriteTxnMarkersResponse)
    return response.markers[0].topics[0].partitions[0].error_code


def test_a_marker_of_an_old_epoch_or_coordinator_is_refused(raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    RawProducer(raw, new_topic).init()
    producer = RawProducer(raw, new_topic).init()
    assert producer.produce(new_topic, b"open", version=PRODUCE_NEW).error_code == 0
    producer_id, epoch = producer.identity
    assert write_marker(raw, new_topic, (producer_id, epoch - 1), 1000) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert last_stable_offset(raw, new_topic) == 0
    # What an administrator does about a transaction that hangs (KIP-664).
    assert write_marker(raw, new_topic, (producer_id, epoch), 1000) == 0
    assert last_stable_offset(raw, new_topic) == 2
    assert write_marker(raw, new_topic, (producer_id, epoch), 999) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write_marker(raw, f"{new_topic}-none", (1, 1), 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(raw, new_topic).high_watermark == 2
