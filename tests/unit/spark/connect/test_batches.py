"""A batch's rows on their way to the driver or into a staging table; and what a checkpoint says of the batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa

from ottla.spark.connect import staging
from ottla.spark.connect.arrow_batches import arrow_batches
from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.checkpoint import CheckpointError, batch_progress
from ottla.spark.connect.database import Filled
from ottla.spark.connect.sql import STANDARD
from ottla.spark.connect.staging import TaskStaging
from ottla.spark.connect.staging_sql import staging_prefix


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], names=["a"])


class Rows:
    """Batches by task, which a function of batches is applied to, task by task."""

    columns = ("a",)

    def __init__(self, *tasks: list[pa.RecordBatch]) -> None:
        self._tasks = tasks
        self.at: Any = None
        self._made: Any = None

    def mapInArrow(self, function: Any, schema: str) -> Rows:
        self._made = function
        self.names = [part.split()[0] for part in schema.split(", ")]
        return self

    def toLocalIterator(self, **_: bool) -> Iterator[Any]:
        for number, batches in enumerate(self._tasks):
            self.at = SimpleNamespace(partitionId=lambda n=number: n, taskAttemptId=lambda n=number: 70 + n)
            for made in self._made(iter(batches)):
                assert made.schema.names == self.names
                yield from (SimpleNamespace(**row) for row in made.to_pylist())

    def collect(self) -> list[Any]:
        return list(self.toLocalIterator())


def test_batches_reach_the_driver_in_their_order() -> None:
    rows: Any = Rows([batch(1, 2), batch(3)], [], [batch(4)])
    assert [one.to_pydict() for one in arrow_batches(rows)] == [{"a": [1, 2]}, {"a": [3]}, {"a": [4]}]


class Tables:
    dialect = STANDARD

    def __init__(self) -> None:
        self.told: list[object] = []

    def create(self, staging: str, table: str, names: Sequence[str]) -> None:
        self.told.append((staging, table, tuple(names)))

    def write(
        self, staging: str, names: Sequence[str], batches: Iterable[pa.RecordBatch], *, part: int, attempt: int
    ) -> int:
        self.told.append((staging, tuple(names), part, attempt))
        return sum(one.num_rows for one in batches)


def test_tasks_fill_a_staging_table_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: Any = Rows([batch(1, 2), batch(3)], [], [batch(4)])
    monkeypatch.setattr(staging, "TaskContext", SimpleNamespace(get=lambda: rows.at))
    tables: Any = Tables()
    filled = TaskStaging(tables, "s").fill(rows, "t")
    name = filled.staging
    assert name.startswith(staging_prefix("s")) and len(name) == len(staging_prefix("s")) + 8
    assert filled == Filled(name, ((0, 70), (1, 71), (2, 72)), 4)
    assert tables.told == [(name, "t", ("a",)), *((name, ("a",), part, 70 + part) for part in range(3))]
    assert TaskStaging(tables, "s").fill(rows, "t").staging != name


class Spark:
    """A session whose file systems hold these texts."""

    def __init__(self, **files: str) -> None:
        self.files = {f"/c/{name.replace('_', '/')}": text for name, text in files.items()}
        self.closed = 0
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=self._path))
        commons = SimpleNamespace(io=SimpleNamespace(IOUtils=SimpleNamespace(toString=self._text)))
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop, commons=commons)))
        self._jsc = SimpleNamespace(hadoopConfiguration=lambda: "as configured")
        self.sparkContext = self

    def _path(self, path: str) -> Any:
        def file_system(configuration: str) -> Any:
            return SimpleNamespace(exists=lambda where: path in self.files, open=lambda where: self._stream(path))

        return SimpleNamespace(getFileSystem=file_system)

    def _stream(self, path: str) -> Any:
        def close() -> None:
            self.closed += 1

        return SimpleNamespace(path=path, close=close)

    def _text(self, stream: Any, encoding: str) -> str:
        assert encoding == "UTF-8"
        return self.files[stream.path]


METADATA = json.dumps({"id": "q-1"})


@pytest.mark.parametrize(
    ("planned", "offsets"), [('v1\n{}\n{"a":1}\nx', ('{"a":1}', "x")), ("v1\n{}\none\n\n", ("one",))]
)
def test_how_far_a_batch_reaches(planned: str, offsets: tuple[str, ...]) -> None:
    spark: Any = Spark(metadata=METADATA, offsets_7=planned)
    assert batch_progress(spark, "/c", 7) == Progress("q-1", 7, offsets)
    assert spark.closed == 2


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"offsets_7": "v1\n{}\nx"}, "the checkpoint has no /c/metadata: give the sink the query's own"),
        ({"metadata": METADATA, "offsets_8": "v1\n{}\nx"}, "the checkpoint has no /c/offsets/7"),
        ({"metadata": "{", "offsets_7": "v1\n{}\nx"}, "/c/metadata does not name the query"),
        ({"metadata": "{}", "offsets_7": "v1\n{}\nx"}, "/c/metadata does not name the query"),
        ({"metadata": "[]", "offsets_7": "v1\n{}\nx"}, "/c/metadata does not name the query"),
        ({"metadata": METADATA, "offsets_7": "v1\n{}\n"}, "/c/offsets/7 names no offsets"),
    ],
)
def test_a_checkpoint_that_spark_did_not_write(files: dict[str, str], words: str) -> None:
    spark: Any = Spark(**files)
    with pytest.raises(CheckpointError, match=words):
        batch_progress(spark, "/c", 7)
