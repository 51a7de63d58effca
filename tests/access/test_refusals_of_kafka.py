"""Apache Kafka with its own authorizer is the judge of the table of refusals: it has to say the same in every case."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType
from ottla.broker.table_authorizer import Rule
from ottla.wire.api_keys import ApiKey
from tests.access.messages import request_of
from tests.access.refusals import CASES, REFUSED_HOST, Case, Denied, World
from tests.access.world import EVERYTHING, PATIENCE_S, denial, failure, prepared, refused_client
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaProcess
from tests.raw_client import RawClient

pytestmark = pytest.mark.xdist_group("apache-kafka")

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    process = KafkaProcess(fetch_kafka_libs(), tmp_path_factory.mktemp("kafka"), SETTINGS).start()
    try:
        # Rules about a resource end that everybody may use it, so everything is allowed by a rule.
        make_rules(process.port, EVERYTHING)
        yield prepared(process.port, process.node_id)
    finally:
        process.stop()


@pytest.fixture(scope="module")
def served(world: World) -> dict[int, range]:
    with RawClient(world.port) as client:
        reply: Any = client.call(request_of(ApiKey.API_VERSIONS), 0)
    return {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in reply.api_keys}


def make_rules(port: int, rules: Sequence[Rule]) -> None:
    creations = [
        {
            "resource_type": int(rule.resource_type),
            "resource_name": rule.name,
            "resource_pattern_type": int(rule.pattern),
            "principal": rule.principal,
            "host": rule.host,
            "operation": int(rule.operation),
            "permission_type": int(rule.permission),
        }
        for rule in rules
    ]
    with RawClient(port) as client:
        reply: Any = client.call(request_of(ApiKey.CREATE_ACLS, creations=creations), 2)
    assert [result.error_code for result in reply.results] == [0] * len(rules), reply


def deny_only(port: int, denied: Sequence[Denied]) -> None:
    everything = {
        "resource_type_filter": int(AclResourceType.ANY),
        "resource_name_filter": None,
        "pattern_type_filter": int(AclPattern.ANY),
        "principal_filter": None,
        "host_filter": REFUSED_HOST,
        "operation": int(AclOperation.ANY),
        "permission_type": int(AclPermission.DENY),
    }
    with RawClient(port) as client:
        reply: Any = client.call(request_of(ApiKey.DELETE_ACLS, filters=[everything]), 2)
    assert reply.filter_results[0].error_code == 0, reply
    make_rules(port, [denial(one) for one in denied])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_kafka_refuses_in_the_same_place(world: World, served: dict[int, range], case: Case) -> None:
    if case.is_newer_than_kafka_3_9:
        pytest.skip("Kafka has settings of groups since 4.0 only")
    versions = [version for version in case.versions if version in served.get(case.api, ())]
    if not versions:
        pytest.skip(f"Kafka serves none of the versions of {case.api.name}")
    deny_only(world.port, case.denied)
    # Broker and controller hear of new rules a little later.
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with refused_client(world) as client:
            problems = "".join(failure(case, world, client, version) for version in versions)
        if not problems or time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    assert not problems, problems
