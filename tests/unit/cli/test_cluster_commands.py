"""Commands that look after a cluster, on a broker: settings, offsets, log directories, transactions, access."""

from __future__ import annotations

import json
import time
from array import array
from pathlib import Path

import pytest

import ottla as client
from ottla.cli.configs import parse_settings
from ottla.cli.delete_records import read_offsets
from ottla.cli.failures import UsageError
from ottla.cli.partition_ranges import of_patterns, of_topics
from ottla.cli.perf.measuring import percentile
from tests.unit.cli.commands import Commands


def test_settings_of_a_topic(ottla: Commands, filled: str) -> None:
    assert ottla("configs", "describe", "topics", filled) == (0, f"Dynamic configs for topic {filled} are:\n", "")
    done = f"Completed updating config for topic {filled}.\n"
    change = ("--add-config", "retention.ms=86400000,cleanup.policy=[compact,delete]")
    assert ottla("configs", "--alter", "--entity-type", "topics", "--entity-name", filled, *change) == (0, done, "")
    shown = ottla.shown("configs", "--describe", "--topic", filled).splitlines()
    assert shown[0] == f"Dynamic configs for topic {filled} are:"
    assert shown[1].startswith("  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    assert len(ottla.json("configs", "describe", "topics", filled, "--all")) > 20
    assert ottla("configs", "delete", "topics", filled, "retention.ms") == (0, done, "")
    assert ottla("configs", "delete", "topics", filled, "retention.ms")[0] == 1
    assert [row["setting"] for row in ottla.json("configs", "describe", "topics", filled)] == ["cleanup.policy"]


def test_settings_of_brokers(ottla: Commands) -> None:
    broker = ottla.json("log-dirs")[0]["broker"] if ottla.json("log-dirs") else 1
    assert "broker.id" in {row["setting"] for row in ottla.json("configs", "describe", "broker", str(broker), "--all")}
    shown = ottla.shown("configs", "describe", "--broker-defaults")
    assert shown == "Default configs for brokers in the cluster are:\n"
    code, _, error = ottla("configs", "describe", "brokers", "99")
    assert code == 1 and error.startswith("broker 99 does not exist; there are ")


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["describe"], 2),
        (["alter", "topics", "x"], 2),
        (["alter", "topics", "--add-config", "a=1"], 2),
        (["describe", "bogus", "x"], 2),
        (["describe", "topics", "no-such-topic"], 1),
        (["describe", "topics", "x", "--zookeeper", "localhost"], 2),
    ],
)
def test_configs_that_make_no_sense(ottla: Commands, arguments: list[str], exit_code: int) -> None:
    code, shown, error = ottla("configs", *arguments)
    assert (code, shown) == (exit_code, "")
    assert error and "Traceback" not in error


def test_lists_in_brackets_are_one_value() -> None:
    assert parse_settings(["a=1,b=[x,y]", "c="]) == {"a": "1", "b": "x,y", "c": ""}
    assert parse_settings(["a=[x,y],b=[z],c=1"]) == {"a": "x,y", "b": "z", "c": "1"}
    with pytest.raises(UsageError, match="key=val"):
        parse_settings(["retention.ms"])


def test_offsets_of_places_and_times(ottla: Commands, filled: str) -> None:
    assert ottla.shown("offsets", filled) == f"{filled}:0:5\n{filled}:1:5\n"
    assert ottla.shown("offsets", "--topic", filled, "--time", "-2", "--partitions", "1") == f"{filled}:1:0\n"
    assert ottla.shown("offsets", "--topic-partitions", f"{filled}:0-1", "--time", "2022-01-01") == f"{filled}:0:2\n"
    assert ottla.json("offsets", filled, "--time", "earliest")[0] == {"topic": filled, "partition": 0, "offset": 0}
    code, _, error = ottla("offsets", f"{filled}x")
    assert code == 1 and error.startswith(f"topic '{filled}x' does not exist; did you mean '")


def test_which_partitions_are_meant() -> None:
    meant = of_patterns("a:0,b:1-3,c.*")
    assert [meant("a", 0), meant("a", 1), meant("b", 2), meant("b", 3), meant("cd", 9)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert of_topics("a|b", "2-")("b", 7) and not of_topics("a|b", "2-")("b", 1)
    for wrong in ("x", "-", "1-x"):
        with pytest.raises(UsageError, match="no partition"):
            of_topics(None, wrong)


def test_log_directories(ottla: Commands, filled: str) -> None:
    rows = ottla.json("log-dirs", filled)
    assert [(row["topic"], row["partition"], row["offset_lag"]) for row in rows] == [(filled, 0, 0), (filled, 1, 0)]
    assert all(row["size"] > 0 for row in rows)
    assert ottla("log-dirs", "--broker-list", "99")[0] == 1


def test_records_are_deleted_from_the_beginning(ottla: Commands, filled: str, tmp_path: Path) -> None:
    rows = ottla.json("delete-records", filled, "--partition", "0", "--before", "3")
    assert rows == [{"topic": filled, "partition": 0, "first_offset": 3}]
    code, _, error = ottla("delete-records", filled, "--before", "latest")
    assert code == 2 and "--yes" in error
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 1, "offset": -1}], "version": 1}))
    ottla.shown("delete-records", "--offset-json-file", str(plan))
    assert ottla.shown("offsets", filled, "--time", "earliest") == f"{filled}:0:3\n{filled}:1:5\n"
    code, _, error = ottla("delete-records", filled, "--partition", "0", "--before", "99")
    assert code == 1 and error.count("\n") == 1


