"""What an admin client is asked with and answers with: what is left out, how it reads, and what may be sent at all."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType
from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.core.admin.access_types import (
    AclBinding,
    AclFilter,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from ottla.client.core.admin.arguments import as_list, config_text, sort_out
from ottla.client.core.admin.groups import list_groups_call
from ottla.client.core.admin.quotas import QUOTAS, describe_client_quotas_call
from ottla.client.core.admin.scram import SALT_BYTES, salted, scram_changes
from ottla.client.core.admin.topics import topic_description
from ottla.client.core.admin.types import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    CreatedTopic,
    GroupDescription,
    MemberDescription,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicPartitionReplica,
)
from ottla.client.errors import ClientError
from ottla.wire.apis import describe_client_quotas
from ottla.wire.apis.metadata import MetadataResponsePartition, MetadataResponseTopic

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (NewTopic("a"), ("a", -1, -1, (), {})),
        (CreatedTopic("a"), ("a", NIL_UUID, -1, -1)),
        (NewPartitions(2), (2, ())),
        (ConfigChange("a", "b"), ("a", "b", ConfigOperation.SET)),
        (ConfigEntry("a", "b", ConfigSource.TOPIC, False, True), ("a", "b", ConfigSource.TOPIC, False, True, (), None)),
        (
            MemberDescription("m", None, "c", "/h", frozenset()),
            ("m", None, "c", "/h", frozenset(), None, None, frozenset()),
        ),
        (GroupDescription("g", "t", "s", "p", "a", ()), ("g", "t", "s", "p", "a", (), None, None)),
        (
            AclBinding(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ),
            (AclResourceType.TOPIC, "t", "User:a", AclOperation.READ, AclPermission.ALLOW, "*", AclPattern.LITERAL),
        ),
        (
            AclFilter(),
            (AclResourceType.ANY, None, None, AclOperation.ANY, AclPermission.ANY, None, AclPattern.ANY),
        ),
        (QuotaEntity(), (None, None, None, ())),
        (ScramUpsertion("u", SHA_256, "p"), ("u", SHA_256, "p", 8192, None)),
    ],
)
def test_what_is_left_out_is_as_in_kafka(value: tuple[Any, ...], fields: tuple[Any, ...]) -> None:
    assert tuple(value) == fields


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ConfigResource.topic("t"), "topic t"),
        (ConfigResource.broker(0), "broker 0"),
        (ConfigResource.broker(), "broker (default)"),
        (ConfigResource.group("g"), "group g"),
        (ConfigResource(ResourceType.BROKER_LOGGER, "1"), "broker_logger 1"),
        (TopicPartitionReplica("t", 3, 5), "t-3 on broker 5"),
    ],
)
def test_what_is_asked_about_reads_well(value: object, shown: str) -> None:
    assert str(value) == shown


def test_a_topic_that_an_answer_does_not_name_has_an_empty_name() -> None:
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=2)
    found = topic_description(MetadataResponseTopic(name=None, partitions=[partition]))
    assert (found.name, found.topic_id, found.is_internal, len(found.partitions)) == ("", NIL_UUID, False, 1)


# Arguments


def test_a_list_is_whatever_gives_one_thing_after_the_other() -> None:
    for given in ([1, 2], (1, 2), iter([1, 2]), {1: "a", 2: "b"}):
        assert as_list(given, "things") == [1, 2]
    for wrong in ("ab", b"ab", TopicPartition("t", 0), 5, None):
        with pytest.raises(ValueError, match="things must be a list, such as"):
            as_list(wrong, "things")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (0, "0"), (-1, "-1"), (1.5, "1.5"), ("", ""), ("x", "x"), (None, None)],
)
def test_values_of_settings_are_texts(value: Any, text: str | None) -> None:
    assert config_text(value) == text


def test_what_any_version_can_say_may_be_sent() -> None:
    call = list_groups_call(1, [], ["classic"])
    assert sort_out(call, [1]) == ([1], {}), "the last version can"
    with pytest.raises(ClientError, match="to filter groups by type"):
        sort_out(call._replace(max_version=4), [1])
    unsendable = list_groups_call(1, ["\ud800"], [])
    keys, refused = sort_out(unsendable, [1])
    assert keys == [] and list(refused) == [1]
    assert refused[1].code is ErrorCode.INVALID_REQUEST
    assert refused[1].message.startswith("1: this cannot be sent: ")


# Quotas


def test_quotas_come_in_the_order_of_their_entities_and_names() -> None:
    wire = describe_client_quotas

    def quota(user: str, **values: float) -> describe_client_quotas.DescribedQuota:
        return wire.DescribedQuota(
            entity=[wire.DescribedEntity(entity_type="user", entity_name=user)],
            values=[wire.QuotaValue(key=key, value=value) for key, value in values.items()],
        )

    call = describe_client_quotas_call(None, None, None, strict=False)
    response = wire.DescribeClientQuotasResponse(entries=[quota("b", y=1.0, x=2.0), quota("a", z=9.0, x=3.0)])
    found: Any = call.answers([QUOTAS], response)[QUOTAS]
    assert [(entity.user, list(values.items())) for entity, values in found.items()] == [
        ("a", [("x", 3.0), ("z", 9.0)]),
        ("b", [("x", 2.0), ("y", 1.0)]),
    ]


# Credentials


@pytest.mark.parametrize(
    ("iterations", "is_fine"), [(0, False), (1, True), (1_000_000, True), (1_000_001, False), (1.5, False)]
)
def test_how_often_a_password_may_be_hashed(iterations: Any, is_fine: bool) -> None:
    changes = [ScramUpsertion("a", SHA_256, "secret", iterations)]
    if is_fine:
        assert scram_changes(changes) == changes
    else:
        with pytest.raises(
            ValueError, match=f"the iterations for 'a' must be from 1 to 1000000, but were {iterations}"
        ):
            scram_changes(changes)


def test_a_user_may_have_one_change_for_each_mechanism() -> None:
    first, second = ScramUpsertion("a", SHA_256, b"secret"), ScramDeletion("a", SHA_512)
    other = ScramDeletion("b", SHA_256)
    three: list[ScramUpsertion | ScramDeletion] = [first, second, other]
    assert scram_changes(iter(three)) == three
    with pytest.raises(ValueError, match="'a' has two changes for SCRAM_SHA_512"):
        scram_changes([first, second, other, ScramUpsertion("a", SHA_512, "secret")])


def test_every_change_has_a_salt_of_its_own() -> None:
    changes = [ScramUpsertion("a", SHA_256, "secret", 1), ScramUpsertion("a", SHA_512, "secret", 1)]
    ((first, second),) = salted(changes, [b"1", b"2"]).values()
    assert (first.salt, second.salt) == (b"1", b"2")  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="shorter"):
        salted(changes, [b"1"])
    assert SALT_BYTES == 20
