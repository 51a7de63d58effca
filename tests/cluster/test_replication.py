"""Several brokers, one log: copies, elections, who is in sync, and what is lost (nothing)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import ottla.aio as aio
from ottla import ConfigChange, ConfigResource
from ottla.base.errors import LogDirError
from ottla.broker.handlers import fetch as fetch_handler
from ottla.broker.node import Broker
from ottla.broker.replication import fetchers
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(120)


def read_all(servers: str, topic: str, partitions: int, expected: int) -> list[bytes]:
    """By a foreign client, from the beginning."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
        values: list[bytes] = []
        while len(values) < expected:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(values)} of {expected} records were found"
            assert message.error() is None, message.error()
            values.append(message.value())
        return values
    finally:
        consumer.close()


def test_every_broker_knows_the_cluster_and_one_controls_it(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        controller = cluster.controller.broker_id
        await until(lambda: all(sorted(broker.image.brokers) == [1, 2, 3] for broker in cluster.brokers.values()))
        assert {broker.image.controller_id for broker in cluster.brokers.values()} == {controller}
        assert len({broker.cluster_id for broker in cluster.brokers.values()}) == 1

    in_cluster(tmp_path, scenario)


def test_nothing_is_lost_or_doubled_while_each_broker_stops_in_turn(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3, min_insync_replicas="2")
        sent: list[bytes] = []
        async with cluster.producer() as producer:
            sent += await send_some(producer, "t", 300, "before")
            for broker_id in IDS:
                await cluster.stop(broker_id)
                sent += await send_some(producer, "t", 300, f"without-{broker_id}")
                await cluster.start(broker_id)
                await cluster.in_sync("t", 3, *IDS)
        cluster.assert_identical("t", 3)
        found = await asyncio.to_thread(read_all, cluster.bootstrap_servers, "t", 3, len(sent))
        assert Counter(found) == Counter(sent)
        epochs = {cluster.copy(broker, "t").leader_epoch for broker in cluster.brokers.values()}
        assert len(epochs) == 1 and epochs.pop() >= 2

    in_cluster(tmp_path, scenario)


def test_with_too_few_in_sync_nothing_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", min_insync_replicas="2")
        async with cluster.producer(**{"delivery.timeout.ms": "1500", "request.timeout.ms": "500"}) as producer:
            sent = await send_some(producer, "t", 10, "safe")
            leader = cluster.leader_of("t")
            assert leader is not None
            for broker_id in IDS:
                if broker_id != leader.broker_id:
                    await cluster.stop(broker_id)
            await until(lambda: cluster.isr("t") == {leader.broker_id})
            refused = await producer.send("t", b"alone")
            with pytest.raises(Exception, match=r"NOT_ENOUGH_REPLICAS|delivery\.timeout\.ms"):
                await asyncio.wait_for(refused, 60)
            copy = cluster.copy(leader, "t")
            assert copy.log.high_watermark == 10
            found = await asyncio.to_thread(read_all, f"127.0.0.1:{leader.endpoints[0].port}", "t", 1, 10)
            assert Counter(found) == Counter(sent)

    in_cluster(tmp_path, scenario)


def test_a_follower_that_does_not_fetch_leaves_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be reached, but does not reach the leader: writes go on without it."""
    cut_off: set[int] = set()
    send_next = fetchers._SourceFetcher._send_next

    def send_unless_cut(self: fetchers._SourceFetcher) -> None:
        if self._owner.broker_id in cut_off:
            raise OSError("the network is cut")
        send_next(self)

    monkeypatch.setattr(fetchers._SourceFetcher, "_send_next", send_unless_cut)

    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", min_insync_replicas="2")
        leader = cluster.leader_of("t")
        assert leader is not None
        lost = next(broker_id for broker_id in IDS if broker_id != leader.broker_id)
        epoch = cluster.copy(leader, "t").leader_epoch
        async with cluster.producer() as producer:
            cut_off.add(lost)
            sent = await send_some(producer, "t", 50, "cut")
            assert cluster.isr("t") == set(IDS) - {lost}
            cut_off.clear()
            await cluster.in_sync("t", 1, *IDS)
            sent += await send_some(producer, "t", 50, "healed")
        await cluster.in_sync("t", 1, *IDS)
        assert cluster.copy(leader, "t").leader_epoch == epoch, "nobody was elected"
        cluster.assert_identical("t", 1)
        found = await asyncio.to_thread(read_all, cluster.bootstrap_servers, "t", 1, 100)
        assert found == sent

    in_cluster(tmp_path, scenario)


def test_a_broker_that_is_about_to_stop_leads_nothing_while_it_still_answers(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        for broker in list(cluster.brokers.values()):
            left = await broker.controller_client.relieve(broker.broker_id, broker.orders.broker_epoch)
            assert list(left) == []
            others = set(IDS) - {broker.broker_id}
            await until(lambda others=others: all(cluster.isr("t", index) == others for index in range(3)))  # type: ignore[misc]
            await cluster.stop(broker.broker_id)
            await cluster.start(broker.broker_id)
            await cluster.in_sync("t", 3, *IDS)

    in_cluster(tmp_path, scenario)


def test_a_broker_that_loses_its_session_gives_up_its_roles_and_returns(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", min_insync_replicas="2")
        leader = cluster.leader_of("t")
        assert leader is not None
        before = leader.orders.broker_epoch
        async with cluster.producer() as producer:
            sent = await send_some(producer, "t", 20, "before")
            node = await leader.producer_ids._store.get(f"/brokers/ids/{leader.broker_id}")
            assert node is not None
            cluster.store.end_session(node.owner)
            await until(lambda: leader.orders.broker_epoch > before)
            sent += await send_some(producer, "t", 20, "after")
        await cluster.in_sync("t", 1, *IDS)
        cluster.assert_identical("t", 1)
        found = await asyncio.to_thread(read_all, cluster.bootstrap_servers, "t", 1, 40)
        assert found == sent

    in_cluster(tmp_path, scenario)


def test_a_failed_directory_takes_its_partitions_and_no_others(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=6, min_insync_replicas="2")
        leader = cluster.leader_of("t")
        assert leader is not None
        failing = cluster.copy(leader, "t").log.directory.parent
        lost = {index for index in range(6) if cluster.copy(leader, "t", index).log.directory.parent == failing}
        assert 0 < len(lost) < 6
        async with cluster.producer() as producer:
            sent = await send_some(producer, "t", 60, "before")
            leader.replicas.directory_failed(failing, LogDirError("the disk is broken"))
            others = set(IDS) - {leader.broker_id}
            await until(lambda: all(cluster.isr("t", index) == others for index in lost))
            assert all(cluster.isr("t", index) == set(IDS) for index in set(range(6)) - lost)
            sent += await send_some(producer, "t", 60, "without")
            image = next(iter(cluster.brokers.values())).image.topics["t"].partitions
            offline = {index for index, partition in image.items() if leader.broker_id in partition.offline}
            assert offline == lost
            await cluster.stop(leader.broker_id)
            await cluster.start(leader.broker_id)
            await cluster.in_sync("t", 6, *IDS)
        cluster.assert_identical("t", 6)
        found = await asyncio.to_thread(read_all, cluster.bootstrap_servers, "t", 6, len(sent))
        assert Counter(found) == Counter(sent)

    in_cluster(tmp_path, scenario, log_dirs=2)


def test_groups_and_transactions_work_on_whichever_broker_has_them(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        await asyncio.to_thread(_use_group_and_transaction, cluster.bootstrap_servers)
        for topic in ("__consumer_offsets", "__transaction_state"):
            await cluster.in_sync(topic, 2, *IDS)

    in_cluster(tmp_path, scenario)


def _use_group_and_transaction(servers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "tx", "acks": "all"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("t", f"v{number}".encode(), key=str(number).encode())
    producer.commit_transaction(60)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["t"])
        values: set[bytes] = set()
        while len(values) < 30:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            values.add(message.value())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_partitions_that_nobody_writes_to_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = 60
    looked_at: Counter[int] = Counter()
    find = fetch_handler._readable_partition

    def counting(context: Any, plan: Any, key: Any, wanted: Any) -> Any:
        if plan.replica_id >= 0:
            looked_at[wanted.partition] += 1
        return find(context, plan, key, wanted)

    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("quiet", partitions=partitions)
        # Replies are on their way that tell of the last changes; then every session has said all there is to say.
        await until(lambda: all(is_all_told(cluster, index) for index in range(partitions)))
        monkeypatch.setattr(fetch_handler, "_readable_partition", counting)
        async with cluster.producer() as producer:
            for number in range(20):
                await (await producer.send("quiet", b"%d" % number, partition=7))
        assert looked_at[7] >= 40, "by two followers"
        assert set(looked_at) == {7}
        await cluster.in_sync("quiet", partitions, *IDS)
        cluster.assert_identical("quiet", partitions)

    def is_all_told(cluster: LocalCluster, index: int) -> bool:
        leader = cluster.leader_of("quiet", index)
        machine = None if leader is None else cluster.copy(leader, "quiet", index).leader
        followers = [] if machine is None else machine.followers.values()
        return bool(followers) and all(f.watch is not None and not f.watch.open for f in followers)

    in_cluster(tmp_path, scenario)


def test_partitions_are_spread_over_as_many_connections_as_are_asked_for(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=6)
        async with cluster.producer() as producer, aio.Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            await send_some(producer, "t", 50, "by one")
            assert all(len(sources_of(broker)) == 2 for broker in cluster.brokers.values())
            await admin.incremental_alter_configs(
                {ConfigResource.broker(): [ConfigChange("num.replica.fetchers", "2")]}
            )
            await until(lambda: all(len(sources_of(broker)) == 4 for broker in cluster.brokers.values()))
            await send_some(producer, "t", 50, "by two")
        await cluster.in_sync("t", 6, *IDS)
        cluster.assert_identical("t", 6)

    def sources_of(broker: Broker) -> set[tuple[int, int]]:
        following = broker.replicas.following
        assert isinstance(following, fetchers.ReplicaFetchers)
        return {key for key, fetcher in following._fetchers.items() if fetcher.partitions}

    in_cluster(tmp_path, scenario)
