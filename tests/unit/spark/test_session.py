"""The session's defaults that need no Spark to be seen."""

from __future__ import annotations

import pytest

from ottla.spark.session import SparkUnavailableError, require_spark, with_task_attempts


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
