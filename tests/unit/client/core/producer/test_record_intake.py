"""How a record becomes bytes: interceptors, serializers, and what may not be one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import InvalidConfigError
from ottla.client.core.producer import record_intake
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import RecordMetadata, record_size
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.record_intake import ProducerRecord, RecordIntake, check_parts, listed
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.client.serdes.formats import StringSerde
from ottla.records.batch import HEADER_SIZE
from tests.log_lines import lines_of

SETTINGS = ProducerSettings.parse({"bootstrap.servers": "x:1"})


def intake(**options: Any) -> RecordIntake:
    accumulator = Accumulator(
        batch_size=100, buffer_memory=1000, delivery_timeout_ms=1000, random_below=lambda bound: 0
    )
    return RecordIntake(SETTINGS, accumulator, **options)


class Appending:
    """An interceptor that adds to values, or does something odd."""

    def __init__(self, text: bytes, result: Any = None) -> None:
        self.text = text
        self.result = result
        self.outcomes: list[ClientError | None] = []

    def on_send(self, record: ProducerRecord) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result or record._replace(value=record.value + self.text)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ClientError | None) -> None:
        self.outcomes.append(error)
        if isinstance(self.result, Exception):
            raise self.result


@pytest.mark.parametrize("odd", [RuntimeError("broken"), "no record"])
def test_an_interceptor_that_fails_is_passed_over(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    chain = [Appending(b"1"), Appending(b"2", odd), Appending(b"3")]
    assert intake(interceptors=chain).prepare(ProducerRecord("t", b"x")).value == b"x13"
    assert len(lines_of(caplog, record_intake.__name__)) == 1


def test_interceptors_hear_of_what_was_never_sent(caplog: pytest.LogCaptureFixture) -> None:
    chain = [Appending(b"", RuntimeError("broken")), Appending(b"")]
    error = RecordTooLargeError("too large")
    intake(interceptors=chain).refused(error)
    intake(interceptors=chain).refused(ZeroDivisionError("of a partitioner"))
    for interceptor in chain:
        first, second = interceptor.outcomes
        assert first is error and second is not None and "of a partitioner" in second.message
    assert len(lines_of(caplog, record_intake.__name__)) == 2


def test_none_passes_by_functions_and_objects_decide() -> None:
    functions = intake(key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode())
    prepared = functions.prepare(ProducerRecord("t", None, None))
    assert (prepared.key, prepared.value) == (None, None)
    prepared = functions.prepare(ProducerRecord("t", [1], "k"))
    assert (prepared.key, prepared.value) == (b"k", b"[1]")

    class Explicit:
        def serialize(self, topic: str, value: Any) -> bytes:
            return repr(value).encode()

    assert intake(value_serializer=Explicit()).prepare(ProducerRecord("t", None)).value == b"None"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"key_serializer": 5}, "key_serializer must be a function"),
        ({"value_serializer": "string"}, "value_serializer must be a function"),
        ({"value_serializer": StringSerde}, "not the class itself"),
        ({"partitioner": "roundrobin"}, "partitioner must be a function"),
        ({"interceptors": object()}, "interceptors must be a list"),
        ({"interceptors": [object()]}, "has no method on_send"),
        ({"interceptors": [SimpleNamespace(on_send=print)]}, "has no method on_acknowledgement"),
    ],
)
def test_parts_that_cannot_be(parts: dict[str, Any], reason: str) -> None:
    none = {"key_serializer": None, "value_serializer": None, "partitioner": None, "interceptors": ()}
    with pytest.raises(InvalidConfigError, match=reason):
        check_parts(**{**none, **parts})


def test_any_values_are_listed() -> None:
    assert listed(number for number in range(3)) == [0, 1, 2]
    with pytest.raises(SerializationError, match="several values"):
        listed(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("timestamp_ms", "is_fine"), [(0, True), (2**63 - 1, True), (2**63, False), (-1, False)])
def test_timestamps_have_bounds(timestamp_ms: int, is_fine: bool) -> None:
    record = ProducerRecord("t", b"x", timestamp_ms=timestamp_ms)
    if is_fine:
        assert intake().prepare(record).timestamp_ms == timestamp_ms
    else:
        with pytest.raises(SerializationError, match="timestamp"):
            intake().prepare(record)


@pytest.mark.parametrize("timestamp_ms", [1.0, True, "1"])
def test_timestamps_are_whole_numbers(timestamp_ms: Any) -> None:
    with pytest.raises(SerializationError, match="timestamp"):
        intake().prepare(ProducerRecord("t", b"x", timestamp_ms=timestamp_ms))


@pytest.mark.parametrize(
    ("partition", "is_fine"),
    [(0, True), (2**31 - 1, True), (np.int32(7), True), (-1, False), (2**31, False), ("0", False)],
)
def test_partitions_have_bounds(partition: Any, is_fine: bool) -> None:
    record = ProducerRecord("t", b"x", partition=partition)
    if is_fine:
        assert intake().prepare(record).partition == int(partition)
    else:
        with pytest.raises(SerializationError, match="partition must be"):
            intake().prepare(record)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), ()),
        ({}, ()),
        ({"a": b"1", "b": None}, [("a", b"1"), ("b", None)]),
        ([("a", b""), ("ä", b"")], [("a", b""), ("ä", b"")]),
        (iter([("a", b"1")]), [("a", b"1")]),
    ],
)
def test_headers_are_pairs(headers: Any, expected: Any) -> None:
    assert intake().prepare(ProducerRecord("t", b"x", headers=headers)).headers == expected


@pytest.mark.parametrize(
    "headers", [5, ["a"], [("a",)], [("a", "1")], [(b"a", b"1")], [("a", b"1", 2)], {"\ud800": b""}]
)
def test_what_are_no_headers(headers: Any) -> None:
    with pytest.raises(SerializationError, match="header"):
        intake().prepare(ProducerRecord("t", b"x", headers=headers))


@pytest.mark.parametrize(
    "record",
    [
        ProducerRecord("t"),
        ProducerRecord("t", b"value"),
        ProducerRecord("t", None, b"key"),
        ProducerRecord("t", bytearray(b"value"), memoryview(b"key"), {"name": b"12", "none": None}),
    ],
)
def test_the_size_is_what_batches_count(record: ProducerRecord) -> None:
    prepared = intake().prepare(record)
    assert prepared.size == record_size((prepared.key, prepared.value, prepared.headers, 0))


@pytest.mark.parametrize(
    ("settings", "name"), [({"max.request.size": 500}, "max.request.size"), ({"buffer.memory": 500}, "buffer.memory")]
)
def test_a_record_has_to_fit_with_the_header_of_its_batch(settings: dict[str, int], name: str) -> None:
    fitting = 500 - HEADER_SIZE - record_size((None, b"", (), 0))
    parsed = ProducerSettings.parse({"bootstrap.servers": "x:1", "batch.size": 100, **settings})
    box = Accumulator(batch_size=100, buffer_memory=500, delivery_timeout_ms=1, random_below=lambda bound: 0)
    strict = RecordIntake(parsed, box)
    assert strict.prepare(ProducerRecord("t", bytes(fitting))).size == 500 - HEADER_SIZE
    assert strict.prepare_values("t", [b"", bytes(fitting)], 1) is not None
    for too_much in (
        lambda: strict.prepare(ProducerRecord("t", bytes(fitting + 1))),
        lambda: strict.prepare_values("t", [bytes(fitting + 1), b""], 1),
    ):
        with pytest.raises(RecordTooLargeError, match=name):
            too_much()
    strict.take_any_size()
    if name == "max.request.size":
        assert strict.prepare(ProducerRecord("t", bytes(fitting + 1)))


@given(st.lists(st.integers(0, 50).map(bytes), min_size=1))
def test_many_values_are_measured_like_one(values: list[bytes]) -> None:
    prepared = intake().prepare_values("t", values, 7)
    assert prepared is not None
    assert prepared.lengths == list(map(len, values))
    sizes = [intake().prepare(ProducerRecord("t", value)).size for value in values]
    assert list(prepared.ends) == [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    assert (prepared.topic, prepared.values, prepared.wall_ms) == ("t", values, 7)


@pytest.mark.parametrize(
    ("options", "is_plain"),
    [
        ({}, True),
        ({"key_serializer": str.encode}, False),
        ({"value_serializer": str.encode}, False),
        ({"partitioner": lambda *_: 0}, False),
        ({"interceptors": [Appending(b"")]}, False),
    ],
)
def test_only_plain_bytes_are_taken_many_at_once(options: dict[str, Any], is_plain: bool) -> None:
    made = intake(**options)
    assert made.is_plain is is_plain
    assert (made.prepare_values("t", [b"x"], 1) is not None) is is_plain
    assert made.prepare_values("t", [b"x", None], 1) is None
    assert made.prepare_values("t", [bytearray()], 1) is None


class Asking:
    """A serializer that has to ask somebody about what it has not seen yet."""

    def __init__(self, *unseen: object, error: Exception | None = None) -> None:
        self.unseen = unseen
        self.error = error

    def __call__(self, data: Any) -> bytes:
        return str(data).encode()

    def waits_to_serialize(self, topic: str, data: object) -> bool:
        assert topic == "t"
        if self.error is not None:
            raise self.error
        return data in self.unseen


@pytest.mark.parametrize(("key", "value", "waits"), [("k", "v", False), ("new", "v", True), ("k", "new", True)])
def test_who_has_to_ask_for_a_record_is_asked_before(key: str, value: str, waits: bool) -> None:
    record = ProducerRecord("t", value, key)
    both = intake(key_serializer=Asking("new"), value_serializer=Asking("new"))
    assert both.may_wait and both.waits_to_serialize(record) is waits
    one = intake(value_serializer=Asking("new"))
    assert one.may_wait and one.waits_to_serialize(record) is (value == "new")
    neither = intake(value_serializer=str.encode)
    assert not neither.may_wait and not neither.waits_to_serialize(record)


def test_a_serializer_that_fails_to_say_whether_it_waits() -> None:
    failing = intake(key_serializer=Asking(), value_serializer=Asking(error=KeyError("oh")))
    with pytest.raises(SerializationError, match="t: waits_to_serialize failed for the value: 'oh'"):
        failing.waits_to_serialize(ProducerRecord("t", "v", "k"))
    with pytest.raises(ClientError, match="mine"):
        intake(key_serializer=Asking(error=ClientError("mine"))).waits_to_serialize(ProducerRecord("t", "v", "k"))


@pytest.mark.parametrize("topic", [5, None, b"t"])
def test_a_topic_is_a_name(topic: Any) -> None:
    with pytest.raises(SerializationError, match=f"^INVALID_RECORD: the topic must be a name, but was {topic!r}$"):
        intake().prepare(ProducerRecord(topic, b"x"))


def failing_with(error: Exception) -> Any:
    def serialize(value: object) -> bytes:
        raise error

    return serialize


def test_whatever_a_serializer_raises_is_told_with_the_topic_and_the_field() -> None:
    reason = KeyError("oh")
    for field in ("key", "value"):
        made = intake(**{f"{field}_serializer": failing_with(reason)})
        with pytest.raises(SerializationError) as raised:
            made.prepare(ProducerRecord("t", b"v", b"k"))
        assert raised.value.message == f"t: the {field} could not be serialized: 'oh'"
        assert raised.value.__cause__ is reason
        own = ClientError("mine")
        with pytest.raises(ClientError) as passed:
            intake(**{f"{field}_serializer": failing_with(own)}).prepare(ProducerRecord("t", b"v", b"k"))
        assert passed.value is own


@pytest.mark.parametrize("field", ["key", "value"])
def test_what_is_no_bytes_is_refused_and_whose_fault_it_is(field: str) -> None:
    record = ProducerRecord("t", **{field: "text"})
    with pytest.raises(SerializationError) as raised:
        intake().prepare(record)
    assert raised.value.message == (
        f"t: the {field} must be bytes or None, but was str; give the producer a {field}_serializer"
    )
    with pytest.raises(SerializationError) as raised:
        intake(**{f"{field}_serializer": len}).prepare(record)
    assert raised.value.message == f"t: the {field}_serializer must give bytes or None, but gave int"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("serializes", [False, True])
def test_bytes_of_any_kind_become_bytes(kind: Any, serializes: bool) -> None:
    made = intake(key_serializer=kind, value_serializer=kind) if serializes else intake()
    prepared = made.prepare(ProducerRecord("t", kind(b"v"), kind(b"k")))
    assert (prepared.key, prepared.value) == (b"k", b"v")
    assert type(prepared.key) is type(prepared.value) is bytes


def test_an_object_is_told_the_topic_and_a_function_only_the_value() -> None:
    class Told:
        def serialize(self, topic: str, value: Any) -> bytes:
            return f"{topic}/{value}".encode()

    prepared = intake(key_serializer=Told(), value_serializer=str.encode).prepare(ProducerRecord("t", "v", "k"))
    assert (prepared.key, prepared.value) == (b"t/k", b"v")


@pytest.mark.parametrize("serializer", [None, str.encode, bytes, StringSerde()])
def test_parts_that_can_be(serializer: Any) -> None:
    first, second = Appending(b"1"), Appending(b"2")
    none = {"key_serializer": None, "value_serializer": None, "partitioner": None, "interceptors": ()}
    assert check_parts(**none) == ()
    assert check_parts(**{**none, "key_serializer": serializer}) == ()
    assert check_parts(**{**none, "value_serializer": serializer, "partitioner": print}) == ()
    assert check_parts(**{**none, "interceptors": iter([first, second])}) == (first, second)
