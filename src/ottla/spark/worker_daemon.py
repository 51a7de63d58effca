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
_SINK, _ADMIN = "ottla.spark.sink", "ottla.client.sync.admin.admin"
_CLIENTS = ("ottla.client.sync.consumer.consumer", "ottla.client.sync.producer.producer")
_NEEDED = {
    "pyspark.worker": (_SINK, _ADMIN, *_CLIENTS),
    "pyspark.sql.worker.write_into_data_source": (_SINK,),
    "pyspark.sql.worker.commit_data_source_write": (_SINK, _ADMIN),
    "pyspark.sql.worker.python_streaming_sink_runner": (_SINK, _ADMIN),
}
_WITH_ARROW = ("pyspark.worker", "pyspark.sql.worker.write_into_data_source")
"""Others load pyarrow themselves, or do without: half of what they take to start would be that."""


def load_worker(module: str) -> None:
    """Loads what forks are to run, and pyarrow if they use it, unless the environment asks for threads."""
    for name in _NEEDED.get(module, ()):
        import_module(name)
    if all(os.environ.setdefault(name, text) == text for name, text in _WITHOUT_THREADS.items()):
        if module in _WITH_ARROW:
            import pyarrow  # noqa: F401
        import_module(module)


if __name__ == "__main__":
    load_worker(sys.argv[1])
    # What is here stays: forks that look for garbage in it would only copy its pages.
    gc.collect()
    gc.freeze()
    manager()
