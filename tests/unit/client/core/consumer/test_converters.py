"""Which parts of records deserializers are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.core.consumer.fetched_data import Converters
from ottla.client.core.consumer.record import ConsumerRecord


def upper(data: bytes | None) -> str:
    assert data is not None
    return data.decode().upper()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (None, None, (b"k", b"v")),
        (upper, None, ("K", b"v")),
        (None, upper, (b"k", "V")),
        (upper, upper, ("K", "V")),
    ],
)
def test_each_part_has_its_own(key: Any, value: Any, expected: tuple[Any, Any]) -> None:
    records: list[Any] = [ConsumerRecord(7, 5, b"k", b"v", ())]
    (found,), problem = Converters(key, value).convert("t", records)
    assert problem is None
    assert (found.offset, found.timestamp, found.key, found.value, found.headers) == (7, 5, *expected, ())
