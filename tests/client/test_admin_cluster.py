"""Administration of a cluster: rules, quotas, credentials, reassignments and elections, on two brokers of Apache Kafka.

What our admin client does is judged by others: librdkafka, kafka-python and Kafka's own tool.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import kafka
import pytest
from confluent_kafka import admin as foreign

import ottla
from ottla.base.errors import ErrorCode
from tests.client.admin_shells import Make, until
from tests.client.consumer_shells import PATIENCE_S
from tests.client.kafka_cluster import leader_seen, make_partition, replicas_of, started_cluster
from tests.docs.blocks import NEEDS_KAFKA, blocks
from tests.interop.kafka_tools import KafkaTools, fetch_kafka_libs
from tests.kafka_process import KafkaProcess

pytestmark = pytest.mark.xdist_group("apache-kafka")

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    # So that a throttle holds replication back after the first batch.
    "replica.fetch.max.bytes": "1024",
    "auto.leader.rebalance.enable": "false",
}
TOPIC, GROUP = ottla.AclResourceType.TOPIC, ottla.AclResourceType.GROUP
READ, WRITE = ottla.AclOperation.READ, ottla.AclOperation.WRITE
SHA_256, SHA_512 = ottla.ScramMechanism.SCRAM_SHA_256, ottla.ScramMechanism.SCRAM_SHA_512


class Cluster(NamedTuple):
    first: KafkaProcess
    second: KafkaProcess
    tools: KafkaTools

    @property
    def bootstrap(self) -> str:
        return self.first.bootstrap


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("kafka-cluster")
    with started_cluster(home, SETTINGS, broker_count=2, with_scram=True) as (first, second):
        yield Cluster(first, second, KafkaTools(fetch_kafka_libs()))


@pytest.fixture(params=["sync", "aio"])
def admin(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Any]:
    make = Make(request.param)
    found = make(cluster.bootstrap)
    until(lambda: len(found.describe_cluster().brokers) == 2)
    yield found
    make.close()


@pytest.fixture(scope="module")
def librdkafka(cluster: Cluster) -> foreign.AdminClient:
    return foreign.AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture(scope="module")
def kafka_python(cluster: Cluster) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


# Access rules


def foreign_rule(rule: ottla.AclBinding) -> foreign.AclBinding:
    return foreign.AclBinding(
        foreign.ResourceType[rule.resource_type.name],
        rule.name,
        foreign.ResourcePatternType[rule.pattern.name],
        rule.principal,
        rule.host,
        foreign.AclOperation[rule.operation.name],
        foreign.AclPermissionType[rule.permission.name],
    )


def rules_of(librdkafka: foreign.AdminClient, principal: str) -> set[foreign.AclBinding]:
    anything = foreign.AclBindingFilter(
        foreign.ResourceType.ANY,
        None,
        foreign.ResourcePatternType.ANY,
        principal,
        None,
        foreign.AclOperation.ANY,
        foreign.AclPermissionType.ANY,
    )
    return set(librdkafka.describe_acls(anything).result(PATIENCE_S))


def test_rules_are_made_found_and_deleted(admin: Any, librdkafka: foreign.AdminClient, new_topic: str) -> None:
    principal = f"User:{new_topic}"
    rules = [
        ottla.AclBinding(TOPIC, "orders", principal, READ),
        ottla.AclBinding(TOPIC, "orders", principal, WRITE, ottla.AclPermission.DENY, "10.0.0.1"),
        ottla.AclBinding(GROUP, "ord", principal, READ, pattern=ottla.AclPattern.PREFIXED),
    ]
    own = ottla.AclFilter(principal=principal)
    assert admin.create_acls([*rules, rules[0]]).check() == dict.fromkeys(rules)
    until(lambda: admin.describe_acls(own) == sorted(rules))
    until(lambda: rules_of(librdkafka, principal) == {foreign_rule(rule) for rule in rules})
    until(lambda: set(rules) <= set(admin.describe_acls()))
    until(lambda: admin.describe_acls(own._replace(permission=ottla.AclPermission.DENY)) == [rules[1]])
    until(lambda: admin.describe_acls(own._replace(host="10.0.0.1", operation=WRITE)) == [rules[1]])
    matching = ottla.AclFilter(GROUP, "orders", principal, pattern=ottla.AclPattern.MATCH)
    until(lambda: admin.describe_acls(matching) == [rules[2]])
    assert admin.describe_acls(matching._replace(pattern=ottla.AclPattern.ANY)) == []

    nothing = own._replace(name="nobody")
    deleted = admin.delete_acls([matching, nothing, ottla.AclFilter.exactly(rules[1])])
    assert [deleted[key] for key in (matching, nothing, ottla.AclFilter.exactly(rules[1]))] == [
        [rules[2]],
        [],
        [rules[1]],
    ]
    until(lambda: rules_of(librdkafka, principal) == {foreign_rule(rules[0])})
    assert admin.delete_acls([own])[own] == [rules[0]]


def test_rules_that_others_have_made(admin: Any, librdkafka: foreign.AdminClient, new_topic: str) -> None:
    rule = ottla.AclBinding(
        ottla.AclResourceType.TRANSACTIONAL_ID, "*", f"User:{new_topic}", ottla.AclOperation.ALL, host="127.0.0.1"
    )
    librdkafka.create_acls([foreign_rule(rule)])[foreign_rule(rule)].result(PATIENCE_S)
    exactly = ottla.AclFilter.exactly(rule)
    until(lambda: admin.describe_acls(exactly) == [rule])
    assert admin.delete_acls([exactly])[exactly] == [rule]


def test_each_rule_has_its_own_outcome(admin: Any, new_topic: str) -> None:
    principal = f"User:{new_topic}"
    good, other = (ottla.AclBinding(TOPIC, name, principal, READ) for name in ("good", "other"))
    refused = ottla.AclBinding(ottla.AclResourceType.CLUSTER, "no-such", principal, ottla.AclOperation.ALTER)
    unsendable = ottla.AclBinding(TOPIC, 5, principal, READ)  # type: ignore[arg-type]
    outcomes = admin.create_acls([good, refused, unsendable, other])
    assert outcomes.results.keys() == {good, other}
    assert outcomes.errors[refused].code is ErrorCode.INVALID_REQUEST
    assert "kafka-cluster" in outcomes.errors[refused].message
    assert "cannot be sent" in outcomes.errors[unsendable].message
    own = ottla.AclFilter(principal=principal)
    until(lambda: admin.describe_acls(own) == [good, other])
    assert admin.delete_acls([own])[own] == [good, other]


# Quotas


def quotas_of_users(cluster: Cluster, *arguments: str) -> str:
    return cluster.tools.run("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap, *arguments)


def test_the_life_of_quotas(admin: Any, cluster: Cluster, new_topic: str) -> None:
    alice, both = ottla.QuotaEntity(user=new_topic), ottla.QuotaEntity(ottla.QUOTA_DEFAULT, new_topic)
    address = ottla.QuotaEntity(ip="127.0.0.77")
    wanted = {
        alice: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000},
        both: {"request_percentage": 50.5},
        address: {"connection_creation_rate": 7.0},
    }
    admin.alter_client_quotas(wanted, validate_only=True).check()
    assert not wanted.keys() & admin.describe_client_quotas().keys()
    assert admin.alter_client_quotas(wanted).check() == dict.fromkeys(wanted)
    until(lambda: admin.describe_client_quotas(user=new_topic) == {alice: wanted[alice]})
    until(lambda: wanted.items() <= admin.describe_client_quotas().items())
    told = quotas_of_users(cluster, "--describe", "--entity-type", "users", "--entity-name", new_topic)
    assert "producer_byte_rate=1000.0" in told
    assert "consumer_byte_rate=2000.0" in told

    until(lambda: admin.describe_client_quotas(user=ottla.QUOTA_DEFAULT) == {both: wanted[both]})
    assert admin.describe_client_quotas(user=ottla.QUOTA_DEFAULT, strict=True) == {}
    until(lambda: {alice, both} <= admin.describe_client_quotas(user=ottla.QUOTA_ANY).keys())
    assert address not in admin.describe_client_quotas(user=ottla.QUOTA_ANY)
    until(lambda: admin.describe_client_quotas(ip="127.0.0.77", strict=True) == {address: wanted[address]})

    admin.alter_client_quotas({alice: {"producer_byte_rate": None, "consumer_byte_rate": 1}}).check()
    until(lambda: admin.describe_client_quotas(user=new_topic) == {alice: {"consumer_byte_rate": 1.0}})
    nothing: dict[Any, Any] = {entity: dict.fromkeys(quotas) for entity, quotas in wanted.items()}
    admin.alter_client_quotas(nothing).check()
    until(lambda: not wanted.keys() & admin.describe_client_quotas().keys())


def test_each_quota_has_its_own_outcome(admin: Any, new_topic: str) -> None:
    good, odd, mixed = ottla.QuotaEntity(new_topic), ottla.QuotaEntity("odd"), ottla.QuotaEntity("m", ip="127.0.0.1")
    long = ottla.QuotaEntity("x" * 40_000)
    rate = {"producer_byte_rate": 1.0}
    outcomes = admin.alter_client_quotas({odd: {"nonsense": 1.0}, good: rate, mixed: rate, long: rate})
    assert outcomes.results.keys() == {good}
    assert {error.code for error in outcomes.errors.values()} == {ErrorCode.INVALID_REQUEST}
    assert "user odd" in outcomes.errors[odd].message
    admin.alter_client_quotas({good: {"producer_byte_rate": None}}).check()
    with pytest.raises(ottla.errors.ClientError, match="INVALID_REQUEST"):
        admin.describe_client_quotas(user=5)


# Credentials


def logs_in(cluster: Cluster, user: str, password: str, mechanism: str) -> bool:
    """Whether a foreign client gets in with a password."""
    client = foreign.AdminClient(
        {
            "bootstrap.servers": cluster.first.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        return bool(client.list_topics(timeout=2).brokers)
    except confluent_kafka.KafkaException:
        return False


def credentials_seen(librdkafka: foreign.AdminClient, user: str) -> dict[str, int]:
    try:
        described = librdkafka.describe_user_scram_credentials([user])[user].result(PATIENCE_S)
    except confluent_kafka.KafkaException:
        return {}
    return {info.mechanism.name: info.iterations for info in described.scram_credential_infos}


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_the_life_of_a_password(
    admin: Any, cluster: Cluster, librdkafka: foreign.AdminClient, new_topic: str, mechanism: ottla.ScramMechanism
) -> None:
    user, name = new_topic, mechanism.name.replace("_", "-")
    admin.alter_user_scram_credentials([ottla.ScramUpsertion(user, mechanism, "sécret")]).check()
    until(lambda: admin.describe_user_scram_credentials([user]).results == {user: {mechanism: 8192}})
    until(lambda: credentials_seen(librdkafka, user) == {mechanism.name: 8192})
    until(lambda: logs_in(cluster, user, "sécret", name))

    changed = ottla.ScramUpsertion(user, mechanism, b"other", iterations=4096, salt=b"salt")
    admin.alter_user_scram_credentials([changed]).check()
    until(lambda: admin.describe_user_scram_credentials([user]).results == {user: {mechanism: 4096}})
    until(lambda: logs_in(cluster, user, "other", name))
    admin.alter_user_scram_credentials([ottla.ScramDeletion(user, mechanism)]).check()
    until(lambda: user in admin.describe_user_scram_credentials([user]).errors)


def test_passwords_that_others_have_set(admin: Any, librdkafka: foreign.AdminClient, new_topic: str) -> None:
    info = foreign.ScramCredentialInfo(foreign.ScramMechanism.SCRAM_SHA_512, 5000)
    change = foreign.UserScramCredentialUpsertion(new_topic, info, b"secret")
    librdkafka.alter_user_scram_credentials([change])[new_topic].result(PATIENCE_S)
    until(lambda: admin.describe_user_scram_credentials().results.get(new_topic) == {SHA_512: 5000})
    admin.alter_user_scram_credentials([ottla.ScramDeletion(new_topic, SHA_512)]).check()


def test_each_user_has_their_own_outcome(admin: Any, new_topic: str) -> None:
    outcomes = admin.alter_user_scram_credentials(
        [
            ottla.ScramUpsertion(new_topic, SHA_256, "secret"),
            ottla.ScramUpsertion("weak", SHA_256, "secret", iterations=100),
            ottla.ScramUpsertion("twice", SHA_256, "secret"),
            ottla.ScramUpsertion("twice", SHA_512, "secret"),
            ottla.ScramDeletion("nobody", SHA_256),
            ottla.ScramDeletion(7, SHA_256),  # type: ignore[arg-type]
        ]
    )
    assert outcomes.results.keys() == {new_topic}
    assert {user: error.code for user, error in outcomes.errors.items()} == {
        "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        7: ErrorCode.INVALID_REQUEST,
    }
    assert "secret" not in f"{outcomes!r}{[str(error) for error in outcomes.errors.values()]}"
    until(lambda: new_topic in admin.describe_user_scram_credentials().results)
    until(lambda: admin.describe_user_scram_credentials([new_topic, "nobody"]).results == {new_topic: {SHA_256: 8192}})
    unknown = admin.describe_user_scram_credentials(["nobody"]).errors["nobody"]
    assert unknown.code is ErrorCode.RESOURCE_NOT_FOUND
    assert len(admin.describe_user_scram_credentials([])) == 0
    admin.alter_user_scram_credentials([ottla.ScramDeletion(new_topic, SHA_256)]).check()


# Reassignments


def hold_replication_back(admin: Any, bootstrap: str, partition: ottla.TopicPartition) -> None:
    """After this a new replica of the partition does not catch up."""
    throttle = [ottla.ConfigChange(f"{side}.replication.throttled.replicas", "*") for side in ("leader", "follower")]
    admin.incremental_alter_configs({ottla.ConfigResource.topic(partition.topic): throttle}).check()
    rates = [ottla.ConfigChange(f"{side}.replication.throttled.rate", 1) for side in ("leader", "follower")]
    admin.incremental_alter_configs({ottla.ConfigResource.broker(node): rates for node in (1, 2)}).check()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(partition.topic, bytes(2000), partition=partition.partition)
        producer.flush(PATIENCE_S)


def let_replication_go_on(admin: Any) -> None:
    rates = [
        ottla.ConfigChange(f"{side}.replication.throttled.rate", None, ottla.ConfigOperation.DELETE)
        for side in ("leader", "follower")
    ]
    admin.incremental_alter_configs({ottla.ConfigResource.broker(node): rates for node in (1, 2)}).check()


def test_partitions_are_moved(admin: Any, cluster: Cluster, kafka_python: Any, new_topic: str) -> None:
    partition = make_partition(admin, new_topic, [1])
    hold_replication_back(admin, cluster.bootstrap, partition)
    try:
        admin.alter_partition_reassignments({partition: [2]}).check()
        under_way = ottla.PartitionReassignment(replicas=(2, 1), adding=(2,), removing=(1,))
        until(lambda: admin.list_partition_reassignments() == {partition: under_way})
        assert admin.list_partition_reassignments([partition, (new_topic, 7)]) == {partition: under_way}
        assert admin.list_partition_reassignments([("nobody", 0)]) == {}
        seen = kafka_python.list_partition_reassignments()
        assert {tuple(key): value for key, value in seen.items()} == {
            partition: {"replicas": [2, 1], "adding_replicas": [2], "removing_replicas": [1]}
        }

        admin.alter_partition_reassignments({partition: None}).check()
        until(lambda: admin.list_partition_reassignments() == {})
        until(lambda: replicas_of(admin, partition) == [1])
        again = admin.alter_partition_reassignments({partition: None})
        assert again.errors[partition].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    finally:
        let_replication_go_on(admin)
    admin.alter_partition_reassignments({partition: [2, 1]}).check()
    until(lambda: admin.list_partition_reassignments() == {} and replicas_of(admin, partition) == [2, 1])


def test_each_reassignment_has_its_own_outcome(admin: Any, new_topic: str) -> None:
    partition = make_partition(admin, new_topic, [1])
    unknown, stranger, unsendable = ((new_topic, 5), ("nobody", 0), (new_topic, 2**40))
    outcomes = admin.alter_partition_reassignments(
        {partition: (2, 1), unknown: [1], stranger: None, unsendable: [1]},
    )
    assert outcomes.results.keys() == {partition}
    assert {key: error.code for key, error in outcomes.errors.items()} == {
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        stranger: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        unsendable: ErrorCode.INVALID_REQUEST,
    }
    until(lambda: replicas_of(admin, partition) == [2, 1])
    refused = admin.alter_partition_reassignments({partition: [2, 77]})
    assert refused.errors[partition].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


# Elections


def leader_of(librdkafka: foreign.AdminClient, topic: str) -> int | None:
    partition = librdkafka.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.get(0)
    return None if partition is None else partition.leader


def lead_from_second_place(admin: Any, topic: str) -> ottla.TopicPartition:
    """A partition that broker 1 leads and broker 2 should."""
    partition = make_partition(admin, topic, [1, 2])
    admin.alter_partition_reassignments({partition: [2, 1]}).check()
    until(lambda: replicas_of(admin, partition) == [2, 1])
    return partition


def test_preferred_leaders_are_elected(admin: Any, librdkafka: foreign.AdminClient, new_topic: str) -> None:
    partition, missing = lead_from_second_place(admin, new_topic), ottla.TopicPartition(new_topic, 9)
    until(lambda: leader_of(librdkafka, new_topic) == 1)
    outcomes = admin.elect_leaders([partition, missing])
    assert outcomes[partition] is None
    assert outcomes.errors[missing].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    until(lambda: leader_of(librdkafka, new_topic) == 2)

    for kind in ottla.ElectionType:
        again = admin.elect_leaders([partition], kind=kind)
        # Were it asked again, it would be until the time is up, which is another error.
        assert again.errors[partition].code is ErrorCode.ELECTION_NOT_NEEDED
    assert len(admin.elect_leaders([])) == 0


def test_leaders_are_elected_wherever_it_is_needed(admin: Any, librdkafka: foreign.AdminClient, new_topic: str) -> None:
    partition = lead_from_second_place(admin, new_topic)
    assert partition in admin.elect_leaders().results
    until(lambda: leader_of(librdkafka, new_topic) == 2)
    assert partition not in admin.elect_leaders().results


def test_the_documentation(cluster: Cluster, tmp_path: Path) -> None:
    (block,) = blocks("docs/client.md", NEEDS_KAFKA)
    script = tmp_path / "block.py"
    script.write_text(block.against(cluster.bootstrap))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_leader_is_elected_that_is_not_in_sync(admin: Any, cluster: Cluster, new_topic: str) -> None:
    partition = make_partition(admin, new_topic, [2])
    hold_replication_back(admin, cluster.bootstrap, partition)
    admin.alter_partition_reassignments({partition: [2, 1]}).check()
    until(lambda: partition in admin.list_partition_reassignments())
    cluster.second.stop()
    try:
        until(lambda: leader_seen(admin, partition) == -1)
        clean = admin.elect_leaders([partition])
        assert clean.errors[partition].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert admin.elect_leaders([partition], kind=ottla.ElectionType.UNCLEAN)[partition] is None
        until(lambda: leader_seen(admin, partition) == 1)
    finally:
        cluster.second.start()
        until(lambda: len(admin.describe_cluster().brokers) == 2)
        let_replication_go_on(admin)
