"""Logs that change under a reader: leaders that come and go, topics that are made anew, errors that pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.base.errors import ErrorCode
from ottla.testing import EmbeddedBroker
from ottla.wire.api_keys import ApiKey
from tests.client.consumer_shells import Shell, open_shell, read


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
        while not asked.hits:
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
