"""What a consumer says about topics it need not read, for each answer there may be."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import aio
from ottla.base.errors import ErrorCode
from ottla.errors import ClientError
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.waiting import PATIENCE_S, run_async

from .scripted_broker import ScriptedBroker

E = ErrorCode


def topic(name: str, code: int = 0) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=1,
            leader_epoch=index,
            replica_nodes=[1, 2],
            isr_nodes=[1],
            offline_replicas=[2],
        )
        for index in (1, 0)
    ]
    return MetadataResponseTopic(name=name, error_code=code, partitions=[] if code else partitions)


async def asked(codes: list[list[int]], names: list[str] | None) -> tuple[dict[str, Any], list[Any]]:
    """What was found, for each answer the codes of the topics a, b and so on; and what was asked for."""
    async with ScriptedBroker() as broker:
        broker.on(MetadataRequest, lambda _: broker.metadata())
        async with aio.Consumer(bootstrap_servers=broker.address, retry_backoff_ms=1) as consumer:

            def answer(request: MetadataRequest) -> MetadataResponse:
                # What the consumer itself asks meanwhile may make a topic that it reads.
                answers = [] if request.allow_auto_topic_creation else codes.pop(0)
                return broker.metadata(topics=[topic(name, code) for name, code in zip("abc", answers, strict=False)])

            broker.on(MetadataRequest, answer)
            if names is None:
                found = await consumer.list_topics(PATIENCE_S)
            else:
                found = {"a": await consumer.partitions_for("a", PATIENCE_S)}
            assert codes == []
            asked = [one for one in broker.asked(MetadataRequest) if not one.allow_auto_topic_creation]
            return found, [one for one in asked if one.topics != []]


def test_partitions_come_in_their_order_and_nothing_is_made() -> None:
    found, requests = run_async(asked([[0]], ["a"]))
    assert [tuple(info) for info in found["a"]] == [(0, 1, 0, (1, 2), (1,), (2,)), (1, 1, 1, (1, 2), (1,), (2,))]
    (request,) = requests
    assert [one.name for one in request.topics] == ["a"]


def test_of_all_topics_each_is_named_whatever_is_wrong_with_it() -> None:
    found, requests = run_async(asked([[0, E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION]], None))
    assert {name: len(partitions) for name, partitions in found.items()} == {"a": 2, "b": 0, "c": 0}
    assert [request.topics for request in requests] == [None]


@pytest.mark.parametrize("names", [["a"], None])
def test_a_topic_that_is_just_being_made_is_asked_for_again(names: list[str] | None) -> None:
    found, requests = run_async(asked([[E.LEADER_NOT_AVAILABLE], [0]], names))
    assert len(found["a"]) == 2 and len(requests) == 2


def test_a_topic_that_is_not_there_has_no_partitions() -> None:
    found, _ = run_async(asked([[E.UNKNOWN_TOPIC_OR_PARTITION]], ["a"]))
    assert found == {"a": []}


@pytest.mark.parametrize("code", [E.TOPIC_AUTHORIZATION_FAILED, E.INVALID_TOPIC_EXCEPTION])
def test_who_may_not_know_of_a_topic_is_told(code: ErrorCode) -> None:
    with pytest.raises(ClientError) as refused:
        run_async(asked([[code]], ["a"]))
    assert refused.value.code is code
