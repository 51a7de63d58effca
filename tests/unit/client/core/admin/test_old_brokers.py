"""Which version of a request is the first that can say what an admin client is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.acls import AclOperation, AclPattern, AclResourceType
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.admin.access_types import AclBinding, AclFilter
from ottla.client.core.admin.acls import create_acls_call, delete_acls_call, describe_acls_call
from ottla.client.core.admin.groups import (
    NOT_A_CONSUMER_GROUP,
    list_group_offsets_call,
    list_groups_call,
    remove_members_call,
)
from ottla.client.core.admin.outcomes import Call
from ottla.client.core.admin.partitions import list_offsets_call, list_transactions_call
from ottla.client.core.admin.replicas import elect_all_leaders_call, elect_leaders_call
from ottla.client.core.admin.topics import create_topics_call, delete_topics_call, describe_topics_call
from ottla.client.core.admin.types import ElectionType, NewTopic, OffsetSpec
from ottla.client.errors import ClientError

ID = Uuid(bytes(15) + b"\7")
T0 = TopicPartition("t", 0)
READ_T = AclBinding(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ)
PREFIXED = AclFilter(pattern=AclPattern.PREFIXED)
USERS = AclFilter(AclResourceType.USER)


@pytest.mark.parametrize(
    ("call", "keys", "first", "missing"),
    [
        (list_groups_call(1, ["Stable"], []), [1], 4, "to filter groups by state"),
        (list_groups_call(1, [], ["classic"]), [1], 5, "to filter groups by type"),
        (remove_members_call("g", {"i"}, None), ["i"], 3, r"to remove members \(KIP-345\)"),
        (list_group_offsets_call("g", None, require_stable=False), ["g"], 2, "for this; name partitions"),
        (create_topics_call([NewTopic("a", 1)], validate_only=False, timeout_ms=1), ["a"], 4, "to choose the number"),
        (delete_topics_call([ID], timeout_ms=1), [ID], 6, "for topic ids; name the topics"),
        (describe_topics_call([ID]), [ID], 12, "for topic ids; name the topics"),
        (list_offsets_call({T0: OffsetSpec.MAX_TIMESTAMP}, read_committed=False), [T0], 7, "for MAX_TIMESTAMP offsets"),
        (list_offsets_call({T0: OffsetSpec.EARLIEST_LOCAL}, read_committed=False), [T0], 8, "for EARLIEST_LOCAL"),
        (list_offsets_call({T0: OffsetSpec.LATEST_TIERED}, read_committed=False), [T0], 9, "for LATEST_TIERED"),
        (list_offsets_call({T0: OffsetSpec.LATEST}, read_committed=True), [T0], 2, "for read_committed"),
        (list_transactions_call(1, [], [], 0), [1], 1, "to filter transactions by their duration"),
        (elect_leaders_call(ElectionType.UNCLEAN, timeout_ms=1), [T0], 1, "for elections that are not preferred"),
        (elect_all_leaders_call(ElectionType.UNCLEAN, timeout_ms=1), ["all"], 1, "for elections that are not pre"),
        (create_acls_call(), [READ_T._replace(pattern=AclPattern.PREFIXED)], 1, "for rules that are not literal"),
        (create_acls_call(), [READ_T._replace(resource_type=AclResourceType.USER)], 3, "for rules about users"),
        (describe_acls_call(), [PREFIXED], 1, "for rules that are not literal"),
        (describe_acls_call(), [USERS], 3, "for rules about users"),
        (delete_acls_call(), [PREFIXED], 1, "for rules that are not literal"),
        (delete_acls_call(), [USERS], 3, "for rules about users"),
    ],
)
def test_a_broker_that_is_too_old_is_not_asked(call: Call[Any, Any], keys: list[Any], first: int, missing: str) -> None:
    for version in range(call.request.VERSIONS.start, first):
        with pytest.raises(ClientError, match=f"the broker is too old {missing}") as caught:
            call.build(keys, version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    for version in range(max(first, call.request.VERSIONS.start), call.request.VERSIONS.stop):
        call.build(keys, version).encode(version)


@pytest.mark.parametrize(
    ("call", "keys"),
    [
        (list_groups_call(1, [], []), [1]),
        (list_group_offsets_call("g", [T0], require_stable=True), ["g"]),
        (create_topics_call([NewTopic("a", 1, 1)], validate_only=False, timeout_ms=1), ["a"]),
        (create_topics_call([NewTopic("a", assignments=[[1]])], validate_only=False, timeout_ms=1), ["a"]),
        (delete_topics_call(["a"], timeout_ms=1), ["a"]),
        (describe_topics_call(["a"]), ["a"]),
        (list_offsets_call({T0: OffsetSpec.EARLIEST}, read_committed=False), [T0]),
        (list_transactions_call(1, ["Ongoing"], [5], None), [1]),
        (elect_leaders_call(ElectionType.PREFERRED, timeout_ms=1), [T0]),
        (create_acls_call(), [READ_T]),
        (describe_acls_call(), [AclFilter()]),
        (delete_acls_call(), [AclFilter()]),
    ],
)
def test_what_is_asked_of_every_broker(call: Call[Any, Any], keys: list[Any]) -> None:
    for version in call.request.VERSIONS:
        decoded, _ = call.request.decode(call.build(keys, version).encode(version), version)
        assert decoded.encode(version) == call.build(keys, version).encode(version)


def test_a_duration_is_left_out_as_kafka_leaves_it_out() -> None:
    durations = {
        given: list_transactions_call(1, [], [], given).build([1], 1).duration_filter for given in (None, 0, 1)
    }
    assert durations == {None: -1, 0: 0, 1: 1}


def test_answers_after_which_a_group_may_be_a_classic_one() -> None:
    # GROUP_ID_NOT_FOUND and UNSUPPORTED_VERSION.
    assert sorted(NOT_A_CONSUMER_GROUP) == [35, 69]
