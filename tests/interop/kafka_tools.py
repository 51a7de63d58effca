"""Kafka's own tools as judges of the files we write, and of what we ask its brokers.

`scripts/fetch_kafka_tools.sh` gets the jars by name, once; without Java, Maven or a repository to fetch from, the tests
that ask for the `kafka_tools` fixture are skipped, and the skip says what is missing. A test module gets the fixture by
importing `kafka_tools_fixture` under its own name. `kafka_commands_fixture` has Kafka's commands and what its system
tests use, from jars of their own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBS = ROOT / ".tools" / "kafka-libs"
FETCH = ROOT / "scripts" / "fetch_kafka_tools.sh"
COMMAND_LIBS = ROOT / ".tools" / "kafka-command-libs"
COMMAND_NAMES = Path(__file__).with_name("kafka_commands_pom.xml")
FETCH_TIMEOUT_S = 150
RUN_TIMEOUT_S = 60

# These options make a short-lived JVM start in half the time.
_JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class KafkaToolError(Exception):
    """The tool ended with an error; the message is what it printed."""


class KafkaTools:
    def __init__(self, libs: Path) -> None:
        self._libs = libs

    def dump_log_segments(self, files: Sequence[Path], *flags: str) -> str:
        """What `DumpLogSegments` prints about segment files: `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`.

        Useful flags: `--print-data-log`, `--deep-iteration`, `--index-sanity-check`, `--verify-index-only`,
        `--offsets-decoder`, `--transaction-log-decoder`.
        """
        return self.dump_with_complaints(files, *flags)[0]

    def dump_with_complaints(self, files: Sequence[Path], *flags: str) -> tuple[str, str]:
        """The same, and what the tool finds wrong with the files."""
        names = ",".join(str(file) for file in files)
        return self._run("kafka.tools.DumpLogSegments", "--files", names, *flags)

    def run(self, main_class: str, *arguments: str) -> str:
        """What another of Kafka's tools prints."""
        return self._run(main_class, *arguments)[0]

    def _run(self, main_class: str, *arguments: str) -> tuple[str, str]:
        done = subprocess.run(
            self._command(main_class, *arguments),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if done.returncode or "Exception in thread" in done.stderr:
            raise KafkaToolError(f"{main_class} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def start(self, main_class: str, *arguments: str) -> subprocess.Popen[str]:
        """A tool that goes on until it is ended; what it prints is read line by line."""
        return subprocess.Popen(
            self._command(main_class, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        return [*_JAVA, "-cp", f"{self._libs}/*", main_class, *arguments]


def fetch_kafka_libs(libs: Path = LIBS, *names: str) -> Path:
    """Where Kafka's jars are. Skips the test that needs them if they cannot be had."""
    try:
        fetched = subprocess.run(
            [str(FETCH), str(libs), *names],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Kafka's tools could not be fetched within {FETCH_TIMEOUT_S} s")
    if fetched.returncode:
        pytest.skip(fetched.stderr.strip() or "Kafka's tools could not be fetched")
    return libs


@pytest.fixture(scope="session", name="kafka_tools")
def kafka_tools_fixture() -> KafkaTools:
    return KafkaTools(fetch_kafka_libs())


@pytest.fixture(scope="session", name="kafka_commands")
def kafka_commands_fixture() -> KafkaTools:
    return KafkaTools(fetch_kafka_libs(COMMAND_LIBS, str(COMMAND_NAMES)))
