"""What a shell is given to complete, and which commands' help needs no client."""

from __future__ import annotations

import subprocess
import sys

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
    assert main(["completion", "words", "--", "offsets"]) == 0
    assert "--topic-partitions" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_given_something(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "ottla completion words" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2


def test_help_imports_no_client() -> None:
    light = ["groups", "configs", "offsets", "log-dirs", "delete-records", "transactions", "acls", "users", "quotas"]
    commands = [*light, "perf", "topics", "produce", "consume", "api-versions", "aliases"]
    forbidden = ("typer", "rich", "asyncio", "ottla.client.aio", "ottla.broker")
    script = (
        "import sys\nfrom ottla.cli.main import main\n"
        f"for command in {commands!r}:\n    main([command, '-h'])\n"
        f"print([name for name in {forbidden!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
