"""Metadata while a broker starts, and for topics that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.node import Broker
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.running_broker import RunningBroker, running_broker


@pytest.mark.parametrize("creates", [False, True])
def test_who_comes_before_the_controllers_first_word_is_answered_after_it(tmp_path: Path, creates: bool) -> None:
    topics = [MetadataRequestTopic(name="new")] if creates else []
    with running_broker(tmp_path) as running:
        answer = running.wait_for(_ask_before_the_first_word(running, MetadataRequest(topics=topics)))
    assert len(answer.brokers) == 1
    assert [topic.name for topic in answer.topics] == (["new"] if creates else [])


async def _ask_before_the_first_word(running: RunningBroker, request: MetadataRequest) -> Any:
    broker = running.broker
    brokers, broker.image.brokers = broker.image.brokers, {}
    broker.introduced.clear()
    answer = asyncio.ensure_future(running.answer(request))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not answer.done()
    broker.image.brokers = brokers
    broker.introduced.set()
    return await answer


# Topics that are missing


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def created(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names for which topics were made. Some cannot be."""
    names: list[str] = []

    async def create(broker: Broker, name: str) -> None:
        names.append(name)
        if name in CODES:
            raise KafkaError(code=CODES[name])

    monkeypatch.setattr(Broker, "create_missing_topic", create)
    return names


CODES = {
    "faster": ErrorCode.TOPIC_ALREADY_EXISTS,
    "alone": ErrorCode.INVALID_REPLICATION_FACTOR,
    "against": ErrorCode.POLICY_VIOLATION,
}


def told(broker: RunningBroker, *names: str, **fields: Any) -> list[tuple[str, int]]:
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = broker.ask(MetadataRequest(**{"topics": topics, "allow_auto_topic_creation": True, **fields}))
    return [(topic.name, topic.error_code) for topic in answer.topics]


def test_what_became_of_each_missing_topic_is_told(broker: RunningBroker, created: list[str]) -> None:
    unknown, illegal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    known = broker.new_topic()
    assert told(broker, "faster", known, "alone", "not/legal", "new", "against", "alone") == [
        ("faster", unknown),
        (known, 0),
        ("alone", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("not/legal", illegal),
        ("new", unknown),
        ("against", ErrorCode.POLICY_VIOLATION),
        ("alone", ErrorCode.INVALID_REPLICATION_FACTOR),
    ]
    assert created == ["faster", "alone", "new", "against"]


def test_nothing_is_made_where_nobody_wants_it(broker: RunningBroker, created: list[str]) -> None:
    known = broker.new_topic()
    assert told(broker, "new", allow_auto_topic_creation=False) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert told(broker, known, "not/legal") == [(known, 0), ("not/legal", ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert told(broker) == []
    assert (known, 0) in told(broker, topics=None)
    assert created == []


def test_one_request_makes_a_thousand_topics_at_most(broker: RunningBroker, created: list[str]) -> None:
    names = [f"new-{number}" for number in range(1001)]
    codes = told(broker, "not/legal", *names)
    assert created == names[:1000]
    assert len(codes) == 1002 and codes[-1] == ("new-1000", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_broker_may_make_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(broker: Broker, name: str) -> None:
        raise AssertionError(f"{name} is made")

    monkeypatch.setattr(Broker, "create_missing_topic", create)
    with running_broker(tmp_path, auto_create_topics_enable="false") as running:
        assert told(running, "new") == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
