"""The process that Spark's Python workers are forked from: PySpark's own, which knows already what they will need.

Every question about a source or a sink, and every task that finds no worker free, is a fork of it. What is imported
here is not imported by each of them. Spark has one such process for tasks and one for each kind of question; those are
asked little, and load little. It must start no thread: a fork has none of its parent's, and would wait for them.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from pyspark.daemon import manager

import ottla.spark.data_source  # noqa: F401  # for the forks, like all that is loaded below

_WITHOUT_THREADS = {
    "OMP_NUM_THREADS": "1",  # Spark's own setting for tasks; numpy's algebra would have as many threads
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


_FOR_SINKS = ("ottla.spark.sink",)
_FOR_TASKS = (*_FOR_SINKS, "ottla.client.sync.consumer.consumer", "ottla.client.sync.producer.producer")


def load_worker(module: str) -> None:
    """Loads what forks are to run, and pyarrow with it, unless the environment asks for threads."""
    needed: tuple[str, ...] = ()
    if module == "pyspark.worker":
        needed = _FOR_TASKS
    elif "write" in module or "sink" in module:
        needed = _FOR_SINKS
    for name in needed:
        import_module(name)
    if all(os.environ.setdefault(name, text) == text for name, text in _WITHOUT_THREADS.items()):
        import pyarrow  # noqa: F401

        import_module(module)


if __name__ == "__main__":
    load_worker(sys.argv[1])
    # What is here stays: forks that look for garbage in it would only copy its pages.
    gc.collect()
    gc.freeze()
    manager()
