"""Which options of `ottla groups` make sense together, before any broker is asked."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from ottla.cli import groups
from ottla.cli.groups import STRATEGIES, main
from ottla.cli.groups import work as groups_work

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
RESET = ["reset-offsets", "g", "--all-topics"]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Namespace]:
    """The options that brokers would have been asked with."""
    seen: list[Namespace] = []
    monkeypatch.setattr(groups_work, "run", lambda options: options)
    monkeypatch.setattr(groups, "run_client", seen.append)
    return seen


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, kafka: str = "") -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments), kafka)
    assert ended.value.code != 0
    return capsys.readouterr().err


@pytest.mark.parametrize("state", STATES)
def test_groups_are_listed_by_any_state_there_is(passed: list[Namespace], state: str) -> None:
    main(["list", "--state", f" {state.lower()} ,STABLE"])
    assert passed[0].states == [state, "Stable"]
    assert passed[0].types == []


def test_groups_are_listed_by_type(passed: list[Namespace]) -> None:
    main(["list", "--type", "classic,Consumer"])
    main(["list", "--state", "--type"])
    assert [(each.states, each.types) for each in passed] == [([], ["Classic", "Consumer"]), ([], [])]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--state", "stable,bogus"], f"Valid states are: {', '.join(STATES)}"),
        (["list", "--type", "share"], "Invalid types list 'share'. Valid types are: Consumer, Classic"),
        (["list", "g"], 'Option "[group]" can\'t be used with option "[list]"'),
        (["list", "--members", "--verbose"], "Option(s) [members, verbose] are unavailable"),
        (["list", "--offsets"], "Option(s) [offsets] are unavailable"),
        (["describe", ""], "a group's name is empty"),
        (["describe", "g", "--all-groups"], 'Option "[group]" can\'t be used with option "[all-groups]"'),
        (["describe"], "Option [describe] takes one of these options: [all-groups], [group]"),
        (["delete"], "Option [delete] takes one of these options: [all-groups], [group]"),
        (["describe", "g", "--members", "--offsets"], "at most one of these options: [members], [offsets], [state]"),
        (["describe", "g", "--members", "--state"], "at most one of these options"),
        (["describe", "g", "--topic", "t"], 'Option "[topic]" can\'t be used with option "[describe]"'),
        (["delete", "g", "--topic", "t"], "does not support topic-specific offset deletion"),
        (["delete-offsets", "g"], "Option [delete-offsets] takes the following options: [topic]"),
        ([*RESET, "--to-latest", "--execute", "--dry-run"], "only accepts one of [execute] and [dry-run]"),
        (RESET, "requires one of the following scenarios: [[to-offset], [to-current], "),
        ([*RESET, "--to-latest", "--to-offset", "0"], 'Option "[to-offset]" can\'t be used with option "[to-latest]"'),
        (["reset-offsets", "g", "--to-latest"], "One of the reset scopes should be defined: --all-topics, --topic."),
    ],
)
def test_what_makes_no_sense(
    passed: list[Namespace], arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(capsys, *arguments)
    assert passed == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["describe", "g", "--group", "h"], {"group": ["h", "g"], "all_groups": False, "timeout": 5000}),
        (["describe", "--all-groups", "--members", "--verbose"], {"group": [], "all_groups": True, "members": True}),
        (["describe", "g", "--state"], {"state": "", "offsets": False}),
        (["delete", "g"], {"group": ["g"], "execute": False}),
        (["delete-offsets", "g", "--topic", "t"], {"topic": ["t"]}),
        ([*RESET, "--to-latest"], {"strategy": "to_latest", "execute": False, "export": False}),
        (["reset-offsets", "g", "--topic", "t", "--to-latest"], {"strategy": "to_latest", "topic": ["t"]}),
        (["reset-offsets", "g", "--from-file", "f"], {"strategy": "from_file", "from_file": "f"}),
    ],
)
def test_what_makes_sense(passed: list[Namespace], arguments: list[str], found: dict[str, Any]) -> None:
    assert main(arguments) == 0
    (options,) = passed
    assert {name: getattr(options, name) for name in found} == found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_one(passed: list[Namespace], strategy: str) -> None:
    value = [] if strategy in ("to_earliest", "to_latest", "to_current") else ["0"]
    main([*RESET, f"--{strategy.replace('_', '-')}", *value])
    assert passed[0].strategy == strategy


@pytest.mark.parametrize(
    ("more", "warns"), [([], True), (["--execute"], False), (["--dry-run"], False)], ids=["neither", "execute", "dry"]
)
def test_kafkas_own_tool_warns_that_a_reset_is_only_shown(
    passed: list[Namespace], more: list[str], warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--bootstrap-server", "h:1", *more]
    main(arguments, "kafka-consumer-groups.sh")
    assert ("WARN: No action will be performed" in capsys.readouterr().err) is warns


def test_kafkas_own_tool_names_the_wrong_list(passed: list[Namespace], capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "--describe", "--bootstrap-server", "h:1", kafka="kafka-consumer-groups.sh")
    assert "Option [describe] takes one of these options: [reset-offsets], [describe], [delete], [list]" in told
