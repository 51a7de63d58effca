"""Logs that change under a reader: leaders that come and go, topics that are made anew, errors that pass."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.base.errors import ErrorCode
from ottla.client.aio.cluster_link import ClusterLink
from ottla.testing import EmbeddedBroker
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.metadata import MetadataResponse
from tests.client.consumer_shells import PATIENCE_S, Shell, open_shell, read


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as running:
        yield running


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[Shell]:
    with open_shell(request.param, broker.bootstrap_servers) as opened:
        yield opened


def write(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value).result()


def test_a_topic_that_is_made_anew_is_read_under_its_lower_epoch(shell: Shell, broker: EmbeddedBroker) -> None:
    topic = broker.new_topic()
    for _ in range(3):
        broker.elect_leader(topic)
    write(broker, topic, b"old")
    consumer = shell()
    consumer.assign([(topic, 0)])
    assert [record.leader_epoch for record in read(consumer, 1)] == [3]
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics([topic])
    broker.create_topic(topic)
    write(broker, topic, b"new", b"newer")
    assert [record.value for record in read(consumer, 2)] == [b"new", b"newer"]


def test_a_leader_that_changes_while_it_is_asked_is_asked_again(shell: Shell, broker: EmbeddedBroker) -> None:
    topic = broker.new_topic()
    write(broker, topic, b"before")
    consumer = shell()
    consumer.assign([(topic, 0)])
    assert len(read(consumer, 1)) == 1
    asked = broker.faults.error(ApiKey.OFFSET_FOR_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
    with asked:
        broker.elect_leader(topic)
        deadline_s = time.monotonic() + PATIENCE_S
        while not asked.hits:
            assert time.monotonic() < deadline_s
            assert consumer.poll(0.05) == []
        broker.elect_leader(topic)
    write(broker, topic, b"after")
    assert [record.value for record in read(consumer, 1)] == [b"after"]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.FETCH, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ApiKey.FETCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ApiKey.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ApiKey.OFFSET_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_reading_goes_on_when_an_error_has_passed(
    shell: Shell, broker: EmbeddedBroker, api: ApiKey, code: ErrorCode
) -> None:
    topic = broker.new_topic()
    write(broker, topic, b"value")
    consumer = shell(group_id="g")
    with broker.faults.error(api, code, times=None):
        consumer.assign([(topic, 0)])
        for _ in range(2):
            with pytest.raises(ottla.errors.ClientError) as told:
                consumer.poll(1.0)
            assert told.value.code is code
    assert [record.value for record in read(consumer, 1)] == [b"value"]


@contextlib.contextmanager
def refused_metadata() -> Iterator[None]:
    """What a broker answers about topics that the asker may not see."""
    ask = ClusterLink.ask_metadata

    async def ask_as_stranger(link: ClusterLink, *given: Any, **options: Any) -> MetadataResponse:
        response = await ask(link, *given, **options)
        for topic in response.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterLink, "ask_metadata", ask_as_stranger)
        yield


@pytest.mark.parametrize("choice", ["classic", "consumer", "assign"])
def test_a_topic_that_must_not_be_read_is_no_silence(shell: Shell, broker: EmbeddedBroker, choice: str) -> None:
    topic = broker.new_topic()
    write(broker, topic, b"value")
    consumer = shell(group_id=topic, group_protocol="consumer" if choice == "consumer" else "classic")
    with refused_metadata():
        if choice == "assign":
            consumer.assign([(topic, 0)])
        else:
            consumer.subscribe([topic])
        for _ in range(2):
            with pytest.raises(ottla.errors.ClientError, match=topic) as told:
                consumer.poll(PATIENCE_S)
            assert told.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(ottla.errors.ClientError) as asked:
            consumer.end_offsets([ottla.TopicPartition(topic, 0)])
        assert asked.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    deadline_s = time.monotonic() + PATIENCE_S
    values: list[bytes] = []
    while not values and time.monotonic() < deadline_s:
        # What was heard last may still be told.
        with contextlib.suppress(ottla.errors.ClientError):
            values += [record.value for record in consumer.poll(0.2)]
    assert values == [b"value"]
