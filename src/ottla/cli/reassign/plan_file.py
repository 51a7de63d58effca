"""Files that say which replicas partitions are to have: Kafka's JSON, read with line numbers for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.cli.session import read_text

ANY_DIR = "any"
_VERSION = 1
_DECODER = json.JSONDecoder()


class PlanError(OttlaError):
    """The file cannot be used; the message says where and why."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.reason = reason


class PlannedPartition(NamedTuple):
    tp: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]
    """One for each replica: a path, or "any"."""
    line: int = 0


class PlanFile:
    """One file, so that whoever finds a mistake later can still name its line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_text(path)
        try:
            self.value = json.loads(self.text)
        except json.JSONDecodeError as e:
            raise self.error(f"{e.msg} (column {e.colno})", line=e.lineno) from None
        except RecursionError:
            raise self.error("it is nested too deeply") from None
        if not isinstance(self.value, dict):
            raise self.error('an object with the list "partitions" or "topics" is needed')
        version = self.value.get("version", _VERSION)
        if version != _VERSION:
            raise self.error(f"Not supported version field value {version}")

    def error(self, reason: str, *, line: int = 1) -> PlanError:
        return PlanError(self.path, line, reason)

    def entries(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects of the list `name`, each with the line it begins on."""
        listed = self.value.get(name)
        if not isinstance(listed, list):
            raise self.error(f'the list "{name}" is missing')
        lines = self._lines_of(name)
        for entry, line in zip(listed, lines, strict=True):
            if not isinstance(entry, dict):
                raise self.error(f"{json.dumps(entry)} is not an object", line=line)
            yield line, entry

    def _lines_of(self, name: str) -> list[int]:
        position = self._position_of(name) + 1
        lines: list[int] = []
        while self.text[position := self._skip(position)] != "]":
            lines.append(self.text.count("\n", 0, position) + 1)
            _, position = _DECODER.raw_decode(self.text, position)
        return lines

    def _position_of(self, name: str) -> int:
        """Where the value of the name begins, in the object that is the whole file; of several the last counts."""
        position, found = self._skip(0) + 1, 0
        while self.text[position := self._skip(position)] != "}":
            key, position = _DECODER.raw_decode(self.text, position)
            position = self._skip(position)
            if key == name:
                found = position
            _, position = _DECODER.raw_decode(self.text, position)
        return found

    def _skip(self, position: int) -> int:
        """What stands between two values. The text is JSON, as is known by then."""
        while self.text[position] in " \t\r\n,:":
            position += 1
        return position

    def field(self, entry: Mapping[str, Any], name: str, kind: type, line: int) -> Any:
        found = entry.get(name)
        if not isinstance(found, kind) or isinstance(found, bool):
            wanted = {str: "a text", int: "a number", list: "a list"}[kind]
            shown = "is missing" if found is None else f"is {json.dumps(found)}, not {wanted}"
            raise self.error(f'"{name}" {shown}', line=line)
        return found


def read_plan(path: Path) -> tuple[PlanFile, list[PlannedPartition]]:
    file = PlanFile(path)
    plan = [_partition(file, line, entry) for line, entry in file.entries("partitions")]
    seen: set[TopicPartition] = set()
    for planned in plan:
        if planned.tp in seen:
            raise file.error(
                f"Partition reassignment contains duplicate topic partitions: {planned.tp}", line=planned.line
            )
        seen.add(planned.tp)
    return file, plan


def _partition(file: PlanFile, line: int, entry: dict[str, Any]) -> PlannedPartition:
    tp = _topic_partition(file, line, entry)
    replicas = file.field(entry, "replicas", list, line)
    if not replicas:
        raise file.error("Partition replica list cannot be empty", line=line)
    for broker_id in replicas:
        if not isinstance(broker_id, int) or isinstance(broker_id, bool) or broker_id < 0:
            raise file.error(f"{json.dumps(broker_id)} in the replicas of {tp} is not a broker id", line=line)
        if replicas.count(broker_id) > 1:
            raise file.error(
                "Partition replica lists may not contain duplicate entries: "
                f"{tp} contains multiple entries for {broker_id}",
                line=line,
            )
    log_dirs = entry.get("log_dirs")
    if log_dirs is None:
        log_dirs = [ANY_DIR] * len(replicas)
    if not isinstance(log_dirs, list) or not all(isinstance(path, str) for path in log_dirs):
        raise file.error(f'"log_dirs" of {tp} is not a list of paths', line=line)
    if len(log_dirs) != len(replicas):
        raise file.error(
            f"Size of replicas list {replicas} is different from size of log dirs list "
            f"[{', '.join(log_dirs)}] for partition {tp}",
            line=line,
        )
    return PlannedPartition(tp, tuple(replicas), tuple(log_dirs), line)


def _topic_partition(file: PlanFile, line: int, entry: dict[str, Any]) -> TopicPartition:
    return TopicPartition(file.field(entry, "topic", str, line), file.field(entry, "partition", int, line))


def read_partitions(path: Path) -> list[TopicPartition]:
    """Of a file for elections, which names partitions only."""
    file = PlanFile(path)
    named: list[TopicPartition] = []
    for line, entry in file.entries("partitions"):
        tp = _topic_partition(file, line, entry)
        if tp in named:
            raise file.error(f"Replica election data contains duplicate partitions: [{tp}]", line=line)
        named.append(tp)
    return named


def read_topics(path: Path) -> list[str]:
    """Of a file that names the topics to move."""
    file = PlanFile(path)
    return list(dict.fromkeys(file.field(entry, "topic", str, line) for line, entry in file.entries("topics")))


def plan_json(assignment: Mapping[TopicPartition, Iterable[int]]) -> str:
    partitions = []
    for tp, chosen in sorted(assignment.items()):
        replicas = list(chosen)
        partitions.append(
            {"topic": tp.topic, "partition": tp.partition, "replicas": replicas, "log_dirs": [ANY_DIR] * len(replicas)}
        )
    return json.dumps({"version": _VERSION, "partitions": partitions}, separators=(",", ":"))
