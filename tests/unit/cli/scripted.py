"""Commands in this process, whose administrative client is the test's own: what they ask it, print and return."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from ottla.cli.kafka_names.scripts import SCRIPTS, run_script
from ottla.cli.main import main
from ottla.client.aio.admin import admin as real

Said = tuple[int, str, str]


class Scripted:
    def __init__(self, admin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.configs: list[dict[str, str]] = []
        """What each client was made with."""
        self._admin = admin
        self._capsys = capsys
        monkeypatch.setattr(real, "Admin", self._open)

    def __call__(self, command: str, *arguments: str) -> Said:
        """A command of ours, or one of Kafka's scripts."""
        given = [*arguments, "--bootstrap-server", "h:1"]
        code = run_script(command, given) if command in SCRIPTS else main([command, *given])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def _open(self, config: dict[str, str]) -> Scripted:
        self.configs.append(config)
        return self

    async def __aenter__(self) -> Any:
        return self._admin

    async def __aexit__(self, *_: object) -> None:
        pass


Answering = Callable[[Any], Scripted]


class Pipe(io.TextIOWrapper):
    """Standard output that is no terminal: what is not flushed has not arrived."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    @property
    def arrived(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()
