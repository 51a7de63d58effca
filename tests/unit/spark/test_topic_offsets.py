"""Where a source starts and ends, by what brokers say of its partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes, admin_error
from ottla.client.errors import ClientError
from ottla.spark import topic_offsets
from ottla.spark.data_loss import DataLossError
from ottla.spark.options import SourceOptions
from ottla.spark.topic_offsets import MissingTopicError, TopicOffsets, log_bounds

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EARLIEST, LATEST = -2, -1
BOUNDS = {A0: (10, 20), A1: (0, 5), B0: (7, 7), TopicPartition("__inside", 0): (0, 1)}
NOT_THERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Brokers:
    """An admin client of topics with the bounds above; record of time t has the offset t."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.asked_of_group: list[object] = []
        self.read_committed: list[bool] = []
        self.errors: dict[object, ErrorCode] = {}

    def describe_topics(self, names: list[str] | None = None) -> Outcomes[str, Any]:
        there = sorted({tp.topic for tp in BOUNDS})
        wanted = there if names is None else names
        return Outcomes({name: self._described(name) if name in there else self._refused(name) for name in wanted})

    def _described(self, name: str) -> Any:
        partitions = [SimpleNamespace(partition=tp.partition) for tp in BOUNDS if tp.topic == name]
        return SimpleNamespace(
            name=name, topic_id=f"id of {name}", is_internal=name.startswith("__"), partitions=partitions
        )

    def _refused(self, what: object) -> ClientError:
        return admin_error(self.errors.get(what, NOT_THERE))

    def list_offsets(
        self, places: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Outcomes[TopicPartition, Any]:
        self.read_committed.append(read_committed)
        return Outcomes({tp: self._offset(tp, place) for tp, place in places.items()})

    def _offset(self, tp: TopicPartition, place: int) -> Any:
        if tp in self.errors or tp not in BOUNDS:
            return self._refused(tp)
        earliest, latest = BOUNDS[tp]
        at_time = max(earliest, place) if place < latest else -1
        return SimpleNamespace(offset={EARLIEST: earliest, LATEST: latest}.get(place, at_time))

    def list_group_offsets(self, groups: Any) -> dict[str, dict[TopicPartition, Any]]:
        self.asked_of_group.append(groups)
        return {group: {tp: SimpleNamespace(offset=at) for tp, at in self.committed.items()} for group in groups}


def offsets_of(brokers: Brokers, **options: str) -> TopicOffsets:
    given = {"kafka.bootstrap.servers": "nowhere:1", **options}
    if not any(name in options for name in ("subscribe", "subscribePattern", "assign")):
        given["subscribe"] = "a"
    make = SourceOptions.for_batch if any("ending" in name for name in options) else SourceOptions.for_stream
    return TopicOffsets(make(given), brokers)  # type: ignore[arg-type]


def as_text(offsets: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for tp, at in offsets.items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = at
    return json.dumps(topics)


def bounds(partitions: Iterable[TopicPartition], edge: int) -> dict[TopicPartition, int]:
    return {tp: BOUNDS[tp][edge] for tp in partitions}


@pytest.mark.parametrize(
    ("options", "partitions", "topics"),
    [
        ({"subscribe": "a"}, [A0, A1], ["a"]),
        ({"subscribe": "b,a"}, [A0, A1, B0], ["a", "b"]),
        ({"subscribePattern": ".*"}, [A0, A1, B0], ["a", "b"]),
        ({"subscribePattern": "b"}, [B0], ["b"]),
        ({"subscribePattern": "c"}, [], []),
        ({"assign": '{"a": [1], "b": [0]}'}, [A1, B0], ["a", "b"]),
    ],
)
def test_partitions_that_are_chosen(
    options: dict[str, str], partitions: list[TopicPartition], topics: list[str]
) -> None:
    logs = offsets_of(Brokers(), **options).first_logs()
    assert logs.earliest == bounds(partitions, 0)
    assert logs.latest == bounds(partitions, 1)
    assert logs.topic_ids == {name: f"id of {name}" for name in topics}
    assert offsets_of(Brokers(), **options).latest() == logs.latest
    assert offsets_of(Brokers(), **options).topic_ids() == logs.topic_ids


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "a,c,d"}, "there is no c, no d: "),
        ({"assign": '{"a": [0, 2], "c": [0]}'}, "there is no a-2, no c-0: "),
    ],
)
def test_what_is_named_must_be_there_at_the_beginning(options: dict[str, str], told: str) -> None:
    offsets = offsets_of(Brokers(), **options)
    with pytest.raises(MissingTopicError, match=told):
        offsets.first_logs()
    assert set(offsets.logs().latest) <= {A0, A1}, "later it may come and go"


