"""Payloads by annotation: what fits becomes the type, what does not is named by its place, there and back again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.app.calls import Call
from ottla.client.app.payloads import AnnotationError, PayloadError, decoder_for, encode
from ottla.client.core.consumer_record import ConsumerRecord, make_record_class
from ottla.client.errors import DeserializationError, ListenerError
from ottla.records.batch import TimestampType


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(StrEnum):
    SMALL = "small"


class Weight(str, Enum):  # noqa: UP042
    """As it was written before there was StrEnum."""

    LIGHT = "light"


@dataclass
class Line:
    article: str
    count: int
    price: Decimal = Decimal(1)


@dataclass
class Order:
    number: UUID
    at: datetime
    lines: list[Line]
    colour: Colour | None = None
    notes: dict[str, str] = field(default_factory=dict)
    weight: float = 0.0
    is_gift: bool = False
    parent: Order | None = None


class Options(TypedDict):
    size: int
    name: NotRequired[str]


class Model(pydantic.BaseModel):
    name: str
    count: int = pydantic.Field(ge=0)


class AliasedModel(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


@dataclass
class Parcel:
    order: AliasedModel
    size: Size


@pytest.mark.parametrize(
    ("annotation", "data", "expected"),
    [
        (bytes, b"\xff", b"\xff"),
        (str, "žluť".encode(), "žluť"),
        (str | None, None, None),
        (str | None, b"x", "x"),
        (Any, b'{"a": [1]}', {"a": [1]}),
        (Any, None, None),
        (dict, b'{"a": 1}', {"a": 1}),
        (list, b"[1, 2]", [1, 2]),
        (int, b"7", 7),
        (float, b"7", 7.0),
        (bool, b"true", True),
        (dict[str, list[int]], b'{"a": [1]}', {"a": [1]}),
        (tuple[int, ...], b"[1, 2]", (1, 2)),
        (set[str], b'["a", "a"]', {"a"}),
        (int | str, b'"a"', "a"),
        (Literal["a", "b"], b'"b"', "b"),
        (Colour, b'"red"', Colour.RED),
        (Size, b"small", Size.SMALL),
        (Size, b'"small"', Size.SMALL),
        (Weight | None, b"light", Weight.LIGHT),
        (date, b'"2024-02-29"', date(2024, 2, 29)),
        (Options, b'{"size": 1, "other": 2}', {"size": 1}),
        (Line, b'{"article": "x", "count": 2}', Line("x", 2)),
        (Model, b'{"name": "x", "count": 2}', Model(name="x", count=2)),
        (list[Model], b'[{"name": "x", "count": 2}]', [Model(name="x", count=2)]),
        (Model | None, None, None),
    ],
    ids=str,
)
def test_what_fits(annotation: Any, data: bytes | None, expected: Any) -> None:
    found = decoder_for(annotation)(data)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "data", "message"),
    [
        (bytes, None, "there is no value"),
        (dict, None, "there is no value"),
        (str, b"\xff", "not UTF-8"),
        (dict, b"{", "not JSON"),
        (dict, b"[]", "the payload must be an object, but is a list"),
        (int, b"true", "must be a whole number, but is true or false"),
        (int, b"1.5", "must be a whole number"),
        (list[int], b'[1, "2"]', r"\[1\] must be a whole number, but is text"),
        (dict[str, int], b'{"a": null}', "a must be a whole number, but is null"),
        (int | None, b'"x"', "must be a whole number"),
        (int | list[int], b'"x"', "a whole number, but is text; or the payload must be a list"),
        (Literal["a"], b'"b"', r"must be one of \['a'\], but is 'b'"),
        (Colour, b'"green"', "must be one of"),
        (Colour, b"red", "not JSON"),
        (Size, b"large", "must be one of"),
        (Size, b'"large"', "must be one of"),
        (date, b'"tomorrow"', "is no date: 'tomorrow'"),
        (date, b"1", "must be text"),
        (Line, b"{}", "article is missing"),
        (list[Line], b'[{"article": "x", "count": 1}, {"article": "y", "count": "1"}]', r"\[1\]\.count must be"),
        (Options, b"{}", "size is missing"),
        (Model, b'{"name": "x", "count": -1}', "greater than or equal to 0"),
        (Order, b"3", "the payload must be an object, but is a number"),
    ],
)
def test_what_does_not_fit(annotation: Any, data: bytes | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder_for(annotation)(data)


@pytest.mark.parametrize("annotation", [complex, list[complex], dict[int, str], tuple[int, str], type])
def test_annotations_nothing_can_be_made_for(annotation: Any) -> None:
    with pytest.raises(AnnotationError, match="nothing is known about"):
        decoder_for(annotation)


TEXT = st.text(max_size=5)
LINES = st.builds(Line, TEXT, st.integers(), st.decimals(allow_nan=False, allow_infinity=False))
ORDERS: st.SearchStrategy[Order] = st.deferred(
    lambda: st.builds(
        Order,
        st.uuids(),
        st.datetimes(),
        st.lists(LINES, max_size=3),
        st.none() | st.sampled_from(Colour),
        st.dictionaries(TEXT, TEXT, max_size=2),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.none() | ORDERS,
    )
)


@given(ORDERS)
def test_a_dataclass_there_and_back(order: Order) -> None:
    assert decoder_for(Order)(encode(order)) == order


@pytest.mark.parametrize(
    "value", [AliasedModel(orderId=3), Parcel(AliasedModel(orderId=4), Size.SMALL), Size.SMALL, Weight.LIGHT], ids=str
)
def test_there_and_back(value: Any) -> None:
    assert decoder_for(type(value))(encode(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        ("ž", "ž".encode()),
        ({"a": 1}, b'{"a":1}'),
        (True, b"true"),
        (Colour.RED, b'"red"'),
        (Size.SMALL, b"small"),
        (Weight.LIGHT, b"light"),
        ([Size.SMALL], b'["small"]'),
        ({"at": {date(2024, 1, 2)}}, b'{"at":["2024-01-02"]}'),
        (Model(name="x", count=1), b'{"name":"x","count":1}'),
        ([Model(name="x", count=1)], b'[{"name":"x","count":1}]'),
    ],
    ids=str,
)
def test_what_is_sent(value: Any, expected: bytes | None) -> None:
    assert encode(value) == expected


def test_what_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="complex has no form in JSON"):
        encode(1j)


# Parameters


def record(key: bytes | None = b"k", value: bytes | None = b"7") -> ConsumerRecord[bytes | None, bytes | None]:
    made = make_record_class("t", 0, TimestampType.CREATE_TIME, None)
    return made(5, 1000, key, value, [("h", b"1"), ("h", b"2")])


def test_arguments_by_name_and_annotation() -> None:
    def listen(
        number: int, key: str, headers: dict[str, bytes], origin: ConsumerRecord[Any, Any], more: int = 3
    ) -> None: ...

    given = record()
    assert Call(listen).arguments(given) == {"number": 7, "key": "k", "headers": {"h": b"2"}, "origin": given}


def test_methods_and_objects_can_listen() -> None:
    class Counting:
        def heard(self, number: int) -> None: ...

        def __call__(self, text: str) -> None: ...

    assert Call(Counting().heard).arguments(record()) == {"number": 7}
    assert Call(Counting()).arguments(record()) == {"text": "7"}


def test_a_payload_that_does_not_fit_names_the_record() -> None:
    def listen(number: int) -> None: ...

    with pytest.raises(DeserializationError, match=r"t-0: number: not JSON") as raised:
        Call(listen).arguments(record(value=b"seven"))
    assert raised.value.offset == 5


def no_annotation(payload): ...  # type: ignore[no-untyped-def]


def nothing() -> None: ...


def two_payloads(a: int, b: int) -> None: ...


def unknown_type(a: complex) -> None: ...


def unknown_name(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def no_names(*a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "annotate payload with its type"),
        (nothing, "takes the payload, or the record"),
        (two_payloads, "b would be a second payload"),
        (unknown_type, "unknown_type: a: nothing is known about complex"),
        (unknown_name, "uses Nowhere, which its module does not have"),
        (no_names, r"parameters have names, but there is \*a"),
    ],
)
def test_functions_that_cannot_listen(function: Any, message: str) -> None:
    with pytest.raises(ListenerError, match=message):
        Call(function)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str | int, "hello"),
        (str | int, 5),
        (str | Line, "12"),
        (str | Line, Line("pen", 2)),
        (Literal["in", "out"], "in"),
        (Literal["in", 3], 3),
        (Literal["in"] | None, None),
        (str | int | None, "null and void"),
    ],
)
def test_text_that_is_one_of_several_things_is_read_as_it_was_sent(annotation: Any, value: object) -> None:
    assert decoder_for(annotation)(encode(value)) == value


def test_text_that_is_none_of_several_things_is_refused() -> None:
    with pytest.raises(PayloadError, match=r"must be one of \['in', 3\], but is 'sideways'"):
        decoder_for(Literal["in", 3])(b"sideways")


@pytest.mark.parametrize("annotation", [bytes | str, list[bytes]])
def test_bytes_within_json_are_refused_for_what_they_are(annotation: Any) -> None:
    with pytest.raises(AnnotationError, match="JSON has none"):
        decoder_for(annotation)
