"""What `ottla transactions` needs to be told, and what it makes of the answers. What brokers know is scripted."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.cli import transactions
from ottla.cli.transactions import _abort, _describe, _describe_producers, _find_hanging, _list, main
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    HangingTransaction,
    ProducerDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.core.topic_info import PartitionInfo
from tests.unit.cli.scripted import Answering
from tests.waiting import run_async

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MINUTE_MS = 60_000
OPEN = ProducerDescription(7, 3, 12, 1000, 4, 40)
IDLE = ProducerDescription(8, 0, -1, 2000, None, None)


class Cluster:
    """Brokers 1 and 2: t-0 is led by 1, t-1 and u-0 by 2."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.producers = [OPEN, IDLE]
        self.hanging: list[HangingTransaction] = []
        self.started_ms: int | None = None

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers={1: "", 2: ""})

    async def describe_topics(self) -> Any:
        led = [PartitionInfo(index, leader, 0, (leader,), (leader,), ()) for index, leader in ((0, 1), (1, 2))]
        found = {"t": TopicDescription("t", Uuid(bytes(16)), False, tuple(led))}
        found["u"] = TopicDescription("u", Uuid(bytes(16)), False, (led[1]._replace(partition=0),))
        return Outcomes(found, what="topics")

    async def list_transactions(self, *, min_duration_ms: int | None) -> Any:
        self.asked.append(min_duration_ms)
        return [TransactionListing("a", 7, "Ongoing"), TransactionListing("b", 8, "Empty")]

    async def find_transaction_coordinators(self, names: list[str]) -> Any:
        return Outcomes({name: SimpleNamespace(node_id=len(name)) for name in names}, what="coordinators")

    async def describe_transactions(self, names: list[str]) -> Any:
        partitions = frozenset([T1, T0])
        found = TransactionDescription(names[0], "Ongoing", 7, 3, 60_000, self.started_ms, partitions)
        return Outcomes({names[0]: found}, what="transactions")

    async def describe_producers(self, partitions: list[TopicPartition]) -> Any:
        return Outcomes(dict.fromkeys(partitions, self.producers), what="producers")

    async def find_hanging_transactions(self, partitions: list[TopicPartition], *, min_age_ms: int) -> Any:
        self.asked.append((partitions, min_age_ms))
        return self.hanging

    async def abort_transaction(self, transaction: HangingTransaction) -> None:
        self.asked.append(transaction)


@pytest.fixture
def cluster() -> Any:
    return Cluster()


def options(**given: Any) -> Namespace:
    names = ("topic", "partition", "broker_id", "start_offset", "producer_id", "producer_epoch", "coordinator_epoch")
    own = {**dict.fromkeys(names), "kafka": False, "output": "json", "max_transaction_timeout": 15}
    return Namespace(**{**own, **given})


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[Any]]:
    return [list(row.values()) for row in json.loads(capsys.readouterr().out)]


