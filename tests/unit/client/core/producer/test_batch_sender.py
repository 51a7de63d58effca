from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.client.core.metadata import PartitionLeader
from ottla.client.core.producer.results import PartitionResult
from ottla.client.errors import ClientClosedError, DeliveryTimeoutError, RecordTooLargeError
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.header import encode_request_frame
from tests.unit.client.core.producer.model_broker import TOPIC, World, metadata_response

RETRIABLE = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
AFTER_APPEND = [
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    # What a broker answers that ceases to lead while it waits for its followers.
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
]

partitions = st.integers(0, 1)
nodes = st.integers(0, 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), partitions, st.integers(1, 4)),
        st.tuples(st.just("pump"), st.integers(0, 200)),
        st.tuples(st.just("pump"), st.just(0)),
        st.tuples(st.just("handle"), nodes),
        st.tuples(st.just("handle"), nodes),
        st.tuples(st.just("reply"), nodes),
        st.tuples(st.just("refuse"), nodes, st.sampled_from(RETRIABLE)),
        st.tuples(st.just("late"), nodes, st.sampled_from(AFTER_APPEND)),
        st.tuples(st.just("disconnect"), nodes),
        st.tuples(st.just("zombie"), nodes),
        st.tuples(st.just("move"), partitions),
        st.tuples(st.just("metadata")),
    ),
    max_size=120,
)


def run(world: World, script: list[tuple[object, ...]]) -> None:
    for name, *arguments in script:
        match name, arguments:
            case "send", (int(partition), int(count)):
                for _ in range(count):
                    world.send(partition)
            case "pump", (int(passed_ms),):
                world.now_ms += passed_ms
                world.pump()
            case "handle", (int(node),):
                world.handle(node)
            case "refuse", (int(node), ErrorCode() as error):
                world.handle(node, error)
            case "late", (int(node), ErrorCode() as error):
                world.handle(node, error, after_append=True)
            case "reply", (int(node),):
                world.reply(node)
            case "disconnect", (int(node),):
                world.disconnect(node)
            case "zombie", (int(node),):
                world.zombie(node)
            case "move", (int(partition),):
                world.move_leader(partition)
            case "metadata", ():
                world.learn_metadata()
            case "restart", ():
                world.restart()
            case _:
                raise AssertionError(name)


@settings(max_examples=300)
@given(steps, st.sampled_from([0, 80, 120]))
def test_nothing_is_lost_doubled_or_reordered(script: list[tuple[object, ...]], batch_size: int) -> None:
    world = World(2, **{"batch.size": batch_size, "linger.ms": 0})
    run(world, script)
    world.heal()
    world.check_exactly_once()


@settings(max_examples=200)
@given(st.lists(st.one_of(steps.map(lambda script: script[:6]), st.just([("restart",)])), max_size=25))
def test_the_same_with_brokers_that_forget_older_batches(scripts: list[list[tuple[object, ...]]]) -> None:
    world = World(2, **{"batch.size": 0, "linger.ms": 0})
    run(world, [step for script in scripts for step in script])
    world.heal()
    world.check_exactly_once()


@settings(max_examples=100)
@given(steps)
def test_batches_that_are_too_large_are_split(script: list[tuple[object, ...]]) -> None:
    world = World(2, max_batch_bytes=110, **{"batch.size": 400, "linger.ms": 0})
    run(world, script)
    world.heal()
    world.check_exactly_once()


@settings(max_examples=100)
@given(steps)
def test_order_holds_without_idempotence_if_only_one_request_is_in_flight(script: list[tuple[object, ...]]) -> None:
    world = World(
        2,
        **{"batch.size": 0, "linger.ms": 0, "enable.idempotence": False, "max.in.flight.requests.per.connection": 1},
    )
    run(world, [step for step in script if step[0] != "zombie"])
    world.heal()
    for log, sent in zip(world.logs, world.sent, strict=True):
        firsts = list(dict.fromkeys(log.values))
        assert firsts == sent


def filled(count: int, **settings: object) -> World:
    """A world where the first record is stored and `count` single-record batches follow it."""
    world = World(**{"batch.size": 0, "linger.ms": 0, **settings})
    world.send()
    world.pump()
    world.handle(0)
    world.reply(0)
    for _ in range(count):
        world.send()
    world.pump()
    return world


