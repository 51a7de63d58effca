"""Which partitions are meant by topics, numbers, and Kafka's patterns of both."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.cli.failures import UsageError
from ottla.cli.partition_ranges import Wanted, of_patterns, of_topics, select

LAST = 2_147_483_647
"""Of an int32."""


def meant(wanted: Wanted, topic: str = "t") -> list[int]:
    return [partition for partition in (0, 1, 2, 3, 4, LAST, LAST + 1) if wanted(topic, partition)]


@pytest.mark.parametrize(
    ("numbers", "partitions"),
    [
        ("0", [0]),
        ("2", [2]),
        (" 1 ", [1]),
        ("0-3", [0, 1, 2]),
        ("1-3", [1, 2]),
        ("-2", [0, 1]),
        ("3-", [3, 4, LAST]),
        ("0-", [0, 1, 2, 3, 4, LAST]),
        ("2-2", []),
    ],
)
def test_numbers_and_ranges(numbers: str, partitions: list[int]) -> None:
    assert meant(of_topics(None, numbers)) == meant(of_patterns(f"t:{numbers}")) == partitions


def test_several_ranges_and_none() -> None:
    assert meant(of_topics(None, "0,3-")) == [0, 3, 4, LAST]
    for everything in (of_topics(None, None), of_topics("t", ""), of_patterns("t"), of_patterns("t:"), of_patterns("")):
        assert meant(everything) == [0, 1, 2, 3, 4, LAST]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        (None, ["a", "ab", "b", "a("]),
        ("*", ["a", "ab", "b", "a("]),
        ("a", ["a"]),
        ("a.*", ["a", "ab", "a("]),
        ("a|b", ["a", "b"]),
        (r"a\(", ["a("]),
        ("x", []),
    ],
)
def test_topics_by_a_pattern(pattern: str | None, topics: list[str]) -> None:
    wanted = of_topics(pattern, "1")
    assert [topic for topic in ("a", "ab", "b", "a(") if wanted(topic, 1)] == topics
    assert not any(wanted(topic, 0) for topic in topics)


def test_a_name_that_is_no_pattern_of_itself() -> None:
    assert of_topics("a.b+", None)("a.b+", 0) and of_topics("a.b+", None)("a.bb", 0)


def test_each_pattern_has_its_own_numbers() -> None:
    wanted = of_patterns(" a:0 , b:1-3,:4,c.*")
    found = [(topic, partition) for topic in ("a", "b", "cd") for partition in range(5) if wanted(topic, partition)]
    assert found == [("a", 0), ("a", 4), ("b", 1), ("b", 2), ("b", 4), *(("cd", partition) for partition in range(5))]


@pytest.mark.parametrize("numbers", ["x", "-", " ", "1-x", "1-2-3", "--1", "1,", "1.5"])
def test_what_is_no_partition(numbers: str) -> None:
    with pytest.raises(UsageError, match=r"is no partition: write 0, 0-3 \(without 3\), -3 or 3-$"):
        of_topics(None, numbers)


@pytest.mark.parametrize("make", [lambda: of_topics("(", None), lambda: of_patterns("(:0")])
def test_what_is_no_pattern(make: object) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=r"^'\(' is not a regular expression: "):
        make()


def test_those_that_are_meant_come_in_order() -> None:
    partitions = [TopicPartition("t", 10), TopicPartition("t", 9), TopicPartition("a", 3), TopicPartition("t", 2)]
    assert select(partitions, of_topics(None, "3-")) == [
        TopicPartition("a", 3),
        TopicPartition("t", 9),
        TopicPartition("t", 10),
    ]
