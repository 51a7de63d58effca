"""Clients that outlive the calls they are made for: who gets which, and which are given up."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark import connections
from ottla.spark.connections import admin_for, consumer_for


class Client:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.seen: list[str] = []

    def unsubscribe(self) -> None:
        self.seen.append("unsubscribed")

    def close(self) -> None:
        self.seen.append("closed")


@pytest.fixture(autouse=True)
def _own_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connections, "sync", SimpleNamespace(Admin=Client, Consumer=Client))
    monkeypatch.setattr(connections, "_admins", {})
    monkeypatch.setattr(connections, "_idle_consumers", {})
    monkeypatch.setattr(connections, "_lock", connections._lock)
    yield


def seen(client: Any) -> list[str]:
    assert isinstance(client, Client)
    return client.seen


def test_calls_with_the_same_settings_share_an_admin_client() -> None:
    first: Any = admin_for({"bootstrap.servers": "a:1", "fetch.max.bytes": "5"})
    assert first.settings == {
        "bootstrap.servers": "a:1",
        "client.id": "ottla-spark",
        "bootstrap.fail.fast": "true",
    }
    assert admin_for({"bootstrap.servers": "a:1"}) is first
    assert admin_for({"bootstrap.servers": "b:1"}) is not first
    mine: Any = admin_for({"bootstrap.servers": "a:1", "client.id": "mine"})
    assert mine.settings["client.id"] == "mine"


def test_a_consumer_is_kept_for_the_next_task() -> None:
    with consumer_for({"bootstrap.servers": "a:1"}) as first:
        assert first.settings["bootstrap.fail.fast"] == "true"  # type: ignore[attr-defined]
    assert seen(first) == ["unsubscribed"]
    with consumer_for({"bootstrap.servers": "a:1"}) as second:
        assert second is first
    with consumer_for({"bootstrap.servers": "b:1"}) as other:
        assert other is not first


def test_nobody_else_uses_a_consumer_meanwhile() -> None:
    with consumer_for({}) as first:
        with consumer_for({}) as second:
            assert second is not first
        assert seen(second) == ["unsubscribed"]
    assert seen(first) == ["unsubscribed", "closed"], "one is enough for the next one"
    with consumer_for({}) as third:
        assert third is second


def test_a_consumer_that_failed_is_not_used_again() -> None:
    with pytest.raises(RuntimeError), consumer_for({}) as failed:
        raise RuntimeError
    assert seen(failed) == ["closed"]
    with consumer_for({}) as next_one:
        assert next_one is not failed


def test_a_reader_that_is_given_up_leaves_its_consumer() -> None:
    def read() -> Iterator[object]:
        with consumer_for({}) as consumer:
            yield consumer
            yield consumer

    reading = read()
    consumer = next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert seen(consumer) == ["unsubscribed"]
    with consumer_for({}) as next_one:
        assert next_one is consumer


def test_a_forked_process_starts_with_none() -> None:
    admin = admin_for({})
    with consumer_for({}) as consumer:
        pass
    connections._forget()
    assert admin_for({}) is not admin
    with consumer_for({}) as next_one:
        assert next_one is not consumer
