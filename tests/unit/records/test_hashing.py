from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.records.hashing import coordinator_partition, java_string_hash, murmur2, partition_for_key

from .conftest import GOLDEN


def test_murmur2_of_other_clients() -> None:
    for item in GOLDEN["murmur2"]["items"]:
        key = bytes.fromhex(item["key_hex"])
        assert murmur2(key) == item["murmur2_signed"]
        for count in (3, 10, 50):
            assert partition_for_key(key, count) == item[f"partition_of_{count}"]


@given(st.binary(max_size=40))
def test_murmur2_is_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_java_string_hash() -> None:
    for item in GOLDEN["java_string_hash"]["items"]:
        assert java_string_hash(item["string"]) == item["java_hashcode"]
        assert coordinator_partition(item["string"], 50) == item["coordinator_partition_of_50"]
