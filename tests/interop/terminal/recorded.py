"""What Kafka's tools were recorded to print, beside what our scripts print in the same state.

The recording is no part of the project: `make recorded` works where it lies next to it. Seven hundred commands in a row
at a cluster that moves partitions depend on how fast that is, so no other run includes them.
`golden/recorded_differences.txt` has the commands, by their lines in it, that differ, and why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.kafka_names.scripts import SCRIPTS
from tests.interop.terminal.recorded_cluster import RecordedCluster
from tests.interop.terminal.recording import RECORDING, Recorded, comparable, parse_recording
from tests.interop.terminal.transcript import Said

pytestmark = [pytest.mark.interop, pytest.mark.skipif(RECORDING is None, reason="the recording is not here")]

DIFFERENCES = Path(__file__).parents[2] / "golden" / "recorded_differences.txt"
NOT_PLAYED = (
    "kafka-dump-log.sh",  # of files that are not recorded; test_dumps.py has the same files dumped by both
    "SCRAM on the second cluster",  # no users here
    "kafka-acls.sh when the caller is not allowed",
    "Broker 3 down again",  # states that take other brokers down first
    "Deleting internal topics",
)
LATE = ("kafka-topics.sh: internal", "kafka-console-consumer.sh and kafka-configs.sh", "One broker (3) down")
"""Parts that were recorded after those that follow them."""
EITHER_WAY = "timing"
"""The one reason for which a command may also not differ."""


def played() -> list[Recorded]:
    assert RECORDING is not None
    there = [
        recorded
        for recorded in parse_recording(RECORDING.read_text("utf-8"))
        if recorded.command.split()[0] in SCRIPTS and not recorded.part.startswith(NOT_PLAYED)
    ]
    places = {recorded.line: place for place, recorded in enumerate(there)}
    return sorted(there, key=lambda it: (_lateness(it.part), places[it.line]))


def _lateness(part: str) -> int:
    return next((number for number, start in enumerate(LATE, 1) if part.startswith(start)), 0)


def reviewed() -> dict[int, str]:
    """The lines of commands that differ, with the short names of why."""
    lines = [line.split() for line in DIFFERENCES.read_text().splitlines() if line and not line.startswith(("#", "="))]
    found = {int(number): name for name, *numbers in lines for number in numbers}
    assert len(found) == sum(len(numbers) for _, *numbers in lines), "a command is listed twice"
    return found


def test_every_reason_is_explained_and_used() -> None:
    lines = DIFFERENCES.read_text().splitlines()
    explained = [line.split()[1] for line in lines if line.startswith("=")]
    assert sorted(explained) == sorted(set(reviewed().values()))


@pytest.mark.timeout(1200)
def test_what_our_scripts_print_is_what_was_recorded(tmp_path: Path) -> None:
    why = reviewed()
    cluster = RecordedCluster(tmp_path).start()
    surprises = []
    try:
        for recorded in played():
            said = cluster.run(recorded)
            reason = why.pop(recorded.line, None)
            if recorded.differs(said) != (reason is not None) and reason != EITHER_WAY:
                surprises.append(_surprise(recorded, said, reason))
    finally:
        cluster.stop()
    if surprises:
        pytest.fail("\n".join(surprises))
    assert why == {}, "these commands are not in the recording, or not run"


def _surprise(recorded: Recorded, said: Said, reason: str | None) -> str:
    start = f"line {recorded.line}: {recorded.command}"
    if reason is not None:
        return f"{start}\n  does not differ any more ({reason})"
    return f"{start}\n  ours: {comparable(said)}\n  recorded: {comparable(recorded.theirs)}"
