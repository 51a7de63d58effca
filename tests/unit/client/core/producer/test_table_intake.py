"""How tables are cut into batches, where their rows go, and what cannot be sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import NIL_UUID
from ottla.client.core.metadata import PartitionLeader, TopicMetadata
from ottla.client.core.on_demand import open_table_intake
from ottla.client.core.producer.encoded_batch import ASSUMED
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import NO_BACKLOG, key_partition
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.records.batch import HEADER_SIZE
from ottla.records.reader import Record, read_records

pa = pytest.importorskip("pyarrow")

TOPIC = TopicMetadata("t", NIL_UUID, False, {0: PartitionLeader(0, 0)}, (0,), 0)


def test_every_batch_fits_into_a_request() -> None:
    settings = ProducerSettings.parse({"bootstrap.servers": "x:1", "max.request.size": "20000"})
    intake = open_table_intake(settings, None, lambda bound: 0, lambda topic: NO_BACKLOG)
    rows = [bytes(1000)] * 100 + [bytes(19_900)]
    prepared = intake.prepare("t", pa.table({"value": rows}), ASSUMED, 0)
    batches = [rows for _, rows in intake.encode(prepared, {"t": TOPIC})]
    assert sum(batch.record_count for batch in batches) == len(rows)
    assert all(batch.size <= settings.largest_batch or batch.record_count == 1 for batch in batches)
    assert settings.largest_batch < 20_000


WALL_MS = 1_700_000_000_000
PLACES = ASSUMED._replace(partition="partition")


def topic_of(name: str, partitions: int = 3) -> TopicMetadata:
    leaders = {number: PartitionLeader(0, 0) for number in range(partitions)}
    return TopicMetadata(name, NIL_UUID, False, leaders, tuple(leaders), 0)


def intake(partitioner: Any = None, **settings: object) -> Any:
    given = {"bootstrap.servers": "x:1", **{name.replace("_", "."): value for name, value in settings.items()}}
    return open_table_intake(ProducerSettings.parse(given), partitioner, lambda bound: 0, lambda topic: NO_BACKLOG)


def sent(made: Any, table: Any, topic: str | None = "t") -> dict[tuple[str, int], list[Record]]:
    """The records by where they go, read with the reader of single records."""
    prepared = made.prepare(topic, table, PLACES if "partition" in table.column_names else ASSUMED, WALL_MS)
    found: dict[tuple[str, int], list[Record]] = {}
    for place, rows in made.encode(prepared, {name: topic_of(name) for name in prepared.topics}):
        records = read_records(bytes(rows.make()))
        assert len(records) == rows.record_count
        found.setdefault(tuple(place), []).extend(records)
    return found


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=200),
        st.none() | st.integers(0, 2**40),
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        st.none() | st.integers(0, 2),
        st.sampled_from("tu"),
    ),
    min_size=1,
    max_size=40,
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
        ("topic", pa.string()),
    ]
)


@settings(max_examples=60)
@given(
    ROWS,
    st.sampled_from([(), ("key",), ("partition",), ("key", "partition"), ("timestamp", "headers", "key", "partition")]),
    st.booleans(),
    st.sampled_from([300, 16_384]),
)
def test_every_row_goes_where_it_wants_as_it_is(
    rows: list[tuple[Any, ...]], wishes: tuple[str, ...], names_topics: bool, batch_size: int
) -> None:
    dicts = [
        {**dict(zip(SCHEMA.names, row, strict=True)), "headers": row[3] and [{"key": k, "value": v} for k, v in row[3]]}
        for row in rows
    ]
    names = {*wishes, "value", *(["topic"] if names_topics else [])}
    table = pa.Table.from_pylist(dicts, SCHEMA).select([name for name in SCHEMA.names if name in names])
    found = sent(intake(batch_size=batch_size), table, None if names_topics else "t")

    def as_sent(row: tuple[Any, ...]) -> tuple[Any, ...]:
        key, value, timestamp, headers, _, _ = row
        return (
            key if "key" in wishes else None,
            value,
            tuple(headers or ()) if "headers" in wishes else (),
            timestamp if "timestamp" in wishes and timestamp is not None else WALL_MS,
        )

    for name in {row[5] for row in rows} if names_topics else {"t"}:
        own = [row for row in rows if not names_topics or row[5] == name]
        landed = {place[1]: records for place, records in found.items() if place[0] == name}
        shown = {
            number: [(record.key, record.value, tuple(record.headers), record.timestamp) for record in records]
            for number, records in landed.items()
        }
        assert sorted(map(repr, map(as_sent, own))) == sorted(repr(r) for records in shown.values() for r in records)
        for number in range(3):
            certain = [
                as_sent(row)
                for row in own
                if (row[4] if "partition" in wishes else None) == number
                or (
                    ("partition" not in wishes or row[4] is None)
                    and "key" in wishes
                    and row[0] is not None
                    and key_partition(row[0], 3) == number
                )
            ]
            # In their order, with rows in between that had no wish.
            rest = iter(shown.get(number, []))
            assert all(row in rest for row in certain)


def test_keys_may_be_ignored_and_a_partitioner_asked() -> None:
    table = pa.table({"key": [b"a", b"b", b"c"], "value": [b"0", b"1", b"2"]})
    assert len(sent(intake(partitioner_ignore_keys=True), table)) == 1
    asked: list[tuple[Any, ...]] = []

    def choose(topic: str, key: Any, value: Any, count: int, available: Any) -> int:
        asked.append((topic, key, value, count, tuple(available)))
        return int(value)

    assert sorted(sent(intake(choose), table)) == [("t", 0), ("t", 1), ("t", 2)]
    assert asked == [("t", key, b"%d" % number, 3, (0, 1, 2)) for number, key in enumerate((b"a", b"b", b"c"))]
    given = table.append_column("partition", pa.array([2, None, 2]))
    assert {place[1]: len(rows) for place, rows in sent(intake(choose), given).items()} == {2: 2, 1: 1}
    assert [call[2] for call in asked[3:]] == [b"1"]
    with pytest.raises(ClientError, match="no partition 7"):
        sent(intake(lambda *_: 7), table)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary(2),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int8(), pa.binary()),
    ],
    ids=str,
)
@pytest.mark.parametrize("field", ["key", "value"])
def test_bytes_and_text_of_any_kind(kind: Any, field: str) -> None:
    column = pa.array([b"ab", None, b"cd"], pa.binary())
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type).dictionary_encode().cast(kind)
    else:
        column = column.cast(kind) if kind != pa.binary(2) else pa.array([b"ab", None, b"cd"], kind)
    table = pa.table({"value": [b"x"] * 3} | {field: column})
    (records,) = sent(intake(partitioner=lambda *_: 0), table).values()
    assert [getattr(record, field) for record in records] == [b"ab", None, b"cd"]
    empty = pa.table({"value": [b"x"] * 3} | {field: pa.nulls(3)})
    (records,) = sent(intake(partitioner=lambda *_: 0), empty).values()
    assert [getattr(record, field) for record in records] == [None] * 3


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": [1]}, "value is int64, and must be bytes or text"),
        ({"value": [b""], "key": [1.5]}, "key is double"),
        ({"value": [b""], "timestamp": ["now"]}, "neither a timestamp nor milliseconds"),
        ({"value": [b"", b""], "timestamp": [5, -1]}, "row 1: the timestamp must not be before 1970"),
        ({"value": [b""], "headers": [5]}, "must be a list of"),
        ({"value": [b""], "partition": [1.5]}, "must be whole numbers"),
        ({"value": [b""], "partition": [3]}, "no partition 3"),
        ({"value": [b""], "partition": [-1]}, "no partition -1"),
        ({"value": [b""], "partition": [2**40]}, f"no partition {2**40}"),
        ({"key": [b""]}, "no column 'value'"),
    ],
)
def test_tables_that_cannot_be_sent(columns: dict[str, list[Any]], complaint: str) -> None:
    made = intake()
    table = pa.table(columns)
    with pytest.raises(ClientError, match=complaint):
        made.highest_partition(made.prepare("t", table, PLACES if "partition" in columns else ASSUMED, 0), "t")
        sent(made, table)


@pytest.mark.parametrize("topics", [["a", None], ["a", ""], [1, 2], None])
def test_a_row_names_a_topic_if_the_call_does_not(topics: list[Any] | None) -> None:
    table = pa.table({"value": [b"x", b"y"]} | ({} if topics is None else {"topic": topics}))
    with pytest.raises(SerializationError, match="topic"):
        intake().prepare(None, table, ASSUMED, 0)
    assert intake().prepare("t", table, ASSUMED, 0).topics == ("t",)


@pytest.mark.parametrize("field", ["key", "value", "headers"])
def test_a_row_has_to_fit_with_the_header_of_its_batch(field: str) -> None:
    def table(size: int) -> Any:
        big = [[{"key": "h", "value": bytes(size)}], []] if field == "headers" else [bytes(size), b""]
        return pa.table({"value": [b"", b""]} | {field: big})

    made = intake(max_request_size=500, batch_size=100)
    empty = int(made.prepare("t", table(0), ASSUMED, 0).ends[0]) - 10
    fitting = 500 - HEADER_SIZE - empty
    assert made.prepare("t", table(fitting), ASSUMED, 0)
    with pytest.raises(RecordTooLargeError, match=r"row 0: a record of .* max\.request\.size \(500\)"):
        made.prepare("t", table(fitting + 1), ASSUMED, 0)


def test_the_highest_partition_that_is_asked_for() -> None:
    made = intake()
    table = pa.table({"value": [b""] * 4, "partition": [0, 5, None, 2], "topic": ["t", "u", "u", "t"]})
    prepared = made.prepare(None, table, PLACES, 0)
    assert (made.highest_partition(prepared, "t"), made.highest_partition(prepared, "u")) == (2, 5)
    assert made.highest_partition(made.prepare("t", table, ASSUMED, 0), "t") is None
    for number, shown in ((0, 0), (2**31 - 1, 2**31 - 1), (2**31, None), (-1, None), (None, None)):
        one = pa.table({"value": [b""], "partition": pa.array([number], pa.int64())})
        assert made.highest_partition(made.prepare("t", one, PLACES, 0), "t") == shown


def test_batches_of_rows_without_wishes_are_spread() -> None:
    table = pa.table({"value": [bytes(100)] * 300})
    made = intake(batch_size=2000)
    batches = list(made.encode(made.prepare("t", table, ASSUMED, 0), {"t": topic_of("t")}))
    assert sum(rows.record_count for _, rows in batches) == 300
    assert max(rows.size for _, rows in batches) <= made._batch_size


def test_only_tables_are_sent() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    assert intake().prepare("t", batch, ASSUMED, 0).table.num_rows == 1
    with pytest.raises(SerializationError, match="given a list"):
        intake().prepare("t", [b"x"], ASSUMED, 0)
