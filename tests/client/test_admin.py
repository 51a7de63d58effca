"""Administration: the same behaviour from the admin client for threads and the one for asyncio."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import ottla.client.sync as ottla_sync
from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.ids import Ids
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.core.admin.access_types import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    QuotaEntity,
    ScramMechanism,
    ScramUpsertion,
)
from ottla.client.core.admin.types import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    HangingTransaction,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicPartitionReplica,
)
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.errors import ClientClosedError, ClientError, ClusterUnreachableError, ForkedError
from tests.broker_process import BrokerProcess
from tests.client.admin_shells import Make, until
from tests.client.consumer_shells import PATIENCE_S, make_topic, wait_until, write
from tests.client.kafka_differences import has_no_foreign_members


@pytest.fixture(params=["sync", "aio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made = Make(request.param)
    yield made
    made.close()


@pytest.fixture
def admin(make: Make, broker: BrokerProcess) -> Any:
    return make(broker.bootstrap)


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: str) -> str:
    return make_topic(broker.bootstrap, new_topic, 2)


# Topics


def test_the_life_of_a_topic(admin: Any, new_topic: str) -> None:
    created = admin.create_topics([NewTopic(new_topic, 3, 1, configs={"retention.ms": "1234"})])[new_topic]
    assert (created.name, created.partitions, created.replication_factor) == (new_topic, 3, 1)
    assert created.topic_id != NIL_UUID
    until(lambda: new_topic in admin.list_topics())
    assert admin.list_topics()[new_topic].topic_id == created.topic_id

    described = admin.describe_topics([new_topic])[new_topic]
    assert [info.partition for info in described.partitions] == [0, 1, 2]
    assert all(info.leader_id in info.isr for info in described.partitions)
    assert admin.describe_topics([created.topic_id])[created.topic_id] == described
    assert admin.describe_topics()[new_topic] == described

    admin.create_partitions({new_topic: 5}).check()
    until(lambda: len(admin.describe_topics([new_topic])[new_topic].partitions) == 5)
    admin.create_partitions({new_topic: NewPartitions(6, [[described.partitions[0].leader_id]])}).check()
    until(lambda: len(admin.describe_topics([new_topic])[new_topic].partitions) == 6)

    assert admin.delete_topics([created.topic_id])[created.topic_id] is None
    until(lambda: new_topic not in admin.list_topics())


def test_a_topic_by_name_alone_and_one_that_is_only_checked(admin: Any, new_topic: str) -> None:
    checked = f"{new_topic}-checked"
    admin.create_topics([checked], validate_only=True).check()
    assert admin.create_topics([new_topic])[new_topic].partitions >= 1
    until(lambda: new_topic in admin.list_topics())
    assert checked not in admin.list_topics()
    admin.delete_topics([new_topic]).check()


def test_each_topic_has_its_own_outcome(admin: Any, topic: str, new_topic: str) -> None:
    other = f"{new_topic}-other"
    outcomes = admin.create_topics([NewTopic(topic, 1, 1), NewTopic(other, 1, 1), NewTopic("no/such", 1, 1)])
    assert outcomes.results.keys() == {other}
    assert {name: error.code for name, error in outcomes.errors.items()} == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no/such": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    with pytest.raises(ClientError, match=topic) as caught:
        outcomes[topic]
    assert not caught.value.fatal
    gone = Ids().uuid()
    deleted = admin.delete_topics([other, "nobody", gone])
    assert deleted[other] is None
    assert deleted.errors["nobody"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted.errors[gone].code is ErrorCode.UNKNOWN_TOPIC_ID
    described = admin.describe_topics(["nobody", topic])
    assert described.errors["nobody"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described[topic].name == topic


def test_ids_of_pythons_own_kind(admin: Any, topic: str) -> None:
    topic_id = uuid.UUID(bytes=admin.describe_topics([topic])[topic].topic_id)
    assert admin.describe_topics([topic_id, topic])[topic_id].name == topic
    gone = uuid.uuid4()
    deleted = admin.delete_topics([topic_id, gone])
    assert deleted.errors[gone].code is ErrorCode.UNKNOWN_TOPIC_ID
    assert deleted[topic_id] is None


def test_a_name_that_is_empty_or_there_twice(admin: Any, new_topic: str) -> None:
    assert "does not mention" not in admin.delete_topics([""]).errors[""].message
    with pytest.raises(ValueError, match=f"two different topics .* '{new_topic}'"):
        admin.create_topics([NewTopic(new_topic, 1, 1), NewTopic(new_topic, 2, 1)])
    assert new_topic not in admin.list_topics()


# Wrong arguments


def test_a_wrong_argument_is_the_error_of_its_own_thing(admin: Any, topic: str, new_topic: str) -> None:
    good, other = f"{new_topic}-good", f"{new_topic}-other"
    wrong = [NewTopic(f"{new_topic}-{n}", n, 1) for n in (1.5, 2**40)]
    wrong.append(NewTopic(f"{new_topic}-list", 1, 1, configs={"cleanup.policy": ["compact"]}))
    created = admin.create_topics([NewTopic(good, 1, 1), *wrong, NewTopic(other, 1, 1)])
    assert created.results.keys() == {good, other}
    assert created.errors.keys() == {entry.name for entry in wrong}
    for error in created.errors.values():
        assert error.code is ErrorCode.INVALID_REQUEST
        assert "too old" not in error.message
    assert "num_partitions: 1.5 does not fit" in created.errors[wrong[0].name].message
    admin.delete_topics([good, other]).check()

    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    altered = admin.alter_group_offsets(f"group-{topic}", {first: 2**70, second: 1})
    assert altered.errors[first].code is ErrorCode.INVALID_REQUEST
    assert altered[second] is None
    assert admin.list_offsets({TopicPartition(5, 0): OffsetSpec.LATEST, first: OffsetSpec.LATEST})[first].offset == 0
    assert admin.describe_groups([7]).errors[7].code is ErrorCode.INVALID_REQUEST
    assert admin.describe_topics([b"id", topic])[topic].name == topic


def test_settings_may_be_numbers_and_truth_values(admin: Any, new_topic: str) -> None:
    given = {"retention.ms": 1000, "unclean.leader.election.enable": True, "min.cleanable.dirty.ratio": 0.25}
    admin.create_topics([NewTopic(new_topic, 1, 1, configs=given)]).check()
    resource = ConfigResource.topic(new_topic)
    until(lambda: resource in admin.describe_configs([resource]).results)

    def values() -> list[str | None]:
        found = admin.describe_configs([resource])[resource]
        return [found[name].value for name in given]

    assert values() == ["1000", "true", "0.25"]
    admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", 5)]}).check()
    until(lambda: values() == ["5", "true", "0.25"])
    admin.alter_configs({resource: {**given, "unclean.leader.election.enable": False}}).check()
    until(lambda: values() == ["1000", "false", "0.25"])


@pytest.mark.parametrize(
    ("call", "given", "shown"),
    [
        ("create_topics", "ab", "topics must be a list, such as ['ab']"),
        ("create_topics", NewTopic("ab"), "topics must be a list, such as [NewTopic(name='ab'"),
        ("delete_topics", "ab", "topics must be a list, such as ['ab']"),
        ("describe_topics", "ab", "topics must be a list, such as ['ab']"),
        ("describe_configs", ConfigResource.topic("ab"), "resources must be a list"),
        ("describe_groups", "ab", "group_ids must be a list, such as ['ab']"),
        ("delete_groups", "ab", "group_ids must be a list, such as ['ab']"),
        ("list_group_offsets", "ab", "groups must be a list, such as ['ab']"),
        ("list_group_offsets", {"g": TopicPartition("ab", 0)}, "the partitions of a group must be a list"),
        ("describe_producers", TopicPartition("ab", 0), "partitions must be a list"),
        ("describe_transactions", "ab", "transactional_ids must be a list, such as ['ab']"),
        (
            "create_acls",
            AclBinding(AclResourceType.TOPIC, "ab", "User:a", AclOperation.READ),
            "bindings must be a list",
        ),
        ("delete_acls", AclFilter(), "filters must be a list, such as [AclFilter("),
        ("describe_user_scram_credentials", "ab", "users must be a list, such as ['ab']"),
        (
            "alter_user_scram_credentials",
            ScramUpsertion("ab", ScramMechanism.SCRAM_SHA_256, "secret"),
            "changes must be a list, such as [ScramUpsertion(user='ab', mechanism=<ScramMechanism.SCRAM_SHA_256: 1>, "
            "iterations=8192)]",
        ),
        ("alter_partition_reassignments", {TopicPartition("ab", 0): 1}, "the replicas of ab-0 must be a list"),
        ("list_partition_reassignments", TopicPartition("ab", 0), "partitions must be a list"),
        ("elect_leaders", TopicPartition("ab", 0), "partitions must be a list"),
        ("fence_producers", "ab", "transactional_ids must be a list, such as ['ab']"),
    ],
)
def test_one_thing_is_not_taken_for_a_list(admin: Any, call: str, given: object, shown: str) -> None:
    with pytest.raises(ValueError, match=re.escape(shown)):
        getattr(admin, call)(given)


def test_what_a_broker_does_not_serve_is_said(make: Make, own_broker: BrokerProcess) -> None:
    admin = make(own_broker.start().bootstrap)
    alice = QuotaEntity("alice")
    rule = AclBinding(AclResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
    calls: dict[str, Callable[[], Any]] = {
        "CreateAcls": lambda: admin.create_acls([rule]).check(),
        "DescribeAcls": lambda: admin.describe_acls(),
        "DeleteAcls": lambda: admin.delete_acls([AclFilter()]).check(),
        "DescribeClientQuotas": lambda: admin.describe_client_quotas(),
        "AlterClientQuotas": lambda: admin.alter_client_quotas({alice: {"producer_byte_rate": 1}}).check(),
        "DescribeUserScramCredentials": lambda: admin.describe_user_scram_credentials(),
        "AlterUserScramCredentials": lambda: admin.alter_user_scram_credentials(
            [ScramUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "secret")]
        ).check(),
    }
    for api, call in calls.items():
        with pytest.raises(ClientError, match=f"speaks no version of {api}") as caught:
            call()
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_internal_topics_are_listed_on_demand(admin: Any, topic: str) -> None:
    admin.alter_group_offsets(f"group-{topic}", {TopicPartition(topic, 0): 0}).check()
    assert "__consumer_offsets" not in admin.list_topics()
    assert admin.list_topics(include_internal=True)["__consumer_offsets"].is_internal


# Settings, cluster, log directories


def test_settings_of_a_topic(admin: Any, topic: str) -> None:
    resource = ConfigResource.topic(topic)
    before = admin.describe_configs([resource])[resource]
    assert before["retention.ms"].source is ConfigSource.DEFAULT

    changes = [ConfigChange("retention.ms", "777"), ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)]
    admin.incremental_alter_configs({resource: changes}, validate_only=True).check()
    assert admin.describe_configs([resource])[resource] == before
    admin.incremental_alter_configs({resource: changes}).check()
    until(lambda: admin.describe_configs([resource])[resource]["retention.ms"].value == "777")
    after = admin.describe_configs([resource], include_synonyms=True, include_documentation=True)[resource]
    assert (after["retention.ms"].value, after["retention.ms"].source) == ("777", ConfigSource.TOPIC)
    assert after["retention.ms"].synonyms[0].value == "777"
    assert after["retention.ms"].documentation
    assert after["cleanup.policy"].value == "delete,compact"

    admin.alter_configs({resource: {"segment.ms": "5000"}}).check()
    until(lambda: admin.describe_configs([resource])[resource]["segment.ms"].value == "5000")
    replaced = admin.describe_configs([resource], keys=["segment.ms", "retention.ms"])[resource]
    assert {name: entry.value for name, entry in replaced.items()} == {
        "segment.ms": "5000",
        "retention.ms": before["retention.ms"].value,
    }
    admin.incremental_alter_configs({resource: [ConfigChange("segment.ms", None, ConfigOperation.DELETE)]}).check()
    until(lambda: bool(admin.describe_configs([resource])[resource] == before))

    refused = admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", "soon")]})
    assert refused.errors[resource].code is ErrorCode.INVALID_CONFIG


def test_settings_of_brokers_are_asked_of_themselves(admin: Any) -> None:
    (node_id,) = admin.describe_cluster().brokers
    own, default, stranger = ConfigResource.broker(node_id), ConfigResource.broker(), ConfigResource.broker(4711)
    found = admin.describe_configs([own, default, stranger, ConfigResource.topic("nobody")])
    assert "log.dirs" in found[own]
    assert default in found.results
    assert found.errors[stranger].code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert found.errors[ConfigResource.topic("nobody")].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_cluster(admin: Any, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.brokers[cluster.controller_id].port == broker.port
    versions = admin.api_versions()[cluster.brokers[cluster.controller_id]]
    assert 0 in versions[18]


def test_replicas_move_between_log_directories(make: Make, tmp_path: Path) -> None:
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    process = BrokerProcess(tmp_path, {"log.dirs": ",".join(dirs)}).start()
    try:
        admin = make(process.bootstrap)
        admin.create_topics([NewTopic("moved", 1, 1)]).check()
        write(process.bootstrap, "moved", [b"x" * 100])
        (node_id,) = admin.describe_cluster().brokers
        partition = TopicPartition("moved", 0)

        def homes() -> list[str]:
            found = admin.describe_log_dirs(partitions=[partition])[node_id]
            assert found.keys() == set(dirs)
            assert all(entry.error is None and entry.total_bytes for entry in found.values())
            return [path for path, entry in found.items() if partition in entry.replicas]

        (home,) = homes()
        (other,) = set(dirs) - {home}
        assert admin.describe_log_dirs([node_id])[node_id][home].replicas[partition].size_bytes > 100
        replica = TopicPartitionReplica("moved", 0, node_id)
        admin.alter_replica_log_dirs({replica: other}).check()
        until(lambda: homes() == [other])
        failed = admin.alter_replica_log_dirs(
            {
                replica: str(tmp_path / "nowhere"),
                TopicPartitionReplica("moved", 0, 4711): other,
                TopicPartitionReplica("nobody", 0, node_id): other,
            }
        )
        assert [error.code for error in failed.errors.values()] == [
            ErrorCode.LOG_DIR_NOT_FOUND,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            ErrorCode.REPLICA_NOT_AVAILABLE,
        ]
    finally:
        assert process.stop() == 0


# Groups


def join(bootstrap: str, topic: str, **settings: Any) -> confluent_kafka.Consumer:
    """A member that has its partitions."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False, **given}
    )
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + PATIENCE_S
    while not consumer.assignment():
        assert time.monotonic() < deadline_s, "no partition was assigned"
        consumer.poll(0.1)
    return consumer


