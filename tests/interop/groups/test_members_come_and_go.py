"""Members join, leave, are killed, fall silent and come back: each partition has one owner, and rebalances end."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import CLIENTS, HEARTBEAT_MS, KIP_848
from tests.interop.groups.conftest import KIP_848_SESSION_MS, QUICK_GROUPS
from tests.interop.groups.ledger import Partition
from tests.interop.groups.scene import CommitWatch, Scene, wait_until, write_records
from tests.interop.peers.confluent import LOG, make_topic
from tests.interop.peers.peer import PATIENCE_S

pytestmark = pytest.mark.interop

PARTITIONS = 6
SESSION_MS = 1_500
"""How much later than its session's end a silent member may be removed."""

INCREMENTAL = ["confluent-cooperative", "kafka-python-cooperative", KIP_848]
ONE_PER_CLIENT = ["confluent-range", KIP_848, "kafka-python-range", "aiokafka-range"]


def all_of(topic: str, count: int = PARTITIONS) -> set[Partition]:
    return {(topic, index) for index in range(count)}


def expected(topic: str, count: int, partitions: int = PARTITIONS) -> dict[Partition, list[bytes]]:
    return {(topic, index): [b"%d:%d" % (index, number) for number in range(count)] for index in range(partitions)}


def ends(topic: str, count: int, partitions: int = PARTITIONS) -> dict[Partition, int]:
    return {(topic, index): count for index in range(partitions)}


@pytest.mark.parametrize("client", CLIENTS)
def test_members_join_and_leave_one_by_one(group_broker: BrokerProcess, new_topic: str, client: str) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50)
    group, topics = f"{new_topic}-group", (new_topic,)
    with Scene(group_broker, group, client) as scene, CommitWatch(group_broker, group) as commits:
        first = scene.join("a", topics=topics)
        scene.settle({"a"}, all_of(new_topic))
        scene.join("b", topics=topics)
        scene.settle({"a", "b"}, all_of(new_topic))
        assert sorted(map(len, scene.ledger.shares().values())) == [3, 3]
        scene.join("c", topics=topics)
        scene.settle({"a", "b", "c"}, all_of(new_topic))
        assert sorted(map(len, scene.ledger.shares().values())) == [2, 2, 2]
        if client in INCREMENTAL:
            # Who keeps a partition through a rebalance goes on reading it.
            given_up = {p for event in scene.ledger.events("a") if event.kind == "revoked" for p in event.partitions}
            assert len(given_up) == PARTITIONS - 2
            assert not given_up & scene.ledger.shares()["a"]
        write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50, first=50)
        scene.leave(first)
        scene.settle({"b", "c"}, all_of(new_topic))
        commits.wait_for(ends(new_topic, 100))
    assert scene.ledger.consumed() == expected(new_topic, 100)
    assert scene.describe()[0] == "Empty"


def test_clients_of_every_make_share_a_group(group_broker: BrokerProcess, new_topic: str) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50)
    group = f"{new_topic}-group"
    makes = ["confluent-range", "kafka-python-range", "aiokafka-range"]
    with Scene(group_broker, group, makes[0]) as scene, CommitWatch(group_broker, group) as commits:
        members = {make: scene.join(make, client=make, topics=(new_topic,)) for make in makes}
        scene.settle(set(makes), all_of(new_topic))
        commits.wait_for(ends(new_topic, 50))
        for number, make in enumerate(makes[:2], 1):
            # Each of them leads the group once: the first member of a generation assigns to all.
            scene.leave(members[make])
            scene.settle(set(makes[number:]), all_of(new_topic))
    assert scene.ledger.consumed() == expected(new_topic, 50)


def test_a_group_whose_members_all_left_takes_members_of_the_other_protocol(
    group_broker: BrokerProcess, new_topic: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    group = f"{new_topic}-group"
    with CommitWatch(group_broker, group) as commits:
        for number, client in enumerate(["confluent-range", KIP_848, "kafka-python-cooperative"]):
            write_records(group_broker.bootstrap, new_topic, PARTITIONS, 10, first=10 * number)
            with Scene(group_broker, group, client) as scene:
                for name in ("a", "b"):
                    scene.join(name, topics=(new_topic,))
                scene.settle({"a", "b"}, all_of(new_topic))
                commits.wait_for(ends(new_topic, 10 * (number + 1)))
            # It goes on where those before it stopped.
            only = {p: values[-10:] for p, values in expected(new_topic, 10 * (number + 1)).items()}
            assert scene.ledger.consumed() == only


@pytest.mark.parametrize("client", ONE_PER_CLIENT)
def test_a_member_that_stops_or_dies_loses_its_partitions_when_its_session_ends(
    group_broker: BrokerProcess, new_topic: str, client: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50)
    group, topics = f"{new_topic}-group", (new_topic,)
    session_ms = KIP_848_SESSION_MS if client == KIP_848 else SESSION_MS

    def is_out() -> bool:
        return "silent" not in scene.describe()[1]

    def check_removal_time(since_s: float) -> None:
        wait_until(is_out, lambda: str(scene.describe()))
        took_ms = (time.monotonic() - since_s) * 1000
        # Its last heartbeat was at most an interval before it stopped.
        assert session_ms - 2 * HEARTBEAT_MS <= took_ms

    with Scene(group_broker, group, client) as scene, CommitWatch(group_broker, group) as commits:
        scene.join("alive", topics=topics, session_timeout_ms=10_000)
        silent = scene.join_in_process("silent", topics=topics, session_timeout_ms=SESSION_MS)
        scene.settle({"alive", "silent"}, all_of(new_topic))
        check_removal_time(silent.freeze())
        scene.settle({"alive"}, all_of(new_topic))
        write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50, first=50)
        commits.wait_for(ends(new_topic, 100))

        silent.thaw()
        scene.settle({"alive", "silent"}, all_of(new_topic))
        check_removal_time(silent.kill())
        scene.settle({"alive"}, all_of(new_topic))
        write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50, first=100)
        commits.wait_for(ends(new_topic, 150))
    assert scene.ledger.consumed() == expected(new_topic, 150)


