"""Which options of `ottla cluster` make sense with which verb, and what each verb begins."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from ottla.cli import cluster_status, rolling_restart
from ottla.cli.main import main
from ottla.cli.reassign import scaling

Begun = list[tuple[str, Namespace]]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    found: Begun = []

    def note(name: str) -> Any:
        async def begin(options: Namespace) -> None:
            found.append((name, options))

        return begin

    monkeypatch.setattr(cluster_status, "show", note("show"))
    monkeypatch.setattr(rolling_restart, "restart", note("restart"))
    monkeypatch.setattr(scaling, "scale", note("scale"))
    return found


@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        ("status", "show", {"watch": False, "output": "table"}),
        ("status --watch -o json", "show", {"watch": True, "output": "json"}),
        ("restart --rolling", "restart", {"data": "data/cluster", "timeout_s": 300}),
        ("restart --rolling --data d --timeout-s 1", "restart", {"data": "d", "timeout_s": 1}),
        ("add-broker 4", "scale", {"words": ["4"], "yes": False, "plan": None, "throttle": None}),
        ("add-broker 0 --throttle 1 -y", "scale", {"words": ["0"], "yes": True, "throttle": 1}),
        ("remove-broker 4 --yes --plan f", "scale", {"words": ["4"], "yes": True, "plan": "f"}),
    ],
)
def test_what_is_begun(begun: Begun, arguments: str, name: str, expected: dict[str, Any]) -> None:
    assert main(["cluster", *arguments.split()]) == 0
    ((found, options),) = begun
    assert (found, options.verb) == (name, arguments.split()[0])
    assert {option: getattr(options, option) for option in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "name exactly one of status, add-broker, remove-broker, restart"),
        ("status x", "'x' is not understood"),
        ("restart x --rolling", "'x' is not understood"),
        ("add-broker", "name one broker by its id"),
        ("remove-broker", "name one broker by its id"),
        ("add-broker 4 5", "name one broker by its id"),
        ("add-broker x", "'x' is no broker id"),
        ("remove-broker -4", "'-4' is no broker id"),
        ("restart", "restarting all brokers at once would stop every client; say --rolling"),
        ("add-broker 4 --throttle 0", "--throttle must be at least 1"),
        ("restart --rolling --timeout-s 0", "--timeout-s must be at least 1"),
    ],
)
def test_what_makes_no_sense(begun: Begun, arguments: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", *arguments.split()]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert (error, begun) == (f"Error: {told}", [])
