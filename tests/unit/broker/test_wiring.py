"""Who hears of changed settings and topics that are gone, and in which order a broker stops serving."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker import startup
from ottla.broker.startup import (
    _answer_waiting,
    _each,
    _elect_leaders_again,
    _follow_config_changes,
    _on_metadata,
    _stop_serving,
)


class Told:
    """Any part of a broker: it writes down what is called and with what."""

    def __init__(self, name: str, calls: list[Any], *, is_async: bool = False) -> None:
        self._name = name
        self._calls = calls
        self._is_async = is_async

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self._calls.append((f"{self._name}.{method}", *arguments, *named.values()))
            return asyncio.sleep(0) if self._is_async else None

        return call


def test_topics_that_are_gone_are_forgotten_with_their_settings_and_offsets() -> None:
    calls: list[Any] = []
    configs: Any = Told("configs", calls)
    groups: Any = Told("groups", calls)
    _on_metadata(configs, groups)({"t"})
    assert calls == [("configs.forget_topic", "t"), ("groups.cluster_changed", {"t"})]
    calls.clear()
    _on_metadata(configs, groups)(set())
    assert calls == [("groups.cluster_changed", set())]


def test_changed_settings_reach_everybody_who_acts_on_them() -> None:
    calls: list[Any] = []
    configs: Any = SimpleNamespace(log_config=lambda topic: f"settings of {topic}")
    replicas: Any = SimpleNamespace(
        topics=lambda: ["t", "u"], set_topic_config=lambda *of: calls.append(("replicas", *of))
    )
    fetchers: Any = Told("fetchers", calls)
    throttles: list[Any] = [Told("leader", calls), Told("follower", calls)]
    _follow_config_changes(configs, replicas, fetchers, throttles, lambda: calls.append("elect"))
    configs.on_topic_changed("v")
    assert calls == [("replicas", "v", "settings of v"), "elect"]
    calls.clear()
    configs.on_broker_changed()
    assert calls == [
        ("replicas", "t", "settings of t"),
        ("replicas", "u", "settings of u"),
        "elect",
        ("fetchers.reconfigured",),
        ("leader.reconfigured",),
        ("follower.reconfigured",),
    ]


def test_several_are_told_in_turn() -> None:
    calls: list[int] = []
    _each(lambda: calls.append(1), lambda: calls.append(2))()
    assert calls == [1, 2]


@pytest.mark.parametrize("error", [None, KafkaError(code=ErrorCode.NOT_CONTROLLER)])
def test_an_election_that_cannot_be_held_here_is_no_mistake(error: Exception | None) -> None:
    calls: list[str] = []

    async def elect() -> None:
        calls.append("elect")
        if error is not None:
            raise error

    controller: Any = SimpleNamespace(elect_where_allowed=elect)
    asyncio.run(_elect_leaders_again(controller))
    assert calls == ["elect"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_broker_leaves_the_cluster_before_it_stops_serving_unless_it_is_killed(
    monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    calls: list[Any] = []

    async def leave(broker: Any) -> None:
        calls.append("leave")

    monkeypatch.setattr(startup, "leave_cluster", leave)
    replicas = SimpleNamespace(log_dirs=Told("log_dirs", calls))
    broker: Any = SimpleNamespace(
        is_killed=is_killed,
        replica_moves=Told("moves", calls, is_async=True),
        replicas=replicas,
        parked=Told("parked", calls),
        groups=Told("groups", calls, is_async=True),
        transactions=Told("transactions", calls, is_async=True),
    )
    server: Any = Told("server", calls, is_async=not is_killed)
    asyncio.run(_stop_serving(broker, server))
    waiting = [("parked.expire_all", replicas), ("groups.stop",), ("transactions.stop",)]
    if is_killed:
        assert calls == [("server.close",), ("moves.stop",), ("log_dirs.close", False)]
    else:
        assert calls == ["leave", ("moves.stop",), ("server.stop", 5000), *waiting]
    calls.clear()
    asyncio.run(_answer_waiting(broker))
    assert calls == waiting