def test_the_first_batch_goes_alone_then_five_are_in_flight() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0})
    for _ in range(9):
        world.send()
    world.pump()
    assert len(world.connections[0]) == 1
    world.handle(0)
    world.reply(0)
    world.pump()
    assert len(world.connections[0]) == 5


def test_batches_behind_a_failed_one_are_sent_again_in_order() -> None:
    world = filled(5)
    world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    while world.handle(0):
        pass
    while world.reply(0):
        pass
    assert len(world.logs[0].values) == 1
    world.heal()
    world.check_exactly_once()
    assert world.sender.producer_epoch == 0


def test_a_restarted_broker_that_recognises_only_the_last_batch_has_stored_the_others_too() -> None:
    world = filled(5)
    while world.handle(0):
        pass
    world.disconnect(0)
    world.restart()
    world.heal()
    world.check_exactly_once()
    assert world.sender.producer_epoch == 0
    offsets = [batch.metadata(index).offset for batch, index, _ in world.receipts]
    assert offsets == [0, -1, -1, -1, -1, 5]


@pytest.mark.parametrize("error", AFTER_APPEND)
def test_so_has_one_that_recognises_what_another_leader_had_stored_before_it_resigned(error: ErrorCode) -> None:
    world = filled(5)
    while world.handle(0, error, after_append=True):
        pass
    while world.reply(0):
        pass
    world.move_leader(0)
    world.restart()
    world.heal()
    world.check_exactly_once()
    assert world.sender.producer_epoch == 0


def test_what_a_refused_batch_waits_for_is_not_forgotten() -> None:
    world = filled(2)
    world.disconnect(0)
    world.now_ms += 200
    world.pump()
    world.handle(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    while world.reply(0):
        pass
    world.pump()
    assert not world.connections[0]
    wake_ms = world.sender.next_wake_ms(world.now_ms)
    assert wake_ms is not None and wake_ms <= world.now_ms + 200
    world.now_ms = wake_ms
    world.pump()
    assert world.connections[0]


def test_a_gap_is_closed_by_a_new_epoch() -> None:
    world = filled(3)
    world.handle(0, ErrorCode.INVALID_RECORD)
    while world.handle(0):
        pass
    while world.reply(0):
        pass
    lost = world.sent[0].pop(1)
    world.heal()
    assert world.logs[0].values == world.sent[0]
    assert world.sender.producer_epoch == 1
    errors = {value: batch.error_of(index) for batch, index, value in world.receipts}
    assert [value for value, error in errors.items() if error is not None] == [lost]


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0})
    world.sender.set_producer(7, 2**15 - 1)
    for _ in range(3):
        world.send()
    world.pump()
    world.handle(0)
    world.reply(0)
    world.pump()
    world.handle(0, ErrorCode.INVALID_RECORD)
    world.handle(0)
    world.reply(0)
    world.reply(0)
    world.pump()
    assert world.sender.needs_producer_id
    world.sender.set_producer(8, 0)
    world.heal()
    assert world.logs[0].values == [world.sent[0][0], world.sent[0][2]]


def test_a_batch_fails_when_its_time_is_up_and_says_whether_it_was_sent() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "request.timeout.ms": 100, "delivery.timeout.ms": 1000})
    world.send()
    world.send()
    world.pump()
    world.now_ms += 1000
    world.pump()
    (sent, _, _), (unsent, _, _) = world.receipts
    assert isinstance(sent.error, DeliveryTimeoutError) and "may have been stored" in str(sent.error)
    assert isinstance(unsent.error, DeliveryTimeoutError) and "never sent" in str(unsent.error)
    assert str(sent.error).endswith("; last: no answer from broker 0 yet")
    assert world.accumulator.free_bytes == world.accumulator.buffer_memory
    world.send()
    world.heal()
    assert world.logs[0].values == [world.sent[0][0], world.sent[0][2]]


