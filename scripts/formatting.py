"""Python that a program has written, as `make format` would leave it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def formatted(text: str, path: Path) -> str:
    """Without the imports that nothing needs; `path` is where it will stand."""
    for command in (["check", "--fix-only", "--select", "F401,I", "--quiet"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"{path} cannot be formatted: {done.stderr}")
        text = done.stdout
    return text
