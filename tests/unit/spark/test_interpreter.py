"""Which archives are left out of the path of Spark's Python processes, and what the daemon of its workers knows."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ottla.spark import interpreter
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


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "JE_ARROW_MALLOC_CONF"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


SINK, ADMIN = "ottla.spark.sink", "ottla.client.sync.admin.admin"
CLIENTS = ["ottla.client.sync.consumer.consumer", "ottla.client.sync.producer.producer"]


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("pyspark.worker", [SINK, ADMIN, *CLIENTS]),
        ("pyspark.sql.worker.write_into_data_source", [SINK]),
        ("pyspark.sql.worker.commit_data_source_write", [SINK, ADMIN]),
        ("pyspark.sql.worker.python_streaming_sink_runner", [SINK, ADMIN]),
        ("pyspark.sql.worker.plan_data_source_read", []),
    ],
)
def test_what_the_daemon_loads_for_each_kind_of_fork(
    module: str, needed: list[str], without_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = pytest.importorskip("ottla.spark.worker_daemon", reason="pip install 'ottla[spark]'")
    loaded: list[str] = []
    monkeypatch.setattr(daemon, "import_module", loaded.append)
    daemon.load_worker(module)
    assert loaded == [*needed, module]
    assert (os.environ["OMP_NUM_THREADS"], os.environ["JE_ARROW_MALLOC_CONF"]) == ("1", "background_thread:false")
    for name, text in (("OMP_NUM_THREADS", "2"), ("JE_ARROW_MALLOC_CONF", "background_thread:true")):
        with pytest.MonkeyPatch.context() as asked:
            asked.setenv(name, text)
            loaded.clear()
            daemon.load_worker(module)
            assert loaded == needed, "who asks for threads has them in the forks"
            assert os.environ[name] == text


@pytest.mark.parametrize(
    ("arguments", "started"),
    [
        (["-m", "pyspark.daemon", "pyspark.worker"], ["-m", "ottla.spark.worker_daemon", "pyspark.worker"]),
        (["-m", "pyspark.daemon"], ["-m", "ottla.spark.worker_daemon"]),
        (["-m", "pyspark.worker", "pyspark.daemon"], ["-m", "pyspark.worker", "pyspark.daemon"]),
        (["x", "-m", "pyspark.daemon"], ["x", "-m", "pyspark.daemon"]),
        ([], []),
    ],
)
def test_what_the_command_becomes(arguments: list[str], started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: became.append((path, arguments)))
    monkeypatch.setattr(sys, "argv", ["ottla-spark-python", *arguments])
    monkeypatch.setattr(sys, "path", ["/x", INSTALLED])
    monkeypatch.setenv("PYTHONPATH", joined(*ARCHIVES, "/mine"))
    interpreter.main()
    assert became == [(sys.executable, [sys.executable, *started])]
    assert os.environ["PYTHONPATH"] == "/mine"


def test_where_the_command_is_not_installed_this_python_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
    (tmp_path / "scripts").mkdir()
    assert interpreter.find_interpreter() == sys.executable
    command = tmp_path / "scripts" / "ottla-spark-python"
    command.mkdir()
    assert interpreter.find_interpreter() == sys.executable, "that is no file"
    command.rmdir()
    command.touch()
    assert interpreter.find_interpreter() == str(command)
