"""The entry of the command: help, mistakes, exit codes, and what is not imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import start
from ottla.cli.main import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    if name == "start":
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
    else:
        assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"ottla {name}" in shown
    silent = re.findall(r"^│ \*? *(--[a-z-]+) +<[^>]*> *(?:\[[^]]*\])? *│$", shown, re.MULTILINE)
    assert silent == [], "options that do not say what they do"


def test_a_mistyped_command_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic"]) == 2
    assert "Did you mean 'topics'?" in capsys.readouterr().err


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
    script = f"{code}\nimport sys; print([name for name in {forbidden!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