@pytest.mark.parametrize("client", ONE_PER_CLIENT)
def test_a_static_member_comes_back_to_its_partitions_and_nobody_notices(
    group_broker: BrokerProcess, new_topic: str, client: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    group, topics = f"{new_topic}-group", (new_topic,)
    with Scene(group_broker, group, client) as scene:
        scene.join("a", topics=topics, instance_id="first")
        bouncing = scene.join("b", topics=topics, instance_id="second")
        scene.settle({"a", "b"}, all_of(new_topic))
        before, shares = scene.ledger.events("a"), scene.ledger.shares()
        epoch = scene.describe()[2]
        scene.leave(bouncing)
        scene.join("b", topics=topics, instance_id="second")
        scene.settle({"a", "b"}, all_of(new_topic))
        write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50)
        wait_until(lambda: scene.ledger.consumed() == expected(new_topic, 50), lambda: str(scene.ledger.consumed()))
        assert scene.ledger.events("a") == before
        assert scene.ledger.shares() == shares
        assert scene.describe()[2] == epoch


@pytest.mark.parametrize("client", ONE_PER_CLIENT)
def test_new_topics_that_match_and_new_partitions_are_shared_out(
    group_broker: BrokerProcess, new_topic: str, client: str
) -> None:
    bootstrap = group_broker.bootstrap
    make_topic(bootstrap, f"{new_topic}-one", 2)
    make_topic(bootstrap, f"other-{new_topic}", 2)
    group = f"{new_topic}-group"
    wanted = all_of(f"{new_topic}-one", 2)
    with Scene(group_broker, group, client) as scene, CommitWatch(group_broker, group) as commits:
        for name in ("a", "b"):
            scene.join(name, pattern=f"{new_topic}-.*", metadata_max_age_ms=1_000)
        scene.settle({"a", "b"}, wanted)
        make_topic(bootstrap, f"{new_topic}-two", 2)
        wanted |= all_of(f"{new_topic}-two", 2)
        scene.settle({"a", "b"}, wanted)
        grow(bootstrap, f"{new_topic}-two", 4)
        wanted |= all_of(f"{new_topic}-two", 4)
        scene.settle({"a", "b"}, wanted)
        write_records(bootstrap, f"{new_topic}-one", 2, 20)
        write_records(bootstrap, f"{new_topic}-two", 4, 20)
        commits.wait_for(ends(f"{new_topic}-one", 20, 2) | ends(f"{new_topic}-two", 20, 4))
    consumed = expected(f"{new_topic}-one", 20, 2) | expected(f"{new_topic}-two", 20, 4)
    assert scene.ledger.consumed() == consumed


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG)
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)


@pytest.mark.crash
@pytest.mark.parametrize("client", ONE_PER_CLIENT)
def test_members_get_over_the_death_of_their_broker(own_broker: BrokerProcess, client: str) -> None:
    own_broker.overrides |= QUICK_GROUPS | {"offsets.topic.num.partitions": "3"}
    own_broker.start()
    make_topic(own_broker.bootstrap, "t", PARTITIONS)
    write_records(own_broker.bootstrap, "t", PARTITIONS, 50)
    with Scene(own_broker, "group", client) as scene:
        for name in ("a", "b"):
            scene.join(name, topics=("t",))
        scene.settle({"a", "b"}, all_of("t"))
        with CommitWatch(own_broker, "group") as commits:
            commits.wait_for(ends("t", 50))
        own_broker.kill()
        own_broker.start()
        with CommitWatch(own_broker, "group") as commits:
            commits.wait_for(ends("t", 50))
            write_records(own_broker.bootstrap, "t", PARTITIONS, 50, first=50)
            commits.wait_for(ends("t", 100))
            scene.settle({"a", "b"}, all_of("t"))
    assert scene.ledger.consumed() == expected("t", 100)
    assert own_broker.stop() == 0
    assert own_broker.tracebacks() == []
