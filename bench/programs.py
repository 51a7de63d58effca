"""The load generator and the limits as commands: compiled from native/ where C can be compiled, Python otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).parent / "native"


@dataclass(frozen=True)
class Programs:
    language: str
    load: list[str]
    limits: list[str]


def prepare(directory: Path, *, use_c: bool = True) -> Programs:
    compiler = _find_compiler() if use_c else None
    if compiler is None:
        module = [sys.executable, "-m"]
        return Programs("Python", [*module, "bench.python_load"], [*module, "bench.python_limits"])
    for name in ("load", "limits"):
        command = [compiler, "-O2", "-o", str(directory / name), str(NATIVE / f"{name}.c")]
        subprocess.run(command, check=True, timeout=120)
    return Programs("C", [str(directory / "load")], [str(directory / "limits")])


def run_program(command: list[str]) -> dict[str, float]:
    """What a program of the bench prints: one line of JSON."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _find_compiler() -> str | None:
    candidates = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    return next((found for name in candidates if name and (found := shutil.which(name))), None)
