"""What a consumer is given, at both ends of what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.arguments import (
    check_deserializers,
    epoch_of,
    offset_of,
    partition_of,
    partitions_of,
    records_max,
    timestamp_of,
)
from ottla.client.serdes.formats import StringSerde

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
Function = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("function", "lowest", "highest"),
    [
        (offset_of, 0, LONG_MAX),
        (timestamp_of, 0, LONG_MAX),
        (epoch_of, 0, INT_MAX),
        (lambda given: partition_of(("t", given)).partition, 0, INT_MAX),
        (records_max, 1, None),
    ],
    ids=["offset", "timestamp", "epoch", "partition", "records"],
)
def test_numbers_have_bounds(function: Function, lowest: int, highest: int | None) -> None:
    assert function(lowest) == lowest
    assert function(np.int64(lowest)) == lowest and type(function(np.int64(lowest))) is int
    wrong: list[object] = [lowest - 1, 1.0, "1", object()]
    if highest is not None:
        assert function(highest) == highest
        wrong.append(highest + 1)
    for given in wrong:
        with pytest.raises(ValueError, match=r"but was"):
            function(given)


def test_an_epoch_may_be_unknown_and_nothing_else() -> None:
    assert epoch_of(None) is None
    for function in (offset_of, timestamp_of, records_max):
        with pytest.raises(ValueError, match="but was None"):
            function(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [("t", 3), ["t", 3], TopicPartition("t", 3)])
def test_a_partition_is_a_pair(given: Any) -> None:
    assert partition_of(given) == TopicPartition("t", 3)
    assert partitions_of(iter([given, ("u", 0)])) == [TopicPartition("t", 3), TopicPartition("u", 0)]


@pytest.mark.parametrize("given", ["t", ("t",), ("t", 1, 2), (1, "t"), (b"t", 0), None, 5, {"t": 1}])
def test_what_is_no_partition(given: Any) -> None:
    with pytest.raises(ValueError, match="a partition is a topic and a number"):
        partition_of(given)


@pytest.mark.parametrize("given", ["t", b"t", TopicPartition("t", 0), 5, None])
def test_what_is_no_list_of_partitions(given: Any) -> None:
    with pytest.raises(ValueError, match="partitions must be a list"):
        partitions_of(given)


def test_a_topic_that_cannot_be_one_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="a/b"):
        partition_of(("a/b", 0))


@pytest.mark.parametrize("good", [None, str, bytes.decode, StringSerde()])
def test_deserializers(good: Any) -> None:
    check_deserializers(good, None)
    check_deserializers(None, good)
    for key, value, name in ((5, good, "key_deserializer"), (good, "utf-8", "value_deserializer")):
        with pytest.raises(InvalidConfigError, match=f"{name} must be a function"):
            check_deserializers(key, value)
    with pytest.raises(InvalidConfigError, match="value_deserializer must be an object of"):
        check_deserializers(good, StringSerde)
