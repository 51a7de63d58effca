"""Nodes by which brokers and tools tell the controller something, in the JSON that Kafka's tools know."""

from __future__ import annotations

import json

import pytest

from ottla.base.types import TopicPartition
from ottla.metadata import paths
from ottla.metadata.paths import MalformedNodeError

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_directory_that_has_failed() -> None:
    data = paths.encode_log_dir_event(3)
    assert json.loads(data) == {"version": 1, "broker": 3, "event": 1}
    assert paths.decode_log_dir_event(data) == 3


def test_replicas_that_somebody_wants() -> None:
    moves = {T1: (2, 3), T0: (1,)}
    data = paths.encode_reassignments(moves)
    assert json.loads(data) == {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": 1, "replicas": [2, 3]},
            {"topic": "t", "partition": 0, "replicas": [1]},
        ],
    }
    assert paths.decode_reassignments(data) == moves
    assert paths.decode_partitions(data) == [T1, T0]


def test_features_of_a_cluster() -> None:
    assert json.loads(paths.encode_features()) == {"features": {}, "version": 2, "status": 1}


@pytest.mark.parametrize("value", [{}, "t-0", [1], [{"topic": "t", "partition": 0}, "t-1"], None])
def test_partitions_that_are_no_list_of_objects(value: object) -> None:
    with pytest.raises(MalformedNodeError, match="partitions is no list of objects"):
        paths.decode_partitions(json.dumps({"version": 1, "partitions": value}).encode())
