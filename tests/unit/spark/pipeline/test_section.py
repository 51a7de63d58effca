"""Sections: values by type, and no option that goes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.pipeline.problems import Place, Problem, SpecError
from ottla.spark.pipeline.section import Entry, Scalar, Section

PLACE = Place("pipeline.yaml", 3)


def section(**values: object) -> Section:
    return Section.of(values, PLACE, "source clicks", directory=Path("/pipelines"))


def problem_of(error: pytest.ExceptionInfo[SpecError]) -> str:
    (problem,) = error.value.problems
    return str(problem)


class TestTaking:
    def test_types(self) -> None:
        found = section(text="a", count=3, ratio=2, flag=True, items=["x", 1], options={"a.b": 1, "c": True})
        assert found.take("text", str) == "a"
        assert found.take("count", int) == 3
        assert found.take("ratio", float) == 2.0
        assert found.take("flag", bool) is True
        assert found.take("items", list[str]) == ["x", "1"]
        assert found.take("options", dict[str, str]) == {"a.b": "1", "c": "true"}
        found.finish()

    def test_a_number_can_be_text_and_one_value_a_list(self) -> None:
        found = section(topic=8, columns="id")
        assert found.take("topic", str) == "8"
        assert found.take("columns", list[str]) == ["id"]

    def test_defaults(self) -> None:
        found = section(empty=None)
        assert found.take("missing", int, 5) == 5
        assert found.take("missing", str, None) is None
        assert found.take("empty", str, "default") == "default"

    @pytest.mark.parametrize(
        ("kind", "value", "wanted"),
        [
            (int, "3", "a whole number"),
            (int, True, "a whole number"),
            (int, 2.5, "a whole number"),
            (float, "x", "a number"),
            (bool, "yes", "true or false"),
            (str, ["a"], "text"),
            (list[str], {"a": 1}, "a list of plain values"),
            (dict[str, str], "a", "keys with plain values"),
            (dict[str, str], {"a": {"b": 1}}, "keys with plain values"),
        ],
    )
    def test_the_wrong_type_is_refused_with_its_place(self, kind: type, value: object, wanted: str) -> None:
        with pytest.raises(SpecError) as error:
            section(key=value).take("key", kind)
        assert problem_of(error) == f"pipeline.yaml:3: source clicks: 'key' must be {wanted}"

    def test_a_missing_key(self) -> None:
        with pytest.raises(SpecError) as error:
            section().take("topic", str)
        assert problem_of(error) == "pipeline.yaml:3: source clicks: 'topic' is missing"

    def test_a_choice_suggests(self) -> None:
        with pytest.raises(SpecError) as error:
            section(mode="apend").take_choice("mode", ("append", "update"))
        assert "'mode' cannot be 'apend'. Did you mean 'append'?" in problem_of(error)

    def test_a_path_is_relative_to_the_file(self) -> None:
        assert section(path="data/in").take_path("path") == Path("/pipelines/data/in")
        assert section(path="/data").take_path("path") == Path("/data")

    def test_values_of_no_kind_are_refused(self) -> None:
        with pytest.raises(SpecError, match="key cannot be a set"):
            section(key={1, 2})

    @pytest.mark.parametrize("value", [{"b": None}, {"b": [1]}, {"b": {"c": 1}}])
    def test_keys_with_plain_values_are_text(self, value: dict[str, object]) -> None:
        found = section(key=value)
        if value == {"b": None}:
            assert found.take("key", dict[str, str]) == {"b": ""}
        else:
            with pytest.raises(SpecError, match="'key' must be keys with plain values"):
                found.take("key", dict[str, str])

    @pytest.mark.parametrize(
        ("value", "kind", "taken"),
        [
            (2.5, float, 2.5),
            (0, int, 0),
            (False, bool, False),
            ("", str, ""),
            (True, str, "true"),
            (False, str, "false"),
            (2.5, str, "2.5"),
            (Path("/a/b"), str, "/a/b"),
            (("a", 2, True, None), list[str], ["a", "2", "true", ""]),
            ([], list[str], []),
            ({}, dict[str, str], {}),
            ({1: 2}, dict[str, str], {"1": "2"}),
        ],
    )
    def test_values_of_python(self, value: object, kind: type, taken: object) -> None:
        found = section(key=value).take("key", kind)
        assert found == taken and type(found) is type(taken)

    @pytest.mark.parametrize(
        ("kind", "value", "wanted"),
        [
            (float, True, "a number"),
            (float, "2", "a number"),
            (int, [3], "a whole number"),
            (int, {"a": 3}, "a whole number"),
            (bool, 1, "true or false"),
            (str, {"a": 1}, "text"),
        ],
    )
    def test_what_only_looks_like_it(self, kind: type, value: object, wanted: str) -> None:
        with pytest.raises(SpecError) as error:
            section(key=value).take("key", kind)
        assert problem_of(error) == f"pipeline.yaml:3: source clicks: 'key' must be {wanted}"

    @pytest.mark.parametrize(
        ("value", "told"),
        [
            ({1, 2}, "source clicks: key cannot be a set"),
            ([[1]], "source clicks: key cannot be a list"),
            ([{"a": 1}], "source clicks: key cannot be a list"),
            (({1},), "source clicks: key cannot be a tuple"),
            ({"a": {1}}, "source clicks, key: a cannot be a set"),
            ({"a": {"b": {1}}}, "source clicks, key, a: b cannot be a set"),
        ],
    )
    def test_values_of_no_kind_are_named(self, value: object, told: str) -> None:
        with pytest.raises(SpecError) as error:
            section(key=value)
        assert problem_of(error) == f"pipeline.yaml:3: {told}"

    def test_a_choice_of_few(self) -> None:
        modes = ("append", "update")
        found = section(mode="update", none=None)
        assert found.take_choice("mode", modes) == "update"
        assert found.take_choice("none", modes, "append") == found.take_choice("missing", modes, "append") == "append"
        assert found.take_choice("missing", modes, None) is None
        with pytest.raises(SpecError) as error:
            found.take_choice("missing", modes)
        assert problem_of(error) == "pipeline.yaml:3: source clicks: 'missing' is missing"
        with pytest.raises(SpecError) as error:
            found.take_choice("mode", ("x",), "x")
        assert problem_of(error) == "pipeline.yaml:3: source clicks: 'mode' cannot be 'update'. There is 'x'."

    def test_a_path_of_ones_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        assert section(path="~/data").take_path("path") == Path("/home/me/data")
        assert Section.of({}, PLACE, "part").resolve("x") == Path("x")


class TestBelow:
    def test_sections_below(self) -> None:
        found = section(a={"x": 1}, none=None, b={"y": {"z": 2}})
        below = found.take_section("b")
        assert below is not None and (below.title, below.place, below.names()) == ("source clicks, b", PLACE, ["y"])
        deep = below.take_section("y")
        assert deep is not None and deep.title == "source clicks, b, y"
        assert found.take_section("none") is found.take_section("missing") is None
        assert [(name, below.names()) for name, below in found.sections()] == [("a", ["x"]), ("b", ["y"])]
        found.finish()
        with pytest.raises(SpecError) as error:
            section(a=[1]).take_section("a")
        assert problem_of(error) == "pipeline.yaml:3: source clicks: 'a' must be a section of keys and values"

    def test_places(self) -> None:
        there = Entry(Scalar("x", "x"), Place("p", 7), Place("p", 8))
        found = Section({"a": there}, PLACE, "part")
        assert (found.place_of("a"), found.text_place_of("a")) == (Place("p", 7), Place("p", 8))
        assert found.place_of("b") == found.text_place_of("b") == PLACE
        assert found.problem("a", "wrong") == Problem(Place("p", 7), "part: wrong")
        assert "a" in found and "b" not in found
        found.put("b", there._replace(value=Scalar(5, "05")))
        assert found.names() == ["a", "b"]
        assert (found.take("b", int), found.take("b", str)) == (5, "05")

    def test_a_section_takes_nothing_from_whom_it_was_made_of(self) -> None:
        kafka, entries = {"a": "1"}, {"x": Entry(Scalar("x", "x"), PLACE, PLACE)}
        found = Section(entries, PLACE, "part", directory=Path("/d"), kafka=kafka)
        kafka.clear()
        entries.clear()
        assert (found.kafka, found.names(), found.directory) == ({"a": "1"}, ["x"], Path("/d"))
        made = Section.of({}, PLACE, "part", directory=Path("/d"), kafka={"a": "1"})
        assert (made.kafka, made.directory) == ({"a": "1"}, Path("/d"))
        assert (Section.of({}, PLACE, "part").kafka, Section.of({}, PLACE, "part").directory) == ({}, Path())


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "ms"),
        [
            ("500 ms", 500),
            ("500ms", 500),
            ("20 milliseconds", 20),
            ("1.5 s", 1500),
            ("10 seconds", 10_000),
            ("5 min", 300_000),
            ("1 minute", 60_000),
            ("2m", 120_000),
            ("1 Hour", 3_600_000),
            ("1 day", 86_400_000),
            ("3 mins", 180_000),
        ],
    )
    def test_lengths(self, text: str, ms: int) -> None:
        assert section(delay=text).take_duration_ms("delay") == ms

    @pytest.mark.parametrize(
        ("words", "ms"),
        [
            ("ms milli millis millisecond milliseconds", 2),
            ("s sec secs second seconds", 2_000),
            ("m min mins minute minutes", 120_000),
            ("h hour hours", 7_200_000),
            ("d day days", 172_800_000),
        ],
    )
    def test_words_for_units(self, words: str, ms: int) -> None:
        assert {section(delay=f"2 {word}").take_duration_ms("delay") for word in words.split()} == {ms}

    @pytest.mark.parametrize("text", ["soon", "10", "ten seconds", "-1 s", "5 fortnights", "5 months", "2 secnds"])
    def test_what_is_no_length(self, text: str) -> None:
        with pytest.raises(SpecError, match="is not a length of time"):
            section(delay=text).take_duration_ms("delay")

    @pytest.mark.parametrize(("text", "ms"), [("  7  s ", 7000), ("0 ms", 0), ("0.0004 s", 0), ("2.75 MIN", 165_000)])
    def test_lengths_in_any_writing(self, text: str, ms: int) -> None:
        assert section(delay=text).take_duration_ms("delay") == ms

    def test_a_length_that_is_not_given(self) -> None:
        found = section(none=None)
        assert found.take_duration_ms("none", 5) == found.take_duration_ms("missing", 5) == 5
        assert found.take_duration_ms("missing") is None
        with pytest.raises(SpecError) as error:
            section(delay="soon").take_duration_ms("delay")
        assert problem_of(error) == (
            "pipeline.yaml:3: source clicks: 'delay' is not a length of time: 'soon'. "
            "Write it as in '10 seconds' or '500 ms'"
        )


class TestLeftovers:
    def test_a_misspelt_option_is_refused_with_a_suggestion(self) -> None:
        found = section(topic="a", formt="json")
        found.take("topic", str)
        found.take("format", str, None)
        with pytest.raises(SpecError) as error:
            found.finish()
        assert "there is no option 'formt'. Did you mean 'format'?" in problem_of(error)

    @given(st.sets(st.text("abcdef", min_size=1), max_size=6), st.sets(st.text("abcdef", min_size=1), max_size=6))
    def test_exactly_what_was_not_asked_for_is_refused(self, given_keys: set[str], asked: set[str]) -> None:
        found = Section.of(dict.fromkeys(given_keys, "x"), PLACE, "part")
        for key in asked:
            found.take(key, str, None)
        refused = set()
        try:
            found.finish()
        except SpecError as e:
            refused = {problem.message.split("'")[1] for problem in e.problems}
        assert refused == given_keys - asked
