"""Writers of Avro values: Arrow columns into the bytes of each row, a column at a time.

What a column's type and the schema's type have in common is decided once, by `compile_writer`; what only a row can get
wrong (a NULL, a symbol that the enum has not) is an error with the column's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from ottla.records.arrays.varint import Int64s, VarintColumn
from ottla.records.columns.varint import binary_array, join_varints
from ottla.spark.pipeline.formats.avro.numbers import decimal_bytes, moment_numbers
from ottla.spark.pipeline.formats.avro.resolution import describe
from ottla.spark.pipeline.formats.avro.spark_types import branch_names, spark_type
from ottla.spark.pipeline.formats.avro.types import (
    NOTHING,
    Array,
    AvroSchemaError,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
)

Pieces: TypeAlias = list[Any]
"""Arrow arrays of bytes; a row's value is its bytes in all of them, one after the other."""
Writer: TypeAlias = Callable[[Any], Pieces]

_NOTHING = pa.scalar(b"", pa.binary())
_END = pa.scalar(b"\0", pa.binary())
_NO_COLUMN = -1
_WHOLE: dict[type[t.DataType], int] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}


class UnwritableRowError(ValueError):
    """A row that the schema has no place for."""


def compile_writer(schema: Record, columns: t.StructType) -> Callable[[Sequence[Any], bytes], Any]:
    """A function of the columns' arrays and of what is to come before each value; AvroSchemaError says which column
    does not suit the schema."""
    write = _record(schema, columns, "")

    def written(arrays: Sequence[Any], prefix: bytes) -> Any:
        rows = pa.StructArray.from_arrays(list(arrays), names=columns.names)
        return joined([pa.scalar(prefix, pa.binary()), *write(rows)])

    return written


def joined(pieces: Pieces) -> Any:
    return pc.binary_join_element_wise(*pieces, _NOTHING)


def _writer(kind: AvroType, column: t.DataType, where: str) -> Writer:
    match kind:
        case Union():
            return _union(kind, column, where)
        case Record() if isinstance(column, t.StructType):
            return _no_nulls(_record(kind, column, where), where)
        case Array() if isinstance(column, t.ArrayType):
            return _no_nulls(_blocks(_writer(kind.items, column.elementType, where)), where)
        case Map() if isinstance(column, t.MapType) and isinstance(column.keyType, t.StringType):
            return _no_nulls(_map_blocks(_writer(kind.values, column.valueType, where)), where)
        case Enum() if isinstance(column, t.StringType):
            return _no_nulls(_enum(kind, where), where)
        case Primitive(kind="null") if isinstance(column, t.NullType):
            return lambda array: [binary_array(np.zeros(len(array) + 1, np.int64), b"")]
        case Primitive() | Fixed():
            found = _plain(kind, column, where)
            if found is not None:
                return _no_nulls(found, where)
    raise AvroSchemaError(
        f"the column {where} is {column.simpleString()}, and the schema has {describe(kind)} for it; "
        f"cast it to {spark_type(kind).simpleString()}"
    )


def _no_nulls(write: Writer, where: str) -> Writer:
    def written(array: Any) -> Pieces:
        if array.null_count:
            raise UnwritableRowError(
                f"the column {where} is NULL in a row, and the schema has no null for it; "
                "give it a value (coalesce), or write null into the schema as a branch of a union"
            )
        return write(array) if len(array) else [pa.array([], pa.binary())]

    return written


def _plain(kind: Primitive | Fixed, column: t.DataType, where: str) -> Writer | None:
    if kind.logical is not None and kind.logical != "uuid":
        if spark_type(kind) != column:
            return None
        if kind.logical == "decimal":
            return _decimal(kind, where)
        return lambda array: [_varints(moment_numbers(array, str(kind.logical), where))]
    if isinstance(kind, Fixed):
        return _fixed(kind, where) if isinstance(column, t.BinaryType) else None
    match kind.kind:
        case "int" | "long" if _WHOLE.get(type(column), 99) <= (32 if kind.kind == "int" else 64):
            return lambda array: [_varints(array.to_numpy(zero_copy_only=False).astype(np.int64))]
        case "boolean" if isinstance(column, t.BooleanType):
            return lambda array: [_equal_widths(array.to_numpy(zero_copy_only=False).astype(np.uint8), 1)]
        case "float" if isinstance(column, t.FloatType):
            return lambda array: [_equal_widths(array.to_numpy().astype("<f4"), 4)]
        case "double" if isinstance(column, t.FloatType | t.DoubleType):
            return lambda array: [_equal_widths(array.to_numpy().astype("<f8"), 8)]
        case "string" if isinstance(column, t.StringType):
            return _bytes
        case "bytes" if isinstance(column, t.BinaryType):
            return _bytes
    return None


def _varints(numbers: Int64s) -> Any:
    return join_varints([VarintColumn(numbers)]) if len(numbers) else pa.array([], pa.binary())


def _equal_widths(numbers: Any, width: int) -> Any:
    return binary_array(np.arange(len(numbers) + 1, dtype=np.int64) * width, np.ascontiguousarray(numbers))


def _bytes(array: Any) -> Pieces:
    data = array.cast(pa.binary())
    return [_varints(pc.binary_length(data).to_numpy().astype(np.int64)), data]


def _fixed(kind: Fixed, where: str) -> Writer:
    def written(array: Any) -> Pieces:
        if (pc.binary_length(array).to_numpy() != kind.size).any():
            raise UnwritableRowError(f"the column {where} has bytes that are not {kind.size}, as the schema wants them")
        return [array]

    return written


def _decimal(kind: Primitive | Fixed, where: str) -> Writer:
    def written(array: Any) -> Pieces:
        data = decimal_bytes(array, kind.size if isinstance(kind, Fixed) else None)
        if data is None:
            raise UnwritableRowError(f"the column {where} has a decimal that {describe(kind)} is too short for")
        return [data] if isinstance(kind, Fixed) else _bytes(data)

    return written


