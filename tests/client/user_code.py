"""Code as users write it, with every call of the library. Nobody runs it: `mypy --strict` reads it in `test_types`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Unpack

import ottla
from ottla import ConsumerRecord, OffsetAndMetadata, RebalanceListener, TopicPartition
from ottla.errors import ClientError, ProducerFencedError

SERVERS = "localhost:9092"
FIRST = TopicPartition("orders", 0)
ORDERS = ottla.ConfigResource.topic("orders")


def as_text(data: bytes | None) -> str:
    return (data or b"").decode()


def delivered(metadata: ottla.RecordMetadata | None, error: ClientError | None) -> None:
    print(metadata.offset if metadata is not None else error)


def committed(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    print(offsets, error)


class Listener(RebalanceListener):
    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        print(partitions)


# Settings

SHARED: ottla.ProducerKeywords = {"bootstrap_servers": [SERVERS], "acks": 1, "compression_type": "zstd"}


def make_producer(**settings: Unpack[ottla.ProducerKeywords]) -> ottla.Producer:
    return ottla.Producer(**settings)


def make_clients(given: Mapping[str, object]) -> ottla.Consumer:
    """From a file or the environment: Kafka's names and any values, which are checked when a client is made."""
    make_producer(**SHARED).close()
    make_producer(transactional_id=None, linger_ms=5, enable_idempotence=True).close()
    ottla.Admin(given, client_id="admin").close()
    app = ottla.App(given, group_id="g", retries=5, max_poll_records=10, require_topics=True)
    app.listener("orders", concurrency=4, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    return ottla.Consumer(given, group_protocol="consumer", partition_assignment_strategy=("range", "sticky"))


# For threads


def produce() -> int:
    with ottla.Producer({"bootstrap.servers": SERVERS}, linger_ms=5, value_serializer=str.encode) as producer:
        future: ottla.SendFuture = producer.send("orders", "value", b"key", {"h": b"1"}, on_delivery=delivered)
        many = producer.send_many("orders", ["a", "b"])
        table = producer.send_arrow("orders", object())
        producer.flush(10)
        print(producer.partitions_for("orders"), many.result(10)[0].timestamp_ms, table)
        return future.result(timeout=10).offset


def remind(producer: ottla.Producer, by_number: ottla.Producer[int, str]) -> None:
    producer.send("orders", bytearray(b"value"), b"key")
    producer.send("orders", key=b"key")
    by_number.send("orders", "value", 5)
    by_number.send_many("orders", ["value", None])


def remind_with_serdes() -> None:
    with (
        ottla.Producer(bootstrap_servers=SERVERS) as producer,
        ottla.Producer(
            bootstrap_servers=SERVERS, key_serializer=ottla.LongSerde(), value_serializer=ottla.StringSerde()
        ) as by_number,
        ottla.Producer(bootstrap_servers=SERVERS, value_serializer=ottla.JsonSerde()) as of_anything,
    ):
        of_anything.send("orders", {"id": 5})
        remind(producer, by_number)


def produce_in_transactions(member: ottla.Membership) -> None:
    producer = ottla.Producer(bootstrap_servers=SERVERS, transactional_id="orders")
    try:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"value")
            producer.send_offsets({FIRST: 5}, member)
        producer.begin_transaction()
        producer.send_offsets({FIRST: OffsetAndMetadata(5)}, "group")
        producer.commit_transaction()
    except ProducerFencedError as e:
        print(e.fatal)
    except ClientError as e:
        if e.requires_abort:
            producer.abort_transaction()
    finally:
        producer.close(5)


def hand_over() -> None:
    with ottla.Producer(bootstrap_servers=SERVERS, transactional_id="orders") as producer:
        producer.begin_transaction()
        prepared = producer.prepare_transaction()
    with ottla.Admin(bootstrap_servers=SERVERS) as admin:
        admin.end_transactions([prepared], committed=True).check()


