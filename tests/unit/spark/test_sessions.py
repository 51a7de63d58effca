"""What sessions are made with, and what is wrong with one: all that needs no Spark to be seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ottla.spark import sessions
from ottla.spark.interpreter import find_interpreter
from ottla.spark.sessions import SparkUnavailableError, is_this_python, require_spark, with_task_attempts


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,3]"),
        ("local[2]", "local[2,3]"),
        ("local[*]", "local[*,3]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_tasks_are_tried_again(master: str, expected: str) -> None:
    assert with_task_attempts(master) == expected


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SparkUnavailableError, match="needs Java 17"):
        require_spark()


def test_what_goes_wrong_in_java_is_said_without_its_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("An error occurred while calling None.X.\n: java.net.BindException: in use\n\tat a.b.C")

    monkeypatch.setattr(sessions, "_start_java", fails)
    with pytest.raises(SparkUnavailableError) as failure:
        sessions.build_session("t", master="local[1]")
    assert str(failure.value) == "Spark did not start: java.net.BindException: in use"


def test_which_python_a_session_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    assert is_this_python(sys.executable) and is_this_python(find_interpreter())
    assert not is_this_python(str(other)) and not is_this_python("no-such-python")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}")
    assert not is_this_python("python3")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{tmp_path}")
    assert is_this_python("python3")


def test_the_command_that_starts_python_may_lie_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "scripts" / "ottla-spark-python"
    command.parent.mkdir()
    command.symlink_to(sys.executable)
    assert not is_this_python(str(command))
    monkeypatch.setattr(sessions, "find_interpreter", lambda: str(command))
    assert is_this_python(str(command)) and is_this_python(sys.executable)


def test_without_pyspark_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkUnavailableError, match=r"install it with: pip install 'ottla\[spark\]'"):
        require_spark()


ALWAYS = {
    "spark.app.name": "t",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.noDataProgressEventInterval": "2s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.log.level": "OFF",
}
LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
JAVA = "spark.driver.extraJavaOptions"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], Path | None]]:
    """With what Java was started, and where what it logs goes."""
    started: list[tuple[dict[str, str], Path | None]] = []
    monkeypatch.setattr(sessions, "_start_java", lambda settings, log_file: started.append((dict(settings), log_file)))
    monkeypatch.setattr(sessions, "require_spark", lambda: None)
    monkeypatch.setattr(sessions, "options_to_use", lambda: "")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: dict(self._options))
    return started


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {"spark.master": "local[*,3]", **LOCAL}),
        ({"master": "local[2]"}, {"spark.master": "local[2,3]", **LOCAL}),
        ({"conf": {"spark.master": "spark://h:1"}}, {"spark.master": "spark://h:1"}),
        (
            {"master": "local", "conf": {"spark.master": "spark://h:1"}},
            {"spark.master": "spark://h:1", **LOCAL},
        ),
        ({"conf": {"spark.ui.enabled": "true"}}, {"spark.master": "local[*,3]", **LOCAL, "spark.ui.enabled": "true"}),
        ({"is_short_lived": True}, {"spark.master": "local[*,3]", **LOCAL, JAVA: QUICK}),
        ({"archive_options": "-XX:A"}, {"spark.master": "local[*,3]", **LOCAL, JAVA: "-XX:A"}),
        (
            {"archive_options": "-XX:A", "is_short_lived": True},
            {"spark.master": "local[*,3]", **LOCAL, JAVA: f"{QUICK} -XX:A"},
        ),
        ({"log_file": Path("/log")}, {"spark.master": "local[*,3]", **LOCAL, "spark.log.level": "WARN"}),
    ],
)
def test_what_a_session_is_made_with(
    started: list[tuple[dict[str, str], Path | None]], options: dict[str, Any], settings: dict[str, str]
) -> None:
    made: Any = sessions.build_session("t", **options)
    assert started == [({**ALWAYS, **settings}, options.get("log_file"))]
    told = {**ALWAYS, **settings}
    assert made == told, "the session itself gets the same, if there is a Java process already"


def test_an_archive_of_classes_is_used_if_there_is_one(
    started: list[tuple[dict[str, str], Path | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "options_to_use", lambda: "-XX:There")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    sessions.build_session("t")
    sessions.build_session("t", archive_options="")
    assert [settings.get(JAVA) for settings, _ in started] == ["-XX:There", None]
    assert os.environ["PYSPARK_PYTHON"] == find_interpreter()
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        assert PySparkLogger.getLogger(name).disabled


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PySparkException("[JAVA_GATEWAY_EXITED] it ended.\nmore"), "[JAVA_GATEWAY_EXITED] it ended. Is it Java 17"),
        (ValueError("nothing of Java\n"), "Spark did not start: ValueError"),
    ],
)
def test_why_spark_did_not_start(
    started: object, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(sessions, "_start_java", fails)
    with pytest.raises(SparkUnavailableError) as failure:
        sessions.build_session("t")
    assert words in str(failure.value)
    assert "more" not in str(failure.value)


@pytest.mark.parametrize("is_there", [True, False])
def test_java_is_started_once_in_a_process_group_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_there: bool
) -> None:
    launched: list[dict[str, Any]] = []
    initialized: list[object] = []
    log = tmp_path / "log"

    def launch(conf: Any, popen_kwargs: Any) -> str:
        os.write(popen_kwargs["stderr"], b"warning\n")
        launched.append({**popen_kwargs, "conf": dict(conf.getAll())})
        return "gateway"

    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_gateway", object() if is_there else None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda gateway: initialized.append(gateway))
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "")
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS")
    for path in (log, log, None):
        sessions._start_java({"spark.x": "1"}, path)
    if is_there:
        assert (launched, initialized, log.exists()) == ([], [], False)
        return
    assert initialized == ["gateway"] * 3
    assert [(one["conf"], one["start_new_session"]) for one in launched] == [({"spark.x": "1"}, True)] * 3
    assert log.read_bytes() == b"warning\n" * 2, "what was there stays"
    assert log.stat().st_mode & 0o777 == 0o600
    assert os.environ["SPARK_LAUNCHER_OPTS"] == QUICK
    for one in launched:
        with pytest.raises(OSError):
            os.fstat(one["stderr"])


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, str]]:
    settled: list[tuple[object, str]] = []
    monkeypatch.setattr(sessions, "require_spark", lambda: None)
    monkeypatch.setattr(sessions, "settle_environment", lambda session, name: settled.append((session, name)))
    return settled


def test_a_session_is_made_if_there_is_none(settled: list[tuple[object, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def build(name: str, *, master: object, conf: object, log_file: object) -> str:
        asked.append((name, master, conf, log_file))
        return "made"

    monkeypatch.setattr(sessions, "build_session", build)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    made: Any = sessions.session()
    assert (made, settled) == ("made", [("made", "ottla")])
    sessions.session("n", master="local", conf={"a": "b"}, log_file=Path("/l"))
    assert asked == [("ottla", None, None, None), ("n", "local", {"a": "b"}, Path("/l"))]


@pytest.mark.parametrize(
    ("environment", "started"),
    [
        ({}, "python3"),
        ({"PYSPARK_PYTHON": "/other/python"}, "/other/python"),
        ({"PYSPARK_PYTHON": sys.executable}, None),
        ({"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": "/other/python"}, "/other/python"),
        ({"PYSPARK_PYTHON": "/other/python", "PYSPARK_DRIVER_PYTHON": sys.executable}, None),
    ],
)
def test_a_session_that_is_there_has_to_start_this_python(
    settled: list[tuple[object, str]],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    started: str | None,
) -> None:
    system = SimpleNamespace(getenv=environment.get)
    there = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system))))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: there)
    monkeypatch.setenv("PATH", "/nowhere")
    if started is None:
        assert sessions.session() is there  # type: ignore[comparison-overlap]
        assert settled == [(there, "ottla")]
    else:
        with pytest.raises(SparkUnavailableError, match=f"starts {started} for its tasks, and not {sys.executable}"):
            sessions.session()
