"""How much of a table is encoded at a time, how large its rows count, and which partitions its batches go to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from ottla.client.core.on_demand import open_table_intake
from ottla.client.core.producer.encoded_batch import ASSUMED, EncodedRows, TableColumns
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import NO_BACKLOG
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.records.batch import crc_is_valid, read_header
from ottla.records.compression import Codec
from ottla.records.reader import read_records
from tests.unit.client.core.producer.test_table_intake import WALL_MS, intake, sent, topic_of

pa = pytest.importorskip("pyarrow")

PLACES = ASSUMED._replace(partition="partition")
OVERHEAD = 14 + 10
"""What a row counts besides its bytes: that of a record, and what its varints may take more."""


def encoded(
    made: Any, table: Any, columns: TableColumns = PLACES, topic: str | None = "t"
) -> list[tuple[str, int, EncodedRows]]:
    prepared = made.prepare(topic, table, columns, WALL_MS)
    topics = {name: topic_of(name) for name in prepared.topics}
    return [(place.topic, place.partition, rows) for place, rows in made.encode(prepared, topics)]


def runs(batches: list[tuple[str, int, EncodedRows]]) -> list[tuple[int, int]]:
    """The partitions in turn, and how many rows each gets until it is the next one's turn."""
    grouped = groupby(batches, key=lambda batch: batch[:2])
    return [(partition, sum(rows.record_count for *_, rows in group)) for (_, partition), group in grouped]


def rows_of(count: int, size: int, **columns: list[Any]) -> Any:
    """Rows that count `size` bytes each."""
    return pa.table({"value": [bytes(size - OVERHEAD)] * count, **columns})


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(), pa.binary_view()])
@pytest.mark.parametrize("is_cut", [False, True])
def test_rows_are_measured_with_all_they_carry(kind: Any, is_cut: bool) -> None:
    headers = [[{"key": "h", "value": b"123"}, {"key": "ü", "value": None}], None, [], [{"key": "", "value": b"4"}]]
    table = pa.table(
        {
            "key": pa.array(["ab", None, "", "c"]),
            "value": pa.array(["xyz", None, "é", "0"]).cast(kind),
            "headers": pa.array(headers, HEADERS),
        }
    )
    if is_cut:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)])
    sizes = [OVERHEAD + 2 + 3 + (1 + 3 + 4) + (2 + 4), OVERHEAD, OVERHEAD + 2, OVERHEAD + 2 + (0 + 1 + 4)]
    ends = intake().prepare("t", table, ASSUMED, 0).ends
    assert ends.tolist() == [sum(sizes[: number + 1]) for number in range(4)]


def test_columns_of_nulls_take_nothing() -> None:
    table = pa.table({"value": pa.nulls(2), "key": pa.nulls(2), "headers": pa.nulls(2), "timestamp": pa.nulls(2)})
    assert intake().prepare("t", table, ASSUMED, 0).ends.tolist() == [OVERHEAD, 2 * OVERHEAD]
    (records,) = sent(intake(), table).values()
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in records] == [(None, None, [], WALL_MS)] * 2


@pytest.mark.parametrize(
    ("buffer_memory", "max_request_size", "portion"),
    [(8000, 2000, 20), (8000, 8000, 50), (1_000_000, 2000, 100)],
)
def test_a_table_is_encoded_in_equal_portions_of_a_quarter_of_the_memory_or_one_batch(
    buffer_memory: int, max_request_size: int, portion: int
) -> None:
    made = intake(buffer_memory=buffer_memory, max_request_size=max_request_size)
    found = encoded(made, rows_of(100, 100, partition=[0, 1] * 50))
    assert runs(found) == [(0, portion // 2), (1, portion // 2)] * (100 // portion)


@pytest.mark.parametrize(("more", "portions"), [(0, 1), (1, 2)])
def test_no_portion_is_larger_than_sixteen_mebibytes(more: int, portions: int) -> None:
    made = intake(max_request_size=4 << 20, buffer_memory=128 << 20)
    values = [bytes((2 << 20) - OVERHEAD)] * 7 + [bytes((2 << 20) - OVERHEAD + more)]
    found = encoded(made, pa.table({"value": values, "partition": [0, 1] * 4}))
    assert len(runs(found)) == 2 * portions


def test_a_row_larger_than_a_portion_is_one_of_its_own() -> None:
    made = intake(buffer_memory=4000, max_request_size=1000)
    table = pa.table({"value": [b"1", bytes(900), b"2"], "partition": [0, 0, 0]})
    assert [rows.record_count for *_, rows in encoded(made, table)] == [1, 1, 1]


@pytest.mark.parametrize("partition", [0, None])
def test_no_batch_is_larger_than_a_request_the_memory_or_a_megabyte(partition: int | None) -> None:
    def largest(size: int, **settings: object) -> int:
        table = rows_of(40, size, partition=pa.array([partition] * 40, pa.int64()))
        return max(rows.size for *_, rows in encoded(intake(**settings), table))

    assert 1000 < largest(100, max_request_size=2000) < 1663
    assert 1500 < largest(100, buffer_memory=2000, max_request_size=9000) <= 2000
    assert 800_000 < largest(90_000, max_request_size=9_000_000) <= 1_000_000


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"buffer_memory": 500, "max_request_size": 600}, r"buffer\.memory \(500\)"),
        ({"buffer_memory": 600, "max_request_size": 500}, r"max\.request\.size \(500\)"),
    ],
)
def test_a_row_that_is_too_large_is_named_with_the_limit(settings: dict[str, Any], limit: str) -> None:
    table = pa.table({"value": [b"", bytes(450), b""]})
    with pytest.raises(RecordTooLargeError, match=f"row 1: a record of 464 bytes is larger than {limit}"):
        intake(**settings).prepare("t", table, ASSUMED, 0)


