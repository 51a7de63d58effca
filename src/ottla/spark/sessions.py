"""Spark sessions that start the right Python: their defaults, and a Spark that says nothing unless it is asked.

Knows of no topics and no pipelines.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import OttlaError
from ottla.spark.class_archive import find_java, options_to_use
from ottla.spark.interpreter import find_interpreter
from ottla.spark.shared_environment import settle_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
_TASK_ATTEMPTS = 3
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)\])?")

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # A checkpoint keeps the number its query began with, so it is chosen for a few cores and not for a cluster's 200.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.noDataProgressEventInterval": "2s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two attempts of one task at the same time would fence each other's transactions.
    "spark.speculation": "false",
}
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java processes that soon end: to compile more thoroughly would take longer than they live."""
_LOCAL_DEFAULTS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class SparkUnavailableError(OttlaError):
    """Spark cannot be started on this machine; the message says what is missing."""


def require_spark() -> None:
    """SparkUnavailableError if PySpark or Java is missing."""
    try:
        import pyspark  # noqa: F401  # only to see whether it is there
    except ImportError:
        raise SparkUnavailableError("pipelines need PySpark; install it with: pip install 'ottla[spark]'") from None
    if find_java() is None:
        raise SparkUnavailableError("Spark needs Java 17 or newer; install it, or set JAVA_HOME to where it is")


def session(
    name: str = "ottla",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """A Spark session that finds the format "ottla", with the defaults of pipelines, overridden by `conf`.

    Spark starts `python3` from the PATH for its tasks unless it is told otherwise, and there Ottla may not be
    installed. If this process has a Spark session already, that one is returned; SparkUnavailableError if it would
    start another Python than this one. What Java and the tasks log goes to `log_file`, or nowhere.
    """
    require_spark()
    from pyspark.sql import SparkSession

    from ottla.spark.data_source import FORMAT_NAME

    there = SparkSession.getActiveSession()
    if there is None:
        there = build_session(name, master=master, conf=conf, log_file=log_file)
    else:
        _require_this_python(there)
    settle_environment(there, FORMAT_NAME)
    return there


def _require_this_python(there: SparkSession) -> None:
    environment: Any = there._jvm.java.lang.System  # type: ignore[union-attr]
    named = [environment.getenv(name) for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")]
    started = next(filter(None, named), "python3")
    if not is_this_python(started):
        raise SparkUnavailableError(
            f"the Spark session of this process starts {started} for its tasks, and not {sys.executable}: "
            "call ottla.spark.session() before any other session is made, or set PYSPARK_PYTHON in the environment"
        )


def is_this_python(command: str) -> bool:
    """Whether a command, as Spark would start it, is a Python of this environment."""
    found = shutil.which(command)
    return found is not None and Path(found).parent in (Path(sys.executable).parent, Path(find_interpreter()).parent)


def build_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    is_short_lived: bool = False,
    archive_options: str | None = None,
) -> SparkSession:
    """A session with our defaults, overridden by `conf`. What Java and the tasks write to their standard error goes to
    `log_file`, or nowhere. One that is short-lived starts faster, and would work more slowly. `archive_options` are for
    a Java process that is to write an archive of classes; others use the one there is."""
    require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", find_interpreter())
    resolved = with_task_attempts(master or (conf or {}).get("spark.master") or DEFAULT_MASTER)
    archive = options_to_use() if archive_options is None else archive_options
    java_options = " ".join(filter(None, [_QUICK_START if is_short_lived else "", archive]))
    settings = {
        **_DEFAULTS,
        **(_LOCAL_DEFAULTS if resolved.startswith("local") else {}),
        **({"spark.driver.extraJavaOptions": java_options} if java_options else {}),
        "spark.log.level": "OFF" if log_file is None else "WARN",
        **(conf or {}),
    }
    builder = SparkSession.Builder().appName(name).master(resolved)
    for key, value in settings.items():
        builder = builder.config(key, value)
    _silence_python_logger()
    try:
        _start_java({"spark.app.name": name, "spark.master": resolved, **settings}, log_file)
        return builder.getOrCreate()
    except PySparkException as e:
        raise SparkUnavailableError(f"Spark did not start: {str(e).splitlines()[0]} Is it Java 17 or newer?") from None
    except Exception as e:
        # What goes wrong inside Java comes as py4j's own errors, whose text is a stack trace.
        reason = next((line for line in str(e).splitlines() if line.startswith(": ")), type(e).__name__)
        raise SparkUnavailableError(f"Spark did not start: {reason.removeprefix(': ')}") from None


def with_task_attempts(master: str) -> str:
    """Plain `local[N]` gives up a query when a task fails for the first time; elsewhere a task is tried again."""
    found = _LOCAL_MASTER.fullmatch(master.strip())
    return master if found is None else f"local[{found[1] or '1'},{_TASK_ATTEMPTS}]"


def _silence_python_logger() -> None:
    # PySpark writes a JSON line with a stack trace for each wrong query; the error itself is raised anyway.
    # It has to be made as PySpark's own kind of logger, which takes other arguments than logging's.
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _start_java(settings: Mapping[str, str], log_file: Path | None) -> None:
    """Starts the Java process, unless there is one already. It ends when the pipe to it is closed.

    It has a session of its own, and so have the Python processes it starts: Ctrl-C in a terminal and a SIGTERM to the
    process group reach only this process, which lets queries finish their batch before it stops them.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    # Java is started by a script, which asks another Java process how.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _QUICK_START)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    errors = os.open(log_file or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        started = {"stderr": errors, "start_new_session": True}
        gateway = launch_gateway(conf, popen_kwargs=started)  # type: ignore[no-untyped-call]
    finally:
        os.close(errors)
    SparkContext._ensure_initialized(gateway=gateway)
