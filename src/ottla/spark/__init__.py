"""Pipelines on Spark: the format "ottla" to read and write topics, and what runs flows made of it.

The only room that knows PySpark. It reaches brokers through the client library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.progress import track_lag
    from ottla.spark.sink_updates import topic_updates

__all__ = ["topic_updates", "track_lag"]

_HOMES = {"topic_updates": "ottla.spark.sink_updates", "track_lag": "ottla.spark.progress"}


def __getattr__(name: str) -> object:
    # Loaded on first use: Spark's tasks import this package and have no use for them.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
