"""Where Spark looks for the format "ottla": a module of this name is found without any registration."""

from __future__ import annotations

from ottla.spark.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