def consume() -> str:
    with ottla.Consumer(
        {"bootstrap.servers": SERVERS, "group.id": "g"}, key_deserializer=as_text, value_deserializer=as_text
    ) as consumer:
        consumer.subscribe(["orders"], listener=Listener())
        consumer.subscribe(re.compile("^orders"))
        print(consumer.subscription, consumer.assignment, consumer.paused)
        produce_in_transactions(consumer.membership)
        records: list[ConsumerRecord[str, str]] = consumer.poll(1.0, max_records=10)
        for record in records:
            print(record.topic, record.partition, record.timestamp, record.headers, record.leader_epoch)
            consumer.commit(record)
        consumer.commit({record.topic_partition: record.offset + 1 for record in records})
        consumer.commit_async(callback=committed)
        consumer.unsubscribe()
        for record in consumer:
            return record.key + record.value
    return ""


def consume_from_a_place() -> int:
    consumer = ottla.Consumer(bootstrap_servers=SERVERS)
    try:
        consumer.assign([("orders", 0)])
        consumer.seek(FIRST, 5)
        consumer.seek_to_beginning([FIRST])
        consumer.seek_to_end()
        consumer.pause([FIRST])
        consumer.resume()
        found = consumer.offsets_for_times({FIRST: 1_700_000_000_000})[FIRST]
        place = consumer.committed([FIRST])[FIRST]
        ends = consumer.end_offsets([FIRST])[FIRST] - consumer.beginning_offsets([FIRST])[FIRST]
        leaders = [info.leader_id for info in consumer.partitions_for("orders")]
        print(len(consumer.list_topics()), consumer.poll_arrow(1.0), consumer.to_arrow("orders"), leaders)
        total = ends + (found.offset if found is not None else 0) + (place.offset if place is not None else 0)
        return total + consumer.position(FIRST) + (consumer.lag(FIRST) or 0)
    finally:
        consumer.close()


def handle(record: ConsumerRecord[bytes | None, str]) -> None:
    print(record.value.upper())


def consume_in_parallel() -> None:
    with ottla.ParallelConsumer(
        ["orders"], handle, bootstrap_servers=SERVERS, group_id="g", value_deserializer=as_text
    ) as consumer:
        print(consumer.assignment)
        consumer.run()
        consumer.stop()
        consumer.close()


def administer_topics() -> int:
    with ottla.Admin(bootstrap_servers=SERVERS) as admin:
        created = admin.create_topics([ottla.NewTopic("orders", 3), "other"], validate_only=True)
        for name, error in created.errors.items():
            print(name.upper(), error.retriable)
        admin.create_partitions({"orders": 6, "other": ottla.NewPartitions(3, [[1]])}).check()
        admin.delete_topics(["other"]).check()
        admin.incremental_alter_configs({ORDERS: [ottla.ConfigChange("retention.ms", "1000")]}).check()
        admin.alter_configs({ORDERS: {"retention.ms": "1000"}}).check()
        print(admin.describe_configs([ORDERS])[ORDERS]["retention.ms"].value)
        described = admin.describe_topics(["orders"])["orders"]
        ends = admin.list_offsets({FIRST: ottla.OffsetSpec.LATEST}).check()
        first: int = admin.delete_records({FIRST: 5})[FIRST]
        listed = admin.list_topics()["orders"]
        print(listed.topic_id, created["orders"].partitions)
        return ends[FIRST].offset + first + len(described.partitions)


