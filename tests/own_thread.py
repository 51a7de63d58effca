"""What a test puts in the place of a function that the whole process shares, for its own thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest


def patch_own_thread(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Brokers and clients of other tests may be at work in other threads, and go on with what there was."""
    others, own = getattr(module, name), threading.get_ident()

    def chosen(*args: Any, **keywords: Any) -> Any:
        return (replacement if threading.get_ident() == own else others)(*args, **keywords)

    monkeypatch.setattr(module, name, chosen)