def join_as_our_own(bootstrap: str, topic: str, **settings: Any) -> ottla_sync.Consumer[bytes | None, bytes | None]:
    consumer = ottla_sync.Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **settings)
    consumer.subscribe([topic])
    wait_until(lambda: bool(consumer.assignment), consumer)
    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols(admin: Any, topic: str, protocol: str, broker_kind: str) -> None:
    bootstrap = ",".join(admin.settings.client.bootstrap_servers)
    group = f"group-{topic}"
    join_group = join_as_our_own if has_no_foreign_members(broker_kind, protocol) else join
    consumer = join_group(bootstrap, topic, group_id=group, group_protocol=protocol, client_id="the-member")
    try:
        listed = [entry for entry in admin.list_groups(states=["Stable"], types=[protocol]) if entry.group_id == group]
        assert [(entry.state, entry.type, entry.protocol_type) for entry in listed] == [
            ("Stable", protocol, "consumer")
        ]
        others = {"classic": "consumer", "consumer": "classic"}
        assert group not in {entry.group_id for entry in admin.list_groups(types=[others[protocol]])}

        described = admin.describe_groups([group, "nobody"])
        assert described.errors["nobody"].code is ErrorCode.GROUP_ID_NOT_FOUND
        found = described[group]
        assert (found.type, found.state, found.protocol_type) == (protocol, "Stable", "consumer")
        (member,) = found.members
        assert member.client_id == "the-member"
        assert member.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert member.subscribed_topics == {topic}
        assert (member.target_assignment is None) == (protocol == "classic")

        assert admin.delete_groups([group]).errors[group].code is ErrorCode.NON_EMPTY_GROUP
        refused = admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})
        assert refused.errors[TopicPartition(topic, 0)].code is ErrorCode.UNKNOWN_MEMBER_ID
        stranger = admin.remove_members(group, ["stranger"]).errors["stranger"]
        assert ("consumer protocol" in stranger.message) == (protocol == "consumer")
    finally:
        consumer.close()
    admin.delete_groups([group]).check()
    assert group not in {entry.group_id for entry in admin.list_groups()}


