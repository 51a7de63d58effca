"""The entry of the command: help, mistakes, exit codes, and what is not imported."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from ottla.cli import pipeline, start
from ottla.cli.main import COMMANDS, main
from ottla.cli.terminal import new_app
from tests.waiting import PATIENCE_S


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS)


def shown_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code = main(arguments)
    except SystemExit as e:
        code = e.code
    assert code == 0
    return capsys.readouterr().out


HELP_PAGES = [[name] for name in COMMANDS] + [["pipeline", verb] for verb in pipeline.VERBS]


def options_of(command: list[str]) -> set[str]:
    """Every option the command takes, asked of whoever parses them."""
    module = import_module(COMMANDS[command[0]].module)
    if hasattr(module, "parser"):
        shown = [action for action in module.parser()._actions if action.help != argparse.SUPPRESS]
        return {name for action in shown for name in action.option_strings}
    function = getattr(module, command[-1].replace("-", "_"), None)
    app = new_app()
    app.command()(function or getattr(module, f"_{command[0]}"))
    return {name for parameter in get_command(app).params for name in parameter.opts if name.startswith("-")}


@pytest.mark.parametrize("command", HELP_PAGES, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_of_one_style(
    command: list[str], flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = shown_help([*command, flag], capsys)
    lines = shown.splitlines()
    assert lines[0].startswith(f"Usage: ottla {' '.join(command)} [OPTIONS]")
    assert max(map(len, lines)) <= 80
    described = dict(re.findall(r"^  (?:-[a-z], )?(--[a-z.-]+)[^\n]*?(?:  +|\n +)(\S.*)$", shown, re.MULTILINE))
    assert {name for name in options_of(command) if name.startswith("--")} <= set(described)
    assert re.search(r"^  -h, --help +Show this message and exit\.$", shown, re.MULTILINE)
    assert f"ottla {' '.join(command)}" in shown.partition("Examples:\n")[2]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["topic"], "Did you mean 'topics'?"),
        (["topics", "lst"], "'lst' is no verb; did you mean 'list'? name exactly one of"),
        (["topics", "create", "x", "--partitons", "3"], "--partitons 3; did you mean '--partitions'?"),
    ],
)
def test_what_is_mistyped_gets_a_hint(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--override", "num.partitions=none"], "num.partitions must be a whole number, but was 'none'"),
        (["--override", "num.partitons=1"], "did you mean num.partitions?"),
        (["/no/such/file.properties"], "cannot read /no/such/file.properties: no such file or directory"),
    ],
)
def test_a_bad_setting_is_one_sentence_and_exit_code_1(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start.main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_settings_from_the_environment_are_checked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_NUM_PARTITIONS", "0")
    assert start.main([]) == 1
    assert "num.partitions must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("from ottla.cli.main import main; main(['--help'])", ("typer", "rich", "asyncio", "ottla.broker")),
        (
            "from ottla.cli import start; start.main(['--override', 'no.such=1'])",
            ("typer", "rich", "asyncio", "ottla.client"),
        ),
    ],
)
def test_light_commands_import_little(code: str, forbidden: tuple[str, ...], tmp_path: Path) -> None:
    assert imported(code, forbidden, tmp_path) == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_waits_for_nothing_that_takes_long_to_import(name: str, tmp_path: Path) -> None:
    """Below 200 ms; typer takes about half of that, and has many verbs to tell apart for it."""
    heavy = ("asyncio", "rich", "ssl", "yaml", "pyarrow", "pyspark", "ottla.client", "ottla.wire", "ottla.spark")
    own = {"pipeline": "typer", "start": "ottla.broker"}
    forbidden = (*heavy, *(module for command, module in own.items() if command != name))
    assert imported(f"from ottla.cli.main import main; main([{name!r}, '--help'])", forbidden, tmp_path) == "[]"


def imported(code: str, modules: tuple[str, ...], directory: Path) -> str:
    """Which of them are there after the code has run, in a process of its own."""
    script = f"{code}\nimport sys; print([name for name in {modules!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=directory, timeout=PATIENCE_S, check=True
    )
    return done.stdout.splitlines()[-1]