def test_a_batch_that_is_too_late_names_the_last_cause() -> None:
    def outcome_after(*steps: tuple[object, ...], why_waiting: str = "") -> str:
        settings = {"batch.size": 0, "linger.ms": 0, "request.timeout.ms": 100, "delivery.timeout.ms": 1000}
        world = World(**settings, why_waiting=why_waiting)
        world.send()
        world.pump()
        run(world, list(steps))
        world.now_ms += 1000
        world.pump()
        ((batch, _, _),) = world.receipts
        assert isinstance(batch.error, DeliveryTimeoutError)
        return batch.error.message.partition("; last: ")[2]

    assert outcome_after() == "no answer from broker 0 yet"
    assert outcome_after(why_waiting="cannot reach x:1: refused") == "cannot reach x:1: refused"
    refused = ("refuse", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert outcome_after(refused, ("reply", 0)) == "NOT_LEADER_OR_FOLLOWER from broker 0"
    assert outcome_after(("disconnect", 0), why_waiting="anything") == "lost"
    # What came later counts, and what has succeeded is no cause.
    assert outcome_after(("disconnect", 0), ("pump", 200), refused, ("reply", 0)) == (
        "NOT_LEADER_OR_FOLLOWER from broker 0"
    )


def test_a_success_leaves_no_cause_behind() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "request.timeout.ms": 100, "delivery.timeout.ms": 1000})
    world.send()
    world.pump()
    world.disconnect(0)
    world.heal()
    world.send()
    world.pump()
    world.now_ms += 1000
    world.pump()
    late, _, _ = world.receipts[1]
    assert isinstance(late.error, DeliveryTimeoutError) and "last: no answer from broker 0 yet" in str(late.error)


def test_a_batch_that_the_broker_has_already_is_stored() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0})
    world.send()
    world.pump()
    world.handle(0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, after_append=True)
    world.reply(0)
    ((batch, _, _),) = world.receipts
    assert batch.done
    world.heal()
    world.check_exactly_once()


def test_a_batch_that_may_be_stored_is_not_taken_for_stored_because_it_is_out_of_order() -> None:
    """Only a later one that was accepted shows that."""
    world = World(**{"batch.size": 0, "linger.ms": 0})
    world.send()
    world.heal()
    world.send()
    world.pump()
    world.disconnect(0)
    world.now_ms += 1000
    world.pump()
    world.handle(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.reply(0)
    assert not world.receipts[1][0].done
    world.heal()
    world.check_exactly_once()


def test_a_batch_that_is_too_old_to_be_known_is_stored_if_a_later_one_was_accepted() -> None:
    world = filled(2)
    world.handle(0, ErrorCode.REQUEST_TIMED_OUT, after_append=True)
    world.handle(0)
    while world.reply(0):
        pass
    first, second = (batch for batch, _, _ in world.receipts[1:])
    assert second.done and not first.done
    world.now_ms += 10_000
    world.pump()
    world.handle(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.reply(0)
    assert first.done and first.error is None and first.metadata(0).offset == -1
    world.check_exactly_once()
    assert world.sender.producer_epoch == 0


def test_a_batch_that_was_refused_is_not_taken_for_stored_because_a_later_one_is() -> None:
    """A broker that has lost what it knew of a producer takes any number as its first."""
    world = World(**{"batch.size": 0, "linger.ms": 0})
    world.send()
    world.heal()
    world.send()
    world.pump()
    world.send()
    world.pump()
    world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.logs[0].producers.clear()
    world.handle(0)
    world.reply(0)
    world.reply(0)
    world.heal()
    first, second, third = world.sent[0]
    assert world.logs[0].values == [first, third, second]


def test_the_earliest_deadline_counts_even_if_its_batch_was_added_later() -> None:
    """A sender that waits for memory may have looked at the clock long before."""
    world = World(**{"batch.size": 0, "linger.ms": 0, "request.timeout.ms": 100, "delivery.timeout.ms": 1000})
    start_ms = world.now_ms
    world.now_ms = start_ms + 500
    world.send()
    world.now_ms = start_ms + 100
    world.send()
    (later, _, _), (earlier, _, _) = world.receipts
    assert world.sender.expire(start_ms + 1099) == []
    assert world.sender.next_wake_ms(start_ms + 1099) == earlier.deadline_ms == start_ms + 1100
    assert world.sender.expire(start_ms + 1100) == [earlier]
    assert world.sender.next_wake_ms(start_ms + 1100) == later.deadline_ms == start_ms + 1500
    assert world.sender.expire(start_ms + 1500) == [later]
    assert world.sender.next_wake_ms(start_ms + 1500) is None


def test_one_record_that_is_too_large_fails_and_the_others_go_on() -> None:
    world = World(max_batch_bytes=150, **{"batch.size": 2000, "linger.ms": 0})
    world.send()
    world.send(size=200)
    world.send()
    world.pump()
    world.heal()
    assert world.logs[0].values == [world.sent[0][0], world.sent[0][2]]
    outcomes = [batch.error_of(index) for batch, index, _ in world.receipts]
    assert outcomes[0] is None and outcomes[2] is None
    assert isinstance(outcomes[1], RecordTooLargeError)


@pytest.mark.parametrize("how", ["expired", "closed"])
def test_a_batch_whose_parts_fail_together_is_done_once(how: str) -> None:
    world = World(max_batch_bytes=80, **{"batch.size": 400, "linger.ms": 0})
    for _ in range(8):
        world.send()
    world.pump()
    for _ in range(2):
        world.handle(0)
        world.reply(0)
        world.pump()
    late_ms = world.now_ms + 120_000
    done = world.sender.expire(late_ms) if how == "expired" else world.sender.fail_all(ClientClosedError("closed"))
    assert world.receipts[0][0] in done
    assert len(done) == len(set(done))
    assert world.accumulator.free_bytes == world.accumulator.buffer_memory


def test_retries_are_counted_and_pause_longer_each_time() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "retries": 3, "retry.backoff.max.ms": 350})
    world.send()
    pauses = []
    for _ in range(4):
        world.pump()
        assert world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
        world.reply(0)
        wake_ms = world.sender.next_wake_ms(world.now_ms)
        if wake_ms is not None:
            pauses.append(wake_ms - world.now_ms)
            world.now_ms = wake_ms
    assert pauses == [100, 200, 350]
    (batch, _, _) = world.receipts[0]
    assert batch.error is not None and batch.error.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_reply_that_names_the_new_leader_saves_the_question() -> None:
    world = filled(1)
    world.move_leader(0)
    world.handle(0)
    world.reply(0)
    world.now_ms += 100
    world.pump()
    assert len(world.connections[1]) == 1


