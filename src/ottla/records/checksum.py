"""CRC-32C (Castagnoli) from the `crc32c` package, without the cost of that package's `__init__`.

The package's `__init__` imports `importlib.metadata` only to know its own version, which takes longer than all the rest
of a broker's start. The C extension beside it needs none of that, so it is loaded by itself when it can be found, and
registered under its real name: a later `import crc32c` elsewhere finds the same module.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Protocol

from ottla.base.types import ReadBuffer

_PACKAGE = "crc32c"
_EXTENSION = "crc32c._crc32c"


class Crc32c(Protocol):
    def __call__(self, data: ReadBuffer, value: int = 0, /) -> int:
        """The checksum of `data`, going on from `value`: crc(a + b) == crc(b, crc(a))."""


def _load_extension() -> ModuleType | None:
    """The bare C extension, or None if the package is laid out in a way we do not know."""
    loaded = sys.modules.get(_EXTENSION)
    if loaded is not None:
        return loaded
    package = PathFinder.find_spec(_PACKAGE)
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_EXTENSION] = module
    return module


def _find_crc32c() -> Crc32c:
    function: Crc32c | None = getattr(_load_extension(), "crc32c", None)
    if function is None:
        import crc32c as package

        function = package.crc32c
    return function


crc32c: Crc32c = _find_crc32c()
