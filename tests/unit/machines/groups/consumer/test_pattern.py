"""Patterns match what Python's own engine says they do, in bounded time; others are refused with a reason."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.groups.consumer.pattern import TopicPattern, compile_topic_pattern

NAMES = [
    "a",
    "b",
    "ab",
    "aab",
    "aaa",
    "abc",
    "A",
    "FOO",
    "foo",
    "foo-bar",
    "foo.bar",
    "foo1",
    "foo12",
    "x_y",
    "-",
    "bar",
]


@pytest.mark.parametrize(
    "pattern",
    [
        "foo", "foo.*", "^foo.*$", "(?i)foo", "(?i:F)oo", "a|b", "(a|b)+", "a{2,3}", "a{2}", "a{1,}", "a{2,}b", "a{0}b",
        "[a-c]+", "[^a]*", r"foo\d{1,2}", r"\w+", r"\W", r"\D*", r"foo\.bar", "(?:foo|bar)[.-]?.*", "a*?b", r"[\w.]+",
        r"[a\-]", "", "(a*)*b", "foo$|^bar", "[]a]+", "(?P<name>a)b", "[-a]", "a+b?", ".", "a||b", "()a",
        r"\Aa\Z"[:-2] + "$",
        "x^y", "a$b", r"\s*a", "[a-zA-Z]+[0-9]*", "(a|ab)(c|bcd)?", "((a)|(b))*", r"x\_y", "{", "a{b}",
    ],
)  # fmt: skip
def test_the_same_as_a_full_match_of_the_standard_library(pattern: str) -> None:
    compiled, reference = compile_topic_pattern(pattern), re.compile(pattern)
    assert [name for name in NAMES if compiled.matches(name)] == [n for n in NAMES if reference.fullmatch(n)]


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "(?:ab)", "-"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{2,}", "*?"])),
    ),
    max_leaves=6,
)


@given(pattern=patterns, name=st.text("ab-", max_size=8))
def test_random_patterns_agree_with_the_standard_library(pattern: str, name: str) -> None:
    assert compile_topic_pattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


def test_quoted_text_is_taken_as_it_stands() -> None:
    pattern = compile_topic_pattern(r"\Qfoo.bar\E|x\\Q|\Qa")
    assert [name for name in [*NAMES, "fooxbar", "xQ", "xa"] if pattern.matches(name)] == ["a", "foo.bar"]


@pytest.mark.parametrize("pattern", ["a?", "ba?r", "(ab)?c?", "a{0,1}", "a{1}", "a+", "a{1,3}b", "[a-b]+", "(?:ab?)+"])
def test_counts_end_where_the_standard_librarys_do(pattern: str) -> None:
    names = ["", "a", "aa", "aaa", "aaaa", "br", "bar", "baar", "ab", "abc", "abab", "aab", "aaab", "aaaab", "abb", "c"]
    compiled, reference = compile_topic_pattern(pattern), re.compile(pattern)
    assert [name for name in names if compiled.matches(name)] == [n for n in names if reference.fullmatch(n)]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "ends too soon"),
        ("(a", "leaves a group open"),
        (")", "not opened"),
        ("a)b", "not opened"),
        ("*", "nothing comes before"),
        ("a|+", "nothing comes before"),
        ("a**", "follows a repetition"),
        ("a++", "follows a repetition"),
        ("a{3,2}", "out of order"),
        ("a{1001}", "too large"),
        ("[a", "ends too soon"),
        ("[z-a]", "out of order"),
        ("[[:alpha:]]", "not supported"),
        ("(?=a)b", "not supported"),
        ("(?<!a)b", "not supported"),
        (r"(a)\1", "not supported"),
        (r"\pL", "not supported"),
        (r"\bfoo", "not supported"),
        ("\\", "ends too soon"),
        ("((a{1000}){1000}){1000}", "too large"),
        ("(" * 60 + ")" * 60, "nested too deep"),
        ("a" * 1001, "more than 1000"),
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=re.escape(reason)) as raised:
        compile_topic_pattern(pattern)
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    ("at_the_limit", "beyond", "reason"),
    [
        ("a" * 1000, "a" * 1001, "more than 1000"),
        ("a{1000}", "a{1001}", "too large"),
        ("a{1,1000}", "a{1,1001}", "too large"),
        ("a{1000}a{1000}a{500}", "a{1000}a{1000}a{500}()", "it is too large"),
        ("(" * 50 + ")" * 50, "(" * 51 + ")" * 51, "nested too deep"),
        ("(a+){1000}", "(a+){1001}", "too large"),
        ("()" * 60, "(" * 51 + ")" * 51, "nested too deep"),
        ("a{2,2}", "a{2,1}", "out of order"),
        ("[b-b]", "[b-a]", "out of order"),
        ("a{99999", "a{99999}", "too large"),
    ],
)
def test_limits_are_met_exactly(at_the_limit: str, beyond: str, reason: str) -> None:
    compile_topic_pattern(at_the_limit)
    with pytest.raises(KafkaError, match=re.escape(reason)):
        compile_topic_pattern(beyond)


@pytest.mark.parametrize(
    ("pattern", "at"),
    [("ab)", 2), ("a**", 2), ("*", 1), (r"a\b", 3), ("(?=a)", 1), ("(a", 2), ("[", 1), ("[[:alpha:]]", 1), ("\\", 1)],
)
def test_a_refusal_says_where(pattern: str, at: int) -> None:
    with pytest.raises(KafkaError, match=re.escape(f"(at character {at})")) as raised:
        compile_topic_pattern(pattern)
    assert repr(pattern) in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("(?i)[a-b]", ["a", "b", "A"]),
        ("(?i)[^a]", ["b", "-"]),
        ("(?i:a)b", ["ab"]),
        ("(?i:a|F)(?:oo|OO)", ["FOO", "foo"]),
        ("a(?i)B", ["ab"]),
        ("(a(?i)B)|A", ["ab", "A"]),
        ("((?i)FOO)-BAR|bar", ["bar"]),
        (r"(?i)X\_y|\-", ["x_y", "-"]),
        (r"[\d\-]", ["-"]),
        (r"foo[\d]", ["foo1"]),
        (r"[\D]", ["a", "b", "A", "-"]),
        (r"[,--]", ["-"]),
        (r"[a-\b]+", ["a", "b", "ab", "aab", "aaa"]),
        (r"\t?a", ["a"]),
        (r"[\n]|a", ["a"]),
        (r"\Qa\Eb", ["ab"]),
        (r"\Aab\z", ["ab"]),
        ("é|a", ["a"]),
        ("$^", []),
        ("^$|b", ["b"]),
    ],
)
def test_what_the_standard_library_says_in_other_words(pattern: str, names: list[str]) -> None:
    compiled = compile_topic_pattern(pattern)
    assert [name for name in NAMES if compiled.matches(name)] == names


@pytest.mark.parametrize(("pattern", "is_match"), [("$^", True), ("^$", True), ("", True), ("a*", True), ("a", False)])
def test_the_empty_name_is_at_its_start_and_end_at_once(pattern: str, is_match: bool) -> None:
    assert compile_topic_pattern(pattern).matches("") is is_match


def test_a_pattern_that_is_asked_much_forgets_its_steps_and_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.machines.groups.consumer.pattern._MAX_CACHED_STEPS", 2)
    compiled = TopicPattern("(a|b)*c")
    kept = set()
    for name, is_match in (("ac", True), ("abc", True), ("bbbc", True), ("c", True), ("ab", False), ("cc", False)) * 2:
        assert compiled.matches(name) is is_match
        kept.add(len(compiled._steps))
    assert kept == {1, 2}


def test_a_pattern_made_to_be_slow_is_not() -> None:
    """A backtracking engine would need longer than the universe has lasted, so that this ends is the test."""
    name = "a" * 249
    assert not compile_topic_pattern("(a+)+b").matches(name)
    assert not compile_topic_pattern("(a|a)*(.*)*.*.*.*.*.*x").matches(name)
    assert compile_topic_pattern("(a?){249}a{249}").matches(name)
    compiled = compile_topic_pattern("(a|b)*a(a|b){50}")
    assert compiled.matches("a" * 60) and not compiled.matches("b" * 60)
