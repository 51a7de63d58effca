"""Which archives are left out of the path of Spark's Python processes, and what the daemon of its workers knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.interpreter import without_archives
from tests.waiting import PATIENCE_S

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
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == [sys.executable, str(tmp_path), "one", "two"]


def test_workers_are_forked_from_our_daemon() -> None:
    pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
    start = "from ottla.spark.interpreter import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", start, "-m", "pyspark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        assert len(daemon.stdout.read(4)) == 4, "the port it listens on"
        command = Path(f"/proc/{daemon.pid}/cmdline").read_text().split("\0")
        daemon.stdin.close()  # so Spark tells it to end
    assert command == [sys.executable, "-m", "ottla.spark.worker_daemon", "pyspark.worker", ""]


@pytest.mark.parametrize(
    ("module", "environment", "loaded"),
    [
        ("pyspark.worker", {}, "pyarrow admin worker"),
        ("pyspark.sql.worker.lookup_data_sources", {}, "worker"),
        ("pyspark.sql.worker.create_data_source", {}, "worker"),
        ("pyspark.sql.worker.plan_data_source_read", {}, "pyarrow worker"),
        ("pyspark.sql.worker.python_streaming_sink_runner", {}, "admin worker"),
        ("pyspark.sql.worker.commit_data_source_write", {}, "admin worker"),
        ("pyspark.sql.worker.write_into_data_source", {}, "pyarrow worker"),
        ("pyspark.worker", {"OMP_NUM_THREADS": "2"}, "admin"),
    ],
)
def test_the_daemon_loads_what_its_forks_use_and_starts_no_threads(
    module: str, environment: dict[str, str], loaded: str
) -> None:
    """A fork would be without the threads, and what is not used delays the first of them."""
    pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
    code = (
        "import pathlib, sys; from ottla.spark.worker_daemon import load_worker; load_worker(sys.argv[1]);"
        "found = {'pyarrow': 'pyarrow', 'admin': 'ottla.client.aio.admin.admin', 'worker': sys.argv[1]};"
        "print(len(list(pathlib.Path('/proc/self/task').iterdir())), *(n for n in found if found[n] in sys.modules))"
    )
    kept = {name: text for name, text in os.environ.items() if name not in ("OMP_NUM_THREADS", "JE_ARROW_MALLOC_CONF")}
    done = subprocess.run(
        [sys.executable, "-c", code, module],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == ["1", *loaded.split()]
