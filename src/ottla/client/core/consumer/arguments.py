"""What a consumer is given, looked at before it is used. In a request a slip would end the consumer, or wait there for
as long as nobody asks. All of it is a ValueError, except for what a consumer is made with: InvalidConfigError."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from ottla.base.errors import InvalidConfigError
from ottla.base.options import MAX_INT, MAX_LONG
from ottla.base.types import TopicPartition
from ottla.machines.cluster.topic_names import why_illegal


def records_max(given: int) -> int:
    number = _whole(given)
    if number is None or number < 1:
        raise ValueError(f"max_records must be at least 1, but was {given!r}")
    return number


def offset_of(given: int) -> int:
    number = _whole(given)
    if number is None or not 0 <= number <= MAX_LONG:
        raise ValueError(
            f"an offset is a whole number from 0 to {MAX_LONG}, but was {given!r};"
            " see seek_to_beginning and seek_to_end"
        )
    return number


def timestamp_of(given: int) -> int:
    number = _whole(given)
    if number is None or not 0 <= number <= MAX_LONG:
        raise ValueError(f"a time is a whole number of milliseconds since 1970, but was {given!r}")
    return number


def epoch_of(given: int | None) -> int | None:
    number = None if given is None else _whole(given)
    if given is not None and (number is None or not 0 <= number <= MAX_INT):
        raise ValueError(f"a leader epoch is a whole number from 0 to {MAX_INT}, or None, but was {given!r}")
    return number


def partition_of(given: object) -> TopicPartition:
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str):
        topic, number = given[0], _whole(given[1])
        if (reason := why_illegal(topic)) is not None:
            raise ValueError(reason)
        if number is not None and 0 <= number <= MAX_INT:
            return TopicPartition(topic, number)
    raise ValueError(f"a partition is a topic and a number, such as ('orders', 0), but was {given!r}")


def partitions_of(given: object) -> list[TopicPartition]:
    if isinstance(given, str | bytes | TopicPartition) or not isinstance(given, Iterable):
        raise ValueError(f"partitions must be a list, such as [('orders', 0)], but were {given!r}")
    return list(map(partition_of, given))


def check_deserializers(key: object, value: object) -> None:
    """InvalidConfigError if one of them cannot be one: said before a record is taken for unreadable."""
    for name, deserializer in (("key_deserializer", key), ("value_deserializer", value)):
        if not (deserializer is None or callable(deserializer) or hasattr(deserializer, "deserialize")):
            raise InvalidConfigError(
                name, f"{name} must be a function, or have a method deserialize(topic, data), but was {deserializer!r}"
            )
        if isinstance(deserializer, type) and hasattr(deserializer, "deserialize"):
            raise InvalidConfigError(name, f"{name} must be an object of {deserializer!r}, not the class itself")


def _whole(given: object) -> int | None:
    """NumPy's whole numbers are some as well."""
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return None