def administer_the_rest() -> None:
    admin = ottla.Admin({"bootstrap.servers": SERVERS})
    cluster = admin.describe_cluster()
    print(cluster.brokers[cluster.controller_id].host, admin.api_versions().results)
    for node_id, dirs in admin.describe_log_dirs().results.items():
        print([entry.replicas for entry in dirs.values()])
        admin.alter_replica_log_dirs({ottla.TopicPartitionReplica("orders", 0, node_id): "/data"}).check()
    for group in admin.list_groups(states=["Stable"]):
        print(admin.describe_groups([group.group_id])[group.group_id].members)
        print(admin.list_group_offsets([group.group_id])[group.group_id][FIRST].offset)
        admin.alter_group_offsets(group.group_id, {FIRST: 0}).check()
        admin.delete_group_offsets(group.group_id, [FIRST]).check()
        admin.remove_members(group.group_id, instance_ids=["a"]).check()
    admin.delete_groups(["g"]).check()
    print(admin.describe_producers([FIRST])[FIRST][0].producer_id)
    print([entry.transactional_id for entry in admin.list_transactions()])
    print(admin.describe_transactions(["orders"])["orders"].state, admin.fence_producers(["orders"]).errors)
    print(admin.find_group_coordinators(["g"])["g"].host, admin.find_transaction_coordinators(["t"])["t"].port)
    for hanging in admin.find_hanging_transactions([FIRST]):
        admin.abort_transaction(hanging)
    admin.close()


READS = ottla.AclBinding(ottla.AclResourceType.TOPIC, "orders", "User:alice", ottla.AclOperation.READ)
HERS = ottla.AclFilter(principal="User:alice", permission=ottla.AclPermission.ALLOW, pattern=ottla.AclPattern.MATCH)
ALICE = ottla.QuotaEntity(user="alice", client_id=ottla.QUOTA_DEFAULT)
PASSWORD = ottla.ScramUpsertion("alice", ottla.ScramMechanism.SCRAM_SHA_512, "secret")


def administer_a_cluster() -> float:
    admin = ottla.Admin(bootstrap_servers=SERVERS)
    admin.create_acls([READS]).check()
    rules: list[ottla.AclBinding] = admin.describe_acls() + admin.describe_acls(HERS)
    gone: list[ottla.AclBinding] = admin.delete_acls([HERS, ottla.AclFilter.exactly(rules[0])])[HERS]
    admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1000, "consumer_byte_rate": None}}).check()
    quotas: dict[ottla.QuotaEntity, dict[str, float]] = admin.describe_client_quotas(user=ottla.QUOTA_ANY, strict=True)
    admin.alter_user_scram_credentials([PASSWORD, ottla.ScramDeletion("bob", PASSWORD.mechanism)]).check()
    iterations: int = admin.describe_user_scram_credentials(["alice"])["alice"][PASSWORD.mechanism]
    admin.alter_partition_reassignments({FIRST: [2, 1], ottla.TopicPartition("orders", 1): None}).check()
    moving: ottla.PartitionReassignment = admin.list_partition_reassignments()[FIRST]
    admin.elect_leaders([FIRST], kind=ottla.ElectionType.UNCLEAN).check()
    return quotas[ALICE]["producer_byte_rate"] + iterations + moving.adding[0] + len(gone)


# For asyncio


async def produce_async() -> int:
    producer = ottla.aio.Producer(bootstrap_servers=SERVERS, transactional_id="orders")
    await producer.start()
    await producer.init_transactions()
    async with producer.transaction():
        future: ottla.aio.SendFuture = await producer.send("orders", b"value", on_delivery=delivered)
        many = await producer.send_many("orders", [b"a", b"b"])
        table = await producer.send_arrow("orders", object())
        await producer.send_offsets({FIRST: 5}, "group")
    await producer.begin_transaction()
    stored: ottla.RecordMetadata = await producer.send_and_wait("orders", b"value")
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.abort_transaction()
    prepared = await producer.prepare_transaction()
    await producer.flush()
    await producer.close()
    print(await producer.partitions_for("orders"), prepared, table)
    return (await future).offset + (await many)[0].offset + stored.offset


