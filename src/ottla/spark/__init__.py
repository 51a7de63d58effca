"""Pipelines on Spark: the format "ottla" to read and write topics, and what runs flows made of it.

The only room that knows PySpark. It reaches brokers through the client library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.progress import track_lag
    from ottla.spark.sessions import session

__all__ = ["session", "track_lag"]

_HOMES = {"session": "sessions", "track_lag": "progress"}


def __getattr__(name: str) -> object:
    # Loaded on first use: Spark's tasks import this package and have no use for them.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ottla.spark.{home}"), name)
