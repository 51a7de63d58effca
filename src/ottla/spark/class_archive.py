"""An archive of the Java classes that Spark has loaded, from which a later Java process takes them: it starts with half
the work.

It is only ever an offer. Java checks whether an archive is whole and fits itself and its jars, and goes on without a
word if it does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

_SILENTLY = "-Xlog:disable"
"""Java would write its doubts about an archive to the standard output."""
_WRITE_TIMEOUT_S = 300.0


def find_java() -> Path | None:
    """The one that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home, "bin", "java").is_file():
        return Path(home, "bin", "java")
    found = shutil.which("java")
    return None if found is None else Path(found)


def archive_path() -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    import pyspark

    java = find_java()
    resolved = None if java is None else java.resolve()
    named = f"{resolved} {0 if resolved is None else resolved.stat().st_mtime_ns} {pyspark.__path__[0]}"
    key = hashlib.sha256(named.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ottla" / f"spark-{pyspark.__version__}-{key}.jsa"


def options_to_use() -> str:
    """What to tell Java; nothing if there is no archive."""
    with suppress(OSError, RuntimeError):  # a user without a home directory has no cache
        archive = archive_path()
        if archive.is_file():
            return f'"-XX:SharedArchiveFile={archive}" {_SILENTLY}'
    return ""


class NewArchive:
    """One that a Java process writes at its end. `keep` waits for that."""

    def __init__(self) -> None:
        self._path = archive_path()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._unfinished = self._path.with_suffix(f".{os.getpid()}.new")
        self.options = f'"-XX:ArchiveClassesAtExit={self._unfinished}" {_SILENTLY}'

    def keep(self) -> Path | None:
        """Ends the Java process of this Python process, whose Spark is stopped. None if it has left no archive."""
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_WRITE_TIMEOUT_S)
            self._unfinished.rename(self._path)
        except (OSError, subprocess.TimeoutExpired):
            self._unfinished.unlink(missing_ok=True)
            return None
        return self._path
