"""Java's properties format, by the rules of java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.properties import Property, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  a = 1  \n", {"a": "1  "}),
        ("# no\n ! no\n\n \t\na=#yes", {"a": "#yes"}),
        ("a=1\\\n   ,2\\\n,3", {"a": "1,2,3"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("# not continued \\\na=1", {"a": "1"}),
        ("a=x\\ty\\u0041\\q", {"a": "x\tyAq"}),
        ("a=\\u00412\\u0042", {"a": "A2B"}),
        ("a=\\n\\r\\f\\\\\\u00e9", {"a": "\n\r\f\\é"}),
        ("key\\ with\\:odd\\=signs=v", {"key with:odd=signs": "v"}),
        ("a=1\na=2", {"a": "2"}),
        ("empty=\nalone", {"empty": "", "alone": ""}),
        ("a==b", {"a": "=b"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_rules(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def values(text: str) -> dict[str, str]:
    return {found.name: found.value for found in parse_properties(text)}


def test_a_broken_unicode_escape_is_a_problem_of_its_line_only() -> None:
    first, broken, last = parse_properties("a=1\n\nb=\\u00g0\nc=3")
    assert (first, last) == (Property(1, "a", "1"), Property(4, "c", "3"))
    assert (broken.line, broken.name) == (3, "b")
    assert broken.problem == "b: \\u must be followed by four hexadecimal digits"


@pytest.mark.parametrize("digits", ["", "0", "00", "004", "004g", "-041", "٠٠٤١"])
def test_an_escape_has_four_hexadecimal_digits(digits: str) -> None:
    (broken,) = parse_properties(f"a=b\\u{digits}")
    assert (broken.name, broken.value) == ("a", "")
    assert broken.problem == "a: \\u must be followed by four hexadecimal digits"


def _escaped(text: str) -> str:
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    return "".join(special.get(char) or (f"\\{char}" if char in "\\ =:#!" else char) for char in text)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=5))
def test_whatever_is_escaped_comes_back(properties: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in properties.items())
    assert values(text) == properties
