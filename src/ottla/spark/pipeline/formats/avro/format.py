"""Avro as a format of topics: what a section says about it, on the driver; `decoder` and `writers` do the work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructType

from ottla.client.serdes.registry import RegisteredSchema, SchemaRegistryError
from ottla.spark.pipeline.formats.arrow_values import array_function, decode_with
from ottla.spark.pipeline.formats.avro.decoder import FramedDecoder, PlainDecoder
from ottla.spark.pipeline.formats.avro.spark_types import derived_schema, spark_type
from ottla.spark.pipeline.formats.avro.types import AvroSchemaError, Record, parse_record
from ottla.spark.pipeline.formats.avro.writers import compile_writer
from ottla.spark.pipeline.formats.framing import frame_head
from ottla.spark.pipeline.formats.registry_options import RegistryOptions, find_schema, subject_of
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True)
class SchemaText:
    text: str
    references: tuple[str, ...] = ()
    """Schemas that it uses by name, those that others need first."""

    @classmethod
    def of(cls, registered: RegisteredSchema) -> SchemaText:
        return cls(registered.text, tuple(registered.texts_of_references()))

    def parse(self) -> Record:
        return parse_record(self.text, self.references)


def take_schema(section: Section) -> Callable[[], SchemaText] | None:
    """What `schema` or `schema_file` say, to be looked at later; None if neither is there."""
    text = section.take("schema", str, None)
    if "schema_file" not in section:
        return None if text is None else lambda: SchemaText(text)
    if text is not None:
        section.fail("schema_file", "give it either 'schema' or 'schema_file'")
    path = section.take_path("schema_file")

    def read() -> SchemaText:
        try:
            return SchemaText(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as e:
            section.fail("schema_file", f"{path} cannot be read: {getattr(e, 'strerror', None) or e}")

    return read


class AvroFormat:
    """Values that are read with one schema: given, or the newest of a subject when the pipeline starts. With a registry
    they begin with the id of the schema they were written with, without one they were written with the given one."""

    has_columns: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("value",)

    def __init__(self, section: Section) -> None:
        self._section = section
        self._registry = RegistryOptions.from_section(section)
        self._read_schema = take_schema(section)
        self._subject = None
        if self._read_schema is None:
            if self._registry is None:
                section.fail("format", "format avro needs a 'schema', a 'schema_file' or a 'registry'")
            self._subject = subject_of(section, section.take("topic", str, None), "")
        self._known: tuple[SchemaText, Record] | None = None

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls(section)

    def check(self) -> Sequence[Finding]:
        try:
            self._schema()
            if self._registry is not None and self._subject is None:
                _check_reachable(self._registry, self._section)
        except SpecError as e:
            return e.problems
        return []

    def decode(self, records: DataFrame) -> DataFrame:
        text, record = self._schema()
        registry = self._registry

        def decode(values: Any) -> Any:
            return _decoder_for(text, registry)(values)

        columns = spark_type(record)
        assert isinstance(columns, StructType)
        return decode_with(records, decode, columns)

    def _schema(self) -> tuple[SchemaText, Record]:
        """The schema to read with, the same for as long as the pipeline runs: a new version is for the next start."""
        if self._known is None:
            text = self._latest() if self._read_schema is None else self._read_schema()
            try:
                self._known = text, text.parse()
            except AvroSchemaError as e:
                self._section.fail(_schema_key(self._section), str(e))
        return self._known

    def _latest(self) -> SchemaText:
        assert self._registry is not None and self._subject is not None
        try:
            return SchemaText.of(self._registry.connect().latest(self._subject))
        except SchemaRegistryError as e:
            if e.is_not_found:
                cure = "register it, or give the schema to read with as 'schema' or 'schema_file'"
                self._section.fail("registry", f"the registry has no subject {self._subject!r}; {cure}")
            self._section.fail("registry", str(e))


@lru_cache(maxsize=32)
def _decoder_for(text: SchemaText, registry: RegistryOptions | None) -> Callable[[Any], Any]:
    record = text.parse()
    if registry is None:
        return PlainDecoder(record, record)
    client = registry.connect()

    def written_with(schema_id: int) -> Record | None:
        registered = find_schema(client, schema_id)
        return None if registered is None or registered.schema_type != "AVRO" else SchemaText.of(registered).parse()

    return FramedDecoder(record, written_with)


class AvroRows:
    """Rows as Avro values, with a given schema or with one that is made for the columns. With a registry they begin
    with the schema's id."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self._topic = section.take("topic", str)
        self._registry = RegistryOptions.from_section(section)
        self._read_schema = take_schema(section)
        self._name = section.take("record_name", str, _NO_NAME.sub("_", self._topic).strip("_") or "row")
        self._registers = section.take("register", bool, False)
        if self._registers and self._registry is None:
            section.fail("register", "there is no 'registry' to register a schema in")
        section.take("subject", str, None)
        self._ids: dict[SchemaText, int] = {}
        """The schemas of all flows into this sink; 0 until the registry has been asked."""

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls(section)

    def check(self) -> Sequence[Finding]:
        try:
            if self._read_schema is not None:
                self._parsed(self._read_schema())
            if self._registry is not None:
                _check_reachable(self._registry, self._section)
        except SpecError as e:
            return e.problems
        return []

    def prepare(self) -> None:
        """Asks for the ids of the schemas, and registers them if the description says so."""
        if self._registry is None:
            return
        client = self._registry.connect()
        for text in self._ids:
            subject = subject_of(self._section, self._topic, text.parse().name)
            try:
                ask = client.register if self._registers else client.lookup
                self._ids[text] = ask(subject, text.text)
            except SchemaRegistryError as e:
                if e.status == 404 and not self._registers:
                    self._fail(f"the registry has not got this schema under {subject!r}; 'register: true' adds it")
                self._fail(str(e))

    def encode(self, rows: DataFrame) -> Column:
        columns = rows.schema
        text = self._text(columns)
        self._parsed(text)
        try:
            compile_writer(text.parse(), columns)
        except AvroSchemaError as e:
            self._section.fail(_schema_key(self._section), str(e))
        head = b"" if self._registry is None else frame_head(self._ids.setdefault(text, 0))

        def encode(*arrays: Any) -> Any:
            return _writer_for(text, columns.json())(arrays, head)

        written: Column = array_function(encode, BinaryType())(*(f.col(f"`{name}`") for name in columns.names))
        return written

    def _text(self, columns: StructType) -> SchemaText:
        if self._read_schema is not None:
            return self._read_schema()
        try:
            return SchemaText(json.dumps(derived_schema(columns, self._name), separators=(",", ":")))
        except AvroSchemaError as e:
            self._section.fail("format", str(e))

    def _parsed(self, text: SchemaText) -> Record:
        try:
            return text.parse()
        except AvroSchemaError as e:
            self._section.fail(_schema_key(self._section), str(e))

    def _fail(self, message: str) -> NoReturn:
        self._section.fail("registry", message)


@lru_cache(maxsize=32)
def _writer_for(text: SchemaText, columns: str) -> Callable[[Sequence[Any], bytes], Any]:
    return compile_writer(text.parse(), StructType.fromJson(json.loads(columns)))


def _schema_key(section: Section) -> str:
    return next((key for key in ("schema_file", "schema") if key in section), "format")


def _check_reachable(registry: RegistryOptions, section: Section) -> None:
    """Whether it answers; that it has not got a subject yet is fine."""
    try:
        registry.connect().latest(subject_of(section, section.take("topic", str, None) or "", ""))
    except SchemaRegistryError as e:
        if not e.is_not_found:
            section.fail("registry", str(e))
