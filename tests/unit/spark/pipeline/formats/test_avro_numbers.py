"""Numbers of Avro and Arrow's arrays of them, against Python's own arithmetic."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa

from ottla.spark.pipeline.formats.avro.numbers import decimal_bytes, moment_numbers

NUMBERS = (
    st.integers(-(10**38) + 1, 10**38 - 1)
    | st.integers(-300, 300)
    | st.sampled_from([sign * (1 << bits) + off for bits in range(7, 127, 8) for sign in (1, -1) for off in (-1, 0, 1)])
)


def shortest(number: int) -> bytes:
    """The fewest bytes that hold a signed number."""
    size = 1
    while not -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1:
        size += 1
    return number.to_bytes(size, "big", signed=True)


def decimals(numbers: list[int]) -> pa.Array:
    return pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))


@given(st.lists(NUMBERS, max_size=8), st.integers(0, 3))
def test_decimals_take_as_few_bytes_as_they_can(numbers: list[int], offset: int) -> None:
    array = decimals([7] * offset + numbers)[offset:]
    assert decimal_bytes(array, None).to_pylist() == [shortest(number) for number in numbers]


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.integers(1, 20))
def test_decimals_of_a_fixed_size_fit_it_or_not(numbers: list[int], size: int) -> None:
    found = decimal_bytes(decimals(numbers), size)
    if max(len(shortest(number)) for number in numbers) > size:
        assert found is None
    else:
        assert found.to_pylist() == [number.to_bytes(size, "big", signed=True) for number in numbers]


MICROS = [-1_500_001, -1, 0, 1, 999, 1000, 1_700_000_000_123_456]


@pytest.mark.parametrize(
    ("logical", "expected"),
    [
        ("timestamp-micros", MICROS),
        ("timestamp-millis", [micros // 1000 for micros in MICROS]),
        ("timestamp-nanos", [micros * 1000 for micros in MICROS]),
        ("local-timestamp-millis", [micros // 1000 for micros in MICROS]),
    ],
)
def test_moments_in_the_unit_of_the_schema(logical: str, expected: list[int]) -> None:
    assert moment_numbers(pa.array(MICROS, pa.timestamp("us")), logical, "c").tolist() == expected


def test_days_and_times_of_day() -> None:
    assert moment_numbers(pa.array([-1, 0, 20_000], pa.date32()), "date", "c").tolist() == [-1, 0, 20_000]
    nanos = pa.array([0, 1_999_999, 86_399_999_999_999], pa.time64("ns"))
    assert moment_numbers(nanos, "time-millis", "c").tolist() == [0, 1, 86_399_999]
    assert moment_numbers(nanos, "time-micros", "c").tolist() == [0, 1999, 86_399_999_999]


def test_moments_for_which_there_are_no_nanoseconds() -> None:
    most = 2**63 // 1000 - 1
    assert moment_numbers(pa.array([most, -most], pa.timestamp("us")), "timestamp-nanos", "c").tolist() == [
        most * 1000,
        -most * 1000,
    ]
    assert moment_numbers(pa.array([], pa.timestamp("us")), "timestamp-nanos", "c").tolist() == []
    for beyond in (most + 1, -most - 1):
        with pytest.raises(ValueError, match="the column c has a moment"):
            moment_numbers(pa.array([beyond], pa.timestamp("us")), "timestamp-nanos", "c")
        moment_numbers(pa.array([beyond], pa.timestamp("us")), "timestamp-micros", "c")