def test_records_that_may_go_anywhere_do_not_wait_for_a_leader() -> None:
    world = World(2, **{"linger.ms": 0})
    record = (None, b"v", (), world.now_ms)
    chosen = []
    for leader in (-1, -1, 0):
        available = world.metadata.topics[TOPIC].available
        batch = world.accumulator.append_sticky(TOPIC, available, 2, record, 15, world.now_ms)
        assert batch is not None
        chosen.append(batch.partition)
        world.leaders[0] = leader
        world.epochs[0] += 1
        world.learn_metadata()
        world.pump()
    assert chosen == [0, 1, 1]
    world.heal()
    assert world.accumulator.free_bytes == world.accumulator.buffer_memory


def test_a_topic_whose_records_wait_is_not_forgotten() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "delivery.timeout.ms": 3_600_000})
    world.leaders[0] = -1
    world.learn_metadata()
    world.send()
    world.now_ms += 600_000
    world.metadata.topics_to_ask(world.now_ms)
    world.pump()
    assert world.metadata.topics_to_ask(world.now_ms) == [TOPIC]
    assert world.metadata.next_refresh_ms() <= world.now_ms


@pytest.mark.parametrize(
    "code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.PRODUCER_FENCED]
)
def test_an_error_that_concerns_the_whole_client_fails_everything(code: ErrorCode) -> None:
    world = filled(3)
    world.handle(0, code)
    world.reply(0)
    assert world.sender.fatal_error is not None and world.sender.fatal_error.fatal
    assert all(batch.done for batch, _, _ in world.receipts)
    world.pump()
    assert world.sender.drain(world.now_ms) == []


@pytest.mark.parametrize("why", ["linger", "flush", "memory", "full"])
def test_a_batch_lingers_until_there_is_a_reason_to_send_it(why: str) -> None:
    world = World(**{"batch.size": 100, "linger.ms": 10})
    world.send()
    world.pump()
    assert not world.connections[0]
    match why:
        case "linger":
            assert world.sender.next_wake_ms(world.now_ms) == world.now_ms + 10
            world.now_ms += 10
        case "flush":
            world.sender.flushing = 1
        case "memory":
            world.accumulator.waiting = 1
        case "full":
            for _ in range(3):
                world.send()
    world.pump()
    assert len(world.connections[0]) == 1


