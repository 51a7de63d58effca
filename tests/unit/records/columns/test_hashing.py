"""The hash of a column of keys is the hash of each key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.hashing import partition_for_key

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from ottla.records.columns.hashing import partitions_for_keys  # noqa: E402

keys = st.none() | st.binary(max_size=20) | st.integers(500, 530).map(lambda size: (bytes(range(251)) * 3)[:size])
partition_counts = st.integers(1, 2**31 - 1)


@given(st.lists(keys, max_size=40), partition_counts, st.integers(0, 5))
def test_a_column_of_keys_goes_where_each_key_goes(
    column: list[bytes | None], partition_count: int, dropped: int
) -> None:
    found = partitions_for_keys(pa.array(column, pa.binary()).slice(dropped), partition_count)
    assert found.tolist() == [
        -1 if key is None else partition_for_key(key, partition_count) for key in column[dropped:]
    ]


@given(st.lists(st.binary(min_size=12, max_size=12), min_size=1, max_size=40), partition_counts)
def test_keys_of_one_length_need_no_detour(column: list[bytes], partition_count: int) -> None:
    found = partitions_for_keys(pa.array(column, pa.binary()), partition_count)
    assert found.tolist() == [partition_for_key(key, partition_count) for key in column]


def test_text_is_hashed_as_its_bytes() -> None:
    words = ["", "kafka", "Über", "a rather long key, longer than the others"]
    found = partitions_for_keys(pa.array(words, pa.large_string()), 1000)
    assert found.tolist() == [partition_for_key(word.encode(), 1000) for word in words]
