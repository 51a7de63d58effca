"""DeleteRecords on three brokers is answered when none of them holds the records any more (KIP-107)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.base.errors import ErrorCode
from ottla.testing import EmbeddedCluster
from tests.testing.test_cluster import numbered, other_than, producer_of, send
from tests.waiting import PATIENCE_S

TOPIC = "shrinking"


@pytest.fixture
def cluster(ottla_cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    ottla_cluster.create_topic(TOPIC)
    send(producer_of(ottla_cluster), TOPIC, numbered("some"))
    ottla_cluster.wait_in_sync(TOPIC)
    yield ottla_cluster
    ottla_cluster.heal()


def delete_up_to(cluster: EmbeddedCluster, offset: int, timeout_s: float = PATIENCE_S) -> int:
    """The low watermark of the answer."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    asked = TopicPartition(TOPIC, 0, offset)
    answers = admin.delete_records([asked], request_timeout=PATIENCE_S, operation_timeout=timeout_s)
    low_watermark: int = answers[asked].result(PATIENCE_S).low_watermark
    return low_watermark


def starts(cluster: EmbeddedCluster) -> dict[int, int]:
    found = {}
    for broker_id in cluster.running_ids:
        partition = cluster[broker_id].running.replicas.find(TOPIC, 0)
        assert partition is not None
        found[broker_id] = partition.log.log_start_offset
    return found


def test_no_broker_has_the_records_once_it_is_answered(cluster: EmbeddedCluster) -> None:
    for offset in (5, 12):
        assert delete_up_to(cluster, offset) == offset
        assert starts(cluster) == dict.fromkeys((1, 2, 3), offset)


def test_a_follower_that_is_cut_off_is_waited_for(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader_of(TOPIC)
    assert leader is not None
    cluster.cut(other_than(leader), leader)
    with pytest.raises(KafkaException) as raised:
        delete_up_to(cluster, 5, timeout_s=1)
    assert raised.value.args[0].code() == ErrorCode.REQUEST_TIMED_OUT
    assert starts(cluster)[leader] == 5
    cluster.heal()
    assert delete_up_to(cluster, 5) == 5
    assert starts(cluster) == dict.fromkeys((1, 2, 3), 5)


def test_one_that_is_gone_is_not_waited_for(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader_of(TOPIC)
    cluster.kill(other_than(leader))
    assert delete_up_to(cluster, 5) == 5
    assert set(starts(cluster).values()) == {5}
