"""Java's properties format, which Kafka's configuration files use: text in, names and values out. Reads no files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    line: int
    name: str
    value: str
    problem: str = ""
    """What is wrong with the line, which has no value then."""


def parse_properties(text: str) -> list[Property]:
    """What each line sets, in their order; of a name that is given twice the last value counts."""
    properties: list[Property] = []
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties.append(Property(number, _unescape(key), _unescape(value)))
        except ValueError as e:
            properties.append(Property(number, key, "", f"{key}: {e}"))
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined and comments left out, with the number of the line each began on."""
    pending = ""
    started_at = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if not pending:
            # Only a line of its own can be a comment: "#" at the start of a continuation belongs to the value.
            if not line or line[0] in "#!":
                continue
            started_at = number
        if _ends_in_open_escape(line):
            pending += line[:-1]
            continue
        yield started_at, pending + line
        pending = ""
    if pending:
        yield started_at, pending


def _ends_in_open_escape(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """The raw key and value: the key ends at the first blank, `=` or `:` that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    position = 0
    while position < len(raw):
        char = raw[position]
        position += 1
        if char == "\\":
            # Something follows: the last one of a line belongs to the line's end.
            char = raw[position]
            position += 1
            if char == "u":
                digits = raw[position : position + 4]
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError("\\u must be followed by four hexadecimal digits")
                char = chr(int(digits, 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)
