"""The session's defaults that need no Spark to be seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

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
