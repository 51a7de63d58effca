"""What a KIP-848 group reads and who assigns it, from what its members say and the topics there are."""

from __future__ import annotations

from typing import ClassVar

import pytest

from ottla.base.types import Uuid
from ottla.machines.groups.consumer.member import ConsumerMember, Subscription
from ottla.machines.groups.consumer.records import SubscribedTopic
from ottla.machines.groups.consumer.state import ConsumerGroupState
from ottla.machines.groups.consumer.target import chosen_assignor, is_subscribed, subscribed_topics

IDS = {name: Uuid(bytes(15) + bytes([number])) for number, name in enumerate(("orders", "clicks", "half"), 1)}


class View:
    """Of one topic only the id is known, of another only the number of partitions."""

    ids: ClassVar[dict[str, Uuid]] = {**IDS, "__consumer_offsets": Uuid(bytes(15) + b"\x09")}
    counts: ClassVar[dict[str, int]] = {"orders": 4, "clicks": 0, "old": 3, "__consumer_offsets": 50}

    def names(self) -> list[str]:
        return ["orders", "clicks", "half", "old", "__consumer_offsets"]

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        return self.ids.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        raise AssertionError("names are not asked for")


def group(*subscriptions: Subscription) -> ConsumerGroupState:
    state = ConsumerGroupState()
    for number, subscription in enumerate(subscriptions):
        state.members[str(number)] = ConsumerMember(str(number), subscription)
    return state


@pytest.mark.parametrize(
    ("names", "regexes", "expected"),
    [
        (["orders"], [], ["orders"]),
        (["orders", "clicks", "none"], [], ["clicks", "orders"]),
        (["half", "old"], [], []),
        (["__consumer_offsets"], [], ["__consumer_offsets"]),
        ([], [".*"], ["clicks", "orders"]),
        (["__consumer_offsets"], ["cl.*", "or.*"], ["__consumer_offsets", "clicks", "orders"]),
        ([], ["order"], []),
        ([], ["(("], []),
        ([], ["((", "orders"], ["orders"]),
        ([], [], []),
    ],
)
def test_a_group_reads_what_its_members_name_and_what_is_there(
    names: list[str], regexes: list[str], expected: list[str]
) -> None:
    members = [Subscription(topic_names=frozenset(names)), *(Subscription(topic_regex=regex) for regex in regexes)]
    found = subscribed_topics(group(*members), View())
    assert found == {name: SubscribedTopic(View.ids[name], View.counts[name]) for name in expected}
    assert list(found) == expected, "in order, whoever computes it"


@pytest.mark.parametrize(
    ("names", "regex", "topic", "expected"),
    [
        ([], None, "t", False),
        (["t"], None, "t", True),
        (["u"], "t+", "tt", True),
        (["u"], "t+", "tu", False),
        ([], ".*", "__transaction_state", False),
        (["__transaction_state"], ".*", "__transaction_state", True),
        ([], "((", "t", False),
    ],
)
def test_a_member_is_subscribed_by_name_or_by_pattern(
    names: list[str], regex: str | None, topic: str, expected: bool
) -> None:
    assert is_subscribed(Subscription(topic_names=frozenset(names), topic_regex=regex), topic) is expected


@pytest.mark.parametrize(
    ("votes", "chosen"),
    [
        ([], "uniform"),
        ([None, None], "uniform"),
        ([None, None, "range"], "range"),
        (["range", "uniform"], "uniform"),
        (["range", "range", "uniform"], "range"),
        (["gone", "gone", "range"], "range"),
    ],
)
def test_most_members_choose_the_assignor(votes: list[str | None], chosen: str) -> None:
    assert (
        chosen_assignor(group(*(Subscription(server_assignor=vote) for vote in votes)), ("uniform", "range")) == chosen
    )
