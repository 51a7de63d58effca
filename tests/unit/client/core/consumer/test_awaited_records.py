"""Deserializers that have to ask somebody first: which record is waited for, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.core.consumer.fetched_data import AwaitedRecord, Converters
from ottla.client.core.consumer.record import make_record_class
from ottla.client.errors import ClientError, DeserializationError
from ottla.records.batch import TimestampType

MADE = make_record_class("t", 0, TimestampType.CREATE_TIME, 0)


def records(*values: bytes) -> list[Any]:
    return [MADE(number, 1, b"k", value, ()) for number, value in enumerate(values)]


class Asking:
    """Has to ask for what it has not seen yet."""

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: set[bytes | None] = {b"known"}
        self.error = error

    def waits_to_deserialize(self, topic: str, data: bytes | None) -> bool:
        assert topic == "t"
        return data not in self.seen

    def deserialize(self, topic: str, data: bytes | None) -> str:
        if self.error is not None:
            raise self.error
        self.seen.add(data)
        return f"{topic}:{data!r}"


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_record_is_waited_for_once_and_the_rest_follows(part: str) -> None:
    asking = Asking()
    asking.seen.update([b"k"] if part == "value" else [b"known", b"new", b"other"])
    convert = Converters(asking if part == "key" else None, asking if part == "value" else None)
    given = records(b"known", b"new", b"new", b"other")
    found, awaited = convert.convert("t", given)
    assert isinstance(awaited, AwaitedRecord) and awaited is convert.awaited
    first = 1 if part == "value" else 0
    assert len(found) == first and awaited.record is given[first]
    assert (awaited.is_begun, awaited.is_done) == (False, False)
    assert convert.convert("t", given[first:]) == ([], awaited), "it is still the same that is waited for"
    awaited.run()
    assert awaited.is_done
    found, following = convert.convert("t", given[first:])
    if part == "key":
        assert [record.key for record in found] == ["t:b'k'"] * 4 and following is None
        assert found[0].value == b"known"
    else:
        assert [record.value for record in found] == ["t:b'new'"] * 2
        assert isinstance(following, AwaitedRecord) and following.record is given[3]
    assert (convert.awaited is None) is (part == "key")


def test_others_wait_for_their_turn() -> None:
    convert = Converters(None, Asking())
    first, second = records(b"one", b"two")
    _, awaited = convert.convert("t", [first])
    assert isinstance(awaited, AwaitedRecord)
    assert convert.convert("t", [second]) == ([], awaited)
    assert convert.convert("t", records(b"known"))[1] is None, "who needs not ask goes on"
    awaited.run()
    _, following = convert.convert("t", [second])
    assert isinstance(following, AwaitedRecord) and following.record is second, "what is done is in nobody's way"


@pytest.mark.parametrize("passes", [True, False])
def test_what_came_of_asking_is_told_where_the_record_is(passes: bool) -> None:
    error = ClientError("away", code=ErrorCode.NETWORK_EXCEPTION) if passes else ValueError("no number")
    convert = Converters(None, Asking(error))
    given = records(b"new", b"known")
    _, awaited = convert.convert("t", given)
    assert isinstance(awaited, AwaitedRecord)
    awaited.run()
    assert awaited.is_done
    with pytest.raises(type(error)) as raised:
        awaited.result()
    assert raised.value is error
    found, obstacle = convert.convert("t", given)
    assert found == [] and convert.awaited is None
    if passes:
        assert obstacle is error
    else:
        assert isinstance(obstacle, DeserializationError) and obstacle.__cause__ is error
        assert (obstacle.offset, obstacle.topic_partition) == (0, ("t", 0))
        assert obstacle.message == (
            "t-0: the record at offset 0 cannot be deserialized (no number); seek to 1 to pass over it"
        )


def test_an_object_wants_to_know_the_topic_and_a_function_does_not() -> None:
    (found,), _ = Converters(bytes.decode, Asking()).convert("t", records(b"known"))
    assert (found.key, found.value) == ("k", "t:b'known'")
    given = records(b"a")
    assert Converters(None, None).convert("t", given) == (given, None)