def test_transactions_are_listed_with_their_coordinators(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(_list(cluster, options(duration_filter=5)))
    assert cluster.asked == [5]
    assert rows(capsys) == [["a", 1, 7, "Ongoing"], ["b", 1, 8, "Empty"]]
    run_async(_list(cluster, options(duration_filter=None, kafka=True)))
    assert capsys.readouterr().out.splitlines() == [
        "TransactionalId\tCoordinator\tProducerId\tTransactionState\t",
        "a              \t1          \t7         \tOngoing         \t",
        "b              \t1          \t8         \tEmpty           \t",
    ]


def test_a_transaction_is_described(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(_describe(cluster, options(transactional_id="abc")))
    assert rows(capsys) == [[3, "abc", 7, 3, "Ongoing", 60_000, None, None, "t-0,t-1"]]
    cluster.started_ms = int(time.time() * 1000) - 5000
    run_async(_describe(cluster, options(transactional_id="abc")))
    ((*_, started_ms, open_ms, _),) = rows(capsys)
    assert started_ms == cluster.started_ms and 5000 <= open_ms <= int(time.time() * 1000) - started_ms


def test_producers_of_a_partition(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(_describe_producers(cluster, options(topic="t", partition=1, broker_id=2)))
    assert rows(capsys) == [[7, 3, 4, 12, 1000, 40], [8, 0, -1, -1, 2000, None]]


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' has no partition 2; it has 2"),
        ({"topic": "x", "partition": 0}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"),
        ({"partition": 1, "broker_id": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-1 is on brokers 2, not on broker 1"),
        (
            {"partition": 1, "broker_id": 3},
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "broker 3 does not exist; there are 1, 2",
        ),
    ],
)
def test_places_that_are_not_there(cluster: Any, given: dict[str, Any], code: ErrorCode, told: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        run_async(_describe_producers(cluster, options(**{"topic": "t", **given})))
    assert refusal.value.code is code and told in refusal.value.message


@pytest.mark.parametrize(
    ("given", "partitions"),
    [
        ({"topic": "t"}, [T0, T1]),
        ({"topic": "t", "partition": 1}, [T1]),
        ({"broker_id": 2}, [T1, U0]),
        ({"topic": "t", "broker_id": 1}, [T0]),
        ({"broker_id": 2, "partition": 0}, [U0]),
    ],
)
def test_where_hanging_transactions_are_looked_for(
    cluster: Any, given: dict[str, Any], partitions: list[TopicPartition]
) -> None:
    run_async(_find_hanging(cluster, options(**given, max_transaction_timeout=2)))
    assert cluster.asked == [(partitions, 2 * MINUTE_MS)]


def test_hanging_transactions_are_shown_with_their_age(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    last_ms = int(time.time() * 1000) - 3 * MINUTE_MS - 30_000
    cluster.hanging = [HangingTransaction(T1, one._replace(last_timestamp_ms=last_ms)) for one in (OPEN, IDLE)]
    run_async(_find_hanging(cluster, options(topic="t")))
    assert rows(capsys) == [["t", 1, 7, 3, 4, 40, last_ms, 3], ["t", 1, 8, 0, -1, -1, last_ms, 3]]


def test_places_that_are_not_there_hold_nothing_that_hangs(cluster: Any) -> None:
    for given, kafka, told in (
        ({"topic": "t", "partition": 5}, False, "has no partition 5"),
        ({"broker_id": 9}, False, "broker 9 does not exist"),
        ({"broker_id": 9}, True, "broker 9 does not exist"),
    ):
        with pytest.raises(KafkaError, match=told):
            run_async(_find_hanging(cluster, options(**given, kafka=kafka)))
    run_async(_find_hanging(cluster, options(topic="t", partition=5, kafka=True)))
    assert cluster.asked == [([], 15 * MINUTE_MS)]


def test_the_transaction_to_abort_goes_by_where_it_begins(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(_abort(cluster, options(topic="t", partition=1, start_offset=40, output="table")))
    assert cluster.asked == [HangingTransaction(T1, OPEN)]
    assert capsys.readouterr().out == "Aborted the transaction of producer 7 on t-1.\n"
    with pytest.raises(KafkaError, match="any open transactions starting at offset 41 on partition t-1"):
        run_async(_abort(cluster, options(topic="t", partition=1, start_offset=41)))
    with pytest.raises(KafkaError, match="has no partition 7"):
        run_async(_abort(cluster, options(topic="t", partition=7, start_offset=40)))
    assert len(cluster.asked) == 1


def test_or_by_its_producer(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    named = {"producer_id": 5, "producer_epoch": 6, "coordinator_epoch": 7}
    run_async(_abort(cluster, options(topic="none", partition=1, kafka=True, **named)))
    (asked,) = cluster.asked
    assert asked == HangingTransaction(TopicPartition("none", 1), ProducerDescription(5, 6, -1, -1, 7, None))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["describe"], "argument --transactional-id is required"),
        (["describe-producers", "--topic", "t"], "describe-producers needs --topic and --partition"),
        (["describe-producers", "--partition", "0"], "describe-producers needs --topic and --partition"),
        (["abort", "--topic", "t", "--start-offset", "0"], "abort needs --topic and --partition"),
        (["find-hanging"], "requires either --topic or --broker-id"),
        (["abort", "--topic", "t", "--partition", "0"], "must be identified either with --start-offset"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1", "--producer-epoch", "0"],
            "must be identified either with --start-offset",
        ),
    ],
)
def test_what_is_missing_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--bootstrap-server", "h:1"])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["describe", "x"],
        ["describe", "--transactional-id", "x"],
        ["describe-producers", "--topic", "t", "--partition", "0"],
        ["find-hanging", "--topic", "t"],
        ["find-hanging", "--broker-id", "0"],
        ["abort", "--topic", "t", "--partition", "0", "--start-offset", "0"],
        [
            *("abort", "--topic", "t", "--partition", "0", "--producer-id", "0", "--producer-epoch", "0"),
            *("--coordinator-epoch", "0"),
        ],
    ],
)
def test_what_is_enough(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Namespace] = []

    async def run(options: Namespace) -> None:
        asked.append(options)

    monkeypatch.setattr(transactions, "_run", run)
    assert main([*arguments, "--bootstrap-server", "h:1"]) == 0
    assert (asked[0].verb, asked[0].max_transaction_timeout) == (arguments[0], 15)
    assert asked[0].transactional_id == ("x" if arguments[0] == "describe" else None)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["list"], "transactional_id\tcoordinator\tproducer_id\tstate\na\t1\t7\tOngoing\nb\t1\t8\tEmpty\n"),
        (
            ["describe", "abc"],
            "coordinator\ttransactional_id\tproducer_id\tproducer_epoch\tstate\ttimeout_ms\tstarted_ms\topen_ms\t"
            "partitions\n3\tabc\t7\t3\tOngoing\t60000\t-\t-\tt-0,t-1\n",
        ),
        (
            ["describe-producers", "--topic", "t", "--partition", "1"],
            "producer_id\tproducer_epoch\tcoordinator_epoch\tlast_sequence\tlast_timestamp_ms\ttransaction_start\n"
            "7\t3\t4\t12\t1000\t40\n8\t0\t-1\t-1\t2000\t-\n",
        ),
        (
            ["find-hanging", "--topic", "t"],
            "topic\tpartition\tproducer_id\tproducer_epoch\tcoordinator_epoch\tstart_offset\tlast_timestamp_ms\t"
            "minutes\n",
        ),
        (["abort", "--topic", "t", "--partition", "1", "--start-offset", "40"], ""),
    ],
)
def test_each_verb_has_its_rows(
    cluster: Any, answering: Answering, arguments: list[str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = answering(cluster)
    assert run("transactions", *arguments, "-o", "tsv") == (0, shown, "")
    assert run.configs[0]["client.id"] == "ottla-transactions"


KAFKAS_COLUMNS = {
    "describe": (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    ),
    "describe-producers": (
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp CurrentTransactionStartOffset"
    ),
    "find-hanging": (
        "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)"
    ),
}


@pytest.mark.parametrize("verb", KAFKAS_COLUMNS)
def test_columns_have_kafkas_names_under_kafkas_name(cluster: Any, answering: Answering, verb: str) -> None:
    place = {"describe": ["--transactional-id", "x"], "describe-producers": ["--topic", "t", "--partition", "0"]}
    given = place.get(verb, ["--topic", "t"])
    code, shown, error = answering(cluster)("kafka-transactions.sh", verb, *given)
    assert (code, error) == (0, "")
    assert shown.splitlines()[0].split() == KAFKAS_COLUMNS[verb].split()
