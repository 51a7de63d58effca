"""Reading files: every value knows its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.yaml_file import read_yaml, set_value


def read(tmp_path: Path, text: str, **environment: str) -> Section:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return read_yaml(path, environment)


def below(section: Section, *keys: str) -> Section:
    for key in keys:
        found = section.take_section(key)
        assert found is not None
        section = found
    return section


def problem(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(SpecError) as error:
        read(tmp_path, text, **environment)
    return str(error.value).replace(f"{tmp_path}/", "")


class TestPlaces:
    TEXT = "name: orders\nviews:\n  totals:\n    sql: |\n      SELECT 1\n      FROM x\n  other: {sql: 'SELECT 2'}\n"

    def test_lines_of_keys_and_of_texts(self, tmp_path: Path) -> None:
        views = below(read(tmp_path, self.TEXT), "views")
        assert views.place_of("totals").line == 3
        totals = below(views, "totals")
        assert totals.place_of("sql").line == 4
        assert totals.text_place_of("sql").line == 5
        assert totals.take("sql", str) == "SELECT 1\nFROM x\n"
        other = below(views, "other")
        assert (other.place_of("sql").line, other.text_place_of("sql").line) == (7, 7)

    def test_relative_paths_start_where_the_file_is(self, tmp_path: Path) -> None:
        assert read(tmp_path, "a: b").resolve("c") == tmp_path / "c"


class TestValues:
    def test_types_and_how_they_were_written(self, tmp_path: Path) -> None:
        root = read(tmp_path, "a: 08\nb: '7'\nc: 7\nd: on\ne: 2024-01-01\nf:\n")
        assert [root.take(key, str) for key in "abcde"] == ["08", "7", "7", "on", "2024-01-01"]
        assert root.take("c", int) == 7
        assert root.take("d", bool) is True
        assert root.take("f", str, None) is None

    def test_variables(self, tmp_path: Path) -> None:
        root = read(tmp_path, "a: ${PORT}\nb: x-${NAME:-none}\nc: '${PORT}'\n", PORT="9092")
        assert root.take("a", int) == 9092
        assert root.take("b", str) == "x-none"
        with pytest.raises(SpecError):
            root.take("c", int)

    def test_a_variable_that_is_not_set(self, tmp_path: Path) -> None:
        assert problem(tmp_path, "a: 1\nb: ${SECRET}\n").startswith("p.yaml:2: the environment has no variable SECRET")

    def test_merged_sections(self, tmp_path: Path) -> None:
        root = read(tmp_path, "a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  y: 3\n")
        assert below(root, "b").take("x", int) == 1
        assert below(root, "b").take("y", int) == 3


class TestWhatIsNoPipeline:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a: [1\nb: 2\n", "p.yaml:2: this is not YAML"),
            ("a: 1\n\tb: 2\n", "p.yaml:2: this is not YAML"),
            ("- 1\n- 2\n", "p.yaml:1: a pipeline is described by keys and values"),
            ("", "p.yaml:1: a pipeline is described by keys and values"),
            ("a: 1\nb: 2\na: 3\n", "p.yaml:3: 'a' is there twice; the first is in line 1"),
            ("a:\n  - {b: 1}\n", "p.yaml:2: 'a' must be a list of plain values"),
            ("? [a, b]\n: 1\n", "p.yaml:1: a key must be plain text"),
            ("a: \x00\n", "p.yaml: this is not YAML"),
        ],
    )
    def test_it_is_refused_with_its_line(self, tmp_path: Path, text: str, expected: str) -> None:
        assert problem(tmp_path, text).startswith(expected)

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="cannot be read: no such file"):
            read_yaml(tmp_path / "missing.yaml", {})
        (tmp_path / "latin").write_bytes(b"name: \xe9\n")
        with pytest.raises(SpecError, match="it is not UTF-8 text"):
            read_yaml(tmp_path / "latin", {})

    def test_code_is_not_run(self, tmp_path: Path) -> None:
        assert "is not a value" in problem(tmp_path, "a: !!python/name:os.getcwd x\n")


class TestSetting:
    TEXT = "name: a\nkafka:\n  bootstrap.servers: x:1\nsinks:\n  out:\n    topic: t\n"

    def test_a_value_is_replaced(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        set_value(root, "sinks.out.topic", "other")
        set_value(root, "kafka.bootstrap.servers", "y:2")
        set_value(root, "name", "b")
        assert below(root, "sinks", "out").take("topic", str) == "other"
        assert root.take("kafka", dict[str, str]) == {"bootstrap.servers": "y:2"}
        assert root.take("name", str) == "b"

    def test_sections_are_made_where_they_may_be(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        set_value(root, "spark.conf.spark.sql.shuffle.partitions", "8")
        set_value(root, "sinks.out.options.sinkId", "mine")
        assert below(root, "spark").take("conf", dict[str, str]) == {"spark.sql.shuffle.partitions": "8"}
        assert below(root, "sinks", "out").take("options", dict[str, str]) == {"sinkId": "mine"}

    def test_values_are_yaml(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        set_value(root, "sinks.out.create_partitions", "4")
        assert below(root, "sinks", "out").take("create_partitions", int) == 4
        with pytest.raises(SpecError, match="--set name: this is not YAML"):
            set_value(root, "name", "[1")

    def test_what_is_no_section_has_no_keys(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        with pytest.raises(SpecError, match="'topic' must be a section"):
            set_value(root, "sinks.out.topic.x", "1")

    def test_an_empty_value_is_none(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        set_value(root, "name", "")
        assert root.take("name", str, "default") == "default"
        assert str(root.place_of("name")) == "--set name"

    @pytest.mark.parametrize("key", ["spark", "restart", "conf", "kafka", "options", "watermark"])
    def test_sections_that_may_be_made(self, tmp_path: Path, key: str) -> None:
        root = read(tmp_path, "name: a\n")
        set_value(root, f"{key}.x", "1")
        made = below(root, key)
        assert (made.title, made.names(), made.directory) == (key, ["x"], tmp_path)
        assert str(root.place_of(key)) == str(made.place_of("x")) == f"--set {key}.x"

    def test_others_are_taken_for_keys_with_dots(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        set_value(root, "sources.in.topic", "t")
        assert root.names()[-1] == "sources.in.topic"
        set_value(root, "sinks.out.x.y", "1")
        assert below(root, "sinks", "out").names() == ["topic", "x.y"]

    def test_the_longest_key_that_is_there_leads(self, tmp_path: Path) -> None:
        root = read(tmp_path, "a: {x: 1}\na.b: {x: 2}\na.bc: {x: 3}\nd: {e.f: {g: 4}}\n")
        set_value(root, "a.b.x", "5")
        set_value(root, "a.y", "6")
        set_value(root, "d.e.f.g", "7")
        assert [below(root, key).take("x", int) for key in ("a", "a.b", "a.bc")] == [1, 5, 3]
        assert below(root, "a").take("y", int) == 6
        assert below(root, "d", "e.f").take("g", int) == 7

    def test_what_is_empty_is_no_section(self, tmp_path: Path) -> None:
        root = read(tmp_path, "name: a\nspark:\n")
        with pytest.raises(SpecError) as error:
            set_value(root, "spark.master", "x")
        assert str(error.value) == "--set spark.master: 'spark' is not a section"

    def test_a_section_may_be_set_as_a_whole(self, tmp_path: Path) -> None:
        root = read(tmp_path, self.TEXT)
        set_value(root, "kafka", "{a.b: '${HOME:-none}', c: [1, x]}")
        kafka = below(root, "kafka")
        assert (kafka.take("a.b", str), kafka.take("c", list[str])) == ("none", ["1", "x"])
        assert str(kafka.place_of("c")) == "--set kafka"
        with pytest.raises(SpecError) as error:
            set_value(root, "kafka", "${NOT_SET}")
        assert str(error.value).startswith(
            "--set kafka: the environment has no variable NOT_SET; set it, or write ${NOT"
        )


class TestMerging:
    def test_several_sections_are_merged_in_order(self, tmp_path: Path) -> None:
        text = "a: &a {x: 1, y: 1}\nb: &b {z: 2}\nc:\n  <<: [*a, *b]\n  y: 3\n"
        merged = below(read(tmp_path, text), "c")
        assert merged.names() == ["x", "z", "y"]
        assert [merged.take(key, int) for key in ("x", "y", "z")] == [1, 3, 2]

    def test_what_was_merged_may_be_merged_again(self, tmp_path: Path) -> None:
        text = "a: &a {x: 1, y: 1}\nb: &b\n  <<: *a\n  x: 2\nc:\n  <<: *b\n"
        merged = below(read(tmp_path, text), "c")
        assert (merged.take("x", int), merged.take("y", int)) == (2, 1)
        assert merged.place_of("x").line == 4

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("a: 1\nb:\n  <<: 5\n", "p.yaml:3: '<<' needs a section to take keys from"),
            ("a: &a [1]\nb:\n  <<: *a\n", "p.yaml:3: '<<' needs a section to take keys from"),
            ("b:\n  x: 1\n  ? [a]\n  : 1\n", "p.yaml:3: a key must be plain text"),
            (
                "a: &a {x: 1}\nb: &b {x: 2}\nc:\n  <<: [*a, *b]\n",
                "p.yaml:2: 'x' is there twice; the first is in line 1",
            ),
        ],
    )
    def test_what_cannot_be_merged(self, tmp_path: Path, text: str, told: str) -> None:
        assert problem(tmp_path, text) == told


class TestScalars:
    def test_variables_in_any_place(self, tmp_path: Path) -> None:
        text = "a: [\"${X}\", '${X}', 'x${X}y']\nb: ${EMPTY:-}\nc: ${X:-7}\nd: ${N}.5\ne: |\n  ${X}\n"
        root = read(tmp_path, text, X="5", N="2")
        assert root.take("a", list[str]) == ["5", "5", "x5y"]
        assert root.take("b", str, "none") == "none", "as if nothing had been written"
        assert (root.take("c", int), root.take("d", float), root.take("e", str)) == (5, 2.5, "5\n")

    def test_texts_of_blocks_begin_below_their_key(self, tmp_path: Path) -> None:
        root = read(tmp_path, "a: >\n  x\n  y\nb: 'x'\nc:\n  - 1\n")
        assert [root.text_place_of(key).line for key in "abc"] == [2, 4, 6]
        assert [root.place_of(key).line for key in "abc"] == [1, 4, 5]
        assert (root.title, root.place.line) == ("pipeline", 1)

    def test_numbers_and_truth(self, tmp_path: Path) -> None:
        root = read(tmp_path, "a: 1.5\nb: false\nc: 2024-01-01\nd: ~\ne: !!str 5\n")
        assert (root.take("a", float), root.take("b", bool), root.take("c", str)) == (1.5, False, "2024-01-01")
        assert root.take("d", int, 3) == 3
        with pytest.raises(SpecError):
            root.take("e", int)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("a: 1\nb: ${N1}\n", "p.yaml:2: the environment has no variable N1; set it, or write ${N1:-default}"),
            ("a: [\n  {b: 1}]\n", "p.yaml:1: 'a' must be a list of plain values"),
            ("a: 1\nb: !!int x\n", "p.yaml:2: 'x' is not a value: invalid literal for int() with base 10: 'x'"),
        ],
    )
    def test_what_is_no_value(self, tmp_path: Path, text: str, told: str) -> None:
        assert problem(tmp_path, text) == told

    def test_what_cannot_be_opened(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError) as error:
            read_yaml(tmp_path, {})
        assert str(error.value) == f"{tmp_path}: cannot be read: is a directory"