async def consume_async() -> int:
    async with ottla.aio.Consumer(bootstrap_servers=SERVERS, value_deserializer=as_text) as consumer:
        await consumer.start()
        consumer.subscribe(["orders"])
        consumer.unsubscribe()
        consumer.assign([FIRST])
        consumer.seek(FIRST, 5)
        consumer.seek_to_beginning()
        consumer.seek_to_end()
        consumer.pause()
        consumer.resume()
        records: list[ConsumerRecord[bytes | None, str]] = await consumer.poll(1.0)
        await consumer.commit()
        consumer.commit_async(records[0], callback=committed)
        print(consumer.membership.group_id, consumer.subscription, consumer.assignment, consumer.paused)
        print(await consumer.beginning_offsets([FIRST]), await consumer.end_offsets([FIRST]), consumer.lag(FIRST))
        print(await consumer.offsets_for_times({FIRST: 0}), await consumer.committed([FIRST]))
        print(await consumer.partitions_for("orders"), await consumer.list_topics(), await consumer.position(FIRST))
        print(await consumer.poll_arrow(1.0), await consumer.to_arrow("orders"))
        async for record in consumer:
            return len(record.value)
        await consumer.close()
    return 0


async def administer_async(prepared: ottla.PreparedTransaction) -> None:
    admin = ottla.aio.Admin(bootstrap_servers=SERVERS)
    await admin.start()
    print((await admin.create_topics(["orders"]))["orders"].partitions, (await admin.list_topics())["orders"].name)
    print((await admin.describe_topics(["orders"]))["orders"].partitions)
    (await admin.create_partitions({"orders": 6})).check()
    (await admin.delete_topics(["orders"])).check()
    (await admin.incremental_alter_configs({ORDERS: [ottla.ConfigChange("retention.ms", "1")]})).check()
    (await admin.alter_configs({ORDERS: {"retention.ms": "1"}})).check()
    print((await admin.describe_configs([ORDERS]))[ORDERS]["retention.ms"].value)
    print((await admin.describe_cluster()).cluster_id, (await admin.api_versions()).results)
    print((await admin.describe_log_dirs())[1])
    (await admin.alter_replica_log_dirs({ottla.TopicPartitionReplica("orders", 0, 1): "/data"})).check()
    print(await admin.list_groups(), (await admin.describe_groups(["g"]))["g"].state)
    print((await admin.list_group_offsets(["g"]))["g"][FIRST].offset)
    (await admin.alter_group_offsets("g", {FIRST: 0})).check()
    (await admin.delete_group_offsets("g", [FIRST])).check()
    (await admin.remove_members("g")).check()
    (await admin.delete_groups(["g"])).check()
    print((await admin.list_offsets({FIRST: 0}))[FIRST].offset, (await admin.delete_records({FIRST: 5}))[FIRST] + 1)
    print((await admin.describe_producers([FIRST]))[FIRST], await admin.list_transactions())
    print((await admin.describe_transactions(["t"]))["t"].state, (await admin.fence_producers(["t"])).errors)
    print((await admin.find_group_coordinators(["g"]))["g"].host)
    print((await admin.find_transaction_coordinators(["t"]))["t"].port)
    for hanging in await admin.find_hanging_transactions([FIRST]):
        await admin.abort_transaction(hanging)
    (await admin.end_transactions([prepared], committed=False)).check()
    await admin.close()


async def administer_a_cluster_async() -> None:
    async with ottla.aio.Admin(bootstrap_servers=SERVERS) as admin:
        (await admin.create_acls([READS])).check()
        print([rule.principal for rule in await admin.describe_acls(HERS)])
        print((await admin.delete_acls([HERS]))[HERS][0].operation.name)
        (await admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1000}}, validate_only=True)).check()
        print((await admin.describe_client_quotas(user="alice", client_id=ottla.QUOTA_DEFAULT))[ALICE].items())
        (await admin.alter_user_scram_credentials([PASSWORD])).check()
        print((await admin.describe_user_scram_credentials()).results["alice"].keys())
        (await admin.alter_partition_reassignments({FIRST: (2, 1)})).check()
        print((await admin.list_partition_reassignments([FIRST]))[FIRST].removing)
        print((await admin.elect_leaders()).errors.keys())
