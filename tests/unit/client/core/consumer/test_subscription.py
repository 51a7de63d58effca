"""What a consumer may be told to read, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.options import EARLIEST, LATEST, ConsumerSettings, Isolation
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.errors import SubscriptionStateError

PATTERN = re.compile("^a")
CHOICES: dict[str, Callable[[Subscription], None]] = {
    "topics": lambda subscription: subscription.subscribe(["a"]),
    "pattern": lambda subscription: subscription.subscribe_pattern(PATTERN),
    "partitions": lambda subscription: subscription.assign([TopicPartition("a", 0)]),
}


@pytest.mark.parametrize("first", CHOICES)
@pytest.mark.parametrize("second", CHOICES)
def test_choices_exclude_each_other_until_unsubscribed(first: str, second: str) -> None:
    subscription = Subscription()
    CHOICES[first](subscription)
    if first == second:
        CHOICES[second](subscription)
    else:
        with pytest.raises(SubscriptionStateError, match="unsubscribe"):
            CHOICES[second](subscription)
    subscription.unsubscribe()
    CHOICES[second](subscription)
    assert subscription.is_manual == (second == "partitions")
    assert subscription.uses_group == (second != "partitions")


@pytest.mark.parametrize("topics", [None, 5, "a", b"a", [""], ["a b"], [None], [b"a"], ["a", "ž"], ["."], ["a" * 250]])
def test_what_cannot_be_a_topic_is_refused(topics: Any) -> None:
    subscription = Subscription()
    subscription.subscribe(["before"])
    with pytest.raises(SubscriptionStateError):
        subscription.subscribe(topics)
    assert subscription.topics == {"before"}


def test_a_pattern_is_made_of_text() -> None:
    pattern: Any = re.compile(b"a")
    with pytest.raises(SubscriptionStateError, match="bytes"):
        Subscription().subscribe_pattern(pattern)


def test_nothing_is_chosen_at_first() -> None:
    subscription = Subscription()
    with pytest.raises(SubscriptionStateError, match="first"):
        subscription.check_made()
    for choose in CHOICES.values():
        choose(subscription)
        subscription.check_made()
        subscription.unsubscribe()


def test_a_pattern_matches_what_there_is() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(PATTERN)
    assert subscription.match([("ab", False), ("b", False), ("a_hidden", True)], exclude_internal=True)
    assert subscription.topics == {"ab"}
    assert not subscription.match([("ab", False)], exclude_internal=True)
    assert subscription.match([("ab", False), ("a_hidden", True)], exclude_internal=False)
    assert subscription.wants("a_hidden")
    subscription.unsubscribe()
    subscription.subscribe(["ab"])
    assert not subscription.match([("ab", False)], exclude_internal=True), "names are no pattern"
    assert subscription.topics == {"ab"}


def test_a_pattern_does_not_match_what_is_excluded() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(PATTERN, excluded=re.compile(r".+\.dlt"))
    existing = [(name, False) for name in ("ab", "ab.dlt", "a.dlt.dlt", "a.dlt2")]
    assert subscription.match(existing, exclude_internal=True)
    assert subscription.topics == {"ab", "a.dlt2"}
    subscription.subscribe_pattern(PATTERN)
    assert subscription.match(existing, exclude_internal=True)
    assert len(subscription.topics) == 4


@pytest.mark.parametrize("topics", ["a", ["a", ""]])
def test_names_must_be_names(topics: list[str]) -> None:
    with pytest.raises(SubscriptionStateError):
        Subscription().subscribe(topics)


def test_settings_have_their_types() -> None:
    settings = ConsumerSettings.parse(
        {"bootstrap.servers": "h:1", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    assert (settings.reset, settings.isolation) == (EARLIEST, Isolation.READ_COMMITTED)
    assert not settings.commits_automatically
    assert ConsumerSettings.parse({"bootstrap.servers": "h:1"}).reset == LATEST
    assert ConsumerSettings.parse({"bootstrap.servers": "h:1", "auto.offset.reset": "none"}).reset is None


@pytest.mark.parametrize(
    ("given", "blamed"),
    [
        ({"group.id": ""}, "group.id"),
        ({"group.instance.id": ""}, "group.instance.id"),
        ({"enable.auto.commit": True}, "enable.auto.commit"),
        ({"heartbeat.interval.ms": 45_000}, "heartbeat.interval.ms"),
        ({"group.protocol": "consumer", "session.timeout.ms": 1000}, "session.timeout.ms"),
        ({"partition.assignment.strategy": ""}, "partition.assignment.strategy"),
        ({"isolation.level": "serializable"}, "isolation.level"),
        ({"bootstrap.servers": ""}, "bootstrap.servers"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, object], blamed: str) -> None:
    with pytest.raises(InvalidConfigError) as found:
        ConsumerSettings.parse({"bootstrap.servers": "h:1", **given})
    assert found.value.key == blamed


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("topics", "pattern", "this consumer reads topics; call unsubscribe() before it is given a pattern"),
        (
            "topics",
            "partitions",
            "this consumer reads topics; call unsubscribe() before it is given partitions of its own",
        ),
        ("pattern", "topics", "this consumer reads a pattern; call unsubscribe() before it is given topics"),
        (
            "pattern",
            "partitions",
            "this consumer reads a pattern; call unsubscribe() before it is given partitions of its own",
        ),
        ("partitions", "topics", "this consumer reads partitions; call unsubscribe() before it is given topics"),
        ("partitions", "pattern", "this consumer reads partitions; call unsubscribe() before it is given a pattern"),
    ],
)
def test_who_mixes_choices_is_told_what_was_chosen_before(first: str, second: str, told: str) -> None:
    subscription = Subscription()
    CHOICES[first](subscription)
    with pytest.raises(SubscriptionStateError) as refusal:
        CHOICES[second](subscription)
    assert refusal.value.message == told


def test_the_same_pattern_again_changes_nothing_and_another_one_begins_anew() -> None:
    excluded = re.compile("ab")
    subscription = Subscription()
    assert (subscription.topics, subscription.pattern) == (frozenset(), None)
    subscription.subscribe_pattern(PATTERN, excluded)
    assert (subscription.topics, subscription.pattern) == (frozenset(), PATTERN)
    assert subscription.match([("a", False), ("ab", False)], exclude_internal=True)
    subscription.subscribe_pattern(PATTERN, excluded)
    assert subscription.topics == {"a"}
    subscription.subscribe_pattern(PATTERN)
    assert subscription.topics == frozenset()
    assert subscription.match([("a", False)], exclude_internal=True)
    subscription.subscribe_pattern(re.compile("^b"))
    assert subscription.topics == frozenset() and not subscription.wants("a")


def test_no_partitions_are_no_choice() -> None:
    subscription = Subscription()
    subscription.assign(iter([TopicPartition("a", 0)]))
    assert (subscription.is_manual, subscription.uses_group, subscription.topics) == (True, False, frozenset())
    subscription.assign([])
    assert (subscription.is_manual, subscription.uses_group) == (False, False)
    subscription.subscribe(["a"])
    assert (subscription.is_manual, subscription.uses_group) == (False, True)
    subscription.subscribe([])
    assert (subscription.is_manual, subscription.uses_group) == (False, False)
    with pytest.raises(SubscriptionStateError, match=r"call subscribe\(\) or assign\(\) first"):
        subscription.check_made()
