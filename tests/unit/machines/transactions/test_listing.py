"""What DescribeTransactions and ListTransactions show."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.transactions.listing import ListedTransactions
from tests.unit.machines.transactions.driver import OFFSETS, P0, P2, START_MS, TIMEOUT_MS, Coordinator


@pytest.fixture
def c() -> Coordinator:
    c = Coordinator()
    c.init("idle")
    c.begin(P2, P0, TopicPartition("a", 4), OFFSETS, name="open")
    c.pass_time(100)
    ending = c.begin(P0, name="ending")
    c.end(ending, commit=True, name="ending")
    return c


def names(listed: ListedTransactions) -> list[str]:
    return [transaction.transactional_id for transaction in listed.transactions]


def test_a_description_has_everything(c: Coordinator) -> None:
    shown = c.shard.describe("open")
    assert (shown.error_code, shown.transaction_state) == (ErrorCode.NONE, "Ongoing")
    assert (shown.producer_id, shown.producer_epoch) == (1002, 0)
    assert (shown.transaction_timeout_ms, shown.transaction_start_time_ms) == (TIMEOUT_MS, START_MS)
    topics = [(topic.topic, topic.partitions) for topic in shown.topics]
    assert topics == [("__consumer_offsets", [12]), ("a", [4]), ("orders", [0, 2])]


def test_an_idle_id_is_described_without_a_start(c: Coordinator) -> None:
    shown = c.shard.describe("idle")
    assert (shown.transaction_state, shown.transaction_start_time_ms, shown.topics) == ("Empty", -1, [])


def test_unknown_and_empty_ids_are_errors(c: Coordinator) -> None:
    assert c.shard.describe("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert c.shard.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_without_filters_all_are_listed_in_order(c: Coordinator) -> None:
    listed = c.shard.list([], [], -1, c.now_ms)
    assert [(t.transactional_id, t.producer_id, t.transaction_state) for t in listed.transactions] == [
        ("ending", 1003, "PrepareCommit"),
        ("idle", 1001, "Empty"),
        ("open", 1002, "Ongoing"),
    ]
    assert listed.unknown_states == []


def test_filters_narrow_the_list(c: Coordinator) -> None:
    assert names(c.shard.list(["Ongoing", "Empty"], [], -1, c.now_ms)) == ["idle", "open"]
    assert names(c.shard.list([], [1003, 5], -1, c.now_ms)) == ["ending"]
    assert names(c.shard.list(["Ongoing"], [1003], -1, c.now_ms)) == []


def test_unknown_states_are_named_and_match_nothing(c: Coordinator) -> None:
    listed = c.shard.list(["Sleeping"], [], -1, c.now_ms)
    assert (listed.transactions, listed.unknown_states) == ([], ["Sleeping"])
    listed = c.shard.list(["Sleeping", "Empty"], [], -1, c.now_ms)
    assert (names(listed), listed.unknown_states) == (["idle"], ["Sleeping"])


def test_a_duration_leaves_transactions_that_have_been_open_for_longer(c: Coordinator) -> None:
    c.pass_time(50)
    assert names(c.shard.list([], [], 0, c.now_ms)) == ["ending", "open"]
    assert names(c.shard.list([], [], 50, c.now_ms)) == ["open"]
    assert names(c.shard.list([], [], 150, c.now_ms)) == []