def test_requests_stay_within_their_size_and_carry_one_batch_per_partition() -> None:
    world = World(4, **{"batch.size": 500, "linger.ms": 0, "max.request.size": 1000})
    for partition in range(4):
        for _ in range(30):
            world.send(partition)
    calls = world.sender.drain(world.now_ms)
    for call in calls:
        assert len({batch.partition for batch in call.batches}) == len(call.batches)
        assert sum(batch.size for batch in call.batches) <= 1000
    assert {batch.partition for call in calls for batch in call.batches} == {0, 1, 2, 3}
    assert all(batch.topic == TOPIC for call in calls for batch in call.batches)


def test_partitions_take_turns_when_not_all_fit_a_request() -> None:
    """Once first batches are accepted, every partition always has one to send: none is served twice before another."""
    limits = {"max.request.size": 1, "max.in.flight.requests.per.connection": 1}
    world = World(4, **{"batch.size": 0, "linger.ms": 0, **limits})
    for _ in range(6):
        for partition in range(4):
            world.send(partition)
    served: list[int] = []
    while world.sender.next_wake_ms(world.now_ms) is not None:
        (call,) = world.sender.drain(world.now_ms)
        served += [batch.partition for batch in call.batches]
        world.sender.replied(call, {batch.topic_partition: PartitionResult(0) for batch in call.batches}, world.now_ms)
    assert served == [0, 1, 2, 3] * 6
    assert not world.accumulator.busy


def test_partitions_without_batches_are_not_looked_at() -> None:
    world = World(4, **{"batch.size": 0, "linger.ms": 0})
    for partition in range(4):
        world.send(partition)
    (call,) = world.sender.drain(world.now_ms)
    world.sender.replied(call, {batch.topic_partition: PartitionResult(0) for batch in call.batches}, world.now_ms)
    assert world.sender.next_wake_ms(world.now_ms) is None
    assert len(world.accumulator.partitions) == 4 and not world.accumulator.busy
    world.send(2)
    assert [place.partition for place in world.accumulator.busy] == [2]


@pytest.mark.parametrize(
    ("record_errors", "codes"),
    [
        (((1, "too old"),), [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD]),
        (((1, "too old"), (2, "no key")), [ErrorCode.INVALID_RECORD] * 3),
    ],
)
def test_the_records_a_batch_was_refused_for_are_told_so(
    record_errors: tuple[tuple[int, str | None], ...], codes: list[ErrorCode]
) -> None:
    world = World(**{"linger.ms": 0})
    for _ in range(3):
        assert world.send()
    world.pump()
    request = world.connections[0][0]
    refused = PartitionResult(ErrorCode.INVALID_TIMESTAMP, message="bad", record_errors=record_errors)
    request.reply = dict.fromkeys(request.payloads, refused)
    world.reply(0)
    (batch,) = world.done
    errors = [batch.error_of(index) for index in range(3)]
    told = dict(record_errors)
    for index, error in enumerate(errors):
        assert error is not None and error.code == codes[index]
        assert (told.get(index) or "because of another record") in error.message
    assert batch.reason is errors[1]


def test_no_request_is_larger_than_allowed() -> None:
    most = 2000
    world = World(partitions=2, **{"linger.ms": 0, "max.request.size": most, "client.id": "c" * 50})
    for number in range(100):
        assert world.send(number % 2, size=100)
    stored = 0
    while stored < 100:
        world.pump()
        for request in world.connections[0]:
            frame = encode_request_frame(
                ProduceRequest(
                    topic_data=[
                        TopicProduceData(
                            name=TOPIC,
                            partition_data=[
                                PartitionProduceData(index=place.partition, records=payload)
                                for place, payload in request.payloads.items()
                            ],
                        )
                    ]
                ),
                11,
                0,
                "c" * 50,
            )
            assert len(frame) <= most
        while world.handle(0):
            world.reply(0)
        stored = sum(batch.record_count for batch in world.done)
        world.now_ms += 1
    assert len(world.done) < 20, "requests are not much smaller than they may be, either"


