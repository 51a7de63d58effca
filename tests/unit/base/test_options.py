"""Options: what parses, what does not, and that the sentence says why."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.options import (
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    Between,
    EachOf,
    Matching,
    OneOf,
    Option,
    OptionSet,
    Secret,
    Type,
    Value,
    Values,
    format_value,
    no_effect_in,
)


def option(type_: Type, default: Value = None, **kwargs: object) -> Option:
    return Option("some.setting", type_, default, "A setting.", **kwargs)  # type: ignore[arg-type]


def refusal(declared: Option, text: str | None) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        declared.parse(text)
    assert caught.value.key == declared.name
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_kinds_of_values_have_kafkas_numbers() -> None:
    names = ("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
    assert {name: kind.value for name, kind in Type.__members__.items()} == {
        name: number for number, name in enumerate(names, 1)
    }
    assert (MAX_INT, MAX_LONG, MAX_DOUBLE) == (2_147_483_647, 9_223_372_036_854_775_807, 1.7976931348623157e308)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Type.BOOLEAN, "TRUE", True),
        (Type.BOOLEAN, " false ", False),
        (Type.INT, "-2147483648", -(2**31)),
        (Type.INT, "2147483647", MAX_INT),
        (Type.INT, " +7 ", 7),
        (Type.SHORT, "32767", 32767),
        (Type.SHORT, "-32768", -32768),
        (Type.LONG, "-9223372036854775808", -MAX_LONG - 1),
        (Type.DOUBLE, "-1.7976931348623157E308", -MAX_DOUBLE),
        (Type.DOUBLE, "5.", 5.0),
        (Type.DOUBLE, "+1e-3", 0.001),
        (Type.LIST, "  ", ()),
        (Type.LIST, ",", ("", "")),
        (Type.LONG, "9223372036854775807", MAX_LONG),
        (Type.DOUBLE, "1.7976931348623157E308", MAX_DOUBLE),
        (Type.DOUBLE, ".5", 0.5),
        (Type.LIST, "", ()),
        (Type.LIST, " a , b,c ", ("a", "b", "c")),
        (Type.STRING, " text ", "text"),
        (Type.CLASS, "org.example.Thing", "org.example.Thing"),
    ],
)
def test_text_becomes_a_value(type_: Type, text: str, value: Value) -> None:
    assert option(type_).parse(text) == value


@pytest.mark.parametrize(
    ("type_", "text", "words"),
    [
        (Type.BOOLEAN, "yes", "must be true or false, but was 'yes'"),
        (Type.INT, "2147483648", "must be a whole number of at most 32 bits, but was '2147483648'"),
        (Type.INT, "1_000", "must be a whole number, but was '1_000'"),
        (Type.INT, "", "must be a whole number, but was ''"),
        (Type.INT, "-2147483649", "at most 32 bits"),
        (Type.SHORT, "32768", "at most 16 bits"),
        (Type.SHORT, "-32769", "at most 16 bits"),
        (Type.LONG, "-9223372036854775809", "at most 64 bits"),
        (Type.DOUBLE, "-1e999", "must be a number a double can hold"),
        (Type.DOUBLE, ".", "must be a number"),
        (Type.LONG, "9223372036854775808", "at most 64 bits"),
        (Type.DOUBLE, "nan", "must be a number"),
        (Type.DOUBLE, "1e999", "must be a number a double can hold"),
    ],
)
def test_text_of_the_wrong_type_is_refused_in_one_sentence(type_: Type, text: str, words: str) -> None:
    message = refusal(option(type_), text)
    assert message.startswith("some.setting ")
    assert words in message


def test_null_is_a_value_only_where_the_default_is_null() -> None:
    assert option(Type.INT).parse(None) is None
    assert refusal(option(Type.INT, 5), None) == "some.setting needs a value, but was null"


@pytest.mark.parametrize(
    ("check", "good", "bad", "words"),
    [
        (Between(1), "1", "0", "at least 1"),
        (Between(1, 9, or_else=-1), "-1", "0", "-1 or 1 to 9"),
        (Between(high=3), "3", "4", "at most 3"),
        (Between(high=3), "-9", "4", "at most 3"),
        (Between(1, 9), "1", "0", "1 to 9"),
        (Between(1, 9), "9", "10", "1 to 9"),
        (Between(1, or_else=-1), "-1", "-2", "-1 or at least 1"),
    ],
)
def test_bounds(check: Between, good: str, bad: str, words: str) -> None:
    declared = option(Type.INT, valid=check)
    assert declared.parse(good) == int(good)
    assert refusal(declared, bad) == f"some.setting must be {words}, but was '{bad}'"


def test_choices_and_patterns() -> None:
    assert "one of gzip, zstd" in refusal(option(Type.STRING, valid=OneOf("gzip", "zstd")), "lzma")
    assert "only name a, b" in refusal(option(Type.LIST, valid=EachOf("a", "b")), "a,c")
    pairs = option(Type.LIST, valid=Matching(r"\d+:\d+", "pairs"))
    assert pairs.parse("1:2,3:4") == ("1:2", "3:4")
    assert "must be pairs" in refusal(pairs, "1:2,x")


def test_a_password_never_shows() -> None:
    declared = option(Type.PASSWORD, valid=Matching("never", "never"))
    assert declared.sensitive
    assert "hunter2" not in refusal(declared, "hunter2")
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r}"
    assert secret.reveal() == "hunter2"
    assert format_value(secret) is None


def test_secrets_are_equal_by_what_they_hide() -> None:
    assert Secret("a") == Secret("a") and hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    other: object = "a"
    assert Secret("a") != other


def test_choices_may_leave_the_case_open() -> None:
    assert OneOf("gzip", any_case=True).problem("GZip") is None
    assert OneOf("gzip").problem("GZip") == "must be one of gzip"
    assert OneOf("gzip", any_case=True).problem("lz4") == "must be one of gzip"
    assert [str(check) for check in (OneOf("a", "b"), EachOf("a", "b"), Matching("x", "a form"))] == [
        "a, b",
        "a list of a, b",
        "a form",
    ]


def test_all_that_is_wrong_is_found() -> None:
    options = OptionSet("test", [option(Type.INT, 1)], prefixes=("plugin.",), elsewhere={"their.name": "use ours"})
    found = options.problems({"some.setting": "x", "plugin.a": "b", "other": "1", "their_name": "1"})
    assert [problem.key for problem in found] == ["some.setting", "other", "their_name"]
    assert found[2].message == "their_name is no test setting here: use ours"
    assert options.problems({"some.setting": "1", "plugin.a": None}) == []


def test_a_set_of_options_is_read_like_a_dictionary() -> None:
    declared = option(Type.INT, 1)
    options = OptionSet("test", [declared])
    assert (dict(options), len(options)) == ({"some.setting": declared}, 1)
    assert not options.accepts_unseen("anything"), "there are no prefixes"
    values = options.parse({})
    assert (dict(values), len(values), values.given) == ({"some.setting": 1}, 1, frozenset())


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    options = OptionSet("test", [option(Type.INT, 1)], prefixes=("plugin.",))
    with pytest.raises(InvalidConfigError, match=r"unknown test setting some\.seting; did you mean some\.setting\?"):
        options.parse({"some.seting": "1"})
    with pytest.raises(InvalidConfigError) as caught:
        options.parse({"entirely.different": "1"})
    assert "did you mean" not in caught.value.message
    assert options.parse({"plugin.anything": "x"})["plugin.anything"] == "x"


def test_values_know_what_was_given_and_their_types() -> None:
    options = OptionSet("test", [option(Type.INT, 1), Option("flag", Type.BOOLEAN, False, "A flag.")])
    values = options.parse({"flag": "true"})
    assert values.given == {"flag"}
    assert values.integer("some.setting") == 1
    assert values.flag("flag")
    with pytest.raises(TypeError, match="flag is not an integer"):
        values.integer("flag")


def test_a_value_is_given_only_as_what_it_is() -> None:
    given: dict[str, Value] = {
        "flag": True,
        "integer": 3,
        "number": 2.5,
        "text": "t",
        "list": ("a", "b"),
        "secret": Secret("s"),
        "null": None,
    }
    values = Values(given, given)
    reads: dict[str, tuple[Callable[[str], object], dict[str, object]]] = {
        "a boolean": (values.flag, {"flag": True}),
        "an integer": (values.integer, {"integer": 3}),
        "a number": (values.number, {"integer": 3.0, "number": 2.5}),
        "text": (values.text, {"text": "t"}),
        "a list": (values.items_of, {"list": ("a", "b")}),
        "a password": (values.secret, {"secret": "s", "null": None}),
    }
    for kind, (read, expected) in reads.items():
        for name in given:
            if name in expected:
                assert read(name) == expected[name]
            else:
                with pytest.raises(TypeError, match=f"{name} is not {kind}"):
                    read(name)
    assert values.optional_integer("null") is values.optional_text("null") is None
    assert (values.optional_integer("integer"), values.optional_text("text")) == (3, "t")


def test_a_name_cannot_be_declared_twice() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        OptionSet("test", [option(Type.INT), option(Type.LONG)])


_ITEM = st.text(alphabet=st.characters(codec="ascii", exclude_characters=","), min_size=1).filter(
    lambda text: text == text.strip()
)


@given(
    st.one_of(
        st.tuples(st.just(Type.BOOLEAN), st.booleans()),
        st.tuples(st.just(Type.INT), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(Type.LONG), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(Type.DOUBLE), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just(Type.LIST), st.lists(_ITEM).map(tuple)),
    )
)
def test_a_formatted_value_parses_back(pair: tuple[Type, Value]) -> None:
    type_, value = pair
    text = format_value(value)
    assert text is not None
    assert option(type_).parse(text) == value


@pytest.mark.parametrize(
    ("value", "is_refused"), [("x", True), (("a",), True), ("own", False), (None, False), ("", False), ((), False)]
)
def test_what_would_feign_protection_is_refused_unless_it_says_nothing(value: Value, is_refused: bool) -> None:
    option = Option("ssl.thing", Type.STRING, "own", "What.", refused="this broker has none")
    expected = "ssl.thing is set, but this broker has none; leave it out" if is_refused else None
    assert option.refusal(value) == expected
    assert Option("ssl.thing", Type.STRING, "own", "What.").refusal(value) is None


def test_what_an_option_says_of_itself() -> None:
    idle = Option("a", Type.PASSWORD, None, "What.", no_effect="nobody asks")
    assert idle.documentation == "What. No effect here: nobody asks."
    assert Option("a", Type.INT, 1, "What.").documentation == "What."
    assert no_effect_in(idle.documentation) == "nobody asks"
    assert no_effect_in("What.") is None
    assert idle.sensitive and not Option("a", Type.STRING, None, "What.").sensitive