@pytest.mark.parametrize("names_topics", [True, False])
def test_an_empty_table_is_nothing_to_send(names_topics: bool) -> None:
    schema = pa.schema(
        [("value", pa.binary()), ("key", pa.binary()), ("partition", pa.int32()), ("topic", pa.string())]
    )
    assert encoded(intake(), schema.empty_table(), PLACES, None if names_topics else "t") == []


def test_a_topic_that_is_not_in_a_portion_gets_nothing_of_it() -> None:
    made = intake(buffer_memory=8000, max_request_size=2000)
    table = rows_of(80, 100, topic=["t"] * 40 + ["u"] * 40)
    found = encoded(made, table, ASSUMED, None)
    assert [name for name, _ in groupby(found, key=lambda batch: batch[0])] == ["t", "u"]
    assert sum(rows.record_count for name, _, rows in found if name == "t") == 40


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_topics_of_any_kind_of_text(kind: Any) -> None:
    values = pa.array([b"1", b"2", b"3"], pa.binary_view())
    table = pa.table({"value": values, "topic": pa.array(["t", "u", "t"]).cast(kind), "partition": [2, 0, 1]})
    prepared = intake().prepare(None, table, PLACES, WALL_MS)
    assert [intake().highest_partition(prepared, name) for name in prepared.topics] == [2, 0]
    found = sent(intake(), table, None)
    shown = {place: [record.value for record in records] for place, records in found.items()}
    assert shown == {("t", 2): [b"1"], ("u", 0): [b"2"], ("t", 1): [b"3"]}


# Rows without a wish


def drawing(numbers: list[int]) -> tuple[Callable[[int], int], list[int]]:
    """Randomness that gives these numbers, and what was asked for."""
    bounds: list[int] = []

    def draw(bound: int) -> int:
        bounds.append(bound)
        return numbers[len(bounds) - 1]

    return draw, bounds


def made_with(draw: Callable[[int], int], **settings: object) -> Any:
    given = {"bootstrap.servers": "x:1", **{name.replace("_", "."): value for name, value in settings.items()}}
    return open_table_intake(ProducerSettings.parse(given), None, draw, lambda topic: NO_BACKLOG)


# Then a batch, and what goes to one partition, has room for ten rows of a size that is a tenth of it.
TEN_FIT = {"max_request_size": 1997, "buffer_memory": 100_000}
TENTH = 166


@pytest.mark.parametrize(
    ("count", "expected", "expected_bounds"),
    [
        (9, [(1, 9)], [3]),
        (10, [(1, 10)], [3]),
        (27, [(1, 9), (1, 9), (2, 9)], [3, 2]),
        (40, [(1, 10), (2, 10), (0, 10), (1, 10)], [3, 2, 2, 2]),
        (41, [(1, 8), (1, 8), (2, 8), (2, 8), (0, 9)], [3, 2, 2]),
    ],
)
def test_neighbours_share_equal_batches_and_after_as_many_bytes_as_a_batch_has_it_is_anothers_turn(
    count: int, expected: list[tuple[int, int]], expected_bounds: list[int]
) -> None:
    draw, bounds = drawing([1, 1, 0, 0, 0])
    made = made_with(draw, **TEN_FIT)
    found = [(partition, rows.record_count) for _, partition, rows in encoded(made, rows_of(count, TENTH), ASSUMED)]
    assert found == expected and bounds == expected_bounds


