"""The settings of clients that commands use, and the names that are looked up before anything is done."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid
from ottla.cli.failures import UsageError
from ottla.cli.session import (
    check_broker,
    client_config,
    described_topics,
    missing_group,
    missing_topic,
    open_admin,
    read_config,
    read_text,
)
from ottla.client.aio.admin import admin as real
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import TopicDescription
from tests.waiting import run_async

ADDED = {"socket.connection.setup.timeout.ms": "5000", "bootstrap.fail.fast": "true", "bootstrap.servers": "h:1"}


def test_options_beat_the_file_which_beats_what_is_usual(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# who\nclient.id = me\nacks=1\nretries=2\nbootstrap.servers=x:9\nbootstrap.fail.fast=false\n")
    assert client_config(None, "h:1", "usual") == {"client.id": "usual", **ADDED}
    assert client_config(None, "h:1", "usual", acks="0") == {"client.id": "usual", "acks": "0", **ADDED}
    assert client_config(str(file), "h:1", "usual", acks="0") == {
        "client.id": "me",
        "acks": "0",
        "retries": "2",
        **ADDED,
    }
    file.write_text("socket.connection.setup.timeout.ms=7\n")
    assert client_config(str(file), "h:1", "usual")["socket.connection.setup.timeout.ms"] == "7"


def test_a_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "f").write_text("a=ü\nb=\n", encoding="utf-8")
    assert read_config(None) == {}
    assert read_config("~/f") == {"a": "ü", "b": ""}
    assert read_text("~/f") == read_text(tmp_path / "f") == "a=ü\nb=\n"
    (tmp_path / "f").write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"^~/f is no text in UTF-8: byte 2 is 0xff$"):
        read_config("~/f")
    (tmp_path / "f").write_text("a=1\nb=\\u00zz\n")
    with pytest.raises(UsageError, match=r"^~/f, line 2: "):
        read_config("~/f")


def test_an_administrative_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Any] = []
    monkeypatch.setattr(real, "Admin", made.append)
    file = tmp_path / "f"
    file.write_text("retries=2\n")
    open_admin(Namespace(command_config=str(file), bootstrap_server="h:1"), "who", acks="1")
    assert made == [{"client.id": "who", "retries": "2", "acks": "1", **ADDED}]


def test_names_that_are_not_there() -> None:
    assert missing_topic("ordes", ["orders"]) == "topic 'ordes' does not exist; did you mean 'orders'?"
    assert missing_group("x", ["orders"]) == "consumer group 'x' does not exist"


class Cluster:
    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers={10: "", 9: ""})

    async def describe_topics(self) -> Any:
        return Outcomes({name: TopicDescription(name, Uuid(bytes(16)), False, ()) for name in ("b", "a")})


def test_brokers_are_looked_up() -> None:
    cluster: Any = Cluster()
    run_async(check_broker(cluster, 9))
    with pytest.raises(KafkaError) as refusal:
        run_async(check_broker(cluster, 8))
    assert refusal.value.message == "broker 8 does not exist; there are 9, 10"
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_topics_are_looked_up() -> None:
    cluster: Any = Cluster()
    assert list(run_async(described_topics(cluster, ["a"]))) == ["a"]
    assert list(run_async(described_topics(cluster, ["b", "a"]))) == ["b", "a"]
    assert run_async(described_topics(cluster, [])) == {}
    with pytest.raises(KafkaError) as refusal:
        run_async(described_topics(cluster, ["a", "c"]))
    assert refusal.value.message == "topic 'c' does not exist"
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
