"""What `pip install 'ottla[…]'` brings along is used by something."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"pyyaml": "yaml"}
"""Where the name to import is not the distribution's."""
USED_BY_OTHERS = {"pandas", "protobuf", "pure-sasl"}
"""What PySpark itself imports for Python functions on columns and with state, and kazoo to prove who somebody is."""


def imported(root: Path) -> set[str]:
    names: set[str] = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


@pytest.fixture(scope="module")
def names() -> set[str]:
    return imported(ROOT / "src")


@pytest.mark.parametrize("extra", ["", *sorted(set(PROJECT["optional-dependencies"]) - {"dev"})])
def test_what_is_installed_is_imported(extra: str, names: set[str]) -> None:
    requirements = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    distributions = {re.split(r"[<>=\[ ]", requirement)[0] for requirement in requirements}
    unused = {name for name in distributions - USED_BY_OTHERS if MODULES.get(name, name) not in names}
    assert unused == set()
