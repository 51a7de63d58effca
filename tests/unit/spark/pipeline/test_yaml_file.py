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
