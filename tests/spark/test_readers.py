"""The readers, asked the way Spark asks them, against a broker and without a Spark: every option, and every loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructField, StructType

import ottla
from ottla.base.errors import InvalidConfigError
from ottla.client.sync import Admin, Producer
from ottla.records.batch import iter_headers
from ottla.spark.data_loss import DataLossError
from ottla.spark.range_reader import MissingRecordsError
from ottla.spark.topic_offsets import MissingTopicError
from tests.broker_process import BrokerProcess
from tests.spark.sources import batch_reader, data_source, offsets_of, read_tasks, send, stream_reader
from tests.unit.log.cleaning_passes import rewritten

BASE_MS = 1_700_000_000_000
ROWS = 60
TOPIC = "readers-source"
ALL = ReadAllAvailable()


@pytest.fixture(scope="session")
def admin(spark_broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        yield admin


@pytest.fixture(scope="session")
def broker(spark_broker: BrokerProcess, admin: Admin) -> BrokerProcess:
    """With a topic of three partitions and twenty records in each, a second apart."""
    admin.create_topics([ottla.NewTopic(TOPIC, 3)]).check()
    with Producer(bootstrap_servers=spark_broker.bootstrap) as producer:
        for index in range(ROWS):
            producer.send(
                TOPIC,
                value=f"value {index}".encode(),
                key=None if index % 5 == 0 else f"key {index}".encode(),
                partition=index % 3,
                timestamp_ms=BASE_MS + index * 1000,
                headers=[("trace", b"%d" % index), ("trace", None)] if index % 4 == 0 else [],
            )
        producer.flush()
    tracked = {ottla.TopicPartition(TOPIC, 0): 15, ottla.TopicPartition(TOPIC, 2): 20}
    admin.alter_group_offsets("readers", tracked).check()
    return spark_broker


@pytest.fixture
def topic(admin: Admin, new_topic: str) -> str:
    """An empty one with two partitions."""
    admin.create_topics([ottla.NewTopic(new_topic, 2)]).check()
    return new_topic


def by_partition(*numbers: int, topic: str = TOPIC) -> str:
    return json.dumps({topic: {str(index): number for index, number in enumerate(numbers)}})


# Batch


def test_every_column_of_every_record(broker: BrokerProcess) -> None:
    reader = batch_reader(broker, subscribe=TOPIC, includeHeaders="true")
    rows = sorted(read_tasks(reader, reader.partitions()), key=lambda row: row["timestamp"])
    assert len(rows) == ROWS
    start = datetime.fromtimestamp(BASE_MS / 1000, UTC)
    for index, row in enumerate(rows):
        headers = row.pop("headers")
        assert row == {
            "key": None if index % 5 == 0 else f"key {index}".encode(),
            "value": f"value {index}".encode(),
            "topic": TOPIC,
            "partition": index % 3,
            "offset": index // 3,
            "timestamp": start + timedelta(seconds=index),
            "timestampType": 0,
        }
        # No headers are null rather than an empty list, as in Spark's own source.
        expected = [{"key": "trace", "value": b"%d" % index}, {"key": "trace", "value": None}]
        assert headers == (expected if index % 4 == 0 else None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": TOPIC}, {0: (0, 20), 1: (0, 20), 2: (0, 20)}),
        ({"subscribe": f" {TOPIC} , {TOPIC}"}, {0: (0, 20), 1: (0, 20), 2: (0, 20)}),
        ({"subscribePattern": "readers-s.*"}, {0: (0, 20), 1: (0, 20), 2: (0, 20)}),
        ({"subscribePattern": "readers"}, {}),
        ({"assign": json.dumps({TOPIC: [1, 2]})}, {1: (0, 20), 2: (0, 20)}),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, {0: (0, 20), 1: (0, 20), 2: (0, 20)}),
        (
            {"startingOffsets": by_partition(3, -2, 20), "endingOffsets": by_partition(7, 2, -1)},
            {0: (3, 7), 1: (0, 2)},
        ),
        (
            {"startingTimestamp": BASE_MS + 30_000, "endingTimestamp": BASE_MS + 36_000},
            {0: (10, 12), 1: (10, 12), 2: (10, 12)},
        ),
        (
            {
                "startingOffsetsByTimestamp": by_partition(BASE_MS, BASE_MS + 4_000, BASE_MS + 50_000),
                "endingOffsetsByTimestamp": by_partition(BASE_MS + 1, BASE_MS + 10**9, BASE_MS + 59_000),
            },
            {0: (0, 1), 1: (1, 20), 2: (16, 19)},
        ),
        ({"startingTimestamp": BASE_MS + 58_500, "startingOffsetsByTimestampStrategy": "latest"}, {2: (19, 20)}),
        ({"startingOffsets": "group:readers"}, {0: (15, 20), 1: (0, 20)}),
    ],
)
def test_options_say_what_is_read(
    broker: BrokerProcess, options: dict[str, object], expected: dict[int, tuple[int, int]]
) -> None:
    if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
        options = {**options, "subscribe": TOPIC}
    reader = batch_reader(broker, **options)
    found = offsets_of(read_tasks(reader, reader.partitions()))
    assert found == {partition: list(range(*bounds)) for partition, bounds in expected.items()}


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, 3), ({"minPartitions": 7}, 7), ({"maxRecordsPerPartition": 8}, 9), ({"minPartitions": 2}, 3)],
)
def test_tasks_share_partitions_and_read_every_record_once(
    broker: BrokerProcess, options: dict[str, object], tasks: int
) -> None:
    reader = batch_reader(broker, subscribe=TOPIC, **options)
    planned = reader.partitions()
    assert len(planned) == tasks
    assert offsets_of(read_tasks(reader, planned)) == {partition: list(range(20)) for partition in range(3)}


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"subscribe": "nothing-here"}, MissingTopicError, "there is no nothing-here"),
        ({"assign": json.dumps({TOPIC: [0, 7]})}, MissingTopicError, f"there is no {TOPIC}-7"),
        ({"startingOffsets": by_partition(1, 1)}, InvalidConfigError, f"{TOPIC}-2 is missing"),
        ({"endingOffsets": by_partition(1, 1, 1, 1)}, InvalidConfigError, f"{TOPIC}-3 is not among them"),
        ({"startingOffsets": by_partition(0, 99, 0)}, DataLossError, f"startingOffsets has 99 for {TOPIC}-1"),
        ({"endingOffsets": by_partition(0, 99, 0)}, DataLossError, f"endingOffsets has 99 for {TOPIC}-1"),
        ({"startingTimestamp": BASE_MS + 10**9}, InvalidConfigError, "startingOffsetsByTimestampStrategy=latest"),
        ({"startingOffsets": "group:nobody"}, InvalidConfigError, "the group nobody has committed nothing"),
        (
            {"startingTimestamp": BASE_MS + 50_000, "endingTimestamp": BASE_MS},
            InvalidConfigError,
            "would end at 0, before its start",
        ),
    ],
)
def test_what_does_not_fit_the_topic_is_told(
    broker: BrokerProcess, options: dict[str, object], error: type[Exception], told: str
) -> None:
    if not options.keys() & {"subscribe", "assign"}:
        options = {**options, "subscribe": TOPIC}
    with pytest.raises(error) as raised:
        batch_reader(broker, **options).partitions()
    assert told in str(raised.value)


def test_records_deleted_after_planning_are_lost_or_passed_over(
    broker: BrokerProcess, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, topic, 0, 10)
    strict = batch_reader(broker, subscribe=topic)
    lax = batch_reader(broker, subscribe=topic, failOnDataLoss="false")
    planned = strict.partitions()
    admin.delete_records({ottla.TopicPartition(topic, 0): 4}).check()
    with pytest.raises(DataLossError, match=f"{topic}-0 holds offsets 4 up to 10, and 0 up to 10 were to be read"):
        read_tasks(strict, planned)
    assert offsets_of(read_tasks(lax, planned)) == {0: list(range(4, 10))}
    assert "records were lost" in caplog.text
    admin.delete_records({ottla.TopicPartition(topic, 0): -1}).check()
    assert read_tasks(lax, planned) == []


def test_a_topic_that_goes_while_it_is_read_is_a_loss(broker: BrokerProcess, admin: Admin, topic: str) -> None:
    send(broker, topic, 0, 10)
    strict = batch_reader(broker, subscribe=topic)
    lax = batch_reader(broker, subscribe=topic, failOnDataLoss="false")
    planned = strict.partitions()
    admin.delete_topics([topic]).check()
    with pytest.raises(DataLossError, match=f"{topic}-0 is gone"):
        read_tasks(strict, planned)
    assert read_tasks(lax, planned) == []
    admin.create_topics([ottla.NewTopic(topic, 1)]).check()
    send(broker, topic, 0, 4)
    with pytest.raises(DataLossError, match=f"{topic}-0 holds offsets 0 up to 4, and 4 up to 10 were to be read"):
        read_tasks(strict, planned)


def test_records_that_do_not_come_are_not_waited_for_forever(broker: BrokerProcess, topic: str) -> None:
    """An open transaction hides what a plan was told to read."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"{topic}-open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        producer.flush()
        committed = {"kafka.isolation.level": "read_committed", "kafkaConsumer.pollTimeoutMs": 300}
        reader = stream_reader(broker, subscribe=topic, **committed)
        tasks = reader.partitions({topic: {"0": 0}}, {topic: {"0": 1}})
        with pytest.raises(MissingRecordsError, match=f"{topic}-0: nothing came for 300 ms at 0, before 1"):
            read_tasks(reader, tasks)
        producer.abort_transaction()
    assert read_tasks(reader, tasks) == []


