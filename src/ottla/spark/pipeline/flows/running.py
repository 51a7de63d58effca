"""Who is at work on a flow: runs share a lock on it, and whoever moves its checkpoint must be alone.

The lock is a file beside the checkpoint, so it is seen on one machine, and on others where their file system carries
locks. Two runs do not shut each other out here: that is what transactions and databases are for.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.errors import OttlaError

if TYPE_CHECKING:
    from ottla.spark.pipeline.model import Flow, Model


class FlowBusyError(OttlaError):
    """A flow is running that is to be moved, or is being moved while it is to run."""


def local_directory(checkpoint: str) -> Path | None:
    """None if a checkpoint is not in a directory of this machine."""
    path = checkpoint.removeprefix("file:")
    return None if "://" in path else Path(path)


def moving_note(directory: Path) -> Path:
    """A file that is there while a checkpoint is exchanged for another, and stays if that is cut off."""
    return directory.with_name(f"{directory.name}.moving")


def is_being_moved(checkpoint: str) -> bool:
    directory = local_directory(checkpoint)
    return directory is not None and moving_note(directory).exists()


@contextmanager
def flows_run(model: Model) -> Iterator[None]:
    """As long as the flows of a pipeline run."""
    with ExitStack() as stack:
        for flow in model.flows.values():
            told = f"flow {flow.name} is being moved by `ottla pipeline reset`: start it when that is done"
            stack.enter_context(_locked(flow, fcntl.LOCK_SH, told))
        yield


@contextmanager
def flow_stands_still(flow: Flow) -> Iterator[None]:
    """As long as a flow's checkpoint is exchanged."""
    told = f"flow {flow.name} is running: stop the pipeline first"
    with _locked(flow, fcntl.LOCK_EX, told):
        yield


@contextmanager
def _locked(flow: Flow, kind: int, told: str) -> Iterator[None]:
    directory = local_directory(flow.checkpoint)
    if directory is None:
        yield
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FlowBusyError(told) from None
        yield
