"""Commands in this process: what they print and return."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.cli.main import main

Said = tuple[int, str, str]


class Commands:
    def __init__(self, server: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self._capsys = capsys

    def __call__(self, command: str, *arguments: str) -> Said:
        code = main([command, *arguments, "--bootstrap-server", self.server])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def shown(self, command: str, *arguments: str) -> str:
        code, out, error = self(command, *arguments)
        assert code == 0, error
        return out

    def json(self, command: str, *arguments: str) -> Any:
        return json.loads(self.shown(command, *arguments, "-o", "json"))
