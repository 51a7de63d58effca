"""What a shell is given to complete, and what it makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.completion import candidates
from ottla.cli.main import COMMANDS, main
from tests.waiting import PATIENCE_S


def test_commands_verbs_and_options_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert candidates([]) == list(COMMANDS)
    after = candidates(["groups"])
    assert after[0] == "list" and "--all-groups" in after
    assert "list" not in candidates(["groups", "describe"])
    assert candidates(["no-such-command"]) == []
    assert candidates(["pipeline"])[:2] == ["run", "check"]
    assert {"--once", "--master"} <= set(candidates(["pipeline", "run"])) and candidates(["pipeline", "rnu"]) == []
    assert candidates(["groups", "list", "-o"]) == candidates(["groups", "--output"]) == ["table", "json", "tsv"]
    assert candidates(["aliases"]) == ["--help"], "examples have options of other programs"
    assert candidates(["completion"]) == ["bash", "zsh", "fish"] and candidates(["completion", "bash"]) == []
    assert main(["completion", "words", "--", "offsets"]) == 0
    assert "--topic-partitions" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_given_something(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "ottla completion words" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["zookeeper"], ["start", "--data", "--help", "--no-restart", "--nodes", "--port"]),
        (["zookeeper", "start"], ["--data", "--help", "--no-restart", "--nodes", "--port"]),
        (["zookeeper", "start", "--nodes", "3"], ["--data", "--help", "--no-restart", "--nodes", "--port"]),
        (["start"], ["--brokers", "--data", "--help", "--log-level", "--no-restart", "--override", "--port"]),
        (["elect-leaders", "t", "--election-type"], ["preferred", "unclean"]),
        (["topics", "list", "-o"], ["auto", "table", "kafka", "json", "tsv"]),
        (["pipeline"], ["run", "check", "position", "reset", "redrive", "groups"]),
        (["pipeline", "check"], ["--bootstrap-server", "--help", "--master", "--set"]),
        (["pipeline", "check", "f"], ["--bootstrap-server", "--help", "--master", "--set"]),
        (["completion", "bash", "x"], []),
        (["xyz", "list"], []),
    ],
)
def test_what_may_come_next(words: list[str], found: list[str]) -> None:
    assert candidates(words) == found


def test_words_are_asked_for_by_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["words"], ["words", "--"]):
        assert main(["completion", *arguments]) == 0
        assert capsys.readouterr().out.splitlines() == list(COMMANDS)
    assert main(["completion", "words", "--", "completion"]) == 0
    assert capsys.readouterr().out == "bash\nzsh\nfish\n"


@pytest.mark.parametrize("arguments", [[], ["tcsh"], ["bash", "zsh"]])
def test_one_shell_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", *arguments]) == 2
    assert capsys.readouterr().err.endswith("Error: name one shell: bash, fish, zsh\n")


LINES = {
    "ottla topi": "topics",
    "ottla topics descr": "describe",
    "ottla pipeline redr": "redrive",
    "ottla topics list -o js": "json",
}
TYPED_IN = {
    "bash": """
        eval "$(ottla completion bash)"
        for line in "$@"; do
            COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ottla; echo "${COMPREPLY[@]}"
        done""",
    "zsh": """
        compdef() { }; compadd() { print -r -- ${(M)found:#$words[CURRENT]*} }
        eval "$(ottla completion zsh)"
        for line in "$@"; do words=(${=line}); CURRENT=$#words; _ottla; done""",
    "fish": """
        ottla completion fish | source
        for line in $argv; complete -C $line; end""",
}
"""What each line is completed to, as the shell has it; only zsh has to be told what a terminal would."""


@pytest.mark.parametrize("shell", TYPED_IN)
def test_in_the_shell_itself(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "ottla").write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    (tmp_path / "ottla").chmod(0o755)
    name = [] if shell == "fish" else ["sh"]
    done = subprocess.run(
        [shell, "-c", TYPED_IN[shell], *name, *LINES],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert (done.stdout.split(), done.stderr) == (list(LINES.values()), "")
