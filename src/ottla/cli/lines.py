"""Lines of text to records and back, by the rules of Kafka's console producer and consumer. No input or output here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.base.errors import OttlaError
from ottla.base.options import Option, OptionSet, Type, Values
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.records.batch import NO_TIMESTAMP

LINE_OPTIONS = OptionSet(
    "line",
    (
        Option("parse.key", Type.BOOLEAN, False, "Whether a line holds a key before the value."),
        Option("key.separator", Type.STRING, "\t", "What stands between key and value."),
        Option("parse.headers", Type.BOOLEAN, False, "Whether a line begins with headers."),
        Option("headers.delimiter", Type.STRING, "\t", "What stands between the headers and the rest."),
        Option("headers.separator", Type.STRING, ",", "What stands between two headers."),
        Option("headers.key.separator", Type.STRING, ":", "What stands between a header's name and value."),
        Option("null.marker", Type.STRING, None, "The text that stands for null."),
        Option("ignore.error", Type.BOOLEAN, False, "Whether a line that does not fit is taken as a value."),
    ),
)

FORMAT_OPTIONS = OptionSet(
    "format",
    (
        Option("print.timestamp", Type.BOOLEAN, False, "Whether the timestamp is printed."),
        Option("print.topic", Type.BOOLEAN, False, "Whether the topic is printed."),
        Option("print.partition", Type.BOOLEAN, False, "Whether the partition is printed."),
        Option("print.offset", Type.BOOLEAN, False, "Whether the offset is printed."),
        Option("print.epoch", Type.BOOLEAN, False, "Whether the leader epoch is printed."),
        Option("print.headers", Type.BOOLEAN, False, "Whether the headers are printed."),
        Option("print.key", Type.BOOLEAN, False, "Whether the key is printed."),
        Option("print.value", Type.BOOLEAN, True, "Whether the value is printed."),
        Option("key.separator", Type.STRING, "\t", "What stands between the parts of a line."),
        Option("line.separator", Type.STRING, "\n", "What ends a line."),
        Option("headers.separator", Type.STRING, ",", "What stands between two headers."),
        Option("null.literal", Type.STRING, "null", "How null is printed."),
    ),
)


PlainRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
_Part: TypeAlias = Callable[[PlainRecord], bytes]


class LineError(OttlaError):
    """A line that does not have the form it should have."""

    def __init__(self, message: str, kafka_text: str = "") -> None:
        super().__init__(message)
        self.kafka_text = kafka_text
        """What Kafka's tool says of it; the line and its number are still to be filled in."""


class ParsedLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def parse_settings(options: OptionSet, settings: Mapping[str, str]) -> Values:
    """Like `OptionSet.parse`, but separators are kept as they are: a tab is a separator, not a blank to trim."""
    values = dict(options.parse(settings))
    values.update({name: text for name, text in settings.items() if options[name].type is Type.STRING})
    return Values(values, settings)