def test_files_of_offsets_that_cannot_be_understood() -> None:
    for text, words in (
        ("", "not a valid JSON"),
        ("{}", "Missing partitions field"),
        ("[]", "Missing partitions field"),
        ('{"partitions": 1}', "Missing partitions field"),
        ('{"partitions": [{"topic": "t"}]}', "not of the form"),
        ('{"partitions": ["t"]}', "not of the form"),
    ):
        with pytest.raises(UsageError, match=words):
            read_offsets(text)
    twice = '{"topic": "t", "partition": 0, "offset": 1}'
    with pytest.raises(UsageError, match="duplicate topic partitions: t-0"):
        read_offsets(f'{{"partitions": [{twice}, {twice}]}}')


def test_transactions_are_listed_described_and_aborted(ottla: Commands, filled: str) -> None:
    name = f"tx-{filled}"
    with client.Producer(bootstrap_servers=ottla.server, transactional_id=name) as producer:
        producer.init_transactions()
        (described,) = ottla.json("transactions", "describe", name)
        assert (described["state"], described["started_ms"], described["open_ms"]) == ("Empty", None, None)
        producer.begin_transaction()
        producer.send(filled, b"open", partition=0).result()
        listed = {row["transactional_id"]: row for row in ottla.json("transactions", "list")}
        assert listed[name]["state"] == "Ongoing"
        (described,) = ottla.json("transactions", "describe", name)
        assert described["partitions"] == f"{filled}-0"
        place = ("--topic", filled, "--partition", "0")
        (open_one,) = ottla.json("transactions", "describe-producers", *place)[-1:]
        assert open_one["transaction_start"] == 5
        assert isinstance(described["started_ms"], int) and isinstance(described["open_ms"], int)
        assert ottla.json("transactions", "find-hanging", "--topic", filled) == []
        code, _, error = ottla("transactions", "abort", *place, "--start-offset", "77")
        assert (code, error.count("\n")) == (1, 1) and "offset 77" in error
        producer.abort_transaction()
    assert ottla("transactions", "find-hanging")[0] == 2
    assert ottla("transactions", "describe", "nobody")[0] == 1


def test_access_that_a_broker_does_not_have_is_said_in_a_sentence(ottla: Commands, tmp_path: Path) -> None:
    """What these commands do where they are served is shown on Apache Kafka (tests/client/test_access_commands.py)."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    for arguments in (
        ["acls", "list"],
        ["acls", "add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "t"],
        ["users", "list"],
        ["users", "set", "ann", "--password-file", str(password)],
        ["quotas", "list"],
        ["quotas", "set", "--user", "ann", "producer_byte_rate=1024"],
    ):
        code, _, error = ottla(arguments[0], *arguments[1:])
        assert (code, error.count("\n")) == (1, 1), arguments
    for arguments in (
        ["acls", "add", "--topic", "t"],
        ["users", "set"],
        ["quotas", "set", "a=1"],
        ["quotas", "list", "--zookeeper", "z"],
    ):
        assert ottla(arguments[0], *arguments[1:])[0] == 2


def test_missing_things_are_named_with_what_was_perhaps_meant(ottla: Commands, filled: str) -> None:
    code, _, error = ottla("elect-leaders", f"{filled}x", "--partition", "0")
    assert code == 1 and error.startswith(f"topic '{filled}x' does not exist; did you mean '")
    code, _, error = ottla("groups", "remove-members", f"nobody-of-{filled}")
    assert code == 1 and error.startswith(f"consumer group 'nobody-of-{filled}' does not exist")


@pytest.mark.parametrize("verb", ["describe-producers", "find-hanging", "abort"])
def test_transactions_where_there_is_nothing(ottla: Commands, filled: str, verb: str) -> None:
    more = ("--start-offset", "1") if verb == "abort" else ()
    code, _, error = ottla("transactions", verb, "--topic", f"{filled}x", "--partition", "0", *more)
    assert code == 1 and error.startswith(f"topic '{filled}x' does not exist; did you mean '")
    code, _, error = ottla("transactions", verb, "--topic", filled, "--partition", "9", *more)
    assert (code, error) == (1, f"topic '{filled}' has no partition 9; it has 2\n")


def test_speed_is_measured(ottla: Commands, filled: str) -> None:
    sent = ottla.json("perf", "produce", filled, "--num-records", "200", "--record-size", "10")
    assert sent["records"] == 200 and sent["p99_ms"] >= sent["p50_ms"] > 0
    transactional = ("--transactional-id", f"perf-{filled}", "--transaction-duration-ms", "1")
    assert "200 records sent, " in ottla.shown("perf", "produce", filled, "--num-records", "200", *transactional)
    assert ottla.json("perf", "consume", filled, "--num-records", "400")["records"] >= 400
    begun_s = time.monotonic()
    measured = ottla.json("perf", "latency", filled, "--num-records", "3")
    took_ms = (time.monotonic() - begun_s) * 1000
    assert measured["records"] == 3
    # No record goes to a broker and back in a hundredth of a millisecond, and none takes longer than all of them.
    assert 0.01 < measured["p50_ms"] <= measured["max_ms"] < took_ms
    assert 0.01 < measured["avg_ms"] <= measured["max_ms"]
    assert ottla("perf", "produce")[0] == 2


def test_percentiles() -> None:
    values = array("d", range(1, 101))
    assert [percentile(values, share) for share in (50.0, 99.0, 99.9)] == [51.0, 100.0, 100.0]
    assert percentile(array("d"), 50.0) == 0.0
