"""Protobuf as a format of topics: what a section says about it, and batches of messages into rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from pyspark.sql.types import StructType

from ottla.records.varint import read_varint
from ottla.spark.pipeline.formats.arrow_values import IS_NULL, arrow_struct, converted_rows, decode_with, with_errors
from ottla.spark.pipeline.formats.framing import HEAD_SIZE, NO_HEAD
from ottla.spark.pipeline.formats.protobuf.columns import message_column
from ottla.spark.pipeline.formats.protobuf.descriptors import DescriptorError, find_message, index_path
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAX_INDEXES = 32


class ProtobufFormat:
    has_columns: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("value",)

    def __init__(self, section: Section) -> None:
        self._section = section
        self._path = section.take_path("descriptor_file")
        self._message = section.take("message", str)
        self._enum_names = section.take_choice("enums", ("name", "number"), "name") == "name"
        self._is_framed = section.take_choice("framing", ("none", "confluent"), "none") == "confluent"

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls(section)

    def check(self) -> Sequence[Finding]:
        try:
            self._columns(self._descriptors())
        except SpecError as e:
            return e.problems
        return []

    def decode(self, records: DataFrame) -> DataFrame:
        descriptors = self._descriptors()
        name, enum_names, is_framed = self._message, self._enum_names, self._is_framed

        def decode(values: Any) -> Any:
            return _decoder_for(descriptors, name, enum_names, is_framed)(values)

        return decode_with(records, decode, self._columns(descriptors))

    def _descriptors(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError as e:
            self._section.fail("descriptor_file", f"{self._path} cannot be read: {e.strerror}")

    def _columns(self, descriptors: bytes) -> StructType:
        try:
            found = message_column(find_message(descriptors, self._message), enum_names=self._enum_names).type
        except DescriptorError as e:
            self._section.fail("message" if "message" in str(e) else "descriptor_file", f"{self._path}: {e}")
        assert isinstance(found, StructType)
        return found


@lru_cache(maxsize=32)
def _decoder_for(descriptors: bytes, name: str, enum_names: bool, is_framed: bool) -> Callable[[Any], Any]:
    return ProtobufDecoder(find_message(descriptors, name), enum_names=enum_names, is_framed=is_framed)


class ProtobufDecoder:
    def __init__(self, message: Any, *, enum_names: bool, is_framed: bool) -> None:
        self._name = message.full_name
        self._class: Any = message_factory.GetMessageClass(message)
        column = message_column(message, enum_names=enum_names)
        self._get = column.get
        self._type = arrow_struct(column.type)
        self._indexes = index_path(message) if is_framed else None

    def __call__(self, values: Any) -> Any:
        errors: dict[int, str] = {}
        rows: list[Any] = []
        for index, data in enumerate(values.to_pylist()):
            try:
                rows.append(self._row(data))
            except ValueError as e:
                errors[index] = str(e)
                rows.append(None)
        return with_errors(converted_rows(rows, self._type, errors), errors)

    def _row(self, data: bytes | None) -> Any:
        if data is None:
            raise ValueError(IS_NULL)
        if self._indexes is not None:
            data = data[self._start(data) :]
        try:
            message = self._class.FromString(data)
        except DecodeError:
            raise ValueError(f"the value is not a message of type {self._name}") from None
        if not message.IsInitialized():
            raise ValueError(f"the field {message.FindInitializationErrors()[0]} is missing")
        return self._get(message)

    def _start(self, data: bytes) -> int:
        """Where the message begins, after the frame and the indexes that say which of the schema's messages it is."""
        if len(data) <= HEAD_SIZE or data[0]:
            raise ValueError(NO_HEAD)
        try:
            count, at = read_varint(data, HEAD_SIZE)
            if not 0 <= count <= _MAX_INDEXES:
                raise ValueError(NO_HEAD)
            indexes = []
            for _ in range(count):
                index, at = read_varint(data, at)
                indexes.append(index)
        except Exception:
            raise ValueError("it does not say which message of its schema it is") from None
        if (indexes or [0]) != self._indexes:
            raise ValueError(f"it is another message of its schema than {self._name}")
        return at
