"""Payloads by annotation: what fits becomes the type, what does not is named by its place, there and back again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import pydantic
import pytest
from annotated_types import Gt, MinLen
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.app.calls import Call
from ottla.client.app.payloads import AnnotationError, PayloadError, decoder_for, encode
from ottla.client.core.consumer.record import ConsumerRecord, make_record_class
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


UserId = NewType("UserId", int)
UserName = NewType("UserName", str)


@dataclass
class Tagged:
    name: Annotated[str, MinLen(1)]
    tags: list[str]


class Point(NamedTuple):
    x: int
    y: int


class Nested(TypedDict, total=False):
    options: Options


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
        (dict, b"[]", "^the payload should be an object, but is a list$"),
        (int, b"true", "^the payload should be a valid integer, but is true or false$"),
        (int, b"1.5", "^the payload should be a valid integer, but is a number$"),
        (int, b'"7"', "^the payload should be a valid integer, but is text$"),
        (list[int], b'[1, "2"]', r"^\[1\] should be a valid integer, but is text$"),
        (dict[str, int], b'{"a": null}', "^a should be a valid integer, but is null$"),
        (int | None, b'"x"', "^the payload should be a valid integer"),
        (int | list[int], b'"x"', "a valid integer, but is text; .*should be a valid array, but is text$"),
        (Literal["a"], b'"b"', "^the payload should be 'a'$"),
        (Colour, b'"green"', "^the payload should be 'red' or 'blue'$"),
        (Colour, b"red", "^not JSON: "),
        (Size, b"large", "^the payload should be 'small'$"),
        (Size, b'"large"', "^the payload should be 'small'$"),
        (date, b'"tomorrow"', "^the payload should be a valid date"),
        (date, b"1", "^the payload should be a valid date, but is a number$"),
        (datetime, b"1", "^the payload should be a valid datetime, but is a number$"),
        (Line, b"{}", "^article is missing; count is missing$"),
        (list[Line], b'[{"article": "x", "count": 1}, {"article": "y", "count": "1"}]', r"^\[1\]\.count should be"),
        (Options, b"{}", "^size is missing$"),
        (Model, b'{"name": "x", "count": -1}', "^count should be greater than or equal to 0$"),
        (Order, b"3", "^the payload should be an object, but is a number$"),
        (list[int], b'["a", "b", "c", "d", "e"]', r"\[2\] should be a valid integer, but is text; and 2 more$"),
        (Annotated[int, Gt(0)], b"0", "^the payload should be greater than 0$"),
        (Annotated[int, pydantic.Field(gt=0)], b"0", "^the payload should be greater than 0$"),
        (Annotated[str, MinLen(3)], b"ab", "^the payload: String should have at least 3 characters"),
        (Tagged, b'{"name": "", "tags": []}', "^name: String should have at least 1 character"),
    ],
)
def test_what_does_not_fit(annotation: Any, data: bytes | None, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        decoder_for(annotation)(data)


def test_what_is_wrong_is_told_without_what_stands_there() -> None:
    """It goes into logs and into the headers of dead letters."""
    for annotation, data in [(date, b'"secret"'), (Literal["a"], b'"secret"'), (Line, b'"secret"'), (int, b"secret")]:
        with pytest.raises(PayloadError) as raised:
            decoder_for(annotation)(data)
        assert "secret" not in str(raised.value)


class Strange:
    """Nobody knows how to make one."""


@pytest.mark.parametrize("annotation", [Strange, list[Strange], type, Callable[[], int]])
def test_annotations_nothing_can_be_made_for(annotation: Any) -> None:
    with pytest.raises(AnnotationError, match="nothing can be made for"):
        decoder_for(annotation)


def test_without_pydantic_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(AnnotationError, match=r"Line needs pydantic: pip install 'ottla\[app\]'"):
        decoder_for(Line)
    assert decoder_for(str)(b"x") == "x"
    assert decoder_for(bytes | None)(None) is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (UserId, 5),
        (UserName, "5"),
        (Annotated[int, Gt(0)], 5),
        (Annotated[str, MinLen(3)], "abc"),
        (timedelta, timedelta(days=-3, microseconds=7)),
        (time, time(12, 30)),
        (Decimal, Decimal("1.10")),
        (dict[int, str], {1: "a"}),
        (tuple[int, str], (1, "a")),
        (Point, Point(1, 2)),
        (Line | Tagged, Tagged("x", ["y"])),
        (dict[str, Options], {"a": {"size": 1}}),
        (list[Nested], [{"options": {"size": 1}}]),
        (Annotated[Options, "of a listener"], {"size": 1}),
        (Options | int, {"size": 1}),
    ],
    ids=str,
)
def test_other_types_there_and_back(annotation: Any, value: object) -> None:
    found = decoder_for(annotation)(encode(value))
    assert found == value
    assert type(found) is type(value)


def test_a_decimal_may_be_a_number_of_json() -> None:
    assert decoder_for(Decimal)(b"1.10") == Decimal("1.10")
    assert decoder_for(Line)(b'{"article": "x", "count": 1, "price": 9.99}').price == Decimal("9.99")


@given(st.timedeltas())
def test_a_duration_there_and_back(duration: timedelta) -> None:
    assert decoder_for(timedelta)(encode(duration)) == duration


def test_a_model_says_itself_how_strict_it_is() -> None:
    assert decoder_for(Model)(b'{"name": "x", "count": "2"}') == Model(name="x", count=2)


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


def test_what_an_annotation_demands_is_checked() -> None:
    def listen(number: Annotated[int, Gt(7)]) -> None: ...

    assert Call(listen).arguments(record(value=b"8")) == {"number": 8}
    with pytest.raises(DeserializationError, match="number: the payload should be greater than 7"):
        Call(listen).arguments(record())


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


def unknown_type(a: Strange) -> None: ...


def unknown_name(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def no_names(*a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "annotate payload with its type"),
        (nothing, "takes the payload, or the record"),
        (two_payloads, "b would be a second payload"),
        (unknown_type, "unknown_type: a: nothing can be made for Strange"),
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
    with pytest.raises(PayloadError, match=r"^the payload should be 'in' or 3$"):
        decoder_for(Literal["in", 3])(b"sideways")


@pytest.mark.parametrize("annotation", [bytes | str, list[bytes]])
def test_bytes_within_json_are_refused_for_what_they_are(annotation: Any) -> None:
    with pytest.raises(AnnotationError, match="JSON has none"):
        decoder_for(annotation)
