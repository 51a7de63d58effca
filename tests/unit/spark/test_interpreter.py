"""Which archives are left out of the path of Spark's Python processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ottla.spark.interpreter import without_archives

INSTALLED = "/env/site-packages"
ARCHIVES = [f"{INSTALLED}/pyspark/python/lib/{name}" for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def joined(*entries: str) -> str:
    return os.pathsep.join(entries)


def test_archives_of_an_installed_pyspark_are_left_out() -> None:
    path = joined(*ARCHIVES, "/mine", "/mine/more.zip")
    assert without_archives(path, ["/x", INSTALLED]) == joined("/mine", "/mine/more.zip")


def test_archives_of_another_spark_stay() -> None:
    path = joined("/opt/spark/python/lib/pyspark.zip", *ARCHIVES)
    assert without_archives(path, ["/x"]) == path
    assert without_archives(path, [INSTALLED]) == "/opt/spark/python/lib/pyspark.zip"


def test_an_archive_of_mine_beside_theirs_stays() -> None:
    mine = f"{INSTALLED}/pyspark/python/lib/mine.zip"
    assert without_archives(joined(mine, *ARCHIVES), [INSTALLED]) == mine


def test_nothing_stays_nothing() -> None:
    assert without_archives("", [INSTALLED]) == ""


def test_the_command_is_this_python(tmp_path: Path) -> None:
    lib = tmp_path / "pyspark" / "python" / "lib"
    code = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:])"
    start = "import sys; from ottla.spark.interpreter import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start, "-c", code, "one", "two"],
        env={**os.environ, "PYTHONPATH": joined(str(lib / "pyspark.zip"), str(tmp_path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [sys.executable, str(tmp_path), "one", "two"]
