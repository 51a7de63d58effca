"""Lines to records and back, by the rules of Kafka's console tools."""

from __future__ import annotations

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.cli.lines import LineError, LineParser, ParsedLine, PlainRecord, RecordFormatter
from ottla.cli.record_forms import line_format
from ottla.client.core.consumer.record import make_record_class
from ottla.records.batch import TimestampType

KEYED = {"parse.key": "true"}
HEADED = {"parse.headers": "true", "parse.key": "true"}


@pytest.mark.parametrize(
    ("settings", "line", "expected"),
    [
        ({}, b"a\tb", ParsedLine(None, b"a\tb", [])),
        ({}, b"", ParsedLine(None, b"", [])),
        (KEYED, b"k\tv\tw", ParsedLine(b"k", b"v\tw", [])),
        (KEYED | {"key.separator": "::"}, b"k::v", ParsedLine(b"k", b"v", [])),
        (KEYED | {"key.separator": " "}, b"k v", ParsedLine(b"k", b"v", [])),
        (HEADED, b"h:1,i:2:3\tk\tv", ParsedLine(b"k", b"v", [("h", b"1"), ("i", b"2:3")])),
        (HEADED, b"\tk\tv", ParsedLine(b"k", b"v", [])),
        (HEADED | {"null.marker": "NIL"}, b"NIL\tNIL\tNIL", ParsedLine(None, None, [])),
        (HEADED | {"null.marker": "NIL"}, b"h:NIL\tk\tv", ParsedLine(b"k", b"v", [("h", None)])),
        (KEYED | {"ignore.error": "true"}, b"no key", ParsedLine(None, b"no key", [])),
    ],
)
def test_parsing(settings: dict[str, str], line: bytes, expected: ParsedLine) -> None:
    assert LineParser(settings).parse(line, 1) == expected


@pytest.mark.parametrize(
    ("settings", "line", "words"),
    [
        (KEYED, b"no key", r"line 3 has no key separator \('\\t'\)"),
        (HEADED, b"no headers", "line 3 has no headers delimiter"),
        (HEADED, b"h\tk\tv", "line 3 has no header separator in 'h'"),
    ],
)
def test_a_line_that_does_not_fit_is_named(settings: dict[str, str], line: bytes, words: str) -> None:
    with pytest.raises(LineError, match=words):
        LineParser(settings).parse(line, 3)


def test_unknown_properties_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"did you mean parse\.key\?"):
        LineParser({"parse.keys": "true"})
    with pytest.raises(InvalidConfigError, match="must be true or false"):
        RecordFormatter({"print.key": "perhaps"})
    both = {"parse.headers": "true", "headers.separator": ":"}
    with pytest.raises(LineError, match=r"headers\.separator and headers\.key\.separator may not be equal"):
        LineParser(both)
    LineParser({**both, "parse.headers": "false"})
    with pytest.raises(LineError, match=r"null\.marker and key\.separator may not be equal"):
        LineParser({"parse.key": "true", "null.marker": ":", "key.separator": ":"})
    with pytest.raises(LineError, match=r"key\.separator must not be empty"):
        LineParser({"key.separator": ""})


USED = ["key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"]
APART = dict(zip(USED, "abcd", strict=True))


@pytest.mark.parametrize("name", USED)
def test_no_separator_is_empty(name: str) -> None:
    with pytest.raises(LineError, match=f"^{name} must not be empty$"):
        LineParser({name: ""})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (HEADED | APART, None),
        (HEADED | APART | {"key.separator": "b"}, None),
        (HEADED | APART | {"key.separator": "d"}, None),
        (HEADED | APART | {"headers.separator": "b"}, "headers.delimiter and headers.separator may not be equal"),
        (
            HEADED | APART | {"headers.key.separator": "c"},
            "headers.separator and headers.key.separator may not be equal",
        ),
        (HEADED | APART | {"headers.key.separator": "b"}, None),
        (HEADED | APART | {"null.marker": "a"}, "null.marker and key.separator may not be equal"),
        (HEADED | APART | {"null.marker": "b"}, "null.marker and headers.delimiter may not be equal"),
        (HEADED | APART | {"null.marker": "c"}, "null.marker and headers.separator may not be equal"),
        (HEADED | APART | {"null.marker": "d"}, "null.marker and headers.key.separator may not be equal"),
        (HEADED | APART | {"null.marker": "e"}, None),
        ({"parse.headers": "true"} | APART | {"null.marker": "a"}, None),
        (KEYED | APART | {"null.marker": "b"}, None),
        (APART | {"null.marker": "a"}, None),
    ],
)
def test_separators_that_are_used_can_be_told_apart(settings: dict[str, str], told: str | None) -> None:
    if told is None:
        LineParser(settings)
    else:
        with pytest.raises(LineError) as refusal:
            LineParser(settings)
        assert str(refusal.value) == told


