"""Kinds of parts by their names, and what is said of one that there is not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.connect.changes import ChangesSource
from ottla.spark.connect.database_sink import DatabaseSink
from ottla.spark.connect.files import FilesSink, FilesSource
from ottla.spark.connect.tables import TableSource
from ottla.spark.pipeline.parts import sink_class, source_class
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.spark_parts import ConsoleSink, SparkSink, SparkSource
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.pipeline.topic_source import TopicSource


class OnlyLoads:
    def load(self, spark: Any) -> Any: ...


class OnlyMade:
    @classmethod
    def from_section(cls, section: Section) -> OnlyMade:
        return cls()


class Own(OnlyLoads, OnlyMade):
    pass


def section(**values: object) -> Section:
    return Section.of(values, Place("p.yaml", 3), "part")


@pytest.mark.parametrize(
    ("kind", "source", "sink"),
    [
        ("topic", TopicSource, TopicSink),
        ("spark", SparkSource, SparkSink),
        ("files", FilesSource, FilesSink),
        ("table", TableSource, None),
        ("changes", ChangesSource, None),
        ("console", None, ConsoleSink),
        ("database", None, DatabaseSink),
        (f"{__name__}:Own", Own, None),
    ],
)
def test_kinds(kind: str, source: type | None, sink: type | None) -> None:
    for find, expected in ((source_class, source), (sink_class, sink)):
        if expected is not None:
            assert find(section(kind=kind)) is expected
        else:
            with pytest.raises(SpecError):
                find(section(kind=kind))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (None, "'kind' is missing"),
        (
            "tpoic",
            "there is no kind 'tpoic'. Did you mean 'topic'?",
        ),
        ("xyz", "there is no kind 'xyz'. There is 'changes', 'files', 'spark', 'table', 'topic'."),
        ("no_such_module:Part", "kind 'no_such_module:Part' cannot be loaded: No module named 'no_such_module'"),
        (f"{__name__}:Nothing", f"module {__name__!r} has no class 'Nothing'"),
        (f"{__name__}:OnlyLoads", f"{__name__}:OnlyLoads cannot be used here: it has no method 'load' or no 'from_s"),
        (f"{__name__}:OnlyMade", f"{__name__}:OnlyMade cannot be used here: it has no method 'load' or no 'from_sec"),
    ],
)
def test_a_kind_that_there_is_not(kind: str | None, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        source_class(section(kind=kind))
    assert str(caught.value).startswith(f"p.yaml:3: part: {told}")


def test_a_source_is_no_sink() -> None:
    with pytest.raises(SpecError, match="Own cannot be used here: it has no method 'writer' or no 'from_section'"):
        sink_class(section(kind=f"{__name__}:Own"))