@pytest.mark.parametrize("code", [NOT_THERE, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_partition_that_goes_while_it_is_asked_for_is_left_out(code: ErrorCode) -> None:
    brokers = Brokers()
    brokers.errors[A1] = code
    logs = offsets_of(brokers).logs()
    assert (logs.earliest, logs.latest) == ({A0: 10}, {A0: 20})


def test_any_other_error_is_one() -> None:
    brokers = Brokers()
    brokers.errors[A1] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ClientError) as refused:
        offsets_of(brokers).latest()
    assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_ends_are_those_of_the_sources_isolation(level: str) -> None:
    brokers = Brokers()
    offsets_of(brokers, **{"kafka.isolation.level": level}).latest()
    assert brokers.read_committed == [level == "read_committed"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, {A0: 10, A1: 0}),
        ({"startingOffsets": "latest"}, {A0: 20, A1: 5}),
        ({"startingOffsets": as_text({A0: 12, A1: 5})}, {A0: 12, A1: 5}),
        ({"startingOffsets": as_text({A0: EARLIEST, A1: LATEST})}, {A0: 10, A1: 5}),
        ({"startingOffsets": as_text({A0: LATEST, A1: EARLIEST})}, {A0: 20, A1: 0}),
        ({"startingTimestamp": "3"}, {A0: 10, A1: 3}),
        ({"startingTimestamp": "0"}, {A0: 10, A1: 0}),
        ({"startingTimestamp": "12", "startingOffsetsByTimestampStrategy": "latest"}, {A0: 12, A1: 5}),
        ({"startingOffsetsByTimestamp": as_text({A0: 12, A1: 3})}, {A0: 12, A1: 3}),
    ],
)
def test_where_a_source_starts(options: dict[str, str], expected: dict[TopicPartition, int]) -> None:
    offsets = offsets_of(Brokers(), **options)
    assert offsets.starting(offsets.logs()) == expected


def test_a_time_after_the_last_record_is_no_start() -> None:
    offsets = offsets_of(Brokers(), startingTimestamp="12")
    with pytest.raises(InvalidConfigError, match="a-1 has no record at or after the starting time"):
        offsets.starting(offsets.logs())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "latest"}, {A0: 20, A1: 5}),
        ({"endingOffsets": as_text({A0: 12, A1: LATEST})}, {A0: 12, A1: 5}),
        ({"endingTimestamp": "12"}, {A0: 12, A1: 5}),
        ({"endingTimestamp": "0"}, {A0: 10, A1: 0}),
        ({"endingOffsetsByTimestamp": as_text({A0: 13, A1: 99})}, {A0: 13, A1: 5}),
    ],
)
def test_where_a_batch_query_ends(options: dict[str, str], expected: dict[TopicPartition, int]) -> None:
    offsets = offsets_of(Brokers(), **options)
    assert offsets.ending(offsets.logs()) == expected


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("startingOffsets", {A0: 12}, "a-1 is missing"),
        ("startingOffsets", {A0: 12, A1: 1, B0: 7}, "b-0 is not among them"),
        ("startingOffsetsByTimestamp", {A1: 12}, "a-0 is missing"),
        ("endingOffsets", {A0: 12}, "a-1 is missing"),
        ("endingOffsetsByTimestamp", {A0: 12, A1: 1, B0: 7}, "b-0 is not among them"),
    ],
)
def test_offsets_are_those_of_all_partitions_and_no_others(
    option: str, given: dict[TopicPartition, int], told: str
) -> None:
    offsets = offsets_of(Brokers(), **{option: as_text(given)})
    place = offsets.ending if "ending" in option else offsets.starting
    with pytest.raises(InvalidConfigError, match=f"{option} must name all partitions .*; {told}"):
        place(offsets.logs())


@pytest.mark.parametrize(("at", "nearest"), [(9, 10), (10, 10), (20, 20), (21, 20)])
def test_offsets_that_are_not_in_the_log(at: int, nearest: int) -> None:
    given = as_text({A0: at, A1: 2})
    lenient = offsets_of(Brokers(), startingOffsets=given, failOnDataLoss="false")
    assert lenient.starting(lenient.logs()) == {A0: nearest, A1: 2}
    strict = offsets_of(Brokers(), startingOffsets=given)
    if at == nearest:
        assert strict.starting(strict.logs()) == {A0: at, A1: 2}
    else:
        with pytest.raises(DataLossError, match=f"startingOffsets has {at} for a-0, which holds 10 to 20"):
            strict.starting(strict.logs())


def test_a_group_says_where_to_start() -> None:
    brokers = Brokers()
    brokers.committed = {A0: 15}
    offsets = offsets_of(brokers, startingOffsets="group:g")
    assert offsets.starting(offsets.logs()) == {A0: 15, A1: 0}
    assert brokers.asked_of_group == [{"g": [A0, A1]}]
    assert {tp: one.offset for tp, one in offsets.committed("g").items()} == {A0: 15}
    brokers.committed = {B0: 7}
    with pytest.raises(InvalidConfigError, match="the group g has committed nothing in these topics"):
        offsets.starting(offsets.logs())


def test_the_bounds_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    monkeypatch.setattr(topic_offsets, "admin_for", lambda client: brokers)
    assert log_bounds({}, A0) == (10, 20)
    assert log_bounds({}, TopicPartition("a", 2)) is None
    assert brokers.read_committed == [False] * 4
