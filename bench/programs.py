"""The load generator and the limits as commands: compiled from native/ where C can be compiled, Python otherwise."""

from __future__ import annotations

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


def _find_compiler() -> str | None:
    candidates = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    return next((found for name in candidates if name and (found := shutil.which(name))), None)
