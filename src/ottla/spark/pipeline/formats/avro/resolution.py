"""Which type of a reader's schema a writer's type is read as, by the rules of Avro's schema resolution."""

from __future__ import annotations

from ottla.spark.pipeline.formats.avro.types import (
    Array,
    AvroSchemaError,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)

_PROMOTIONS = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def fits(writer: AvroType, reader: AvroType) -> bool:
    """Whether values of the one type may be read as the other, without a look at what is inside of them."""
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return reader.kind == writer.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())
    if isinstance(writer, Named) and isinstance(reader, Named):
        return type(writer) is type(reader) and has_name(writer, reader)
    return type(writer) is type(reader) and isinstance(writer, Array | Map)


def has_name(writer: Named, reader: Named) -> bool:
    """Namespaces may differ: whoever writes a schema by hand seldom knows the one a producer's code was given."""
    own = {_short(reader.name), *map(_short, reader.aliases)}
    return _short(writer.name) in own


def branch_for(writer: AvroType, reader: Union) -> AvroType:
    """The reader's branch: the first of the same type, or else the first the writer's may become."""
    exact = [branch for branch in reader.branches if fits(writer, branch) and _is_same_kind(writer, branch)]
    fitting = exact or [branch for branch in reader.branches if fits(writer, branch)]
    records = [branch for branch in reader.others if isinstance(branch, Record)]
    if not fitting and isinstance(writer, Record) and len(records) == 1 == len(reader.others):
        return records[0]
    if not fitting:
        raise AvroSchemaError(f"it is written as {describe(writer)} and read as {describe(reader)}")
    return fitting[0]


def source_of(field: Field, writer: Record) -> Field | None:
    """The writer's field that a field of the reader is read from; None if it has to come from its default."""
    by_name = {own.name: own for own in writer.fields}
    if field.name in by_name:
        return by_name[field.name]
    return next((by_name[alias] for alias in sorted(field.aliases) if alias in by_name), None)


def describe(kind: AvroType) -> str:
    match kind:
        case Primitive() | Fixed() if kind.logical is not None:
            return kind.logical
        case Primitive():
            return kind.kind
        case Fixed():
            return f"fixed {kind.name} of {kind.size} bytes"
        case Enum() | Record():
            return f"{type(kind).__name__.lower()} {kind.name}"
        case Union():
            return " or ".join(describe(branch) for branch in kind.branches)
    return type(kind).__name__.lower()


def _is_same_kind(writer: AvroType, reader: AvroType) -> bool:
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return writer.kind == reader.kind
    return True


def _short(name: str) -> str:
    return name.rpartition(".")[2]
