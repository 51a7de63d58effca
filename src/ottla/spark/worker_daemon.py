"""The process that Spark's Python workers are forked from: PySpark's own, which knows already what they will need.

Every question about a source or a sink, and every task that finds no worker free, is a fork of it. What is imported
here is not imported by each of them. Only what starts no thread may be: a fork has none of its parent's, and would wait
for them. So pyarrow stays for the forks to import.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import ottla.client.sync.consumer
import ottla.client.sync.producer
import ottla.spark.data_source
import ottla.spark.sink  # noqa: F401  # like those above, for the forks

if __name__ == "__main__":
    # What is here stays: forks that look for garbage in it would only copy its pages.
    gc.collect()
    gc.freeze()
    manager()