def test_rows_without_a_wish_among_others_stay_together_until_a_batch_is_full() -> None:
    draw, bounds = drawing([2, 0, 0])
    asked = [1, None] * 30
    values = [b"%0*d" % (TENTH - OVERHEAD, number) for number in range(60)]
    found: dict[int, list[int]] = {}
    for _, partition, rows in encoded(
        made_with(draw, **TEN_FIT), pa.table({"value": values, "partition": pa.array(asked, pa.int32())})
    ):
        found.setdefault(partition, []).extend(int(record.value or b"") for record in read_records(bytes(rows.make())))
    free = [number for number, partition in enumerate(asked) if partition is None]
    assert found == {2: free[:10], 0: free[10:20], 1: sorted([*range(0, 60, 2), *free[20:]])}
    assert bounds == [3, 2, 2]


def test_rows_with_a_wish_do_not_count_for_those_without() -> None:
    draw, bounds = drawing([2, 0])
    made = made_with(draw, max_request_size=2000, buffer_memory=100_000)
    values = [bytes(1000), b"1", bytes(1000), b"2", bytes(1000), b"3"]
    found = encoded(made, pa.table({"value": values, "partition": pa.array([0, None] * 3, pa.int32())}))
    assert sum(rows.record_count for _, partition, rows in found if partition == 2) == 3 and bounds == [3]


def test_one_table_after_the_other_fills_the_same_batch() -> None:
    draw, bounds = drawing([2, 0])
    made = made_with(draw)
    for _ in range(2):
        assert {partition for _, partition, _ in encoded(made, rows_of(3, 100), ASSUMED)} == {2}
        wishes = pa.table({"value": [b"x"], "partition": pa.nulls(1)})
        assert {partition for _, partition, _ in encoded(made, wishes)} == {2}
    assert bounds == [3]


@pytest.mark.parametrize("ignore_keys", [True, False])
def test_ignored_keys_are_no_wish(ignore_keys: bool) -> None:
    table = pa.table({"key": [b"a", b"b", b"c", b"d"], "value": [b""] * 4})
    made = intake(partitioner_ignore_keys=ignore_keys)
    assert len(runs(encoded(made, table, ASSUMED))) == (1 if ignore_keys else 2)
    asked = table.append_column("partition", pa.array([1, None, None, None], pa.int32()))
    found = dict(runs(encoded(intake(partitioner_ignore_keys=ignore_keys), asked)))
    assert found == ({0: 3, 1: 1} if ignore_keys else {1: 2, 2: 2})


# What batches say of themselves


@pytest.mark.parametrize(
    ("settings", "codec", "transactional", "has_checksum"),
    [
        ({}, Codec.NONE, False, False),
        ({"compression_type": "gzip"}, Codec.GZIP, False, True),
        ({"transactional_id": "x"}, Codec.NONE, True, False),
        ({"enable_idempotence": False}, Codec.NONE, False, True),
    ],
)
def test_batches_are_as_the_settings_want_them(
    settings: dict[str, Any], codec: Codec, transactional: bool, has_checksum: bool
) -> None:
    ((_, _, rows),) = encoded(intake(**settings), pa.table({"value": [b"x" * 50, b"y"]}), ASSUMED)
    data = bytes(rows.make())
    header = read_header(data)
    assert (header.codec, header.is_transactional) == (codec, transactional)
    assert crc_is_valid(data, header) is has_checksum
    assert [record.timestamp for record in read_records(data)] == [WALL_MS, WALL_MS]


def test_levels_of_compression_count() -> None:
    table = pa.table({"value": [b"abcdefgh%d" % number for number in range(2000)]})

    def size(level: int) -> int:
        made = intake(compression_type="gzip", compression_gzip_level=level)
        return sum(len(rows.make()) for *_, rows in encoded(made, table, ASSUMED))

    assert size(1) > size(9)


# What cannot be sent, and what can


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (ASSUMED._replace(key="id"), "no column 'id' for the key; its columns: value, other"),
        (ASSUMED._replace(timestamp="id"), "no column 'id' for the timestamp"),
        (ASSUMED._replace(value="key"), "no column 'key' for the value"),
        (ASSUMED._replace(value=None), "value_column must name a column"),  # type: ignore[arg-type]
        (ASSUMED._replace(partition="partition"), "no column 'partition' for the partition"),
    ],
)
def test_columns_that_were_asked_for_have_to_be_there(columns: TableColumns, complaint: str) -> None:
    with pytest.raises(SerializationError, match=complaint):
        intake().prepare("t", pa.table({"value": [b""], "other": [1]}), columns, 0)


