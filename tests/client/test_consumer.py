"""Reading without a group: the same behaviour from the consumer for threads and the one for asyncio."""

from __future__ import annotations

import gc
import inspect
import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest

import ottla
import ottla.client.sync as ottla_sync
from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    ClusterUnreachableError,
    DeserializationError,
    ForkedError,
    NoOffsetError,
    OffsetOutOfRangeError,
    SubscriptionStateError,
    UnassignedPartitionError,
)
from ottla.records.batch import TimestampType
from tests.broker_process import BrokerProcess
from tests.client.consumer_shells import PATIENCE_S, Shell, make_topic, open_shell, read, wait_until, write

VALUES = [b"value-%d" % number for number in range(20)]


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Shell]:
    with open_shell(request.param, broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: str) -> str:
    return make_topic(broker.bootstrap, new_topic, 2)


def test_records_come_as_they_were_written(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    consumer.assign([(topic, 0)])
    records = read(consumer, 20)
    assert [record.value for record in records] == VALUES
    assert [record.offset for record in records] == list(range(20))
    assert [record.key for record in records] == [b"key-%d" % number for number in range(20)]
    assert [record.headers for record in records] == [(("n", b"%d" % number),) for number in range(20)]
    assert {(record.topic, record.partition) for record in records} == {(topic, 0)}
    assert {record.timestamp_type for record in records} == {TimestampType.CREATE_TIME}
    assert pickle.loads(pickle.dumps(records[3])) == records[3]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(shell: Shell, topic: str, codec: str) -> None:
    write(shell.bootstrap, topic, VALUES, compression_type=codec)
    consumer = shell()
    consumer.assign([(topic, 0)])
    assert [record.value for record in read(consumer, 20)] == VALUES


def test_a_poll_returns_no_more_than_asked(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell(max_poll_records=7)
    consumer.assign([(topic, 0)])
    assert [len(consumer.poll(PATIENCE_S)) for _ in range(3)] == [7, 7, 6]
    consumer.seek((topic, 0), 5)
    assert [record.offset for record in consumer.poll(PATIENCE_S, 3)] == [5, 6, 7]
    assert consumer.position((topic, 0)) == 8


def test_new_records_arrive_while_polling(shell: Shell, topic: str) -> None:
    consumer = shell(auto_offset_reset="latest")
    consumer.assign([(topic, 0), (topic, 1)])
    assert consumer.poll(0.05) == []
    assert consumer.position((topic, 1)) == 0
    for round_number in range(3):
        write(shell.bootstrap, topic, [b"%d" % round_number], partition=1)
        assert [record.value for record in read(consumer, 1)] == [b"%d" % round_number]


def test_seeking(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    consumer.assign([(topic, 0)])
    assert len(read(consumer, 20)) == 20
    consumer.seek((topic, 0), 15)
    assert [record.offset for record in read(consumer, 5)] == [15, 16, 17, 18, 19]
    consumer.seek_to_beginning()
    assert consumer.position((topic, 0)) == 0
    assert read(consumer, 20)[0].offset == 0
    consumer.seek_to_end([TopicPartition(topic, 0)])
    assert consumer.position((topic, 0)) == 20
    with pytest.raises(UnassignedPartitionError):
        consumer.seek((topic, 1), 0)
    with pytest.raises(ValueError, match="see seek_to_beginning"):
        consumer.seek((topic, 0), -1)


def test_offsets_of_the_log(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    partitions = [TopicPartition(topic, index) for index in range(2)]
    assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
    assert consumer.end_offsets(partitions) == {partitions[0]: 20, partitions[1]: 0}
    consumer.assign(partitions)
    first = read(consumer, 20)[0]
    found = consumer.offsets_for_times({partitions[0]: first.timestamp, partitions[1]: 0})
    assert found[partitions[0]].offset == 0
    assert found[partitions[0]].timestamp == first.timestamp
    assert found[partitions[1]] is None
    assert consumer.lag(partitions[0]) == 0


def test_the_cluster_can_be_asked_about(shell: Shell, topic: str) -> None:
    consumer = shell()
    assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1]
    assert consumer.partitions_for("no-such-topic") == []
    assert len(consumer.list_topics()[topic]) == 2


def test_pausing(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES, partition=0)
    write(shell.bootstrap, topic, VALUES, partition=1)
    consumer = shell(max_poll_records=5)
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([paused])
    assert len(read(consumer, 5)) == 5
    consumer.assign([paused, other])
    consumer.pause([paused])
    assert consumer.paused == {paused}
    assert {record.partition for record in read(consumer, 20)} == {1}
    assert consumer.poll(0.1) == []
    consumer.resume()
    assert [record.offset for record in read(consumer, 15)] == list(range(5, 20))


def test_a_position_out_of_range_is_reset(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    consumer.assign([(topic, 0)])
    consumer.seek((topic, 0), 1000)
    assert [record.offset for record in read(consumer, 20)] == list(range(20))


def test_without_a_reset_policy_the_application_decides(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell(auto_offset_reset="none")
    consumer.assign([(topic, 0)])
    with pytest.raises(NoOffsetError):
        consumer.poll(PATIENCE_S)
    consumer.seek((topic, 0), 1000)
    with pytest.raises(OffsetOutOfRangeError) as found:
        consumer.poll(PATIENCE_S)
    assert (found.value.topic_partition, found.value.offset) == ((topic, 0), 1000)
    consumer.seek((topic, 0), 18)
    assert [record.offset for record in read(consumer, 2)] == [18, 19]


def test_committed_transactions_are_seen_and_aborted_ones_not(shell: Shell, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": shell.bootstrap, "transactional.id": f"writer-of-{topic}"}
    )
    producer.init_transactions(PATIENCE_S)
    for number, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(PATIENCE_S)
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    committed, everything = shell(isolation_level="read_committed"), shell()
    for consumer in (committed, everything):
        consumer.assign([(topic, 0)])
    assert [record.value for record in read(committed, 2)] == [b"0", b"2"]
    assert [record.value for record in read(everything, 3)] == [b"0", b"1", b"2"]
    # The position moves over the markers, too, once they have been fetched.
    wait_until(lambda: committed.position((topic, 0)) == 6, committed)

    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(PATIENCE_S)
    assert [record.value for record in read(everything, 1)] == [b"open"]
    assert committed.poll(0.2) == []
    assert committed.end_offsets([TopicPartition(topic, 0)]) == {(topic, 0): 6}
    producer.abort_transaction(PATIENCE_S)


def test_deserializers(shell: Shell, topic: str) -> None:
    class WithTopic:
        def deserialize(self, topic: str, data: bytes | None) -> str:
            return f"{topic}/{(data or b'').decode()}"

    write(shell.bootstrap, topic, [b'{"a": 1}', b"[2]", b"{", b"3"])
    consumer = shell(key_deserializer=WithTopic(), value_deserializer=json.loads)
    consumer.assign([(topic, 0)])
    records = read(consumer, 2)
    assert [record.value for record in records] == [{"a": 1}, [2]]
    assert [record.key for record in records] == [f"{topic}/key-0", f"{topic}/key-1"]
    for _ in range(2):
        with pytest.raises(DeserializationError) as found:
            consumer.poll(PATIENCE_S)
        assert found.value.offset == 2
    consumer.seek((topic, 0), 3)
    assert [record.value for record in read(consumer, 1)] == [3]


def test_a_deserializer_that_cannot_do_its_work_yet(shell: Shell, topic: str) -> None:
    missing = {b"2"}

    def number(data: bytes | None) -> int:
        if data in missing:
            raise ClientError("the registry is away", code=ErrorCode.NETWORK_EXCEPTION)
        return int(data or b"")

    write(shell.bootstrap, topic, [b"0", b"1", b"2", b"3"])
    consumer = shell(value_deserializer=number)
    consumer.assign([(topic, 0)])
    assert [record.value for record in read(consumer, 2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(ClientError, match="the registry is away"):
            consumer.poll(PATIENCE_S)
        assert consumer.position((topic, 0)) == 2
    missing.clear()
    assert [record.value for record in read(consumer, 2)] == [2, 3]


def test_commits_without_membership(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    seen: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    class Interceptor:
        def on_consume(self, records: list[Any]) -> list[Any]:
            return [record for record in records if record.offset % 2]

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            seen.append(offsets)

    consumer = shell(group_id=topic, enable_auto_commit=False, interceptors=[Interceptor()])
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.committed([partition]) == {partition: None}
    records = read(consumer, 10)
    assert [record.offset for record in records] == list(range(1, 20, 2))
    consumer.commit(records[2])
    assert consumer.committed([partition]) == {partition: OffsetAndMetadata(6, "", 0)}
    consumer.commit({partition: OffsetAndMetadata(9, "with a note")})
    assert consumer.committed([partition]) == {partition: OffsetAndMetadata(9, "with a note")}
    assert seen == [{partition: OffsetAndMetadata(6, "", 0)}, {partition: OffsetAndMetadata(9, "with a note")}]
    outcomes: list[ClientError | None] = []
    consumer.commit_async(callback=lambda offsets, error: outcomes.append(error))
    wait_until(lambda: bool(outcomes), consumer)
    assert outcomes == [None]
    assert consumer.committed([partition])[partition].offset == 20
    with pytest.raises(ClientError) as refused:
        consumer.commit({TopicPartition(topic, 77): 1}, timeout=1)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    consumer.commit({partition: 12})
    second = shell(group_id=topic)
    second.assign([partition])
    assert read(second, 8)[0].offset == 12


def test_choices_exclude_each_other(shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic)
    consumer.assign([(topic, 0)])
    with pytest.raises(SubscriptionStateError, match="unsubscribe"):
        consumer.subscribe([topic])
    consumer.unsubscribe()
    assert consumer.assignment == frozenset()
    with pytest.raises(SubscriptionStateError, match="list of topics"):
        consumer.subscribe(topic)
    with pytest.raises(SubscriptionStateError, match=r"group\.id"):
        shell().subscribe([topic])


def test_a_poll_needs_something_to_read(shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic)
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(SubscriptionStateError, match=r"subscribe\(\) or assign\(\) first"):
            poll(PATIENCE_S)
    for wrong in (None, [None], [b"bytes"], ["a b"], "text", [""]):
        with pytest.raises(SubscriptionStateError):
            consumer.subscribe(wrong)
    consumer.assign([(topic, 0)])
    assert consumer.poll() == []
    for poll in (consumer.poll, consumer.poll_arrow):
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="max_records must be at least 1"):
                poll(PATIENCE_S, max_records=wrong)
    consumer.assign([])
    with pytest.raises(SubscriptionStateError):
        consumer.poll()


def test_wrong_arguments_are_refused_at_once_and_change_nothing(shell: Shell, topic: str) -> None:
    """In a request they would have ended the consumer."""
    write(shell.bootstrap, topic, VALUES)
    first = TopicPartition(topic, 0)
    consumer = shell(group_id=topic)
    for wrong in (None, topic, first, [topic], [(topic, "0")], [(topic, -1)], [(topic, 2**31)], [("a b", 0)]):
        for call in (consumer.assign, consumer.end_offsets, consumer.committed):
            with pytest.raises(ValueError, match=r"partitions? (must|is)|topic name"):
                call(wrong)
    consumer.assign([first])
    for call in (consumer.pause, consumer.resume, consumer.seek_to_beginning):
        with pytest.raises(ValueError, match="must be a list"):
            call(first)
    for offset in (-1, 1.0, "1", None, 2**63):
        with pytest.raises(ValueError, match="an offset is a whole number"):
            consumer.seek(first, offset)
    with pytest.raises(ValueError, match="a leader epoch"):
        consumer.seek(first, 0, "0")
    for given in ([first], {first: "1"}, {first: None}, {topic: 1}):
        with pytest.raises(ValueError, match=r"offsets? |a partition is"):
            consumer.commit(given)
    with pytest.raises(ValueError, match="milliseconds"):
        consumer.offsets_for_times({first: -1})
    consumer.pause()
    for timeout in ("1", [], float("nan")):
        for call in (consumer.poll, consumer.poll_arrow, consumer.close):
            with pytest.raises(ValueError, match="a number of seconds"):
                call(timeout)
        with pytest.raises(ValueError, match="a number of seconds"):
            consumer.commit(timeout=timeout)
    for wrong in (1.5, "1"):
        with pytest.raises(ValueError, match="max_records must be at least 1"):
            consumer.poll(0, wrong)
    consumer.resume()
    assert len(read(consumer, 20)) == 20
    consumer.commit({first: 3}, timeout=float("inf"))
    assert consumer.offsets_for_times({(topic, 0): 0})[first].offset == 0


@pytest.mark.parametrize("forever", [None, float("inf")])
def test_a_poll_may_wait_as_long_as_it_takes(shell: Shell, topic: str, forever: float | None) -> None:
    consumer = shell(fetch_max_wait_ms=100)
    consumer.assign([(topic, 0)])
    for poll in (consumer.poll, consumer.poll_arrow):
        writing = threading.Timer(0.5, write, (shell.bootstrap, topic, VALUES[:1]))
        writing.start()
        assert len(poll(forever)) == 1
        writing.join(PATIENCE_S)
    consumer.close(forever)


def test_bad_settings_say_what_is_meant(shell: Shell) -> None:
    with pytest.raises(InvalidConfigError, match=r"did you mean group\.id"):
        shell(group_ids="a")
    with pytest.raises(InvalidConfigError, match="heartbeat"):
        shell(group_id="a", heartbeat_interval_ms=50_000)
    with pytest.raises(InvalidConfigError, match="no assignor is called 'fair'"):
        shell(group_id="a", partition_assignment_strategy=["fair"])
    with pytest.raises(ClusterUnreachableError, match=r"bootstrap\.servers"):
        shell(bootstrap_servers="127.0.0.1:1", bootstrap_fail_fast=True)


@pytest.mark.parametrize("deserializer", ["json", 5, ottla.StringSerde])
def test_what_is_no_deserializer_is_refused_at_once(shell: Shell, deserializer: object) -> None:
    for name in ("key_deserializer", "value_deserializer"):
        with pytest.raises(InvalidConfigError, match=f"{name} must be"):
            shell(**{name: deserializer})


def test_a_closed_consumer_says_so(shell: Shell, topic: str) -> None:
    consumer = shell()
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.poll(0)
    with pytest.raises(ClientClosedError):
        consumer.assign([(topic, 0)])


class Iteration:
    """Looks at a consumer's records one by one, in a loop that is left in the middle."""

    def __init__(self, shell: Shell, consumer: Any) -> None:
        self._shell = shell
        self._consumer = consumer

    def offsets(self, count: int, do: Callable[[Any], object] | None = None) -> list[int]:
        """Calls `do` with the consumer, which may be one for asyncio, for every record."""
        if self._shell.kind == "sync":
            found = []
            for record in self._consumer:
                found.append(record.offset)
                if do is not None:
                    do(self._consumer)
                if len(found) == count:
                    break
            return found
        return self._consumer._run(self._offsets, count, do)  # type: ignore[no-any-return]

    async def _offsets(self, count: int, do: Callable[[Any], object] | None) -> list[int]:
        found = []
        async for record in self._consumer._inner:
            found.append(record.offset)
            if do is not None and inspect.isawaitable(done := do(self._consumer._inner)):
                await done
            if len(found) == count:
                break
        return found


def test_an_iteration_that_is_left_has_read_what_it_came_to(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell(group_id=topic)
    consumer.assign([(topic, 0)])
    iteration = Iteration(shell, consumer)
    assert iteration.offsets(3) == [0, 1, 2]
    assert (consumer.position((topic, 0)), consumer.lag((topic, 0))) == (3, 17)
    assert iteration.offsets(2) == [3, 4]
    assert [record.offset for record in consumer.poll(PATIENCE_S, 2)] == [5, 6]
    assert iteration.offsets(1) == [7]
    assert consumer.poll_arrow(PATIENCE_S, 2)["offset"].to_pylist() == [8, 9]
    assert iteration.offsets(1) == [10]
    consumer.close()
    assert shell(group_id=topic).committed([TopicPartition(topic, 0)])[topic, 0].offset == 11


def test_what_is_done_within_an_iteration_is_of_the_record_it_is_at(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell(group_id=topic, enable_auto_commit=False)
    consumer.assign([(topic, 0)])
    iteration = Iteration(shell, consumer)
    assert iteration.offsets(4, lambda consumer: consumer.commit()) == [0, 1, 2, 3]
    assert consumer.committed([TopicPartition(topic, 0)])[topic, 0].offset == 4
    seeks = iter([9, 2, 10])

    def seek(consumer: Any) -> None:
        if (offset := next(seeks, None)) is not None:
            consumer.seek((topic, 0), offset)

    assert iteration.offsets(6, seek) == [4, 9, 2, 10, 11, 12]
    # What another poll has read does not come again.
    assert iteration.offsets(3, lambda consumer: consumer.poll(PATIENCE_S, 1)) == [13, 15, 17]


def test_iteration_and_one_thread_at_a_time(broker: BrokerProcess, topic: str) -> None:
    write(broker.bootstrap, topic, VALUES)
    with ottla_sync.Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        values = []
        for record in consumer:
            values.append(record.value)
            if len(values) == 20:
                break
        assert values == VALUES
        waiting = threading.Thread(target=consumer.poll, args=(1.0,))
        waiting.start()
        refusals = 0
        deadline_s = time.monotonic() + PATIENCE_S
        while waiting.is_alive():
            assert time.monotonic() < deadline_s
            try:
                consumer.poll(0)
            except ClientError:
                refusals += 1
        assert refusals


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_forked_child_is_told_and_its_parent_goes_on(broker: BrokerProcess, topic: str, is_idle: bool) -> None:
    write(broker.bootstrap, topic, VALUES)
    with ottla_sync.Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert len(read(consumer, 20)) == 20
        if is_idle:
            # The consumer's own thread has the loop when the process forks.
            threading.Event().wait(0.1)
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(0)
            except ForkedError:
                consumer.close()
                # What the child collects must not be missing in the parent.
                del consumer
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        write(broker.bootstrap, topic, [b"after"])
        assert [record.value for record in read(consumer, 1)] == [b"after"]
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 21}


def test_the_broker_may_restart(own_broker: BrokerProcess, new_topic: str) -> None:
    own_broker.start()
    make_topic(own_broker.bootstrap, new_topic)
    write(own_broker.bootstrap, new_topic, VALUES)
    with open_shell("sync", own_broker.bootstrap) as shell:
        consumer = shell()
        consumer.assign([(new_topic, 0)])
        assert len(read(consumer, 20)) == 20
        own_broker.stop()
        assert consumer.poll(0.1) == []
        own_broker.start()
        write(own_broker.bootstrap, new_topic, [b"after"])
        assert [record.value for record in read(consumer, 1)] == [b"after"]
