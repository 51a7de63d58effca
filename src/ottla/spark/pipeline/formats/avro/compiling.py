"""Makes the readers for a writer's schema and the schema it is read with."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_type

from ottla.spark.pipeline.formats.avro.blocks import Items, ListReader, MapReader
from ottla.spark.pipeline.formats.avro.defaults import default_array
from ottla.spark.pipeline.formats.avro.lanes import Reader
from ottla.spark.pipeline.formats.avro.numbers import check_decimals, whole_numbers
from ottla.spark.pipeline.formats.avro.readers import (
    BooleanReader,
    BranchReader,
    BytesReader,
    DecimalReader,
    EnumReader,
    FailingReader,
    FloatReader,
    NullReader,
    NumberReader,
    RecordReader,
    UnionReader,
    UuidReader,
)
from ottla.spark.pipeline.formats.avro.resolution import branch_for, describe, fits, source_of
from ottla.spark.pipeline.formats.avro.spark_types import spark_type
from ottla.spark.pipeline.formats.avro.types import (
    NOTHING,
    Array,
    AvroSchemaError,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

_VALUE = "the value"
_WIDTHS_MIN = {"null": 0, "float": 4, "double": 8}


def arrow_type(kind: AvroType) -> Any:
    """What Spark takes for the columns of a type."""
    return to_arrow_type(spark_type(kind), timezone="UTC")


def compile_reader(writer: Record, reader: Record) -> Reader:
    """AvroSchemaError if values of the one schema cannot be read with the other."""
    return _record(writer, reader, "")


def _reader(writer: AvroType, reader: AvroType, where: str) -> Reader:
    if isinstance(writer, Union):
        return _union(writer, reader, where)
    if isinstance(reader, Union):
        return _branch(writer, reader, where)
    if not (fits(writer, reader) or (isinstance(writer, Record) and isinstance(reader, Record))):
        raise AvroSchemaError(f"{where}: it is written as {describe(writer)} and read as {describe(reader)}")
    match writer, reader:
        case Primitive(), Primitive():
            return _primitive(writer, reader, where)
        case Fixed(), Fixed():
            return _fixed(writer, reader, where)
        case Enum(), Enum():
            symbols = [symbol if symbol in reader.symbols else reader.default for symbol in writer.symbols]
            return EnumReader(symbols, writer.symbols, where)
        case Array(), Array():
            items = _reader(writer.items, reader.items, where)
            known = _known_items(writer.items, where)
            return ListReader(items, arrow_type(reader.items), arrow_type(reader), known, where)
        case Map(), Map():
            # In bytes, a map is a list of records.
            written, read = _entry(writer), _entry(reader)
            return MapReader(_record(written, read, where), arrow_type(read), arrow_type(reader), Items(1), where)
        case Record(), Record():
            return _record(writer, reader, where)
    raise AssertionError((writer, reader))


def _primitive(writer: Primitive, reader: Primitive, where: str) -> Reader:
    type_ = arrow_type(reader)
    match writer.kind:
        case "null":
            return NullReader(type_)
        case "boolean":
            return BooleanReader(where)
        case "int" | "long":
            return NumberReader(whole_numbers(writer, reader, type_, where), where)
        case "float" | "double":
            return FloatReader(4 if writer.kind == "float" else 8, type_, where)
    _check_decimals(writer, reader, where)
    return DecimalReader(None, reader, where) if reader.logical == "decimal" else BytesReader(None, type_, where)


def _fixed(writer: Fixed, reader: Fixed, where: str) -> Reader:
    if writer.size != reader.size:
        raise AvroSchemaError(f"{where}: it is written with {writer.size} bytes and read with {reader.size}")
    _check_decimals(writer, reader, where)
    if reader.logical == "decimal":
        return DecimalReader(writer.size, reader, where)
    return UuidReader(where) if reader.logical == "uuid" else BytesReader(writer.size, arrow_type(reader), where)


def _check_decimals(writer: Primitive | Fixed, reader: Primitive | Fixed, where: str) -> None:
    try:
        check_decimals(writer, reader)
    except AvroSchemaError as e:
        raise AvroSchemaError(f"{where}: {e}") from None


def _union(writer: Union, reader: AvroType, where: str) -> Reader:
    type_ = arrow_type(reader)
    branches: list[Reader] = []
    failures = []
    for branch in writer.branches:
        try:
            branches.append(_reader(branch, reader, where))
        except AvroSchemaError as e:
            failures.append(e)
            branches.append(FailingReader(str(e), type_))
    if failures and len(failures) == len(branches):
        raise failures[0]
    return UnionReader(branches, type_, where)


def _branch(writer: AvroType, reader: Union, where: str) -> Reader:
    try:
        branch = branch_for(writer, reader)
    except AvroSchemaError as e:
        raise AvroSchemaError(f"{where}: {e}") from None
    type_ = arrow_type(reader)
    if branch not in reader.others:
        return NullReader(type_)
    inner = _reader(writer, branch, where)
    return inner if len(reader.others) == 1 else BranchReader(inner, reader.others.index(branch), type_)


def _record(writer: Record, reader: Record, where: str) -> Reader:
    sources: dict[str, int] = {}
    defaults: dict[int, Any] = {}
    for place, field in enumerate(reader.fields):
        path = f"{where}.{field.name}" if where else field.name
        source = source_of(field, writer)
        if source is not None:
            sources[source.name] = place
        elif field.default is NOTHING:
            raise AvroSchemaError(f"{path}: it is not among what was written, and has no default")
        else:
            defaults[place] = default_array(field.default, field.type, arrow_type(field.type), path)
    steps = []
    for written in writer.fields:
        path = f"{where}.{written.name}" if where else written.name
        place_or_none = sources.get(written.name)
        # What nobody wants has to be read all the same, to know where it ends.
        wanted = written.type if place_or_none is None else reader.fields[place_or_none].type
        steps.append((_reader(written.type, wanted, path), place_or_none))
    return RecordReader(steps, defaults, arrow_type(reader))


def _entry(kind: Map) -> Record:
    return Record("entry", (Field("key", Primitive("string")), Field("value", kind.values)))


def _known_items(items: AvroType, where: str) -> Items:
    width_min = _width_min(items)
    if not width_min:
        raise AvroSchemaError(f"{where}: items without bytes cannot be counted")
    match items:
        case Primitive(kind="boolean" | "float" | "double"):
            return Items(width_min, width_min)
        case Primitive(kind="int" | "long") | Enum():
            return Items(width_min, are_numbers=True)
    return Items(width_min)


def _width_min(kind: AvroType) -> int:
    match kind:
        case Primitive():
            return _WIDTHS_MIN.get(kind.kind, 1)
        case Fixed():
            return kind.size
        case Record():
            return sum(_width_min(field.type) for field in kind.fields)
    return 1