def test_members_are_removed(admin: Any, topic: str) -> None:
    bootstrap = ",".join(admin.settings.client.bootstrap_servers)
    group = f"group-{topic}"
    consumer = join(bootstrap, topic, group_id=group, group_instance_id="instance-1")
    try:
        outcomes = admin.remove_members(group, instance_ids=["instance-1", "nobody"])
        assert outcomes["instance-1"] is None
        assert outcomes.errors["nobody"].code is ErrorCode.UNKNOWN_MEMBER_ID
        assert admin.describe_groups([group])[group].members == ()
    finally:
        consumer.close()
    plain = join(bootstrap, topic, group_id=group)
    try:
        assert len(admin.remove_members(group).check()) == 1
        assert admin.describe_groups([group])[group].members == ()
    finally:
        plain.close()


def test_offsets_of_a_group(admin: Any, topic: str) -> None:
    group = f"group-{topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(group, {first: 3, second: OffsetAndMetadata(4, "by hand", 0)}).check()
    committed = {first: OffsetAndMetadata(3), second: OffsetAndMetadata(4, "by hand", 0)}
    assert admin.list_group_offsets([group, "nobody"]).check() == {group: committed, "nobody": {}}
    assert admin.list_group_offsets({group: [second]}, require_stable=True)[group] == {second: committed[second]}
    assert admin.delete_group_offsets(group, [first])[first] is None
    assert admin.list_group_offsets([group])[group].keys() == {second}
    with pytest.raises(ValueError, match=f"{second} must not be negative, but was -7"):
        admin.alter_group_offsets(group, {first: 5, second: -7})
    assert admin.list_group_offsets([group])[group].keys() == {second}
    failed = admin.delete_group_offsets("nobody", [first])
    assert failed.errors[first].code is ErrorCode.GROUP_ID_NOT_FOUND


