"""What a flow's checkpoint says: whose it is, how far it is, and of which topics its offsets are.

Offsets mean nothing without the topic they count in. Spark's checkpoint knows topics by their names alone, so their ids
are written down beside it: a topic that was deleted and created again is another one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.spark.offsets import Offsets, is_placed
from ottla.spark.progress import parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPICS = "ottla-topics.json"


class CheckpointState(NamedTuple):
    query_id: str
    committed: int
    """The last batch that is done; -1 if none is."""
    begun: int
    """The last batch that is planned; one that is not done is run again at the next start."""
    position: Offsets
    """Where the last batch that is done has ended, in the topics among the sources; or where the flow was moved to."""


class PlannedBatch(NamedTuple):
    """A file of the directory `offsets`, line by line."""

    version: str
    own: str
    """The query's own state: watermark, time, settings."""
    sources: tuple[str, ...]
    """How far the batch reaches in each source, in the order of the query's plan."""

    @property
    def text(self) -> str:
        return "\n".join((self.version, self.own, *self.sources))


def _is_placed(line: str) -> bool:
    return parse_offsets(line) is not None and is_placed(json.loads(line))


class FlowCheckpoint:
    """A directory of this machine, or of any file system that Spark can keep a checkpoint in."""

    def __init__(self, spark: SparkSession | None, location: str) -> None:
        """Spark is needed for a location that is not a directory of this machine."""
        self.location = location
        self._files: _LocalFiles | _HadoopFiles
        if spark is None or "://" not in location:
            self._files = _LocalFiles(location)
        else:
            self._files = _HadoopFiles(spark, location)

    def state(self) -> CheckpointState | None:
        """None if there is no checkpoint yet."""
        metadata = self._files.read("metadata")
        if metadata is None:
            return None
        committed = max(self._files.numbers("commits"), default=-1)
        begun = max(self._files.numbers("offsets"), default=-1)
        position: Offsets = {}
        planned = self.planned(max(committed, 0))
        for line in [] if planned is None else planned.sources:
            if committed >= 0 or _is_placed(line):
                position |= parse_offsets(line) or {}
        return CheckpointState(str(json.loads(metadata)["id"]), committed, begun, position)

    def planned(self, batch: int) -> PlannedBatch | None:
        """What was written down before the batch was run; None if it was not planned, or that is forgotten."""
        text = self._files.read(f"offsets/{batch}")
        if text is None:
            return None
        version, own, *sources = text.strip("\n").split("\n")
        return PlannedBatch(version, own, tuple(sources))

    def topic_ids(self) -> dict[str, str]:
        """The ids that its topics had when it was last used."""
        text = self._files.read(_TOPICS)
        return {} if text is None else dict(json.loads(text))

    def note_topic_ids(self, ids: dict[str, str]) -> None:
        self._files.write(_TOPICS, json.dumps(ids, sort_keys=True))


class _LocalFiles:
    def __init__(self, location: str) -> None:
        self._directory = Path(location.removeprefix("file:"))

    def read(self, name: str) -> str | None:
        try:
            return (self._directory / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def numbers(self, directory: str) -> list[int]:
        try:
            return [int(path.name) for path in (self._directory / directory).iterdir() if path.name.isdecimal()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write(self, name: str, text: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        new = self._directory / f".{name}.new"
        new.write_text(text)
        new.replace(self._directory / name)


class _HadoopFiles:
    def __init__(self, spark: SparkSession, location: str) -> None:
        self._location = location
        self._context = spark.sparkContext
        self._jvm: Any = spark.sparkContext._jvm

    def _open(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._location}/{name}")
        return path.getFileSystem(self._context._jsc.hadoopConfiguration()), path

    def read(self, name: str) -> str | None:
        files, path = self._open(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def numbers(self, directory: str) -> list[int]:
        files, path = self._open(directory)
        if not files.exists(path):
            return []
        names = [str(status.getPath().getName()) for status in files.listStatus(path)]
        return [int(name) for name in names if name.isdecimal()]

    def write(self, name: str, text: str) -> None:
        files, path = self._open(name)
        stream = files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
