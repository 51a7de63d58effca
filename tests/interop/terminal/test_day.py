"""A day at a terminal, through Kafka's script names and by Kafka's own tools, line by line as the transcript has it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.interop.terminal.kafka_jvm import KafkaJvm
from tests.interop.terminal.kafka_jvm import kafka_jvm_fixture as kafka_jvm_fixture
from tests.interop.terminal.sessions import Session, without_java
from tests.interop.terminal.transcript import TRANSCRIPT, Said, Step, differ, parse, written

pytestmark = pytest.mark.interop

STEPS = parse(TRANSCRIPT.read_text())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path).start()
    yield session
    session.stop()


def test_our_scripts_print_what_was_reviewed(session: Session) -> None:
    now = [Step(step.command, step.goes_on, step.remarks, step.text, in_order(step, session)) for step in STEPS]
    reviewed = [Step(step.command, step.goes_on, step.remarks, step.text, step.ours) for step in STEPS]
    lines = unified_diff(written(reviewed).splitlines(), written(now).splitlines(), "reviewed", "now", lineterm="")
    assert "\n".join(lines) == ""


def in_order(step: Step, session: Session) -> Said:
    """Whose partition's records are read first is not said."""
    said = session.run(step)
    is_read = "console-consumer" in step.command and not differ(step.ours, said)
    return step.ours if is_read else said


def test_kafkas_own_tools_print_the_same(tmp_path: Path, kafka_jvm: KafkaJvm) -> None:
    """But for what the transcript says, with a reason."""
    session = Session(tmp_path, kafka_jvm).start()
    try:
        said = [session.run(step) for step in STEPS]
    finally:
        session.stop()
    expected = [step.ours if step.theirs is None else step.theirs for step in STEPS]
    surprises = [
        (step.command, should, now)
        for step, should, now in zip(STEPS, expected, said, strict=True)
        if differ(should, now)
    ]
    assert surprises == []


def test_every_difference_has_a_reason_and_is_one() -> None:
    assert len(STEPS) > 90
    assert [step.command for step in STEPS if step.theirs is not None and len(step.reason) < 20] == []
    assert [step.command for step in STEPS if step.theirs is not None and not differ(step.ours, step.theirs)] == []
    assert written(parse(TRANSCRIPT.read_text())) == TRANSCRIPT.read_text()


def test_what_counts_as_a_difference() -> None:
    ours = Said(0, "a 1\nb 2\n", "ERROR once more\n (org.apache.X)\n")
    assert not differ(ours, Said(0, "b 2\na 1\n"))
    assert differ(ours, Said(0, "a 2\nb 1\nc\n"))
    assert differ(ours, Said(1, "a 1\nb 2\n"))
    assert differ(ours, Said(0, "a 1\nb 2\n", "told\n"))
    trace = "Error: no\norg.apache.kafka.XException: no\n\tat somewhere\nCaused by: it\n\n"
    assert without_java(trace) == "Error: no\n"
