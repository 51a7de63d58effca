"""How a record becomes bytes: interceptors, serializers, and what may not be one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.client.core.producer import record_intake
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.record_intake import ProducerRecord, RecordIntake, check_parts, listed
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.client.serdes.formats import StringSerde
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
