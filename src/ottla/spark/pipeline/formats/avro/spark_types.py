"""Which columns Avro's types become, and which schema the columns of rows become."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as t

from ottla.spark.pipeline.formats.avro.types import (
    Array,
    AvroSchemaError,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

_PLAIN: dict[str, t.DataType] = {
    "null": t.NullType(),
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
_LOGICAL: dict[str, t.DataType] = {
    "date": t.DateType(),
    "time": t.TimeType(),
    "timestamp": t.TimestampType(),
    "local-timestamp": t.TimestampNTZType(),
    "uuid": t.StringType(),
}
_FROM_PLAIN: dict[type[t.DataType], Any] = {
    t.BooleanType: "boolean",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimeType: {"type": "long", "logicalType": "time-micros"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def family(logical: str) -> str:
    """A logical type without its unit: `local-timestamp` for `local-timestamp-millis`."""
    head, _, unit = logical.rpartition("-")
    return head if unit in ("millis", "micros", "nanos") else logical


def spark_type(kind: AvroType) -> t.DataType:
    """Every field can be NULL: which of them are, is for the values to say."""
    match kind:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return t.DecimalType(kind.precision, kind.scale)
        case Primitive(logical=str(logical)) | Fixed(logical=str(logical)):
            return _LOGICAL[family(logical)]
        case Primitive():
            return _PLAIN[kind.kind]
        case Fixed():
            return t.BinaryType()
        case Enum():
            return t.StringType()
        case Array():
            return t.ArrayType(spark_type(kind.items))
        case Map():
            return t.MapType(t.StringType(), spark_type(kind.values))
        case Record():
            return t.StructType([t.StructField(field.name, spark_type(field.type)) for field in kind.fields])
        case Union():
            branches = kind.others
            if len(branches) <= 1:
                return spark_type(branches[0]) if branches else t.NullType()
            names = branch_names(kind)
            return t.StructType(
                [t.StructField(name, spark_type(branch)) for name, branch in zip(names, branches, strict=True)]
            )


def branch_names(union: Union) -> list[str]:
    """The fields of the struct that a union of several types becomes: the types' names, without namespaces."""
    names = [_short_name(branch) for branch in union.others]
    return names if len(set(names)) == len(names) else [f"{name}_{index}" for index, name in enumerate(names)]


def _short_name(kind: AvroType) -> str:
    match kind:
        case Primitive():
            return kind.kind
        case Fixed() | Enum() | Record():
            return kind.name.rpartition(".")[2]
    return type(kind).__name__.lower()


def derived_schema(columns: t.StructType, name: str) -> dict[str, Any]:
    """The schema of a record with these columns; a column that may be NULL becomes a union with null.

    AvroSchemaError if there is a column that Avro has no type for.
    """
    fields = []
    for column in columns.fields:
        kind = _schema_of(column.dataType, f"{name}_{column.name}", column.name)
        if column.nullable:
            fields.append({"name": column.name, "type": ["null", kind], "default": None})
        else:
            fields.append({"name": column.name, "type": kind})
    return {"type": "record", "name": name, "fields": fields}


def _schema_of(kind: t.DataType, name: str, where: str) -> Any:
    plain = _FROM_PLAIN.get(type(kind))
    if plain is not None:
        return plain
    match kind:
        case t.DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case t.ArrayType():
            return {"type": "array", "items": _nullable(kind.elementType, kind.containsNull, f"{name}_item", where)}
        case t.MapType(keyType=t.StringType()):
            return {"type": "map", "values": _nullable(kind.valueType, kind.valueContainsNull, f"{name}_value", where)}
        case t.StructType():
            return derived_schema(kind, name)
    raise AvroSchemaError(f"Avro has no type for the column {where}, which is {kind.simpleString()}; cast it")


def _nullable(kind: t.DataType, is_nullable: bool, name: str, where: str) -> Any:
    schema = _schema_of(kind, name, where)
    return ["null", schema] if is_nullable else schema
