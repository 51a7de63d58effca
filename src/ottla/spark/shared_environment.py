"""The environment variables of a Python data source, which Spark keeps in one map for all queries of the source.

A streaming query that starts puts variables of its own into that map, and no lock is held. If two queries do so at once
for the first time, the map can be left with a wrong size for as long as Java runs, and nothing that refers to it can be
serialised any more: all queries of the source fail with "Task not serializable" ("Illegal size 5 of collection,
expected 6"), however often they are started again. Variables that are there already are only overwritten, which is
harmless.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

PUT_BY_QUERIES = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""What Spark 4.3 puts there. It overwrites the values before it starts a process with them."""

_settling = threading.Lock()


def stream_reader(spark: SparkSession, format_name: str) -> DataStreamReader:
    """`spark.readStream.format(…)` for queries that may start at the same time."""
    settle_environment(spark, format_name)
    return spark.readStream.format(format_name)


def settle_environment(spark: SparkSession, format_name: str) -> None:
    """Puts those variables there before any query does. Formats that are not written in Python have no such map."""
    session: Any = spark
    manager = session._jsparkSession.sessionState().dataSourceManager()
    if not manager.dataSourceExists(format_name):
        return
    environment = manager.lookupDataSource(format_name).dataSourceCls().envVars()
    with _settling:
        for name in PUT_BY_QUERIES:
            environment.putIfAbsent(name, "")