# Partitions


def test_offsets_by_place_and_time(admin: Any, topic: str) -> None:
    bootstrap = ",".join(admin.settings.client.bootstrap_servers)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number, timestamp in enumerate([1000, 5000, 3000]):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=timestamp)
        producer.flush(PATIENCE_S)
    first, second, missing = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(topic, 9)

    def at(spec: int) -> tuple[int, int]:
        found = admin.list_offsets({first: spec})[first]
        return found.offset, found.timestamp

    assert at(OffsetSpec.EARLIEST)[0] == 0
    assert at(OffsetSpec.LATEST)[0] == 3
    assert at(OffsetSpec.MAX_TIMESTAMP) == (1, 5000)
    assert at(2000) == (1, 5000)
    assert at(6000) == (-1, -1)
    found = admin.list_offsets({first: OffsetSpec.LATEST, second: OffsetSpec.LATEST, missing: 0}, read_committed=True)
    assert (found[first].offset, found[second].offset) == (3, 0)
    assert found.errors[missing].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_are_deleted(admin: Any, topic: str) -> None:
    bootstrap = ",".join(admin.settings.client.bootstrap_servers)
    write(bootstrap, topic, [b"value"] * 10)
    first = TopicPartition(topic, 0)
    assert admin.delete_records({first: 4})[first] == 4
    assert admin.list_offsets({first: OffsetSpec.EARLIEST})[first].offset == 4
    assert admin.delete_records({first: 99}).errors[first].code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert admin.delete_records({first: -1})[first] == 10


