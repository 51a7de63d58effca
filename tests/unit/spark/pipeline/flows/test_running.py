"""Who may be at work on a flow, by the lock beside its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.flows.running import (
    FlowBusyError,
    flow_stands_still,
    flows_run,
    is_being_moved,
    local_directory,
    moving_note,
)


def model(checkpoint: str) -> Any:
    made = Pipeline("p", kafka={"bootstrap.servers": "nowhere:1"}, checkpoint=checkpoint)
    made.source("in", kind="topic", topic="a")
    made.sink("out", kind="console")
    made.flow("in", "out", name="f")
    return made.model()


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    return model(str(tmp_path / "not" / "yet" / "there"))


def test_directories_that_are_not_there_yet_are_made(parts: Any) -> None:
    with flows_run(parts):
        directory = local_directory(parts.flows["f"].checkpoint)
        assert directory is not None and directory.parent.is_dir()
        assert not directory.exists(), "the checkpoint itself is for Spark to make"
    with flow_stands_still(parts.flows["f"]):
        pass


def test_runs_share_a_flow_but_not_with_whoever_moves_it(parts: Any) -> None:
    flow = parts.flows["f"]
    with (
        flows_run(parts),
        flows_run(parts),
        pytest.raises(FlowBusyError, match="flow f is running: stop the pipeline first"),
        flow_stands_still(flow),
    ):
        pass
    with flow_stands_still(flow):
        with pytest.raises(FlowBusyError, match="flow f is being moved by `ottla pipeline reset`"), flows_run(parts):
            pass
        with pytest.raises(FlowBusyError, match="flow f is running"), flow_stands_still(flow):
            pass
    with flows_run(parts):
        pass


def test_a_checkpoint_elsewhere_is_not_locked() -> None:
    far = model("s3://bucket/state")
    flow = far.flows["f"]
    assert local_directory(flow.checkpoint) is None
    assert not is_being_moved(flow.checkpoint)
    with flows_run(far), flow_stands_still(flow):
        pass


def test_a_note_tells_that_a_checkpoint_is_being_moved(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    assert local_directory(f"file:{directory}") == directory
    assert not is_being_moved(str(directory))
    moving_note(directory).touch()
    assert is_being_moved(str(directory)) and is_being_moved(f"file:{directory}")
    assert [path.name for path in tmp_path.iterdir()] == ["state.moving"]


def test_what_is_locked_is_free_again_when_it_is_done(parts: Any) -> None:
    flow = parts.flows["f"]
    with pytest.raises(ZeroDivisionError), flow_stands_still(flow):
        raise ZeroDivisionError
    with flow_stands_still(flow):
        pass
    with pytest.raises(ZeroDivisionError), flows_run(parts):
        raise ZeroDivisionError
    with flow_stands_still(flow):
        pass
    directory = local_directory(flow.checkpoint)
    assert directory is not None
    assert [path.name for path in directory.parent.iterdir()] == [f".{directory.name}.lock"]


@pytest.mark.parametrize(
    ("checkpoint", "directory"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("s3://a/b", None),
        ("relative", "relative"),
    ],
)
def test_directories_of_this_machine(checkpoint: str, directory: str | None) -> None:
    found = local_directory(checkpoint)
    assert (None if found is None else str(found)) == directory
