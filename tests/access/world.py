"""Prepares a broker for the table of refusals, and asks it one case of the table."""

from __future__ import annotations

import time
from typing import Any

from ottla.base.acls import AclPattern, AclPermission
from ottla.base.errors import ErrorCode
from ottla.broker.authorizer import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.table_authorizer import ANYBODY, Rule
from ottla.wire.api_keys import ApiKey
from ottla.wire.message import Response
from tests.access.messages import labels_in, refusals_in, request_of
from tests.access.refusals import (
    DELETED_FROM_GROUP,
    OPEN,
    OPEN_GROUP,
    OPEN_ID,
    REFUSED_HOST,
    SHUT,
    SHUT_GROUP,
    SHUT_ID,
    Case,
    Denied,
    World,
)
from tests.raw_client import RawClient

PATIENCE_S = 30
_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)

EVERYTHING = [
    Rule(AclPermission.ALLOW, Operation.ALL, ResourceType.CLUSTER, CLUSTER_NAME),
    *(
        Rule(AclPermission.ALLOW, Operation.ALL, kind)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ),
]


def denial(denied: Denied) -> Rule:
    operation, kind, name = denied
    return Rule(AclPermission.DENY, operation, kind, name, AclPattern.LITERAL, ANYBODY, REFUSED_HOST)


def prepared(port: int, broker_id: int) -> World:
    with RawClient(port) as client:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in (OPEN, SHUT)]
        created: Any = client.call(request_of(ApiKey.CREATE_TOPICS, topics=topics, timeout_ms=5000), 7)
        _until_done(client, ApiKey.METADATA, 12, topics=[{"name": name} for name in (OPEN, SHUT)])
        for kind, keys in ((0, (OPEN_GROUP, SHUT_GROUP, DELETED_FROM_GROUP)), (1, (OPEN_ID, SHUT_ID))):
            _until_done(client, ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=list(keys))
        offsets = [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0}]} for name in (OPEN, SHUT)
        ]
        for group_id in (OPEN_GROUP, SHUT_GROUP, DELETED_FROM_GROUP):
            _until_done(client, ApiKey.OFFSET_COMMIT, 8, group_id=group_id, topics=offsets)
        started: Any = None
        for transactional_id in (SHUT_ID, OPEN_ID):
            started = _until_done(
                client,
                ApiKey.INIT_PRODUCER_ID,
                4,
                transactional_id=transactional_id,
                transaction_timeout_ms=800_000,
            )
        producer: dict[str, Any] = {
            "v3_and_below_transactional_id": OPEN_ID,
            "v3_and_below_producer_id": started.producer_id,
            "v3_and_below_producer_epoch": started.producer_epoch,
        }
        parts = [{"name": name, "partitions": [0]} for name in (OPEN, SHUT)]
        _until_done(client, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **producer, v3_and_below_topics=parts)
        _until_done(
            client,
            ApiKey.ADD_OFFSETS_TO_TXN,
            3,
            transactional_id=OPEN_ID,
            producer_id=started.producer_id,
            producer_epoch=started.producer_epoch,
            group_id=OPEN_GROUP,
        )
    ids = {topic.name: topic.topic_id for topic in created.topics}
    return World(port, broker_id, ids, (started.producer_id, started.producer_epoch))


def _until_done(client: RawClient, api: ApiKey, version: int, **fields: Any) -> Response:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        response = client.call(request_of(api, **fields), version)
        codes = set(refusals_in(response, {}).values())
        if not codes:
            return response
        assert codes <= _NOT_YET, response
        assert time.monotonic() < deadline_s, response
        time.sleep(0.05)


def failure(case: Case, world: World, client: RawClient, version: int) -> str:
    """What is not as the table says; empty if everything is. The connection has to live on in any case."""
    response = client.call(case.request(world, version), version)
    ids = world.names_of_ids
    found, expected = refusals_in(response, ids), dict(case.expected_errors(version))
    labels = labels_in(response, ids)
    problems = []
    if found != expected:
        problems.append(f"errors are {found}, not {expected}")
    if case.hides and case.hides in labels:
        problems.append(f"{case.hides} is mentioned")
    if case.shows and case.shows not in labels:
        problems.append(f"{case.shows} is not mentioned")
    for name, value in case.has.items():
        if getattr(response, name) != value:
            problems.append(f"{name} is {getattr(response, name)}, not {value}")
    alive: Any = client.call(request_of(ApiKey.API_VERSIONS), 0)
    assert alive.error_code == 0
    return "".join(f"version {version}: {problem}\n" for problem in problems)


def refused_client(world: World) -> RawClient:
    return RawClient(world.port, source_host=REFUSED_HOST)
