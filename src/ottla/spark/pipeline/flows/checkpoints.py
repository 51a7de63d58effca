"""What a flow's checkpoint says: whose it is, how far it is, and of which topics its offsets are.

Offsets mean nothing without the topic they count in. Spark's checkpoint knows topics by their names alone, so their ids
are written down beside it: a topic that was deleted and created again is another one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.spark.offsets import Offsets
from ottla.spark.progress import parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPICS = "ottla-topics.json"
_FORMAT_LINES = 2
"""The offsets of the sources follow a line with the format's version and one with the query's own state."""


class CheckpointState(NamedTuple):
    query_id: str
    committed: int
    """The last batch that is done; -1 if none is."""
    position: Offsets
    """Where the last batch that is done has ended, in the topics among the sources."""


class FlowCheckpoint:
    """A directory of this machine, or of any file system that Spark can keep a checkpoint in."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location
        self._files = _LocalFiles(location) if "://" not in location else _HadoopFiles(spark, location)

    def state(self) -> CheckpointState | None:
        """None if there is no checkpoint yet."""
        metadata = self._files.read("metadata")
        if metadata is None:
            return None
        committed = max(self._files.numbers("commits"), default=-1)
        text = self._files.read(f"offsets/{committed}") if committed >= 0 else None
        position: Offsets = {}
        for line in (text or "").strip("\n").split("\n")[_FORMAT_LINES:]:
            position |= parse_offsets(line) or {}
        return CheckpointState(str(json.loads(metadata)["id"]), committed, position)

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