def _enum(kind: Enum, where: str) -> Writer:
    symbols = pa.array(kind.symbols, pa.string())

    def written(array: Any) -> Pieces:
        places = pc.index_in(array, symbols)
        if places.null_count:
            unknown = array.filter(pc.is_null(places))[0].as_py()
            raise UnwritableRowError(f"the column {where} is {unknown!r}, and the enum {kind.name} has no such symbol")
        return [_varints(places.to_numpy().astype(np.int64))]

    return written


def _union(kind: Union, column: t.DataType, where: str) -> Writer:
    null = next((_branch_mark(index) for index, branch in enumerate(kind.branches) if is_null(branch)), None)
    if len(kind.others) == 1:
        value = _marked(_branch_mark(kind.branches.index(kind.others[0])), _writer(kind.others[0], column, where))
    else:
        value = _several(kind, column, where)

    def written(array: Any) -> Pieces:
        if not array.null_count:
            return value(array) if len(array) else [pa.array([], pa.binary())]
        if null is None:
            raise UnwritableRowError(f"the column {where} is NULL in a row, and the schema has no null for it")
        there = joined(value(array.drop_null())) if array.null_count < len(array) else pa.array([], pa.binary())
        places = np.cumsum(array.is_valid().to_numpy(zero_copy_only=False)) - 1
        rows = pa.array(places, mask=array.is_null().to_numpy(zero_copy_only=False))
        return [pc.fill_null(there.take(rows), null)]

    return written


def _several(kind: Union, column: t.DataType, where: str) -> Writer:
    """A union of several types is a struct, as it is when it is read: one field for each, all but one of them NULL."""
    names = branch_names(kind)
    if not isinstance(column, t.StructType) or column.names != names:
        raise AvroSchemaError(
            f"the column {where} is {column.simpleString()}, and the schema has {describe(kind)} for it; "
            f"make it a struct with the fields {', '.join(names)}, all but one of them NULL"
        )
    marks = [_branch_mark(kind.branches.index(branch)) for branch in kind.others]
    writers = [_writer(branch, column[name].dataType, where) for branch, name in zip(kind.others, names, strict=True)]

    def written(array: Any) -> Pieces:
        fields = array.flatten()
        chosen = np.array([field.is_valid().to_numpy(zero_copy_only=False) for field in fields])
        if (chosen.sum(axis=0) != 1).any():
            raise UnwritableRowError(
                f"the column {where} must have one field that is not NULL, and has none or several"
            )
        branch_of_row = chosen.argmax(axis=0)
        pieces, order = [], []
        for index, write in enumerate(writers):
            rows = np.flatnonzero(branch_of_row == index)
            if rows.size:
                pieces.append(joined([marks[index], *write(fields[index].take(pa.array(rows)))]))
                order.append(rows)
        places = np.empty(len(array), np.int64)
        places[np.concatenate(order)] = np.arange(len(array))
        return [pa.concat_arrays(pieces).take(pa.array(places))]

    return written


def _marked(mark: Any, write: Writer) -> Writer:
    return lambda array: [mark, *write(array)]


def _branch_mark(index: int) -> Any:
    return pa.scalar(_varints(np.array([index], np.int64))[0].as_py(), pa.binary())


def _record(schema: Record, columns: t.StructType, where: str) -> Writer:
    paths = {name: f"{where}.{name}" if where else name for name in [*columns.names, *(f.name for f in schema.fields)]}
    unknown = [paths[name] for name in columns.names if name not in {field.name for field in schema.fields}]
    if unknown:
        raise AvroSchemaError(f"the schema has no field for the column {unknown[0]}; leave it out, or add the field")
    steps: list[tuple[int, Writer]] = []
    for field in schema.fields:
        if field.name in columns.names:
            writer = _writer(field.type, columns[field.name].dataType, paths[field.name])
            steps.append((columns.names.index(field.name), writer))
            continue
        if field.default is None and isinstance(field.type, Union):
            steps.append((_NO_COLUMN, _union(field.type, spark_type(field.type), paths[field.name])))
            continue
        raise AvroSchemaError(
            f"there is no column {paths[field.name]}, which the schema has a field for; add it"
            + ("" if field.default is NOTHING else " (defaults are for readers: a writer writes every field)")
        )

    def written(array: Any) -> Pieces:
        fields = array.flatten()
        return [
            piece for at, write in steps for piece in write(fields[at] if at != _NO_COLUMN else pa.nulls(len(array)))
        ]

    return written


def _blocks(write_items: Writer) -> Writer:
    def written(array: Any) -> Pieces:
        return _block_pieces(pc.list_value_length(array), write_items(array.flatten()))

    return written


def _map_blocks(write_values: Writer) -> Writer:
    def written(array: Any) -> Pieces:
        # A slice of a map has the keys and values of the whole.
        array = array.take(pa.array(np.arange(len(array))))
        lengths = np.diff(array.offsets.to_numpy())
        return _block_pieces(pa.array(lengths), [*_bytes(array.keys), *write_values(array.items)])

    return written


def _block_pieces(lengths: Any, item_pieces: Pieces) -> Pieces:
    counts = lengths.to_numpy().astype(np.int64)
    if not counts.any():
        return [_equal_widths(np.zeros(len(counts), np.uint8), 1)]
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    items = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), joined(item_pieces)), _NOTHING)
    # An empty list is its end, which is what the count of a block of none looks like.
    ends = binary_array(np.concatenate([[0], np.cumsum(counts > 0)]), np.zeros(int((counts > 0).sum()), np.uint8))
    return [_varints(counts), items, ends]
