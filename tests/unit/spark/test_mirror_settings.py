"""Which topics and groups a mirror takes, and what copies are called."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.spark.mirror.settings import GroupChoice, Mirror, TopicNames
from ottla.spark.mirror.target_topics import partition_counts


def names(topics: tuple[str, ...] = (), pattern: str | None = None, *exclude: str, prefix: str = "") -> TopicNames:
    return TopicNames.of(topics, pattern, exclude, prefix=prefix, target_prefix="east.")


@pytest.mark.parametrize(
    ("chosen", "topic", "is_copied"),
    [
        (names(("a.b",)), "a.b", True),
        (names(("a.b",)), "axb", False),
        (names((), "shop-.*|orders"), "shop-1", True),
        (names((), "shop-.*|orders"), "orders", True),
        (names((), "shop-.*|orders"), "orders-2", False),
        (names((), ".*", "a.*", "b"), "abc", False),
        (names((), ".*", "a.*", "b"), "b", False),
        (names((), ".*", "a.*", "b"), "bc", True),
        (names((), ".*"), "__consumer_offsets", False),
        (names((), ".*"), "ottla.mirror.x.offsets", False),
        (names((), ".*"), "ottla.redriven.orders.bad", False),
        (names((), ".*"), "east.orders", True),
        (names((), ".*", prefix="west."), "east.orders", False),
        (names((), ".*", prefix="west."), "eastern", True),
    ],
)
def test_topics(chosen: TopicNames, topic: str, is_copied: bool) -> None:
    assert chosen.are_copied(topic) is is_copied


def test_copies_with_a_prefix_never_travel_back() -> None:
    """Both ways, every topic: what one mirror makes the other leaves alone."""
    to_east = TopicNames.of((), ".*", (), prefix="west.", target_prefix="east.")
    to_west = TopicNames.of((), ".*", (), prefix="east.", target_prefix="west.")
    assert to_east.are_copied("orders") and to_west.are_copied("orders")
    assert not to_west.are_copied(to_east.on_target("orders"))
    assert not to_east.are_copied(to_west.on_target("orders"))
    assert to_east.on_source(to_east.on_target("west.orders")) == "west.orders"


def test_groups_of_queries_and_sinks_are_no_readers() -> None:
    groups = GroupChoice.of((), ".*", ["private"], 1000)
    query = "0b9a7c1e-3c1d-4a55-9d0e-5a2f8e1c7b66"
    assert groups.are_translated("billing") and not groups.are_translated("private")
    for helper in (
        "ottla-pipeline-dr-west",
        "ottla-spark-counts",
        f"shop-totals-{query}",
        f"shop-totals-{query}-3",
        f"shop-totals-{query}-end",
    ):
        assert not groups.are_translated(helper)
    assert groups.are_translated(f"{query}-reader")


def test_passwords_do_not_show() -> None:
    settings = {"bootstrap.servers": "h:1", "sasl.password": "secret"}
    assert "secret" not in repr(Mirror("m", settings, settings, names(("a",)), True))


def test_a_topic_has_as_many_partitions_as_its_last_one_says() -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("b", 4), TopicPartition("b", 1)]
    assert partition_counts(partitions) == {"a": 1, "b": 5}
    assert partition_counts([]) == {}