# Transactions


def test_transactions_are_seen_and_ended(admin: Any, topic: str) -> None:
    bootstrap = ",".join(admin.settings.client.bootstrap_servers)
    name, first = f"txn-{topic}", TopicPartition(topic, 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.flush(PATIENCE_S)

    (listed,) = [entry for entry in admin.list_transactions(states=["Ongoing"]) if entry.transactional_id == name]
    assert admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
    assert admin.list_transactions(producer_ids=[listed.producer_id], min_duration_ms=3_600_000) == []
    described = admin.describe_transactions([name, "nobody"])
    assert described[name].partitions == {first}
    assert (described[name].state, described[name].producer_id) == ("Ongoing", listed.producer_id)
    assert described.errors["nobody"].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    (seen,) = admin.describe_producers([first])[first]
    assert (seen.producer_id, seen.txn_start_offset) == (listed.producer_id, 0)
    assert admin.find_hanging_transactions([first], min_age_ms=0) == []
    with pytest.raises(ClientError, match="Sleepy"):
        admin.list_transactions(states=["Sleepy"])

    fenced = admin.fence_producers([name])[name]
    assert fenced.producer_epoch > described[name].producer_epoch
    until(lambda: admin.describe_transactions([name])[name].state in ("CompleteAbort", "Empty"))
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(PATIENCE_S)


def test_a_transaction_is_ended_in_one_partition(admin: Any, topic: str) -> None:
    bootstrap = ",".join(admin.settings.client.bootstrap_servers)
    first = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"txn-{topic}"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.flush(PATIENCE_S)
    (seen,) = admin.describe_producers([first])[first]
    assert admin.list_offsets({first: OffsetSpec.LATEST}, read_committed=True)[first].offset == 0
    admin.abort_transaction(HangingTransaction(first, seen))
    (after,) = admin.describe_producers([first])[first]
    assert after.txn_start_offset is None
    assert admin.list_offsets({first: OffsetSpec.LATEST}, read_committed=True)[first].offset == 2
    producer.abort_transaction(PATIENCE_S)


# Bad input, and the end


def test_errors_nobody_looks_at_are_logged(admin: Any, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        admin.create_topics([NewTopic(topic, 1, 1)])
        until(lambda: any("create_topics" in record.getMessage() for record in caplog.records))


def test_a_call_ends_when_its_time_is_up(make: Make, tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    admin = make(process.bootstrap, retry_backoff_max_ms=100, default_api_timeout_ms=60_000)
    process.kill()
    outcomes = admin.create_topics(["a", "b"], timeout_ms=300)
    assert {error.code for error in outcomes.errors.values()} == {ErrorCode.REQUEST_TIMED_OUT}
    assert all("within 300 ms" in error.message for error in outcomes.errors.values())
    with pytest.raises(ClientError, match="within 200 ms"):
        admin.describe_cluster(timeout_ms=200)


def test_a_child_process_needs_an_admin_of_its_own(broker: BrokerProcess) -> None:
    with ottla_sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        child = os.fork()
        if child == 0:
            try:
                admin.list_topics()
            except ForkedError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert isinstance(admin.list_topics(), dict)


def test_a_broker_that_comes_back_is_found_again(make: Make, own_broker: BrokerProcess) -> None:
    admin = make(own_broker.start().bootstrap)
    admin.create_topics(["kept"]).check()
    assert own_broker.stop() == 0
    own_broker.start()
    assert len(admin.describe_cluster().brokers) == 1
    assert admin.describe_topics(["kept"])["kept"].name == "kept"
    assert "kept" in admin.list_topics()


def test_bad_settings(make: Make, broker: BrokerProcess) -> None:
    with pytest.raises(InvalidConfigError, match=r"default\.api\.timeout\.ms"):
        make(broker.bootstrap, default_api_timeout="1")
    with pytest.raises(InvalidConfigError, match=r"bootstrap\.servers"):
        make("")
    with pytest.raises(ClusterUnreachableError):
        make("127.0.0.1:1", bootstrap_fail_fast=True)


def test_after_the_end(make: Make, broker: BrokerProcess) -> None:
    admin = make(broker.bootstrap)
    admin.close()
    admin.close()
    for call in (admin.list_topics, admin.describe_cluster, admin.list_groups):
        with pytest.raises(ClientClosedError):
            call()
