"""What an independent codec must offer, and values in a form that belongs to nobody's library.

A message is a dictionary from Kafka's field names in snake_case to int, bool, float, str, bytes, None, lists and
dictionaries of the same. Times are milliseconds and ids are sixteen bytes, as they are on the wire.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

Values = dict[str, Any]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Oracle(Protocol):
    def versions(self, name: str) -> range:
        """The versions of a message (`FetchRequest`) it knows; empty if it knows none."""

    def is_flexible(self, name: str, version: int) -> bool: ...

    def random(self, rng: Random, name: str, version: int) -> Values:
        """A message by the oracle's own definitions, so that a field we forgot or misplaced cannot hide."""

    def defaults(self, name: str, version: int) -> Values:
        """The default of each field outside of arrays that the definitions give one."""

    def encode(self, name: str, version: int, values: Values) -> bytes: ...

    def decode(self, name: str, version: int, data: bytes) -> Values:
        """Fails unless the message takes up all of the bytes."""


def bare_name(name: str) -> str:
    """A field's name as all of us can spell it: some leave the unit of times out, or avoid Python's own names."""
    return name.removesuffix("_").removesuffix("_ms").replace("k_raft", "kraft")


def random_primitive(rng: Random, kind: str) -> Any:
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            half = 1 << (_BITS[kind] - 1)
            return rng.choice((0, 1, -1, half - 1, -half, rng.randrange(-half, half)))
        case "uint16":
            return rng.randrange(1 << 16)
        case "uint32":
            return rng.randrange(1 << 32)
        case "float64":
            return rng.uniform(-1e9, 1e9)
        case "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        case "string":
            return rng.choice(("", "a", "größe", "t" * 126, "t" * 130))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 126, 130)))
    raise AssertionError(f"a type that no field of the protocol had: {kind}")
