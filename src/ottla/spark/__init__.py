"""Pipelines on Spark: the format "ottla" to read and write topics, and what runs flows made of it.

The only room that knows PySpark. It reaches brokers through the client library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.progress import track_lag

__all__ = ["track_lag"]


def __getattr__(name: str) -> object:
    # Loaded on first use: Spark's tasks import this package and have no use for it.
    if name != "track_lag":
        raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")
    from ottla.spark.progress import track_lag

    return track_lag