def test_no_two_columns_are_the_same_part() -> None:
    table = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(SerializationError, match="the table has 2 columns 'value'"):
        intake().prepare("t", table, ASSUMED, 0)
    unnamed = pa.Table.from_arrays([pa.array([b"a"]), pa.array([1]), pa.array([2])], names=["value", "x", "x"])
    assert intake().prepare("t", unnamed, ASSUMED, 0).table.column_names == ["value"]


def test_what_is_not_a_part_of_records_is_not_sent() -> None:
    table = pa.table({"value": [b"v"], "key": [b"k"], "other": [5]})
    (records,) = sent(intake(), table).values()
    assert [(record.key, record.value) for record in records] == [(b"k", b"v")]
    no_key = ASSUMED._replace(key=None)
    assert intake().prepare("t", table, no_key, 0).table.column_names == ["value"]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.timestamp("s"), 3, 3000),
        (pa.timestamp("ms"), 3, 3),
        (pa.timestamp("us"), 3999, 3),
        (pa.timestamp("ns", tz="UTC"), 3_999_999, 3),
        (pa.int32(), 3, 3),
        (pa.int64(), 0, 0),
        (pa.int64(), None, WALL_MS),
    ],
    ids=str,
)
def test_timestamps_are_milliseconds_whatever_their_unit(kind: Any, given: int | None, expected: int) -> None:
    table = pa.table({"value": [b""], "timestamp": pa.array([given], kind)})
    (records,) = sent(intake(), table).values()
    assert [record.timestamp for record in records] == [expected]


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.uint64()], ids=str)
def test_timestamps_too_far_in_the_future_are_refused(kind: Any) -> None:
    table = pa.table({"value": [b""], "timestamp": pa.array([2**63 - 1 if kind != pa.uint64() else 2**63], kind)})
    with pytest.raises(SerializationError, match="does not fit 64 bits"):
        intake().prepare("t", table, ASSUMED, 0)


@pytest.mark.parametrize("kind", [HEADERS, pa.list_view(HEADERS.value_type), pa.large_list(HEADERS.value_type)])
def test_headers_of_any_kind_of_list(kind: Any) -> None:
    headers = [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]
    table = pa.table({"value": [b""] * 3, "headers": pa.array(headers, kind)})
    table = pa.concat_tables([table.slice(1), table])
    (records,) = sent(intake(), table).values()
    pairs = [("a", b"1"), ("b", None)]
    assert [list(record.headers) for record in records] == [pairs, [], [], pairs, []]


def test_a_header_without_a_name_is_refused_for_its_topic() -> None:
    table = pa.table({"value": [b""], "headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)})
    with pytest.raises(SerializationError, match="t: a header has no key"):
        encoded(intake(), table, ASSUMED)


@pytest.mark.parametrize(
    ("asked", "kind", "named"),
    [([0, None, 5, 7], pa.int32(), 5), ([2**64 - 1, 0], pa.uint64(), 2**64 - 1), ([3], pa.int8(), 3)],
)
def test_the_first_partition_that_is_not_there_is_named(asked: list[int | None], kind: Any, named: int) -> None:
    table = pa.table({"value": [b""] * len(asked), "partition": pa.array(asked, kind)})
    with pytest.raises(ClientError, match=f"topic t has the partitions 0 to 2, and no partition {named}$"):
        encoded(intake(), table)


def test_who_asks_for_no_partition_gets_any() -> None:
    table = pa.table({"value": [b""] * 2, "partition": pa.nulls(2)})
    assert intake().highest_partition(intake().prepare("t", table, PLACES, 0), "t") is None
    assert runs(encoded(intake(), table)) == [(0, 2)]


@pytest.mark.parametrize("chosen", [-1, 3])
def test_a_partitioner_is_asked_about_rows_without_keys_and_has_to_name_one_that_is_there(chosen: int) -> None:
    table = pa.table({"value": [b"0", b"2"]})
    asked: list[Any] = []

    def choose(topic: str, key: Any, value: Any, count: int, available: Any) -> int:
        asked.append((topic, key, value))
        return int(value)

    assert runs(encoded(intake(choose), table, ASSUMED)) == [(0, 1), (2, 1)]
    assert asked == [("t", None, b"0"), ("t", None, b"2")]
    with pytest.raises(ClientError, match=f"no partition {chosen}"):
        encoded(intake(lambda *_: chosen), table, ASSUMED)
