from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from ottla.records import checksum
from tests.waiting import PATIENCE_S


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    ).stdout.strip()


def test_the_extension_is_loaded_without_the_packages_slow_init() -> None:
    loaded = run(
        "import sys, ottla.records.checksum as c\n"
        "print(c.crc32c(b'123456789') == 0xe3069283, 'crc32c' in sys.modules, 'importlib.metadata' in sys.modules)"
    )
    assert loaded == "True False False"


def test_the_package_can_still_be_imported_and_is_the_same() -> None:
    code = "import ottla.records.checksum as c, crc32c; print(crc32c.crc32c is c.crc32c, bool(crc32c.__version__))"
    assert run(code) == "True True"


def test_an_unknown_layout_of_the_package_falls_back_to_a_plain_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_load_extension", lambda: None)
    assert checksum._find_crc32c()(b"123456789") == 0xE3069283


class Finder:
    """Finds what it is told to."""

    def __init__(self, package: object, extension: object) -> None:
        self.found = {"crc32c": package, "crc32c._crc32c": extension}

    def find_spec(self, name: str, path: object = None) -> object:
        return self.found[name]


@pytest.mark.parametrize(
    ("package", "extension"),
    [
        (None, None),
        (SimpleNamespace(submodule_search_locations=None), None),
        (SimpleNamespace(submodule_search_locations=["here"]), None),
        (SimpleNamespace(submodule_search_locations=["here"]), SimpleNamespace(loader=None)),
    ],
    ids=["no package", "no folder", "no extension", "an extension that nobody can load"],
)
def test_an_extension_that_is_not_where_it_should_be_is_not_needed(
    package: object, extension: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "crc32c._crc32c")
    monkeypatch.setattr(checksum, "PathFinder", Finder(package, extension))
    assert checksum._load_extension() is None


def test_an_extension_that_is_loaded_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "PathFinder", Finder(None, None))
    assert checksum._load_extension() is sys.modules["crc32c._crc32c"]
