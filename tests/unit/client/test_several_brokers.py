"""Clients in a cluster of several brokers: librdkafka's mock cluster, which none of us wrote."""

from __future__ import annotations

import ottla
from tests.ports import free_port


def topic_led_by_several(mock_cluster: str) -> str:
    """A new topic whose partitions do not share a leader. The mock cluster draws lots: one in 27 has a single one."""
    with (
        ottla.Producer(bootstrap_servers=mock_cluster) as producer,
        ottla.Consumer(bootstrap_servers=mock_cluster) as consumer,
    ):
        for attempt in range(20):
            topic = f"spread-{attempt}"
            producer.partitions_for(topic)
            if len({info.leader_id for info in consumer.partitions_for(topic)}) > 1:
                return topic
    raise AssertionError("no topic has several leaders")


def test_records_go_to_the_leaders_of_their_partitions_and_come_back(mock_cluster: str) -> None:
    topic = topic_led_by_several(mock_cluster)
    values = [b"%d" % number for number in range(1000)]
    with ottla.Producer(bootstrap_servers=mock_cluster, batch_size=500) as producer:
        partitions = producer.partitions_for(topic)
        futures = [producer.send(topic, value, value) for value in values]
        producer.flush()
        places = [future.result(0).partition for future in futures]
    assert set(places) == set(partitions)
    with ottla.Consumer(bootstrap_servers=mock_cluster, auto_offset_reset="earliest") as consumer:
        known = consumer.partitions_for(topic)
        consumer.assign([(topic, info.partition) for info in known])
        found: dict[int, list[bytes | None]] = {info.partition: [] for info in known}
        while sum(map(len, found.values())) < len(values):
            records = consumer.poll(10)
            assert records, "nothing came any more"
            for record in records:
                found[record.partition].append(record.value)
    for partition, read in found.items():
        assert read == [value for value, place in zip(values, places, strict=True) if place == partition]


def test_a_second_bootstrap_server_will_do(mock_cluster: str) -> None:
    with ottla.Admin(bootstrap_servers=f"127.0.0.1:{free_port()},{mock_cluster}") as admin:
        with ottla.Producer(bootstrap_servers=f"127.0.0.1:{free_port()},{mock_cluster}") as producer:
            producer.send("second", b"x").result(10)
        assert "second" in admin.list_topics()