class LineParser:
    """Reads `headers<delimiter>key<separator>value`, of which only the value is there by default."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        values = parse_settings(LINE_OPTIONS, settings)
        self._parse_key = values.flag("parse.key")
        self._parse_headers = values.flag("parse.headers")
        self._ignore_errors = values.flag("ignore.error")
        self._key_separator = values.text("key.separator").encode()
        self._headers_delimiter = values.text("headers.delimiter").encode()
        self._headers_separator = values.text("headers.separator").encode()
        self._header_separator = values.text("headers.key.separator").encode()
        marker = values.optional_text("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        for separator in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"):
            if not values.text(separator):
                raise LineError(f"{separator} must not be empty")
        self._refuse_equal(values)

    def _refuse_equal(self, values: Values) -> None:
        """Separators that nobody could tell apart."""
        used = ["key.separator"] if self._parse_key else []
        pairs = []
        if self._parse_headers:
            used += ["headers.delimiter", "headers.separator", "headers.key.separator"]
            pairs += [("headers.delimiter", "headers.separator"), ("headers.separator", "headers.key.separator")]
        if self._null_marker is not None:
            pairs += [("null.marker", name) for name in used]
        for one, other in pairs:
            if values.text(one) == values.text(other):
                raise LineError(f"{one} and {other} may not be equal")

    def parse(self, line: bytes, number: int) -> ParsedLine:
        """`line` has no line end; `number` is for errors."""
        rest = line
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        try:
            if self._parse_headers:
                text, rest = self._cut(rest, self._headers_delimiter, "headers delimiter")
                headers = self._read_headers(text)
            if self._parse_key:
                text, rest = self._cut(rest, self._key_separator, "key separator")
                key = self._or_null(text)
        except LineError as e:
            if not self._ignore_errors:
                shown = e.kafka_text.format(number=number, line=line.decode(errors="replace"))
                raise LineError(f"line {number} {e}", shown) from None
            return ParsedLine(None, self._or_null(line), [])
        return ParsedLine(key, self._or_null(rest), headers)

    def _cut(self, text: bytes, separator: bytes, what: str) -> tuple[bytes, bytes]:
        before, found, after = text.partition(separator)
        if not found:
            raise LineError(
                f"has no {what} ({separator.decode()!r})", f"No {what} found on line number {{number}}: '{{line}}'"
            )
        return before, after

    def _read_headers(self, text: bytes) -> list[tuple[str, bytes | None]]:
        if not text or text == self._null_marker:
            return []
        headers = []
        for entry in text.split(self._headers_separator):
            name, found, value = entry.partition(self._header_separator)
            if not found:
                pair = entry.decode(errors="replace")
                raise LineError(
                    f"has no header separator in {pair!r} ({self._header_separator.decode()!r})",
                    "No header key separator found in pair '"
                    + pair.replace("{", "{{").replace("}", "}}")
                    + "' on line number {number}",
                )
            headers.append((name.decode(), self._or_null(value)))
        return headers

    def _or_null(self, text: bytes) -> bytes | None:
        return None if self._null_marker is not None and text == self._null_marker else text


class RecordFormatter:
    """Writes a record as one line: timestamp, topic, partition, offset, epoch, headers, key, value, if asked for."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        values = parse_settings(FORMAT_OPTIONS, settings)
        self._parts = [part for name, part in self._all_parts().items() if values.flag(f"print.{name}")]
        self._separator = values.text("key.separator").encode()
        self._line_end = values.text("line.separator").encode()
        self._headers_separator = values.text("headers.separator").encode()
        self._null = values.text("null.literal").encode()

    def format(self, record: PlainRecord) -> bytes:
        if not self._parts:
            return b""
        return self._separator.join([part(record) for part in self._parts]) + self._line_end

    def _all_parts(self) -> dict[str, _Part]:
        return {
            "timestamp": self._timestamp,
            "topic": lambda record: b"Topic:" + record.topic.encode(),
            "partition": lambda record: b"Partition:%d" % record.partition,
            "offset": lambda record: b"Offset:%d" % record.offset,
            "epoch": self._epoch,
            "headers": self._headers,
            "key": lambda record: self._or_null(record.key),
            "value": lambda record: self._or_null(record.value),
        }

    def _timestamp(self, record: PlainRecord) -> bytes:
        if record.timestamp == NO_TIMESTAMP:
            return b"NO_TIMESTAMP"
        return f"{record.timestamp_type.config_name}:{record.timestamp}".encode()

    def _epoch(self, record: PlainRecord) -> bytes:
        epoch = record.leader_epoch
        return b"Epoch:NOT_PRESENT" if epoch is None else b"Epoch:%d" % epoch

    def _headers(self, record: PlainRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        entries = (name.encode() + b":" + self._or_null(value) for name, value in record.headers)
        return self._headers_separator.join(entries)

    def _or_null(self, data: bytes | None) -> bytes:
        return self._null if data is None else data
