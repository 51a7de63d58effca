"""Reading by the column, with both consumers: the records of `poll`, whole."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka
import pytest

import ottla
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.errors import ClientError, OffsetOutOfRangeError
from tests.broker_process import BrokerProcess
from tests.client.consumer_shells import PATIENCE_S, Shell, make_topic, open_shell, write

pa = pytest.importorskip("pyarrow")
numpy = pytest.importorskip("numpy")

VALUES = [b"value-%d" % number for number in range(20)]
PLAIN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Shell]:
    with open_shell(request.param, broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: str) -> str:
    return make_topic(broker.bootstrap, new_topic, 2)


def read_arrow(consumer: Any, count: int, **options: Any) -> Any:
    batches: list[Any] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(batch.num_rows for batch in batches) < count and time.monotonic() < deadline_s:
        batches.append(consumer.poll_arrow(0.2, **options))
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_as_columns(shell: Shell, topic: str, codec: str) -> None:
    write(shell.bootstrap, topic, VALUES, compression_type=codec)
    consumer = shell()
    consumer.assign([(topic, 0)])
    before = datetime.now(UTC)
    table = read_arrow(consumer, 20)
    assert table.column_names == PLAIN
    assert table["value"].to_pylist() == VALUES
    assert table["key"].to_pylist() == [b"key-%d" % number for number in range(20)]
    assert table["offset"].to_pylist() == list(range(20))
    assert set(table["topic"].to_pylist()) == {topic}
    assert set(table["partition"].to_pylist()) == {0}
    assert set(table["timestampType"].to_pylist()) == {0}
    assert all(before - timedelta(minutes=1) < when <= before for when in table["timestamp"].to_pylist())
    assert consumer.position((topic, 0)) == 20


def test_nothing_is_a_batch_of_the_same_columns(shell: Shell, topic: str) -> None:
    consumer = shell()
    consumer.assign([(topic, 0)])
    nothing = consumer.poll_arrow()
    assert nothing.num_rows == 0
    write(shell.bootstrap, topic, VALUES)
    assert consumer.poll_arrow(PATIENCE_S).schema == nothing.schema
    assert consumer.poll_arrow(0.05, columns=["offset", "headers"]).schema.names == ["offset", "headers"]


def test_headers_come_if_they_are_asked_for(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    consumer.assign([(topic, 0)])
    table = read_arrow(consumer, 20, columns=["headers", "value"])
    assert table.column_names == ["headers", "value"]
    assert table["headers"].to_pylist() == [[{"key": "n", "value": b"%d" % number}] for number in range(20)]
    assert consumer.to_arrow([(topic, 0)], columns=["offset", "value", "offset"]).column_names == ["offset", "value"]
    consumer.seek((topic, 0), 0)
    assert consumer.poll_arrow(PATIENCE_S, 1, ["offset", "value"]).schema.names == ["offset", "value"]
    with pytest.raises(ValueError, match="no column 'vaule'; known: key, value"):
        consumer.poll_arrow(columns=["vaule"])
    with pytest.raises(ValueError, match="list of names"):
        consumer.poll_arrow(columns="value")


def test_a_poll_returns_no_more_than_asked(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    consumer.assign([(topic, 0)])
    assert consumer.poll_arrow(PATIENCE_S, 7)["offset"].to_pylist() == list(range(7))
    assert consumer.position((topic, 0)) == 7
    assert consumer.poll_arrow(PATIENCE_S, 7)["offset"].to_pylist() == list(range(7, 14))
    # By the record and by the column, with columns that were not decoded before: each goes on where the other ended.
    assert [record.offset for record in consumer.poll(PATIENCE_S, 2)] == [14, 15]
    assert consumer.poll_arrow(PATIENCE_S, 2, ["value"])["value"].to_pylist() == VALUES[16:18]
    assert consumer.poll_arrow(PATIENCE_S)["offset"].to_pylist() == [18, 19]
    for nothing in (0, -1):
        with pytest.raises(ValueError, match=f"max_records must be at least 1, but was {nothing}"):
            consumer.poll_arrow(PATIENCE_S, nothing)
    consumer.seek((topic, 0), 5)
    assert consumer.poll_arrow(PATIENCE_S, 3)["offset"].to_pylist() == [5, 6, 7]
    consumer.seek((topic, 0), 18)
    assert consumer.poll_arrow(PATIENCE_S)["offset"].to_pylist() == [18, 19]


def test_what_is_left_of_a_batch_is_not_lost_to_columns(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    consumer.assign([(topic, 0)])
    assert [record.offset for record in consumer.poll(PATIENCE_S, 5)] == [0, 1, 2, 3, 4]
    assert consumer.position((topic, 0)) == 5
    assert read_arrow(consumer, 15)["offset"].to_pylist() == list(range(5, 20))


def test_small_answers_of_many_partitions_come_together(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES, 0)
    write(shell.bootstrap, topic, VALUES, 1)
    consumer = shell()
    consumer.assign([(topic, 0), (topic, 1)])
    table = read_arrow(consumer, 40)
    found = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(20)]


def test_paused_partitions_wait(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES, 0)
    write(shell.bootstrap, topic, VALUES, 1)
    consumer = shell()
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.pause([TopicPartition(topic, 0)])
    assert set(read_arrow(consumer, 20)["partition"].to_pylist()) == {1}
    assert consumer.poll_arrow(0.2).num_rows == 0
    consumer.resume()
    assert set(read_arrow(consumer, 20)["partition"].to_pylist()) == {0}


def test_aborted_records_are_hidden_and_passed_over(shell: Shell, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": shell.bootstrap, "transactional.id": f"{topic}-{shell.kind}"}
    )
    producer.init_transactions(PATIENCE_S)
    for number, commits in enumerate([True, False, True, False]):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(PATIENCE_S)
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    consumer = shell(isolation_level="read_committed")
    consumer.assign([(topic, 0)])
    assert read_arrow(consumer, 2)["value"].to_pylist() == [b"0", b"2"]
    # The tail has nothing to show: an aborted record and markers. Reading passes over it all the same.
    deadline_s = time.monotonic() + PATIENCE_S
    while consumer.position((topic, 0)) < 8:
        assert time.monotonic() < deadline_s
        assert consumer.poll_arrow(0.1).num_rows == 0
    uncommitted = shell()
    uncommitted.assign([(topic, 0)])
    assert read_arrow(uncommitted, 4)["value"].to_pylist() == [b"0", b"1", b"2", b"3"]
    assert consumer.to_arrow(topic)["value"].to_pylist() == [b"0", b"2"]


def test_what_was_given_is_committed(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    group = f"{topic}-{shell.kind}"
    consumer = shell(group_id=group, auto_commit_interval_ms=50)
    consumer.subscribe([topic])
    assert consumer.poll_arrow(PATIENCE_S, 15).num_rows == 15
    consumer.close()
    again = shell(group_id=group)
    again.subscribe([topic])
    assert again.poll_arrow(PATIENCE_S)["offset"].to_pylist() == [15, 16, 17, 18, 19]
    again.commit()
    assert again.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 20


def test_an_error_of_a_partition_is_raised(shell: Shell, topic: str) -> None:
    consumer = shell(auto_offset_reset="none")
    consumer.assign([(topic, 0)])
    consumer.seek((topic, 0), 1000)
    with pytest.raises(OffsetOutOfRangeError, match="seek"):
        consumer.poll_arrow(PATIENCE_S)


# Bounded reads


def test_a_start_that_was_deleted_is_said_to_be(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    with ottla.Admin(bootstrap_servers=shell.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 5}).check()
    consumer = shell()
    with pytest.raises(OffsetOutOfRangeError, match=r'offset 2 is not in the log any more.* start at "earliest"'):
        consumer.to_arrow(topic, start=2)
    assert consumer.to_arrow(topic)["offset"].to_pylist() == list(range(5, len(VALUES)))


def test_a_whole_topic_becomes_a_table(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES, 1)
    write(shell.bootstrap, topic, VALUES[:5], 0)
    consumer = shell(group_id="somebody", auto_offset_reset="latest")
    table = consumer.to_arrow(topic)
    assert table.column_names == PLAIN
    assert table["value"].to_pylist() == VALUES[:5] + VALUES
    assert table["partition"].to_pylist() == [0] * 5 + [1] * 20
    assert consumer.to_arrow(topic, columns=["value"]).to_pandas()["value"].tolist() == VALUES[:5] + VALUES
    assert consumer.to_arrow([(topic, 0)])["value"].to_pylist() == VALUES[:5]
    assert consumer.assignment == frozenset()


def test_bounds_are_offsets_or_times(shell: Shell, topic: str) -> None:
    write(shell.bootstrap, topic, VALUES)
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    write(shell.bootstrap, topic, VALUES)
    consumer = shell()
    partition = [TopicPartition(topic, 0)]
    assert consumer.to_arrow(partition, 3, 7)["offset"].to_pylist() == [3, 4, 5, 6]
    assert consumer.to_arrow(partition, 38, 1000)["offset"].to_pylist() == [38, 39]
    assert consumer.to_arrow(partition, between)["offset"].to_pylist() == list(range(20, 40))
    assert consumer.to_arrow(partition, end=between)["offset"].to_pylist() == list(range(20))
    assert consumer.to_arrow(partition, between + timedelta(days=1)).num_rows == 0
    assert consumer.to_arrow(partition, {partition[0]: 39}).num_rows == 1
    assert consumer.to_arrow(partition, numpy.int64(38)).num_rows == 2
    assert consumer.to_arrow(topic, 7, 3).num_rows == 0
    for bad in (-1, "middle", 1.5):
        with pytest.raises(ValueError, match="a bound is an offset"):
            consumer.to_arrow(partition, bad)
    with pytest.raises(ValueError, match=f"the bounds leave out {topic}-1"):
        consumer.to_arrow(topic, {partition[0]: 0})


def test_a_time_is_met_to_the_millisecond(shell: Shell, topic: str) -> None:
    # From floating-point seconds 1_090_584_373_449 would become a millisecond less.
    first_ms = 1_090_584_373_440
    times = range(first_ms, first_ms + 50)
    table = pa.table({"value": pa.array(["x"] * 50), "timestamp": pa.array(times)})
    with ottla.Producer(bootstrap_servers=shell.bootstrap) as producer:
        producer.send_arrow(topic, table.append_column("where", pa.array([0] * 50)), partition_column="where").result()
    consumer = shell()
    for time_ms in times[2:17:7]:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
        assert consumer.to_arrow([(topic, 0)], moment)["offset"][0].as_py() == time_ms - first_ms
        late = moment - timedelta(microseconds=1)
        assert consumer.to_arrow([(topic, 0)], late)["offset"][0].as_py() == time_ms - first_ms


@pytest.mark.parametrize("what", ["{0}", [("{0}", 0)], [("{1}", 0), ("{0}", 0)], [("{1}", 5)]])
def test_what_is_not_there_is_told_soon_and_not_created(shell: Shell, topic: str, what: Any) -> None:
    missing = f"{topic}-missing"
    named = what.format(missing) if isinstance(what, str) else [(name.format(missing, topic), at) for name, at in what]
    consumer = shell()
    with pytest.raises(ClientError, match=f"no topic {missing}|{topic} has no partition 5") as raised:
        consumer.to_arrow(named)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing not in consumer.list_topics()


def test_what_to_read_is_a_topic_or_partitions(shell: Shell, topic: str) -> None:
    with pytest.raises(ValueError, match="a list of"):
        shell().to_arrow([topic])


@pytest.mark.parametrize("fetch_max_bytes", [20_000, 35_000, 50_000])
def test_an_end_within_partitions_holds_up_no_other(shell: Shell, new_topic: str, fetch_max_bytes: int) -> None:
    """What is fetched of a partition beyond its end must not take the room of what the others still need."""
    make_topic(shell.bootstrap, new_topic, 3)
    with ottla.Producer(bootstrap_servers=shell.bootstrap) as producer:
        for number in range(6):
            for partition in range(3):
                size = 100 if number == 0 and partition else 30_000
                producer.send(new_topic, b"x" * size, partition=partition).result(PATIENCE_S)
    ends = {TopicPartition(new_topic, 0): 6, TopicPartition(new_topic, 1): 1, TopicPartition(new_topic, 2): 1}
    consumer = shell(fetch_max_bytes=fetch_max_bytes, default_api_timeout_ms=5000)
    table = consumer.to_arrow(new_topic, end=ends, columns=["partition", "offset"])
    assert table["partition"].to_pylist() == [0] * 6 + [1, 2]
    assert table["offset"].to_pylist() == [*range(6), 0, 0]


def test_a_missing_library_is_named(broker: BrokerProcess) -> None:
    program = (
        "import sys, ottla\n"
        "sys.modules['numpy'] = None\n"
        f"consumer = ottla.Consumer(bootstrap_servers='{broker.bootstrap}')\n"
        "for call in (consumer.poll_arrow, lambda: consumer.to_arrow('t')):\n"
        "    try:\n"
        "        call()\n"
        "    except ImportError as e:\n"
        "        print(e)\n"
        "consumer.close()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.count("pip install 'ottla[columns]'") == 2
