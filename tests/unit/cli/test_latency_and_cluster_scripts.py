"""Kafka's scripts for latency and for the id of a cluster: what they take, ask and print. Brokers are scripted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.perf import measuring
from ottla.client.aio.admin import admin as admin_module
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import NewTopic

SERVER = ("--bootstrap-server", "h:1")


class Admin:
    def __init__(self) -> None:
        self.configs: list[dict[str, str]] = []
        self.created: list[Any] = []
        self.cluster_id: str | None = "an-id"

    def open(self, config: dict[str, str]) -> Self:
        self.configs.append(config)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list_topics(self) -> list[str]:
        return ["t"]

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        self.created.append(topics)
        return Outcomes({"new": None})

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id=self.cluster_id)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr(admin_module, "Admin", made.open)
    return made


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def latency(options: Any) -> None:
        found.append(vars(options))

    monkeypatch.setattr(measuring, "latency", latency)
    return found


LATENCY = "kafka-e2e-latency.sh"
ASKED = {
    "bootstrap_server": "h:1",
    "command_config": None,
    "topic": "t",
    "num_records": 7,
    "record_size": 9,
    "props": {"acks": "all"},
    "transactional_id": None,
    "timeout": 60_000,
    "reporting_interval": 60_000,
    "kafka": True,
    "output": "kafka",
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["h:1", "t", "7", "all", "9"], {}),
        (["h:1", "t", "7", "1", "0"], {"props": {"acks": "1"}, "record_size": 0}),
        (["h:1", "t", "0", "all", "9"], {"num_records": 1}),
        (["h:1", "t", "1", "all", "9"], {"num_records": 1}),
    ],
)
def test_latency_is_measured_as_five_words_say(
    admin: Admin, measured: list[dict[str, Any]], arguments: list[str], expected: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert run_script(LATENCY, arguments) == 0
    assert measured == [{**ASKED, **expected}]
    assert (admin.created, capsys.readouterr().out) == ([], "")
    assert admin.configs[0]["client.id"] == "perf-latency-client"


def test_latency_needs_a_topic_and_takes_a_file(
    admin: Admin, measured: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "settings"
    file.write_text("client.id=me\n")
    assert run_script(LATENCY, ["h:1", "new", "7", "all", "9", str(file)]) == 0
    assert measured == [{**ASKED, "topic": "new", "command_config": str(file)}]
    assert admin.created == [[NewTopic("new", 1, 1)]] and admin.configs[0]["client.id"] == "me"
    assert capsys.readouterr().out == (
        'Topic "new" does not exist. Will create topic with 1 partition(s) and replication factor = 1\n'
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "USAGE: "),
        (["h:1", "t", "7", "all"], "USAGE: "),
        (["h:1", "t", "7", "all", "9", "f", "g"], "USAGE: "),
        (["h:1", "t", "x", "all", "9"], "USAGE: "),
        (["h:1", "t", "7", "all", "x"], "USAGE: "),
        (["h:1", "t", "7", "0", "9"], "Latency testing requires synchronous acknowledgement. Please use 1 or all\n"),
        (["h:1", "t", "7", "-1", "9"], "Latency testing requires synchronous acknowledgement. Please use 1 or all\n"),
    ],
)
def test_words_that_say_nothing_to_measure(
    measured: list[dict[str, Any]], arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(LATENCY, arguments) == 1
    assert capsys.readouterr().err.startswith(told) and measured == []


@pytest.mark.parametrize(
    ("arguments", "code", "out", "error"),
    [
        (["cluster-id", *SERVER], 0, "Cluster ID: an-id\n", ""),
        (
            ["unregister", *SERVER, "--id", "1"],
            0,
            "The target cluster does not support the broker unregistration API.\n",
            "",
        ),
        ([], 1, "", "kafka-cluster: error: too few arguments\n"),
        (["--id", "1"], 1, "", "kafka-cluster: error: unrecognized arguments: '--id'\n"),
        (["x"], 1, "", "kafka-cluster: error: invalid choice: 'x' (choose from 'cluster-id', 'unregister')\n"),
        (["cluster-id"], 1, "", 'Missing required argument "[bootstrap-server]"\n'),
    ],
)
def test_which_cluster_it_is(
    admin: Admin, arguments: list[str], code: int, out: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script("kafka-cluster.sh", arguments) == code
    assert capsys.readouterr() == (out, error)


def test_a_cluster_without_an_id(admin: Admin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    admin.cluster_id = None
    file = tmp_path / "settings"
    file.write_text("request.timeout.ms=77\n")
    assert run_script("kafka-cluster.sh", ["cluster-id", *SERVER, "--config", str(file)]) == 0
    assert capsys.readouterr().out == "No cluster ID found. The Kafka version is probably too old.\n"
    expected = {"request.timeout.ms": "77", "client.id": "ottla-cluster", "bootstrap.servers": "h:1"}
    assert expected.items() <= admin.configs[0].items()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_a_script_with_verbs(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script("kafka-cluster.sh", [flag]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: kafka-cluster.sh [OPTIONS]\n\n  cluster-id: show the id of a cluster. unregister: ")
