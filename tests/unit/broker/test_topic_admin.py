"""Topics are made, grown and deleted by the controller, and whoever asks for it hears when they can be used."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError
from ottla.base.types import NIL_UUID, Uuid
from ottla.broker.topic_admin import TopicAdmin
from ottla.machines.cluster.topics import CreatedTopic, DeletionWanted, NewTopic, PartitionsWanted, TopicWanted
from tests.log_lines import messages_of

TOPIC_ID = Uuid(bytes(range(16)))


class Controller:
    """Broker 1. It writes down what it is asked for, and the brokers that are waited for."""

    def __init__(self, *, is_active: bool = True, answer: Any = None) -> None:
        self.is_active = is_active
        self.broker_id = 1
        self.state = SimpleNamespace(topics={}, pending_deletions=set())
        self.done: list[Any] = []
        self._answer = answer

    def require_active(self) -> None:
        if not self.is_active:
            raise KafkaError(code=ErrorCode.NOT_CONTROLLER)

    async def submit(self, event: Any) -> Any:
        self.done.append(event)
        leaders = [SimpleNamespace(leader=broker_id) for broker_id in (2, 3, 2)]
        self.state.topics["t"] = SimpleNamespace(partitions=dict(enumerate(leaders)))
        return self._answer

    async def delivered(self, brokers: set[int]) -> None:
        self.done.append(brokers)

    async def deleted(self, topic: str) -> None:
        self.done.append(topic)


class Ids:
    """Numbers that are not by chance."""

    def __init__(self) -> None:
        self._drawn = 0

    def uuid(self) -> Uuid:
        return TOPIC_ID

    def below(self, end: int) -> int:
        assert end == 2**31
        self._drawn += 1
        return 10 + self._drawn


def admin(controller: Controller) -> TopicAdmin:
    def validate(configs: Any) -> None:
        if "bad" in configs:
            raise InvalidConfigError("bad", "that is bad")

    async def elsewhere(new: NewTopic) -> None:
        controller.done.append(("elsewhere", new.name))

    return TopicAdmin(
        controller,  # type: ignore[arg-type]
        validate_configs=validate,
        ids=Ids(),  # type: ignore[arg-type]
        ask_controller=elsewhere,
    )


def new(**configs: str) -> NewTopic:
    return NewTopic("t", 3, 2, configs={name.replace("_", "."): value for name, value in configs.items()})


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_can_be_used_when_its_leaders_have_heard_of_it(
    caplog: pytest.LogCaptureFixture, validate_only: bool
) -> None:
    created = CreatedTopic(TOPIC_ID, 3, 2)
    controller = Controller(answer=created)
    with caplog.at_level("INFO"):
        outcome = asyncio.run(
            admin(controller).create(new(segment_ms="7", cleanup_policy="compact"), validate_only=validate_only)
        )
    assert outcome is created
    wanted = new(segment_ms="7", cleanup_policy="compact")
    if validate_only:
        assert controller.done == [TopicWanted(wanted, NIL_UUID, 11, 12, True)]
        assert messages_of(caplog, "ottla.broker.topic_admin") == []
    else:
        assert controller.done == [TopicWanted(wanted, TOPIC_ID, 11, 12), {1, 2, 3}]
        assert messages_of(caplog, "ottla.broker.topic_admin") == [
            "topic t was created: 3 partitions, replication factor 2, cleanup.policy=compact, segment.ms=7"
        ]


@pytest.mark.parametrize(
    ("configs", "name", "warnings"),
    [
        ({"min_insync_replicas": "2"}, "t", []),
        (
            {"min_insync_replicas": "3"},
            "t",
            ["topic t has min.insync.replicas=3, but only 2 replicas: acks=all waits for that many"],
        ),
        (
            {"message_downconversion_enable": "false"},
            "t",
            ["topic t has settings without effect in this version: message.downconversion.enable ("],
        ),
        ({"message_downconversion_enable": "false"}, "__consumer_offsets", []),
    ],
)
def test_what_may_surprise_is_said(
    caplog: pytest.LogCaptureFixture, configs: dict[str, str], name: str, warnings: list[str]
) -> None:
    wanted = new(**configs)
    wanted.name = name
    asyncio.run(admin(Controller(answer=CreatedTopic(TOPIC_ID, 3, 2))).create(wanted))
    said = messages_of(caplog, "ottla.broker.topic_admin")
    assert [line[: len(start)] for line, start in zip(said, warnings, strict=True)] == warnings


def test_what_cannot_be_made_is_not_asked_for() -> None:
    controller = Controller()
    with pytest.raises(InvalidConfigError, match="that is bad"):
        asyncio.run(admin(controller).create(new(bad="1")))
    controller.state.topics["t"] = None
    with pytest.raises(KafkaError, match="already exists"):
        asyncio.run(admin(controller).create(new()))
    inactive = Controller(is_active=False)
    with pytest.raises(KafkaError) as refused:
        asyncio.run(admin(inactive).create(new()))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert controller.done == inactive.done == []


def test_a_topic_that_a_broker_needs_is_made_by_whoever_is_the_controller() -> None:
    here, there = Controller(answer=CreatedTopic(TOPIC_ID, 3, 2)), Controller(is_active=False)
    for controller in (here, there):
        asyncio.run(admin(controller).create_here_or_there(new()))
    assert [type(each).__name__ for each in here.done] == ["TopicWanted", "set"]
    assert there.done == [("elsewhere", "t")]


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_grows(caplog: pytest.LogCaptureFixture, validate_only: bool) -> None:
    controller = Controller(answer=3)
    with caplog.at_level("INFO"):
        asyncio.run(admin(controller).add_partitions("t", 5, [[1], [2]], validate_only=validate_only))
    wanted = PartitionsWanted("t", 5, [[1], [2]], validate_only)
    assert controller.done == ([wanted] if validate_only else [wanted, {1, 2, 3}])
    said = [] if validate_only else ["topic t grew from 3 to 5 partitions"]
    assert messages_of(caplog, "ottla.broker.topic_admin") == said


@pytest.mark.parametrize("all_alive", [True, False])
def test_a_topic_is_gone_when_its_deletion_returns_unless_a_broker_is_away(all_alive: bool) -> None:
    controller = Controller(answer=all_alive)
    asyncio.run(admin(controller).delete("t"))
    assert controller.done == [DeletionWanted("t"), *["t"] * all_alive]


def test_who_hears_of_a_topic_that_is_gone_again() -> None:
    controller = Controller(answer=3)
    controller.state = SimpleNamespace(topics={})
    asked = admin(controller)
    asyncio.run(asked._until_usable("t"))
    assert controller.done == [{1}]
