"""Tables through both producers: what is stored is what `send` would have stored for each row."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.producer.encoded_batch import SentRows
from ottla.client.core.producer.partitioners import key_partition
from ottla.client.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ClientError,
    RecordTooLargeError,
    SerializationError,
    TransactionStateError,
)
from ottla.records.columns.schema import HEADERS_TYPE
from tests.broker_process import BrokerProcess
from tests.client.consumer_shells import PATIENCE_S, make_topic
from tests.client.producers import AioClient, SyncClient, read_all, values_of

pa = pytest.importorskip("pyarrow")

NOW_MS = int(time.time() * 1000)

Make = Callable[..., Any]


@pytest.fixture(params=[SyncClient, AioClient], ids=["sync", "aio"])
def make(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(**settings: Any) -> Any:
            return stack.enter_context(request.param(bootstrap_servers=broker.bootstrap, **settings))

        yield make


def sent(client: Any, *arguments: Any, **options: Any) -> dict[TopicPartition, SentRows]:
    """What `send_arrow` says once everything is stored."""
    future = client.send_arrow(*arguments, **options)
    if isinstance(client, SyncClient):
        return future.result(PATIENCE_S)  # type: ignore[no-any-return]

    return client.runner.run(_awaited(future))  # type: ignore[no-any-return]


def test_every_column_reaches_the_log(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 3)
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"c", b""], pa.binary()),
            "value": pa.array(["one", None, "three", ""], pa.string()),
            "timestamp": pa.array([NOW_MS, NOW_MS + 1, NOW_MS + 5, NOW_MS - 3], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array([[("h", b"1"), ("h", None)], None, [], [("é", b"")]], HEADERS_TYPE),
            "where": pa.array([0, 1, 2, 0], pa.int32()),
            "comment": ["is", "not", "sent", "."],
        }
    )
    summary = sent(make(), new_topic, table, partition_column="where")
    assert summary == {
        TopicPartition(new_topic, 0): SentRows(2, 0, 1),
        TopicPartition(new_topic, 1): SentRows(1, 0, 0),
        TopicPartition(new_topic, 2): SentRows(1, 0, 0),
    }
    stored = read_all(broker.bootstrap, new_topic)
    rows = {partition: [tuple(record) for record in records] for partition, records in stored.items()}
    assert rows == {
        0: [
            (0, NOW_MS, b"a", b"one", [("h", b"1"), ("h", None)]),
            (1, NOW_MS - 3, b"", b"", [("é", b"")]),
        ],
        1: [(0, NOW_MS + 1, None, None, [])],
        2: [(0, NOW_MS + 5, b"c", b"three", [])],
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_go_where_send_puts_them(make: Make, broker: BrokerProcess, new_topic: str, codec: str) -> None:
    make_topic(broker.bootstrap, new_topic, 7)
    keys = [b"key-%d" % number for number in range(2000)]
    table = pa.table({"id": pa.array(keys, pa.binary()), "text": pa.array(keys, pa.binary())})
    summary = sent(make(compression_type=codec), new_topic, table, key_column="id", value_column="text")
    stored = read_all(broker.bootstrap, new_topic)
    for partition, records in stored.items():
        expected = [key for key in keys if key_partition(key, 7) == partition]
        assert [record.value for record in records] == expected
        assert summary[TopicPartition(new_topic, partition)] == SentRows(len(expected), 0, len(expected) - 1)


def test_rows_without_keys_stay_together(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 4)
    values = [b"%05d" % number + b"x" * 995 for number in range(2900)]
    # Where a batch waits, it may be followed by one to the same partition.
    producer = make(partitioner_adaptive_partitioning_enable=False)
    summary = sent(producer, new_topic, pa.table({"value": pa.array(values, pa.binary())}))
    stored = read_all(broker.bootstrap, new_topic)
    assert sorted(record.value or b"" for records in stored.values() for record in records) == values
    for records in stored.values():
        assert [record.value for record in records] == sorted(record.value or b"" for record in records)
    # Three megabytes are three batches: more partitions than one are used, but no row is alone.
    assert len(summary) >= 2
    assert all(rows.record_count > 500 for rows in summary.values())


def test_rows_and_tables_keep_their_order(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    client = make(linger_ms=1000)
    expected = []
    for number in range(10):
        client.send(new_topic, b"row-%d" % number)
        client.send_arrow(new_topic, pa.table({"value": [b"table-%d" % number]}))
        expected += [b"row-%d" % number, b"table-%d" % number]
    client.flush()
    assert values_of(broker.bootstrap, new_topic) == expected


def test_each_row_may_name_its_topic(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    names = [make_topic(broker.bootstrap, f"{new_topic}-{letter}") for letter in "ab"]
    table = pa.table({"value": [b"%d" % number for number in range(6)], "topic": [names[n % 2] for n in range(6)]})
    summary = sent(make(), None, table)
    assert {partition.topic: rows.record_count for partition, rows in summary.items()} == dict.fromkeys(names, 3)
    assert values_of(broker.bootstrap, names[1]) == [b"1", b"3", b"5"]
    # A topic that is named for all wins.
    sent(make(), names[0], table)
    assert values_of(broker.bootstrap, names[0]) == [b"0", b"2", b"4", *(b"%d" % number for number in range(6))]


def test_views_are_sent_as_what_they_show(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    """Polars hands over its text and its bytes as views."""
    names = [make_topic(broker.bootstrap, f"{new_topic}-{letter}", 2) for letter in "ab"]
    header = pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])
    categories = pa.array(["odd", "even"], pa.string_view())
    table = pa.table(
        {
            "key": pa.array([b"k%d" % number for number in range(6)], pa.binary_view()),
            "value": pa.array(["0", "1", None, "3", "4", "5"], pa.string_view()),
            "topic": pa.array([names[n % 2] for n in range(6)], pa.string_view()),
            "headers": pa.array([[("n", b"%d" % n)] for n in range(6)], pa.large_list(header)),
            "kind": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, 0, None, 0], pa.uint32()), categories),
        }
    )
    client = make()
    sent(client, None, table)
    stored = read_all(broker.bootstrap, names[0])
    rows = sorted((record.key, record.value, record.headers) for records in stored.values() for record in records)
    assert rows == [(b"k0", b"0", [("n", b"0")]), (b"k2", None, [("n", b"2")]), (b"k4", b"4", [("n", b"4")])]
    sent(client, names[1], table, value_column="kind")
    stored = read_all(broker.bootstrap, names[1])
    kinds = {record.key: record.value for records in stored.values() for record in records[-3:]}
    assert (kinds[b"k0"], kinds[b"k3"], kinds[b"k4"]) == (b"even", b"odd", None)


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_headers_may_be_views_of_lists(
    make: Make, broker: BrokerProcess, new_topic: str, view: Callable[[Any], Any]
) -> None:
    make_topic(broker.bootstrap, new_topic)
    given = [[("n", b"%d" % number)] * number if number != 2 else None for number in range(4)]
    headers = pa.array(given, view(HEADERS_TYPE.value_type))
    table = pa.table({"value": [b"0", b"1", b"2", b"3"], "headers": headers})
    sent(make(), new_topic, table.slice(1))
    (records,) = read_all(broker.bootstrap, new_topic).values()
    assert [record.headers for record in records] == [[("n", b"1")], [], [("n", b"3")] * 3]


def test_a_partitioner_of_ones_own_is_asked(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 2)

    def by_size(topic: str, key: bytes | None, value: bytes | None, count: int, available: Any) -> int:
        return len(value or b"") % count

    sent(make(partitioner=by_size), new_topic, pa.table({"value": [b"a", b"bb", b"ccc", b"dddd"]}))
    stored = read_all(broker.bootstrap, new_topic)
    assert [[record.value for record in records] for records in stored.values()] == [
        [b"bb", b"dddd"],
        [b"a", b"ccc"],
    ]


def test_a_table_is_part_of_a_transaction(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    client = make(transactional_id=new_topic)
    table = pa.table({"value": [b"%d" % number for number in range(100)]})
    with pytest.raises(TransactionStateError):
        client.send_arrow(new_topic, table)
    with client.transaction():
        client.send_arrow(new_topic, table)
    with pytest.raises(RuntimeError, match="undone"), client.transaction():
        client.send_arrow(new_topic, pa.table({"value": [b"aborted"]}))
        raise RuntimeError("undone")
    assert values_of(broker.bootstrap, new_topic, committed=True) == table["value"].to_pylist()


def test_more_than_the_buffer_holds_is_sent_in_turn(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    values = [b"%06d" % number + b"x" * 94 for number in range(60_000)]
    client = make(buffer_memory=1_000_000)
    summary = sent(client, new_topic, pa.table({"value": pa.array(values, pa.binary())}).to_batches()[0])
    assert summary == {TopicPartition(new_topic, 0): SentRows(60_000, 0, 59_999)}
    assert values_of(broker.bootstrap, new_topic) == values


def test_a_full_buffer_is_an_error_in_the_end(make: Make, own_broker: BrokerProcess, new_topic: str) -> None:
    own_broker.start()
    make_topic(own_broker.bootstrap, new_topic)
    settings = {"buffer_memory": 100_000, "max_block_ms": 300}
    maker = SyncClient if isinstance(make(), SyncClient) else AioClient
    client = maker(bootstrap_servers=own_broker.bootstrap, **settings)
    sent(client, new_topic, pa.table({"value": [b"warm"]}))
    own_broker.kill()
    with pytest.raises(BufferExhaustedError, match=r"buffer\.memory"):
        client.send_arrow(new_topic, pa.table({"value": [b"x" * 1000] * 500}))
    client.close(0)


@pytest.mark.parametrize("lengths", ["even", "uneven"])
def test_a_table_that_met_a_broker_that_was_away_is_there_once(
    make: Make, own_broker: BrokerProcess, new_topic: str, lengths: str
) -> None:
    own_broker.start()
    make_topic(own_broker.bootstrap, new_topic)
    maker = SyncClient if isinstance(make(), SyncClient) else AioClient
    values = [b"%06d" % number + b"x" * (100 if lengths == "even" else number % 200) for number in range(30_000)]
    with maker(bootstrap_servers=own_broker.bootstrap) as client:
        sent(client, new_topic, pa.table({"value": [b"first"]}))
        restart = threading.Timer(0.3, own_broker.start)
        own_broker.kill()
        restart.start()
        summary = sent(client, new_topic, pa.table({"value": pa.array(values, pa.binary())}))
        restart.join(PATIENCE_S)
    assert summary == {TopicPartition(new_topic, 0): SentRows(30_000, 1, 30_000)}
    assert values_of(own_broker.bootstrap, new_topic)[1:] == values


def test_a_batch_that_is_too_large_for_the_broker_is_split(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 1, max_message_bytes="50000")
    values = [b"%04d" % number * 25 for number in range(3000)]
    summary = sent(make(), new_topic, pa.table({"value": pa.array(values, pa.binary())}))
    assert summary == {TopicPartition(new_topic, 0): SentRows(3000, 0, 2999)}
    assert values_of(broker.bootstrap, new_topic) == values


def test_what_was_stored_in_spite_of_an_error_is_told(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    narrow = f"{new_topic}-narrow"
    make_topic(broker.bootstrap, new_topic)
    make_topic(broker.bootstrap, narrow, 1, max_message_bytes="5000")
    table = pa.table({"topic": [new_topic, narrow, new_topic], "value": [b"a", b"x" * 10_000, b"b"]})
    client = make()
    future = client.send_arrow(None, table)
    client.flush()
    assert future.done()
    assert future.stored() == {TopicPartition(new_topic, 0): SentRows(2, 0, 1)}
    with pytest.raises(RecordTooLargeError):
        if isinstance(client, SyncClient):
            future.result(PATIENCE_S)
        else:
            client.runner.run(_awaited(future))


async def _awaited(future: Any) -> Any:
    return await future


def test_without_acknowledgements_offsets_are_unknown(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    summary = sent(make(acks="0"), new_topic, pa.table({"value": [b"a", b"b"]}))
    assert summary == {TopicPartition(new_topic, 0): SentRows(2, -1, -1)}


def test_an_empty_table_is_sent_at_once(make: Make, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    assert sent(make(), new_topic, pa.table({"value": pa.array([], pa.binary())})) == {}


@pytest.mark.parametrize(
    ("table", "options", "error", "reason"),
    [
        ({"vale": [b"x"]}, {}, SerializationError, "no column 'value' for the value; its columns: vale"),
        ({"value": [b"x"]}, {"key_column": "id"}, SerializationError, "no column 'id'"),
        ({"value": [1]}, {}, SerializationError, "must be bytes or text"),
        ({"value": [b"x"], "key": [1.5]}, {}, SerializationError, "column for the key is double"),
        ({"value": [b"x"], "timestamp": ["now"]}, {}, SerializationError, "column for the timestamp is string"),
        ({"value": [b"x", b"y"], "timestamp": [1, -7]}, {}, SerializationError, "row 1: the timestamp"),
        (
            {"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("s"))},
            {},
            SerializationError,
            "does not fit 64 bits of milliseconds",
        ),
        ({"text": [b"x"]}, {"value_column": None}, SerializationError, "value_column must name a column"),
        ({"key": [b"x"]}, {"value_column": None}, SerializationError, "value_column must name a column"),
        ({"value": [b"x"], "headers": [3]}, {}, SerializationError, "column for the headers is int64"),
        ({"value": [b"x"], "headers": [[(None, b"1")]]}, {}, SerializationError, "headers"),
        ({"value": [b"x"], "p": [1]}, {"partition_column": "p"}, ClientError, "no partition 1"),
        ({"value": [b"x"], "p": [-1]}, {"partition_column": "p"}, ClientError, "no partition -1"),
        (
            {"value": [b"x"], "p": pa.array([2**64 - 1], pa.uint64())},
            {"partition_column": "p"},
            ClientError,
            "no partition 18446744073709551615",
        ),
        ({"value": [b"x"], "p": ["0"]}, {"partition_column": "p"}, SerializationError, "whole numbers"),
        ({"value": [b"x", b"y" * 1_048_576]}, {}, RecordTooLargeError, r"row 1.*max\.request\.size"),
    ],
)
def test_a_table_that_cannot_be_sent_says_why(
    make: Make, broker: BrokerProcess, new_topic: str, table: Any, options: Any, error: type[Exception], reason: str
) -> None:
    make_topic(broker.bootstrap, new_topic)
    client = make(max_block_ms=500)
    client.partitions_for(new_topic)
    with pytest.raises(error, match=reason):
        client.send_arrow(new_topic, pa.table(table), **options)
    client.flush()
    assert values_of(broker.bootstrap, new_topic) == []


def test_columns_that_say_nothing_are_as_if_they_were_not_there(
    make: Make, broker: BrokerProcess, new_topic: str
) -> None:
    make_topic(broker.bootstrap, new_topic)
    nothing = dict.fromkeys(["key", "timestamp", "headers", "partition"], pa.nulls(2))
    summary = sent(make(), new_topic, pa.table({"value": [b"a", b"b"], **nothing}), partition_column="partition")
    assert summary == {TopicPartition(new_topic, 0): SentRows(2, 0, 1)}
    (record, _) = read_all(broker.bootstrap, new_topic)[0]
    assert (record.key, record.value, record.headers) == (None, b"a", [])
    assert record.timestamp >= NOW_MS


def test_a_topic_is_needed(make: Make) -> None:
    client = make()
    with pytest.raises(SerializationError, match="needs a topic"):
        client.send_arrow(None, pa.table({"value": [b"x"]}))
    with pytest.raises(SerializationError, match="names no topic"):
        client.send_arrow(None, pa.table({"value": [b"x", b"y"], "topic": ["a", None]}))
    with pytest.raises(SerializationError, match="Table or RecordBatch"):
        client.send_arrow("a", [b"x"])


def test_a_closed_producer_sends_no_table(make: Make) -> None:
    client = make()
    client.close()
    with pytest.raises(ClientClosedError):
        client.send_arrow("a", pa.table({"value": [b"x"]}))


def test_columns_are_loaded_only_when_used() -> None:
    program = (
        "import sys, ottla\n"
        "ottla.Producer, ottla.Consumer, ottla.aio.Producer, ottla.aio.Consumer\n"
        "print(sorted({'numpy', 'pyarrow', 'ottla.records.columns'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_missing_library_is_named(broker: BrokerProcess) -> None:
    program = (
        "import sys, ottla\n"
        "sys.modules['pyarrow'] = None\n"
        f"producer = ottla.Producer(bootstrap_servers='{broker.bootstrap}')\n"
        "try:\n"
        "    producer.send_arrow('a', None)\n"
        "except ImportError as e:\n"
        "    print(e)\n"
        "producer.close()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'ottla[columns]'" in result.stdout