@pytest.mark.parametrize(
    ("settings", "line", "told", "kafkas"),
    [
        (
            HEADED,
            b"{x}",
            "line 7 has no headers delimiter ('\\t')",
            "No headers delimiter found on line number 7: '{x}'",
        ),
        (
            HEADED,
            b"\tno \xff",
            "line 7 has no key separator ('\\t')",
            "No key separator found on line number 7: '\tno \ufffd'",
        ),
        (
            HEADED,
            b"a:1,{h}\xff\tk\tv",
            "line 7 has no header separator in '{h}\ufffd' (':')",
            "No header key separator found in pair '{h}\ufffd' on line number 7",
        ),
    ],
)
def test_what_is_wrong_with_a_line_in_our_words_and_in_kafkas(
    settings: dict[str, str], line: bytes, told: str, kafkas: str
) -> None:
    with pytest.raises(LineError) as refusal:
        LineParser(settings).parse(line, 7)
    assert (str(refusal.value), refusal.value.kafka_text) == (told, kafkas)


@pytest.mark.parametrize(
    ("settings", "line", "expected"),
    [
        (APART | HEADED, b"xd1cyd2bkav", ParsedLine(b"k", b"v", [("x", b"1"), ("y", b"2")])),
        (APART | HEADED | {"null.marker": "N"}, b"xdNbNaN", ParsedLine(None, None, [("x", None)])),
        ({"null.marker": ""}, b"", ParsedLine(None, None, [])),
        ({"null.marker": "N"}, b"N", ParsedLine(None, None, [])),
        ({"null.marker": "N"}, b"NN", ParsedLine(None, b"NN", [])),
        ({"parse.headers": "true"}, b"h:\tv", ParsedLine(None, b"v", [("h", b"")])),
        (HEADED | {"ignore.error": "true"}, b"h:1\tno key", ParsedLine(None, b"h:1\tno key", [])),
        (HEADED | {"ignore.error": "true", "null.marker": "N"}, b"N", ParsedLine(None, None, [])),
    ],
)
def test_every_separator_has_its_place(settings: dict[str, str], line: bytes, expected: ParsedLine) -> None:
    assert LineParser(settings).parse(line, 1) == expected


def fetched(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    epoch: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> PlainRecord:
    return make_record_class("t", 2, timestamp_type, epoch)(7, 1234, key, value, tuple(headers))


ALL = {f"print.{part}": "true" for part in ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")}


@pytest.mark.parametrize(
    ("settings", "record", "expected"),
    [
        ({}, fetched(b"k", b"v", []), b"v\n"),
        ({}, fetched(None, None, []), b"null\n"),
        ({"print.key": "true", "key.separator": "="}, fetched(b"k", b"v", []), b"k=v\n"),
        ({"print.key": "true", "print.value": "false"}, fetched(b"k", b"v", []), b"k\n"),
        ({"null.literal": "-", "print.key": "true"}, fetched(None, b"v", []), b"-\tv\n"),
        ({"line.separator": "|"}, fetched(None, b"v", []), b"v|"),
        ({"print.topic": "true"}, fetched(None, b"v", []), b"Topic:t\tv\n"),
        ({"print.value": "false"}, fetched(None, b"v", []), b""),
        (
            {"print.headers": "true", "headers.separator": ";", "null.literal": "-"},
            fetched(None, b"v", [("h", b"1"), ("i", None)]),
            b"h:1;i:-\tv\n",
        ),
        (
            {"print.timestamp": "true"},
            make_record_class("t", 2, TimestampType.CREATE_TIME, None)(7, -1, None, b"v", ()),
            b"NO_TIMESTAMP\tv\n",
        ),
        (
            {"print.timestamp": "true"},
            make_record_class("t", 2, TimestampType.CREATE_TIME, None)(7, 0, None, b"v", ()),
            b"CreateTime:0\tv\n",
        ),
        (
            ALL,
            fetched(b"k", b"v", [("h", b"1"), ("i", None)], epoch=4),
            b"CreateTime:1234\tPartition:2\tOffset:7\tEpoch:4\th:1,i:null\tk\tv\n",
        ),
        (
            ALL,
            fetched(b"k", b"v", [], timestamp_type=TimestampType.LOG_APPEND_TIME),
            b"LogAppendTime:1234\tPartition:2\tOffset:7\tEpoch:NOT_PRESENT\tNO_HEADERS\tk\tv\n",
        ),
    ],
)
def test_formatting(settings: dict[str, str], record: PlainRecord, expected: bytes) -> None:
    assert RecordFormatter(settings).format(record) == expected


def test_what_kafkas_tool_does_not_know_is_left_out_or_refused() -> None:
    record = fetched(b"k", b"v", [], epoch=4)
    settings = {"print.offset": "true", "print.epoch": "true", "key.deserializer": "string", "schema.registry": "x"}
    lenient = line_format(settings, None, None, lenient=True)
    assert lenient(record) == RecordFormatter({"print.offset": "true"}).format(record)
    with pytest.raises(InvalidConfigError, match=r"schema\.registry"):
        line_format(settings, None, None, lenient=False)
    del settings["schema.registry"]
    strict = line_format(settings, None, None, lenient=False)
    assert strict(record) == RecordFormatter({"print.offset": "true", "print.epoch": "true"}).format(record)
