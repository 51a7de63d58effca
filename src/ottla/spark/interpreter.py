"""The Python that Spark starts for its tasks: this one, with PySpark from where it is installed.

Spark puts an archive of PySpark first on the path of every Python process it starts. Nothing in the archive is
compiled, so each process would compile what it imports anew: half a second of processor time, for every stream and
every task's process. An installed PySpark holds both the archive and the same modules, compiled once.

Workers are forked from a daemon, and ours has imported what they need (`worker_daemon`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

COMMAND = "ottla-spark-python"
_ARCHIVES = ("pyspark.zip", "py4j-*-src.zip")
_DAEMON = ["-m", "pyspark.daemon"]
_OUR_DAEMON = ["-m", "ottla.spark.worker_daemon"]


def find_interpreter() -> str:
    """What to name to Spark as its Python: this module's command where it is installed, or else this Python itself."""
    command = Path(sysconfig.get_path("scripts"), COMMAND)
    return str(command) if command.is_file() else sys.executable


def without_archives(python_path: str, import_path: Iterable[str]) -> str:
    """A PYTHONPATH without archives that belong to a PySpark which `import_path` reaches anyway."""
    installed = {Path(entry, "pyspark", "python", "lib") for entry in import_path}

    def is_needed(entry: str) -> bool:
        archive = Path(entry)
        return archive.parent not in installed or not any(fnmatch(archive.name, pattern) for pattern in _ARCHIVES)

    return os.pathsep.join(filter(is_needed, python_path.split(os.pathsep)))


def main() -> None:
    """Becomes this Python, with the arguments given; what would become PySpark's daemon becomes ours."""
    os.environ["PYTHONPATH"] = without_archives(os.environ.get("PYTHONPATH", ""), sys.path)
    arguments = sys.argv[1:]
    if arguments[:2] == _DAEMON:
        arguments[:2] = _OUR_DAEMON
    os.execv(sys.executable, [sys.executable, *arguments])
