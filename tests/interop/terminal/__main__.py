"""`python -m tests.interop.terminal`: writes the transcript anew, to be looked at as a diff."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.interop.kafka_tools import COMMAND_LIBS, COMMAND_NAMES, fetch_kafka_libs
from tests.interop.terminal.kafka_jvm import KafkaJvm
from tests.interop.terminal.sessions import Session
from tests.interop.terminal.transcript import TRANSCRIPT, Said, Step, differ, parse, written


def rewrite(path: Path) -> None:
    steps = parse(path.read_text())
    jvm = KafkaJvm(fetch_kafka_libs(COMMAND_LIBS, str(COMMAND_NAMES)), fetch_kafka_libs())
    try:
        theirs = answers(steps, jvm)
    finally:
        jvm.close()
    for step, ours, other in zip(steps, answers(steps), theirs, strict=True):
        step.ours = ours
        step.theirs = other if differ(ours, other) else None
        step.reason = step.reason or "?"
    path.write_text(written(steps))


def answers(steps: list[Step], jvm: KafkaJvm | None = None) -> list[Said]:
    directory = Path(tempfile.mkdtemp())
    session = Session(directory, jvm).start()
    try:
        return [session.run(step) for step in steps]
    finally:
        session.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    rewrite(TRANSCRIPT)
