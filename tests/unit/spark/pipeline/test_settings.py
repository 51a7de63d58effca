"""Settings of Spark's own that it does not know, or whose value it refuses. The session is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.errors import IllegalArgumentException

from ottla.spark.pipeline.builder import build_model
from ottla.spark.pipeline.model import Model
from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.settings import apply_settings, find_unknown
from ottla.spark.pipeline.yaml_file import read_yaml

KNOWN = ["spark.sql.shuffle.partitions", "spark.sql.ansi.enabled", "spark.sql.warehouse.dir", "spark.sql.streaming.x"]
STATIC = "spark.sql.warehouse.dir"
PARTS = """\
checkpoint: state
sources: {in: {kind: spark, format: rate}}
sinks: {out: {kind: console}}
flows: {f: {from: in, to: out}}
"""


class Session:
    def __init__(self) -> None:
        self.was_set: dict[str, str] = {}
        entries = SimpleNamespace(toString=lambda: "[" + ", ".join(f"ConfigEntry(key={key}, x)" for key in KNOWN) + "]")
        module = SimpleNamespace(getConfigEntries=lambda: entries)
        internal = SimpleNamespace(**{"SQLConf$": SimpleNamespace(**{"MODULE$": module})})
        entry = SimpleNamespace(findEntry=lambda name: name if name in KNOWN else None)
        spark = SimpleNamespace(
            internal=SimpleNamespace(config=SimpleNamespace(ConfigEntry=entry)), sql=SimpleNamespace(internal=internal)
        )
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))
        self.conf = self

    def isModifiable(self, name: str) -> bool:
        return name != STATIC

    def set(self, name: str, value: str) -> None:
        if value == "bad":
            raise IllegalArgumentException(f"[INVALID] The value of {name} is bad. SQLSTATE: 1")
        self.was_set[name] = value


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("spark.sql.shuffle.partitions", None),
        ("spark.sql.shufle.partitions", "Did you mean 'spark.sql.shuffle.partitions'?"),
        ("spark.sql.ansi.something.else", "Spark has no setting 'spark.sql.ansi.something.else'"),
        ("spark.sql.ansi", "Spark has no setting 'spark.sql.ansi'"),
        ("spark.sql.foreign.setting", None),
        ("spark.sql.ans.foreign", None),
        ("spark.sql.catalog.mine", None),
        ("spark.sql.hive.convert", None),
        ("spark.executor.memry", None),
        ("other.setting", None),
    ],
)
def test_a_setting_that_spark_does_not_know(name: str, told: str | None) -> None:
    session: Any = Session()
    found = find_unknown(session, name)
    assert found == told if told is None else found is not None and found.endswith(told)


def model(tmp_path: Path, *settings: str) -> Model:
    path = tmp_path / "p.yaml"
    lines = "".join(f"    {setting}\n" for setting in settings)
    path.write_text(f"name: p\nspark:\n  conf:\n{lines}{PARTS}")
    return build_model(read_yaml(path, {}))


def test_settings_are_set_where_they_can_be(tmp_path: Path) -> None:
    session: Any = Session()
    apply_settings(session, model(tmp_path, f"{KNOWN[0]}: 3", f"{STATIC}: /tmp", "own.setting: x"))
    assert session.was_set == {KNOWN[0]: "3", "own.setting": "x"}


def test_all_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    session: Any = Session()
    with pytest.raises(SpecError) as caught:
        apply_settings(session, model(tmp_path, f"{KNOWN[1]}: bad", f"{KNOWN[0]}: 3", "spark.sql.shufle.partitions: 3"))
    assert [(problem.place.line, problem.message.partition(".conf: ")[2]) for problem in caught.value.problems] == [
        (4, f"The value of {KNOWN[1]} is bad"),
        (6, "Spark has no setting 'spark.sql.shufle.partitions'. Did you mean 'spark.sql.shuffle.partitions'?"),
    ]
    assert session.was_set == {KNOWN[0]: "3"}
