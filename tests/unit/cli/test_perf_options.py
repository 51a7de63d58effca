"""What the options of `ottla perf` and of Kafka's scripts for it come to. Nothing is measured."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.perf import CONSUMER_SCRIPT, PRODUCER_SCRIPT, main, measuring

SERVER = ["--bootstrap-server", "h:1"]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Namespace]]:
    """What would have been measured, and with which options."""
    found: list[tuple[str, Namespace]] = []

    def work(verb: str) -> Any:
        async def take(options: Namespace) -> None:
            found.append((verb, options))

        return take

    for verb in measuring.WORK:
        monkeypatch.setitem(measuring.WORK, verb, work(verb))
    return found


DEFAULTS: dict[str, Any] = {
    "topic": "t",
    "bootstrap_server": "h:1",
    "num_records": 100_000,
    "record_size": 100,
    "payload_file": None,
    "payload_delimiter": "\\n",
    "payload_monotonic": False,
    "throughput": -1.0,
    "props": {},
    "transactional_id": None,
    "transaction_duration_ms": 3000,
    "group": None,
    "timeout": 10_000,
    "from_latest": False,
    "hide_header": False,
    "fetch_size": 1_048_576,
    "reporting_interval": 5000,
    "show_detailed_stats": False,
    "output": "table",
    "kafka": False,
}


@pytest.mark.parametrize("verb", ["produce", "consume", "latency"])
def test_each_verb_has_the_same_defaults(taken: list[Any], verb: str) -> None:
    assert main([verb, "t", *SERVER]) == 0
    ((found, options),) = taken
    assert (found, {name: getattr(options, name) for name in DEFAULTS}) == (verb, DEFAULTS)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--num-records", "1", "--record-size", "0"], {"num_records": 1, "record_size": 0}),
        (["--messages", "7", "--timeout", "0"], {"num_records": 7, "timeout": 0}),
        (["--payload-file", "f", "--reporting-interval", "1"], {"payload_file": "f", "reporting_interval": 1}),
        (["--payload-monotonic", "--throughput", "2.5"], {"payload_monotonic": True, "throughput": 2.5}),
        (["--producer-props", "a=1", "b=2", "-o", "json"], {"props": {"a": "1", "b": "2"}, "output": "json"}),
        (["--producer-props", "bootstrap.servers=x:2"], {"props": {}, "bootstrap_server": "x:2"}),
        (["--from-latest", "--hide-header", "--show-detailed-stats"], {"from_latest": True, "hide_header": True}),
        (["--consumer.config", "c"], {"command_config": "c"}),
        (
            ["--print-metrics", "--socket-buffer-size", "1", "--threads", "2", "--num-fetch-threads", "3"],
            {"topic": "t"},
        ),
        (["--date-format", "yyyy"], {"topic": "t"}),
    ],
)
def test_what_is_asked_for(taken: list[Any], arguments: list[str], expected: dict[str, Any]) -> None:
    assert main(["produce", "--topic", "t", *SERVER, *arguments]) == 0
    assert {name: getattr(taken[0][1], name) for name in expected} == expected


@pytest.mark.parametrize(
    ("kafka", "arguments", "told"),
    [
        ("", ["produce"], "which topic is not said"),
        ("", ["t"], "name exactly one of produce, consume, latency"),
        ("", ["produce", "t", "--record-size", "1", "--payload-file", "f"], "--payload-file: not allowed with"),
        ("", ["produce", "t", "--record-size", "1", "--payload-monotonic"], "--payload-file: not allowed with"),
        ("", ["produce", "t", "--payload-file", "f", "--payload-monotonic"], "--payload-file: not allowed with"),
        ("", ["produce", "t", "--num-records", "0"], "--num-records must be at least 1"),
        ("", ["produce", "t", "--record-size", "-1"], "--record-size must be at least 0"),
        ("", ["consume", "t", "--timeout", "-1"], "--timeout must be at least 0"),
        ("", ["consume", "t", "--reporting-interval", "0"], "--reporting-interval must be at least 1"),
        ("", ["produce", "t", "--producer-props", "a"], "--producer-props 'a' is not of the form name=value"),
        (PRODUCER_SCRIPT, ["--num-records", "1"], 'Missing required argument "[topic]"'),
        (
            PRODUCER_SCRIPT,
            ["--topic", "t", "--producer-props", "a=1"],
            "one of the arguments --record-size --payload-file --payload-monotonic is required",
        ),
        (
            PRODUCER_SCRIPT,
            ["--topic", "t", "--record-size", "0"],
            "Either --producer-props or --producer.config must be specified.",
        ),
        (CONSUMER_SCRIPT, ["--topic", "t", *SERVER], 'Missing required argument "[messages]"'),
        (CONSUMER_SCRIPT, ["--messages", "1", *SERVER], 'Missing required argument "[topic]"'),
    ],
)
def test_what_makes_no_sense(
    taken: list[Any], kafka: str, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from ottla.cli.failures import UsageError

    with pytest.raises((SystemExit, UsageError)) as end:
        main(arguments, kafka)
    assert told in f"{end.value} {capsys.readouterr().err}"
    assert taken == []


def test_kafkas_producer_script_has_its_servers_among_its_settings(taken: list[Any], tmp_path: Path) -> None:
    required = ["--topic", "t", "--num-records", "5"]
    props = ["--producer-props", "bootstrap.servers=x:1", "acks=1"]
    assert main([*required, "--record-size", "7", *props], PRODUCER_SCRIPT) == 0
    assert main([*required, "--payload-file", "f", "--producer.config", "c"], PRODUCER_SCRIPT) == 0
    assert main([*required, "--payload-monotonic", "--command-config", "c", *props], PRODUCER_SCRIPT) == 0
    (first_verb, first), (_, second), (_, third) = taken
    assert (first_verb, first.bootstrap_server, first.props) == ("produce", "x:1", {"acks": "1"})
    assert (first.num_records, first.record_size, first.output) == (5, 7, "kafka")
    assert (second.bootstrap_server, second.command_config, second.payload_file) == ("", "c", "f")
    assert (third.bootstrap_server, third.payload_monotonic) == ("x:1", True)


def test_kafkas_consumer_script_reads(taken: list[Any]) -> None:
    assert main(["--topic", "t", "--messages", "7", *SERVER], CONSUMER_SCRIPT) == 0
    ((verb, options),) = taken
    assert (verb, options.num_records, options.bootstrap_server, options.kafka) == ("consume", 7, "h:1", True)