@pytest.mark.parametrize(
    ("code", "leader", "asks_for_metadata", "goes_to"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, PartitionLeader(1, 1), False, 1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, PartitionLeader(1, 0), True, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, PartitionLeader(9, 1), True, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, True, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS, None, False, 0),
    ],
    ids=["new leader", "known leader", "unknown broker", "nobody named", "another reason"],
)
def test_a_reply_that_names_the_new_leader_saves_a_question(
    code: ErrorCode, leader: PartitionLeader | None, asks_for_metadata: bool, goes_to: int
) -> None:
    world = filled(1)
    before_ms = world.metadata.next_refresh_ms()
    request = world.connections[0].popleft()
    results = dict.fromkeys(request.payloads, PartitionResult(code, leader=leader))
    assert world.sender.replied(request.call, results, world.now_ms) == []
    assert (world.metadata.next_refresh_ms() < before_ms) is asks_for_metadata
    world.now_ms += 10_000
    world.pump()
    assert [node for node, requests in world.connections.items() if requests] == [goes_to]


def test_who_has_records_for_a_partition_that_is_not_known_any_more_asks_again() -> None:
    world = World(2, **{"batch.size": 0, "linger.ms": 0})
    world.metadata.update(metadata_response([0], [1]), world.now_ms)
    before_ms = world.metadata.next_refresh_ms()
    world.send(partition=0)
    world.pump()
    assert world.metadata.next_refresh_ms() == before_ms
    world.send(partition=1)
    world.pump()
    assert world.metadata.next_refresh_ms() < before_ms


def test_a_reply_that_leaves_a_partition_out_is_no_success() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "retries": 5})
    world.send()
    world.pump()
    request = world.connections[0].popleft()
    (batch,) = world.sender.replied(request.call, {}, world.now_ms)
    assert batch.error is not None and batch.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the reply left this partition out" in str(batch.error)


@pytest.mark.parametrize(("spare", "expected"), [(0, [2]), (-1, [1, 1])])
def test_a_request_is_filled_to_the_last_byte(spare: int, expected: list[int]) -> None:
    # What is around all batches, and around each: its header, the record, and the fields of its partition.
    most = 64 + 2 * (61 + 14 + 4 + 24 + len(TOPIC))
    world = World(2, **{"batch.size": 0, "linger.ms": 0, "max.request.size": most + spare})
    for partition in range(2):
        world.send(partition)
    assert [len(call.batches) for call in world.sender.drain(world.now_ms)] == expected


def test_the_first_producer_id_of_all_is_one_like_others() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0})
    world.sender.set_producer(0, 0)
    for _ in range(3):
        world.send()
    world.pump()
    world.handle(0)
    world.reply(0)
    world.pump()
    world.handle(0, ErrorCode.INVALID_RECORD)
    world.handle(0)
    while world.reply(0):
        pass
    world.heal()
    assert world.logs[0].values == [world.sent[0][0], world.sent[0][2]]
    assert (world.sender.producer_id, world.sender.producer_epoch) == (0, 1)


def test_what_is_due_and_waits_for_an_answer_wakes_nobody_before_its_time_is_up() -> None:
    world = filled(7)
    assert len(world.connections[0]) == 5
    assert world.sender.next_wake_ms(world.now_ms) == world.receipts[1][0].deadline_ms


def test_without_idempotence_a_number_out_of_order_is_an_error_like_others() -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "enable.idempotence": False})
    world.send()
    world.pump()
    world.handle(0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.reply(0)
    ((batch, _, _),) = world.receipts
    assert batch.error is not None and batch.error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_of_what_is_in_flight_each_is_given_up_in_its_own_time_and_once() -> None:
    world = filled(1)
    world.now_ms += 10
    world.send()
    world.pump()
    first, second = (batch for batch, _, _ in world.receipts[1:])
    assert len(world.connections[0]) == 2
    assert world.sender.expire(first.deadline_ms) == [first] and not second.done
    assert world.sender.expire(second.deadline_ms - 1) == []
    assert world.sender.expire(second.deadline_ms) == [second]
    assert world.sender.fail_all(ClientClosedError("closed")) == []
    assert isinstance(first.error, DeliveryTimeoutError) and isinstance(second.error, DeliveryTimeoutError)


def test_a_record_without_a_word_of_its_own_has_that_of_its_batch() -> None:
    world = World(**{"linger.ms": 0})
    for _ in range(2):
        world.send()
    world.pump()
    request = world.connections[0][0]
    refused = PartitionResult(ErrorCode.INVALID_TIMESTAMP, message="bad", record_errors=((0, None),))
    request.reply = dict.fromkeys(request.payloads, refused)
    world.reply(0)
    error = world.done[0].error_of(0)
    assert error is not None and error.message.endswith("bad")