# Transactions


def test_aborted_records_and_markers_are_passed_over(broker: BrokerProcess, topic: str) -> None:
    """Offsets: 0-2 committed, 3 marker, 4-5 aborted, 6 marker, 7 plain, 8-9 of an open transaction."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"{topic}-1") as producer:
        producer.init_transactions()
        for count, ends in (3, producer.commit_transaction), (2, producer.abort_transaction):
            producer.begin_transaction()
            for _ in range(count):
                producer.send(topic, b"x", partition=0)
            producer.flush()
            ends()
        send(broker, topic, 0, 1)
        producer.begin_transaction()
        for _ in range(2):
            producer.send(topic, b"open", partition=0)
        producer.flush()
        found = {}
        for level in "read_committed", "read_uncommitted":
            reader = stream_reader(
                broker, subscribe=topic, startingOffsets="earliest", **{"kafka.isolation.level": level}
            )
            start = reader.initialOffset()
            end = reader.latestOffset(start, ALL)
            found[level] = end[topic]["0"], offsets_of(read_tasks(reader, reader.partitions(start, end)))
        producer.abort_transaction()
    assert found["read_committed"] == (8, {0: [0, 1, 2, 7]})
    assert found["read_uncommitted"] == (10, {0: [0, 1, 2, 4, 5, 7, 8, 9]})
    reader = stream_reader(broker, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    # From within what was aborted to the end, where there is nothing to be shown but markers.
    only_hidden = reader.partitions({topic: {"0": 8, "1": 0}}, {topic: {"0": 11, "1": 0}})
    assert read_tasks(reader, only_hidden) == []
    pieces = [reader.partitions({topic: {"0": at}}, {topic: {"0": at + 1}}) for at in range(11)]
    assert offsets_of(read_tasks(reader, [task for piece in pieces for task in piece])) == {0: [0, 1, 2, 7]}


# Streams


def test_micro_batches_follow_one_another(broker: BrokerProcess) -> None:
    reader = stream_reader(broker, subscribe=TOPIC, startingOffsets=by_partition(-2, 10, 20), maxOffsetsPerTrigger=9)
    assert reader.getDefaultReadLimit() == ReadMaxRows(9)
    start = reader.initialOffset()
    assert start == {TOPIC: {"0": 0, "1": 10, "2": 20}}
    ends, rows = [], []
    while (end := reader.latestOffset(start, ReadMaxRows(9))) != start:
        ends.append(end[TOPIC])
        rows += read_tasks(reader, reader.partitions(start, end))
        start = end
    # In proportion to what is left: twenty and ten are two to one.
    assert ends == [
        {"0": 6, "1": 13, "2": 20},
        {"0": 12, "1": 16, "2": 20},
        {"0": 18, "1": 19, "2": 20},
        {"0": 20, "1": 20, "2": 20},
    ]
    assert offsets_of(rows) == {0: list(range(20)), 1: list(range(10, 20))}
    assert reader.reportLatestOffset() == {TOPIC: {"0": 20, "1": 20, "2": 20}}


def test_one_task_reads_small_ranges_of_several_partitions_and_nothing_beyond_them(broker: BrokerProcess) -> None:
    reader = stream_reader(broker, subscribe=TOPIC)
    start, end = json.loads(by_partition(3, 0, 19)), json.loads(by_partition(7, 1, 20))
    (task,) = reader.partitions(start, end)
    assert offsets_of(read_tasks(reader, [task])) == {0: [3, 4, 5, 6], 1: [0], 2: [19]}
    narrow = data_source(broker, subscribe=TOPIC).streamReader(StructType([StructField("value", BinaryType())]))
    values = {row["value"] for row in read_tasks(narrow, narrow.partitions(start, end))}
    assert values == {f"value {index}".encode() for index in (9, 12, 15, 18, 1, 59)}


def test_what_one_of_several_ranges_has_lost_costs_the_others_nothing(
    broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    send(broker, topic, 0, 10)
    send(broker, topic, 1, 10)
    strict = stream_reader(broker, subscribe=topic)
    lax = stream_reader(broker, subscribe=topic, failOnDataLoss="false")
    (task,) = strict.partitions({topic: {"0": 0, "1": 0}}, {topic: {"0": 10, "1": 10}})
    admin.delete_records({ottla.TopicPartition(topic, 0): 4}).check()
    with pytest.raises(DataLossError, match=f"{topic}-0 holds offsets 4 up to 10, and 0 up to 10 were to be read"):
        read_tasks(strict, [task])
    assert offsets_of(read_tasks(lax, [task])) == {0: list(range(4, 10)), 1: list(range(10))}


def test_a_stream_starts_at_the_end_unless_told_otherwise(broker: BrokerProcess) -> None:
    assert stream_reader(broker, subscribe=TOPIC).initialOffset() == {TOPIC: {"0": 20, "1": 20, "2": 20}}
    at_group = stream_reader(broker, subscribe=TOPIC, startingOffsets="group:readers")
    assert at_group.initialOffset() == {TOPIC: {"0": 15, "1": 0, "2": 20}}


def test_the_end_a_stream_starts_at_stays_where_it_was(broker: BrokerProcess, topic: str) -> None:
    """A first micro-batch that is run again after a crash, when the log has grown, must not find another start."""
    send(broker, topic, 0, 3)
    reader = stream_reader(broker, subscribe=topic)
    start = reader.initialOffset()
    send(broker, topic, 0, 3)
    assert reader.initialOffset() == start == {topic: {"0": 3, "1": 0}}
    first = reader.latestOffset(start, ALL)
    assert first == start, "nothing is in a micro-batch of which one end is not written down"
    assert reader.partitions(start, first) == []
    second = reader.latestOffset(first, ALL)
    assert offsets_of(read_tasks(reader, reader.partitions(first, second))) == {0: [3, 4, 5]}

    restarted = stream_reader(broker, subscribe=topic)
    assert restarted.initialOffset() == {topic: {"0": 6, "1": 0}}
    assert restarted.partitions(restarted.initialOffset(), first) == []
    assert restarted.latestOffset(first, ALL) == second


def test_available_now_that_starts_at_the_end_has_nothing_to_do(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 0, 3)
    reader = stream_reader(broker, subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    send(broker, topic, 0, 3)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert reader.latestOffset(start, ALL) == start


def test_available_now_is_what_was_there_when_the_query_began(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, 0, 5)
    reader = stream_reader(broker, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=1000)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(broker, topic, 0, 5)
    send(broker, topic, 1, 5)
    # The fewest worth a micro-batch are of no account: nothing more will come.
    end = reader.latestOffset(start, ReadMinRows(1000))
    assert end == {topic: {"0": 5, "1": 0}}
    assert reader.latestOffset(end, ReadMinRows(1000)) == end


def test_available_now_keeps_partitions_that_are_newer_than_its_goal(
    broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    reader = stream_reader(broker, subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    admin.create_partitions({topic: 3}).check()
    start = {topic: {"0": 0, "1": 0, "2": 0}}
    assert reader.latestOffset(start, ALL) == start


def test_new_partitions_and_topics_are_read_from_their_beginning(
    broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    send(broker, topic, 0, 3)
    reader = stream_reader(broker, subscribePattern=f"{topic}.*")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start == {topic: {"0": 3, "1": 0}}
    admin.create_partitions({topic: 3}).check()
    admin.create_topics([ottla.NewTopic(f"{topic}-more", 1)]).check()
    send(broker, topic, 2, 4)
    send(broker, f"{topic}-more", 0, 2)
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 3, "1": 0, "2": 4}, f"{topic}-more": {"0": 2}}
    rows = read_tasks(reader, reader.partitions(start, end))
    assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == [
        *((topic, 2, offset) for offset in range(4)),
        *((f"{topic}-more", 0, offset) for offset in range(2)),
    ]


def test_too_little_waits_but_not_too_long(broker: BrokerProcess, topic: str) -> None:
    limited = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    reader = stream_reader(broker, **limited)
    assert reader.getDefaultReadLimit() == ReadMinRows(5)
    limit = ReadMinRows(5)
    send(broker, topic, 0, 2)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {topic: {"0": 2, "1": 0}}, "a query that begins has waited long enough"
    send(broker, topic, 0, 2)
    assert reader.latestOffset(first, limit) == first
    assert reader.latestOffset(first, ALL) == {topic: {"0": 4, "1": 0}}, "asked for all that is there"
    send(broker, topic, 1, 3)
    assert reader.latestOffset(first, limit) == {topic: {"0": 4, "1": 3}}
    impatient = stream_reader(broker, **limited, maxTriggerDelay="0s")
    impatient.latestOffset(first, limit)
    assert impatient.latestOffset({topic: {"0": 4, "1": 2}}, limit) == {topic: {"0": 4, "1": 3}}


def test_a_log_cut_at_its_beginning_is_a_loss(broker: BrokerProcess, admin: Admin, topic: str) -> None:
    send(broker, topic, 0, 10)
    admin.delete_records({ottla.TopicPartition(topic, 0): 6}).check()
    start = {topic: {"0": 2, "1": 0}}
    with pytest.raises(DataLossError, match=f"{topic}-0 was read up to offset 2 and now begins at 6"):
        stream_reader(broker, subscribe=topic).latestOffset(start, ALL)
    reader = stream_reader(broker, subscribe=topic, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert end == {topic: {"0": 9, "1": 0}}, "what is gone is no part of the limit"
    assert offsets_of(read_tasks(reader, reader.partitions(start, end))) == {0: [6, 7, 8]}


def test_a_topic_made_anew_is_a_loss(broker: BrokerProcess, admin: Admin, topic: str) -> None:
    send(broker, topic, 0, 10)
    strict = stream_reader(broker, subscribe=topic, startingOffsets="earliest")
    lax = stream_reader(broker, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    start = {reader: reader.latestOffset(reader.initialOffset(), ALL) for reader in (strict, lax)}[lax]
    admin.delete_topics([topic]).check()
    with pytest.raises(DataLossError, match=f"{topic}-0 is gone, and was read up to offset 10"):
        strict.latestOffset(start, ALL)
    assert lax.latestOffset(start, ALL) == {}
    admin.create_topics([ottla.NewTopic(topic, 2)]).check()
    send(broker, topic, 0, 4)
    with pytest.raises(DataLossError, match=f"{topic}-0 was read up to offset 10 and now ends at 4"):
        stream_reader(broker, subscribe=topic).latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=f"{topic}-0 was read up to offset 10 and now ends at 4"):
        strict.partitions(start, {topic: {"0": 4, "1": 0}})
    shorter = stream_reader(broker, subscribe=topic, failOnDataLoss="false")
    end = shorter.latestOffset(start, ALL)
    assert offsets_of(read_tasks(shorter, shorter.partitions(start, end))) == {0: [0, 1, 2, 3]}
    send(broker, topic, 0, 16)
    with pytest.raises(DataLossError, match=f"the topic {topic} was deleted and made anew"):
        strict.latestOffset(start, ALL)


def test_a_broker_that_restarts_is_waited_for(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("lasting", 1)]).check()
    send(own_broker, "lasting", 0, 5)
    reader = stream_reader(own_broker, subscribe="lasting", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    own_broker.kill()
    own_broker.start()
    assert reader.latestOffset(end, ALL) == end
    assert offsets_of(read_tasks(reader, reader.partitions(start, end))) == {0: list(range(5))}


# Compaction


def compact(segment: Path) -> list[int]:
    """Rewrites a segment of six batches as compaction leaves it; gives the offsets that are still there."""
    data = segment.read_bytes()
    batches = [(header, data[at : at + header.size]) for at, header in iter_headers(memoryview(data))]
    assert [header.record_count for header, _ in batches] == [5] * 6
    # Some records, none with the batch gone, none with the batch left, all but the last, all, and nothing at the end.
    kept = [{0, 3}, None, set(), {15, 16, 17, 18}, set(range(20, 25)), set()]
    written, left = b"", []
    for (header, batch), offsets in zip(batches, kept, strict=True):
        if offsets is None:
            continue
        stay = [at for at in range(header.base_offset, header.next_offset) if at in offsets]
        written += rewritten(batch, [at - header.base_offset for at in stay])
        left += stay
    segment.write_bytes(written)
    return left


def test_gaps_that_compaction_leaves_are_passed_over(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("compacted", 1)]).check()
    for _ in range(6):
        send(own_broker, "compacted", 0, 5)
    own_broker.stop()
    directory = own_broker.data_dir / "compacted-0"
    left = compact(directory / f"{0:020}.log")
    for index in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        index.unlink()
    (own_broker.data_dir / ".kafka_cleanshutdown").unlink()
    own_broker.start()
    reader = stream_reader(own_broker, subscribe="compacted", startingOffsets="earliest", maxRecordsPerPartition=1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert end == {"compacted": {"0": 30}}
    pieces = reader.partitions(start, end)
    assert len(pieces) == 30
    assert offsets_of(read_tasks(reader, pieces)) == {0: left}
    whole = stream_reader(own_broker, subscribe="compacted")
    assert offsets_of(read_tasks(whole, whole.partitions(start, end))) == {0: left}
