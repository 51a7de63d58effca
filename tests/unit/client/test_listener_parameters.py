"""The parameters a listener may have: which are refused and in which words, and what comes in each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from annotated_types import Gt

from ottla.base.types import TopicPartition
from ottla.client.app.calls import Call, name_of
from ottla.client.app.payloads import PayloadError, decoder_for, encode
from ottla.client.core.consumer.record import ConsumerRecord, make_record_class
from ottla.client.errors import DeserializationError, ListenerError
from ottla.records.batch import TimestampType


def record(key: bytes | None = b"k", value: bytes | None = b"7") -> ConsumerRecord[bytes | None, bytes | None]:
    made = make_record_class("t", 3, TimestampType.CREATE_TIME, None)
    return made(5, 1000, key, value, (("h", b"1"),))


def many(*values: int) -> None: ...


def any_names(**values: int) -> None: ...


def nameless(value: int, /) -> None: ...


def key_alone(key) -> None: ...  # type: ignore[no-untyped-def]


def key_of_bytes_within(value: int, key: list[bytes]) -> None: ...


def third(first: int, key: str, second: str) -> None: ...


def nothing_at_all() -> None: ...


def elsewhere(value: list[Elsewhere]) -> None: ...  # type: ignore[name-defined]  # noqa: F821


HAVE_NAMES = "a listener's parameters have names, but there is "


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (many, f"many: {HAVE_NAMES}*values: 'int'"),
        (any_names, f"any_names: {HAVE_NAMES}**values: 'int'"),
        (nameless, f"nameless: {HAVE_NAMES}value: 'int'"),
        (key_alone, "key_alone: annotate key with its type (bytes, str, dict, a dataclass, …)"),
        (
            key_of_bytes_within,
            "key_of_bytes_within: key: bytes can be all of a payload (also `bytes | None`), but JSON has none",
        ),
        (
            third,
            "third: second would be a second payload; a listener has one, and may ask for key, headers, and the"
            " record (annotated as ConsumerRecord)",
        ),
        (nothing_at_all, "nothing_at_all: a listener takes the payload, or the record (ConsumerRecord)"),
        (elsewhere, "elsewhere: an annotation uses Elsewhere, which its module does not have"),
    ],
)
def test_what_no_listener_can_take_is_said_in_full(function: Callable[..., object], words: str) -> None:
    with pytest.raises(ListenerError) as refused:
        Call(function)
    assert refused.value.message == words


def origin_only(origin: ConsumerRecord) -> None: ...


def all_but_a_payload(origin: ConsumerRecord[Any, Any], key: bytes | None, headers) -> None: ...  # type: ignore[no-untyped-def]


def with_default(value: bytes = b"", unused: int = 3) -> None: ...


def keyword_only(*, value: Annotated[int, Gt(6)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (origin_only, {"origin": record()}),
        (all_but_a_payload, {"origin": record(), "key": b"k", "headers": {"h": b"1"}}),
        (with_default, {"value": b"7"}),
        (keyword_only, {"value": 7}),
    ],
)
def test_what_comes_in_each(function: Callable[..., object], expected: dict[str, object]) -> None:
    assert Call(function).arguments(record()) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (record(key=b"\xff"), "t-3 at offset 5: key: not UTF-8"),
        (record(key=None), "t-3 at offset 5: key: there is no value (it is null)"),
        (record(value=b"seven"), "t-3 at offset 5: value: not JSON: "),
    ],
)
def test_the_part_that_does_not_fit_is_named(given: Any, words: str) -> None:
    def listen(value: int, key: str) -> None: ...

    with pytest.raises(DeserializationError) as refused:
        Call(listen).arguments(given)
    place = words.split(": ")[1]
    assert f"{place}: " in refused.value.message and words.rpartition(f"{place}: ")[2] in refused.value.message
    assert (refused.value.topic_partition, refused.value.offset) == (TopicPartition("t", 3), 5)
    assert isinstance(refused.value.__cause__, PayloadError)


def test_a_listener_has_the_name_of_its_function_or_class() -> None:
    class Listening:
        def __call__(self, value: bytes) -> None: ...

        def heard(self, value: bytes) -> None: ...

    inner = "test_a_listener_has_the_name_of_its_function_or_class.<locals>."
    assert name_of(many) == "many"
    assert name_of(Listening()) == f"{inner}Listening"
    assert name_of(Listening().heard) == f"{inner}Listening.heard"
    assert name_of(functools.partial(many)) == "partial"


# Payloads


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (memoryview(b"xy"), b"xy"),
        (bytearray(b"xy"), b"xy"),
        (frozenset({1}), b"[1]"),
        ("", b""),
        (b"", b""),
        (0, b"0"),
        ([None, True], b"[null,true]"),
    ],
)
def test_other_things_are_sent_as_well(value: object, expected: bytes) -> None:
    found = encode(value)
    assert found == expected and type(found) is bytes


@pytest.mark.parametrize(
    ("count", "more"),
    [(1, ""), (2, ""), (3, ""), (4, "; and 1 more"), (7, "; and 4 more")],
)
def test_three_problems_are_told_and_the_others_counted(count: int, more: str) -> None:
    data = encode(["x"] * count)
    with pytest.raises(PayloadError) as refused:
        decoder_for(list[int])(data)
    told = "; ".join(f"[{index}] should be a valid integer, but is text" for index in range(min(count, 3)))
    assert str(refused.value) == told + more


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": {"b": [{"c": "x"}]}}', "a.b[0].c should be a valid integer, but is text"),
        (b'{"a": {"b": [7]}}', "a.b[0] should be an object, but is a number"),
        (b'{"a": {"b": {}}}', "a.b should be a valid array, but is an object"),
        (b'{"a": []}', "a should be an object, but is a list"),
        (b"null", "the payload should be an object, but is null"),
    ],
)
def test_a_place_deep_within_is_named(data: bytes, words: str) -> None:
    with pytest.raises(PayloadError) as refused:
        decoder_for(dict[str, dict[str, list[dict[str, int]]]])(data)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("annotation", "data", "words"),
    [
        (str | int, b"\xff", "not UTF-8"),
        (list[int] | None, b"x", "not JSON"),
        (dict[str, int] | int, b'{"a": "b"}', "a should be a valid integer, but is text"),
    ],
)
def test_where_several_things_would_do_what_comes_closest_is_told(annotation: Any, data: bytes, words: str) -> None:
    with pytest.raises(PayloadError) as refused:
        decoder_for(annotation)(data)
    assert words in str(refused.value)
