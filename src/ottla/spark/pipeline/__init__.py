"""Pipelines: sources, views, sinks and the flows between them, from a file or from Python, run on one Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline
    from ottla.spark.pipeline.problems import SpecError
    from ottla.spark.pipeline.runner import PipelineFailedError

__all__ = ["Pipeline", "PipelineFailedError", "SpecError"]

_HOMES = {"Pipeline": "definition", "PipelineFailedError": "runner", "SpecError": "problems"}


def __getattr__(name: str) -> object:
    # Loaded on first use: parts are imported by tasks, which have no use for the machinery around them.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ottla.spark.pipeline' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ottla.spark.pipeline.{home}"), name)
