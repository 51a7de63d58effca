"""Small text files that are replaced as a whole: offset checkpoints, partition.metadata, meta.properties.

A reader sees the old content or the new one, never a mixture; what cannot be understood raises CheckpointError, and
the caller knows what can be done without the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ottla.base.errors import OttlaError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text
from ottla.log.file import sync_directory

_VERSION = "0"
PARTITION_METADATA = "partition.metadata"


class CheckpointError(OttlaError):
    """A checkpoint file that does not have the expected form."""


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write `data` beside `path`, then rename. With `sync` the change survives a power cut."""
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    if sync:
        sync_directory(path.parent)


def write_rows(path: Path, rows: list[str], *, sync: bool = True) -> None:
    """Kafka's shape for checkpoints: a version line, the number of rows, the rows."""
    replace_file(path, "".join(f"{line}\n" for line in (_VERSION, str(len(rows)), *rows)).encode(), sync=sync)


def read_rows(path: Path, columns: int) -> list[list[str]] | None:
    """The rows of a checkpoint split at spaces, or None if the file does not exist."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as e:
        raise CheckpointError(f"{path} is not text") from e
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdigit():
        raise CheckpointError(f"{path} does not begin with a version and a count")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != columns for row in rows):
        raise CheckpointError(f"{path} does not hold the {lines[1]} rows it announces")
    return rows


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    write_rows(path, [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())], sync=sync)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """What the checkpoint holds; nothing if it does not exist."""
    try:
        return {TopicPartition(topic, int(p)): int(offset) for topic, p, offset in read_rows(path, 3) or []}
    except ValueError as e:
        raise CheckpointError(f"{path} holds something that is no number: {e}") from e


def write_partition_metadata(directory: Path, topic_id: Uuid) -> None:
    replace_file(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode())


def read_partition_metadata(directory: Path) -> Uuid:
    """The topic id of a partition's directory; the nil uuid if the file does not exist (Kafka before 2.8)."""
    path = directory / PARTITION_METADATA
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return NIL_UUID
    except UnicodeDecodeError as e:
        raise CheckpointError(f"{path} is not text") from e
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    try:
        if fields["version"] != "0":
            raise CheckpointError(f"{path} has version {fields['version']}, which this program does not know")
        return uuid_from_text(fields["topic_id"])
    except (KeyError, ValueError) as e:
        raise CheckpointError(f"{path} holds no topic id") from e


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Java properties without the characters that would need escaping: all our values are plain."""
    replace_file(path, "".join(f"{key}={value}\n" for key, value in properties.items()).encode())


def read_properties(path: Path) -> dict[str, str] | None:
    """The properties, or None if the file does not exist."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as e:
        raise CheckpointError(f"{path} is not text") from e
    properties: dict[str, str] = {}
    for line in lines:
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise CheckpointError(f"{path} holds a line that is no property: {text!r}")
        properties[key.strip()] = value.strip()
    return properties
