"""Dead letters as they are read back and chosen, and the topics they are sent to."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.admin.types import NewTopic
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.client.sync import Admin
from ottla.spark.pipeline.redrive.letters import Letter, LetterFilter, LetterGroup, LetterSummary, parse_letter
from ottla.spark.pipeline.redrive.targets import RedriveError, Targets, groups_at
from tests.broker_process import BrokerProcess

FACTS = {
    "topic": b"t",
    "partition": b"3",
    "offset": b"100",
    "timestamp": b"5000",
    "source": b"s",
    "error": b"bad value",
}
LETTER = Letter(b"k", b"value", (("h", b"1"),), (), TopicPartition("t", 3), 100, 5000, "s", "bad value")


def record(facts: dict[str, bytes | None]) -> ConsumerRecord[Any, Any]:
    headers = [("h", b"1"), *((f"ottla.dead-letter.{name}", value) for name, value in facts.items())]
    return ConsumerRecord(7, 0, b"k", b"value", tuple(headers))


def test_a_letter_is_read_back() -> None:
    letter = parse_letter(record({**FACTS}))
    assert letter is not None
    assert letter._replace(facts=()) == LETTER
    assert dict(letter.facts) == {f"ottla.dead-letter.{name}": value for name, value in FACTS.items()}
    names = sum(len(f"ottla.dead-letter.{name}") for name in FACTS) + len("h")
    assert letter.size == names + len(b"kvalue1") + sum(map(len, FACTS.values()))
    assert LETTER._replace(key=None, value=None, headers=(("h", None),)).size == 1


@pytest.mark.parametrize("name", list(FACTS))
def test_one_without_a_fact_is_none(name: str) -> None:
    assert parse_letter(record({other: value for other, value in FACTS.items() if other != name})) is None


@pytest.mark.parametrize("name", ["partition", "offset", "timestamp"])
def test_nor_is_one_with_a_number_that_is_none(name: str) -> None:
    assert parse_letter(record({**FACTS, name: b"x"})) is None
    assert parse_letter(record({**FACTS, name: None})) is None


@pytest.mark.parametrize(
    ("chosen", "takes"),
    [
        ({}, True),
        ({"error": "value"}, True),
        ({"error": "other"}, False),
        ({"topic": "t"}, True),
        ({"topic": "tt"}, False),
        ({"partitions": (1, 3)}, True),
        ({"partitions": (1, 2)}, False),
        ({"first_offset": 100}, True),
        ({"first_offset": 101}, False),
        ({"last_offset": 100}, True),
        ({"last_offset": 99}, False),
        ({"since_ms": 5000}, True),
        ({"since_ms": 5001}, False),
        ({"until_ms": 5001}, True),
        ({"until_ms": 5000}, False),
        ({"error": "value", "topic": "t", "first_offset": 1, "last_offset": 99}, False),
    ],
)
def test_which_letters_are_meant(chosen: dict[str, Any], takes: bool) -> None:
    assert LetterFilter(**chosen).takes(LETTER) == takes


def test_the_largest_groups_come_first() -> None:
    summary = LetterSummary()
    for partition, offset, error in ((1, 5, "b"), (0, 9, "b"), (0, 7, "a"), (1, 3, "b"), (1, 4, "b")):
        summary.add(LETTER._replace(origin=TopicPartition("t", partition), offset=offset, error=error))
    assert summary.letters == 5
    assert summary.groups == [
        LetterGroup(TopicPartition("t", 1), "b", 3, 3, 5),
        LetterGroup(TopicPartition("t", 0), "a", 1, 7, 7),
        LetterGroup(TopicPartition("t", 0), "b", 1, 9, 9),
    ]


# Where they go

NOW_MS = 1_000_000


def test_what_a_topic_takes(broker: BrokerProcess, new_topic: str) -> None:
    compacted, both, endless = (f"{new_topic}-{name}" for name in ("compacted", "both", "endless"))
    short = {"retention.ms": "1000"}
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics(
            [
                NewTopic(new_topic, 2, configs=short),
                NewTopic(compacted, 1, configs={**short, "cleanup.policy": "compact"}),
                NewTopic(both, 1, configs={**short, "cleanup.policy": "compact,delete"}),
                NewTopic(endless, 1, configs={"retention.ms": "-1"}),
            ]
        ).check()
        targets = Targets(admin, NOW_MS, NewTopic("to-be-made", 3))
        for topic, partition in ((new_topic, 1), (compacted, 0), (both, 0), (endless, None), ("to-be-made", 2)):
            targets.check(topic, partition)
        for topic, partition in ((new_topic, 2), ("to-be-made", 3)):
            with pytest.raises(RedriveError, match=f"has no partition {partition}"):
                targets.check(topic, partition)
        with pytest.raises(RedriveError, match="there is no topic"):
            targets.check(f"{new_topic}-none", 0)

        def time_of(topic: str, timestamp_ms: int) -> int | None:
            return targets.timestamp_of(LETTER._replace(timestamp_ms=timestamp_ms), topic)

        half = NOW_MS - 500
        for topic in (new_topic, both):
            assert [time_of(topic, time_ms) for time_ms in (half, half - 1, -1)] == [half, None, None]
        for topic in (compacted, endless, "to-be-made"):
            assert [time_of(topic, time_ms) for time_ms in (0, -1)] == [0, None]
        assert targets.topics == sorted([new_topic, compacted, both, endless, "to-be-made"])
        assert targets.compacted == [both, compacted]
        for group, topic in (("reader", new_topic), ("own", new_topic), ("elsewhere", both)):
            admin.alter_group_offsets(f"{new_topic}-{group}", {TopicPartition(topic, 0): 0}).check()
        assert groups_at(admin, [new_topic, compacted], except_for=[f"{new_topic}-own"]) == [f"{new_topic}-reader"]
