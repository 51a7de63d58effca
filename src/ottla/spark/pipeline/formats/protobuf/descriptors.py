"""The message type that a description names, found in a set of descriptors (`protoc --descriptor_set_out`)."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ottla.spark.pipeline.problems import suggestion

_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}


class DescriptorError(ValueError):
    """A set of descriptors that is none, or has no such message; the message is a sentence."""


def find_message(descriptors: bytes, name: str) -> Any:
    """The descriptor of a message by its full name."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        files = []
    if not files:
        raise DescriptorError("it is not a set of descriptors; make it with 'protoc --descriptor_set_out=FILE'")
    pool = DescriptorPool()
    there = {file.name for file in files}
    for file_name, serialized in _WELL_KNOWN.items():
        if file_name not in there:
            pool.AddSerializedFile(serialized)
    for file in files:
        missing = [used for used in file.dependency if used not in there and used not in _WELL_KNOWN]
        if missing:
            raise DescriptorError(
                f"{file.name} imports {missing[0]}, which is not in it; make it with --include_imports"
            )
        try:
            pool.Add(file)
        except TypeError as e:
            raise DescriptorError(f"{file.name} in it is no description of messages: {e}") from None
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = [full for file in files for full in _names(file.message_type, file.package)]
        raise DescriptorError(f"it has no message {name!r}.{suggestion(name, known)}") from None


def _names(messages: Any, parent: str) -> list[str]:
    found = []
    for message in messages:
        full = f"{parent}.{message.name}" if parent else message.name
        found += [full, *_names(message.nested_type, full)]
    return found


def index_path(message: Any) -> list[int]:
    """Where the message is in its file: its index, after those of the messages it stands in."""
    outer = message.containing_type
    if outer is None:
        return [list(message.file.message_types_by_name.values()).index(message)]
    return [*index_path(outer), list(outer.nested_types).index(message)]
