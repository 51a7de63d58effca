"""Metadata responses by hand equal the compiled codec, byte for byte, in all versions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import EncodeError
from ottla.base.types import Uuid
from ottla.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.fused.metadata import (
    SERVED_VERSIONS,
    MetadataBroker,
    MetadataPartition,
    encode_metadata_response,
    encode_metadata_topic,
)
from ottla.wire.header import encode_response_frame


def declared_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    return encode_metadata_topic(
        version,
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=topic.error_code,
        is_internal=topic.is_internal,
        partitions=[
            MetadataPartition(
                p.error_code,
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
            )
            for p in topic.partitions
        ],
        authorized_operations=topic.topic_authorized_operations,
    )


def random_topic(rng: Random, version: int) -> MetadataResponseTopic:
    topic = MetadataResponseTopic(
        error_code=rng.choice((0, 3)),
        name=rng.choice((None, "t")) if version >= 12 else "größe",
        topic_id=Uuid(rng.randbytes(16)),
        is_internal=rng.random() < 0.5,
    )
    if version >= 8:
        topic.topic_authorized_operations = rng.choice((-0x80000000, 0x1FF))
    for index in range(rng.choice((0, 1, 3, 130))):
        topic.partitions.append(
            MetadataResponsePartition(
                error_code=rng.choice((0, 5)),
                partition_index=index,
                leader_id=rng.randrange(-1, 9),
                leader_epoch=rng.randrange(-1, 99),
                replica_nodes=[rng.randrange(9) for _ in range(rng.choice((0, 1, 3, 130)))],
                isr_nodes=[rng.randrange(9) for _ in range(rng.choice((0, 1, 3)))],
                offline_replicas=[rng.randrange(9) for _ in range(rng.choice((0, 0, 2)))],
            )
        )
    return topic


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_responses_are_written_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    topics = [random_topic(rng, version) for _ in range(rng.randrange(4))]
    brokers = [
        MetadataBroker(i, rng.choice(("127.0.0.1", "host")), 9092 + i, rng.choice((None, "rack")))
        for i in range(rng.randrange(4))
    ]
    cluster_id = rng.choice((None, "cluster"))
    operations = rng.choice((-0x80000000, 7)) if 8 <= version <= 10 else -0x80000000
    declared = MetadataResponse(
        throttle_time_ms=3,
        brokers=[MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in brokers],
        cluster_id=cluster_id,
        controller_id=2,
        topics=topics,
        cluster_authorized_operations=operations,
        error_code=rng.choice((0, 41)),
    )
    frame = encode_metadata_response(
        version,
        77,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=2,
        topics=[declared_topic(topic, version) for topic in topics],
        throttle_ms=3,
        cluster_authorized_operations=operations,
        error_code=declared.error_code,
    )
    assert frame == encode_response_frame(declared, version, 77)


def test_a_topic_without_a_name_needs_version_12() -> None:
    with pytest.raises(EncodeError, match="without a name"):
        encode_metadata_topic(11, name=None)
    assert encode_metadata_topic(12, name=None)


def test_values_that_do_not_fit_are_encode_errors() -> None:
    with pytest.raises(EncodeError, match="a partition of t"):
        encode_metadata_topic(9, name="t", partitions=[MetadataPartition(0, 0, 1 << 40, 0, [1], [1])])
    with pytest.raises(EncodeError, match="0-13, not 14"):
        encode_metadata_response(14, 1, brokers=[], cluster_id=None, controller_id=-1, topics=[])
