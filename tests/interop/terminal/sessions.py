"""Runs the commands of a transcript at a broker of its own: through our scripts, or by Kafka's own tools."""

from __future__ import annotations

import itertools
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

from ottla.cli.kafka_names.aliases import write_scripts
from tests.broker_process import BrokerProcess
from tests.interop.terminal.kafka_jvm import KafkaJvm
from tests.interop.terminal.transcript import Said, Step
from tests.waiting import PATIENCE_S

ADDRESS = "localhost:9092"
LOG_DIRS = "/tmp/kafka-logs"
_CHANGING = (
    (r"(?<=TopicId: )[\w-]{22}", "<TOPICID>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<UUID>"),
    (r"\b1\d{12}\b", "<MS>"),
    (r"(?<=crc: )\d+", "<CRC>"),
    (r"\bconsole-consumer-\d+\b", "console-consumer-<N>"),
)


class Session:
    """One broker with two log directories, and a directory with `bin/`. The transcript's names stand for all of it."""

    def __init__(self, directory: Path, jvm: KafkaJvm | None = None) -> None:
        self._directory = directory
        self._jvm = jvm
        self._running: list[subprocess.Popen[str]] = []
        data = directory / "data"
        self._log_dirs = {f"{LOG_DIRS}-2": str(data / "2"), LOG_DIRS: str(data / "1")}
        overrides = {
            "broker.id": "0",
            "log.dirs": ",".join(reversed(self._log_dirs.values())),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }
        self._broker = BrokerProcess(data / "1", overrides)

    def start(self) -> Session:
        write_scripts(self._directory / "bin")
        self._broker.start()
        return self

    def stop(self) -> None:
        for process in self._running:
            process.kill()
            process.wait(PATIENCE_S)
        self._broker.kill()

    def run(self, step: Step) -> Said:
        """Asks again while something is being moved: how long that takes is nobody's difference."""
        deadline_s = time.monotonic() + PATIENCE_S
        while "is still in progress" in (said := self._run(step)).output:
            assert time.monotonic() < deadline_s, said.output
        return said

    def _run(self, step: Step) -> Said:
        command, text = self._real(step.command), self._real(step.text)
        if command == "^C":
            return self._interrupt()
        if step.goes_on:
            return self._begin(step, command)
        words = shlex.split(command)
        script = Path(words[0]).name
        if self._jvm is not None and words[0].startswith("bin/"):
            target = self._directory / words[-1] if words[-2:-1] == [">"] else None
            arguments = words[1:-2] if target is not None else words[1:]
            said = Said(*self._jvm.run(script, [self._found(word) for word in arguments], text))
            if target is not None:
                target.write_text(said.output)
                said = said._replace(output="")
            return self._plain(Said(said.exit_code, without_java(said.output), without_java(said.error)))
        done = subprocess.run(
            ["sh", "-c", command],
            input=text,
            capture_output=True,
            text=True,
            cwd=self._directory,
            timeout=PATIENCE_S,
            check=False,
        )
        return self._plain(Said(done.returncode, done.stdout, done.stderr))

    def _real(self, text: str) -> str:
        text = text.replace(ADDRESS, self._broker.bootstrap)
        for name, path in self._log_dirs.items():
            text = re.sub(rf"{name}(?![-\w])", path, text)
        return text

    def _found(self, word: str) -> str:
        """Kafka's tools run in a process that is somewhere else."""
        return str(self._directory / word) if re.fullmatch(r"[\w-]+\.(json|csv|properties)", word) else word

    def _begin(self, step: Step, command: str) -> Said:
        """Returns when as many lines were printed as the transcript has."""
        process = subprocess.Popen(
            shlex.split(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            start_new_session=True,
        )
        self._running.append(process)
        assert process.stdout is not None
        lines = itertools.islice(process.stdout, step.ours.output.count("\n"))
        return self._plain(Said(output="".join(lines)))

    def _interrupt(self) -> Said:
        process = self._running.pop()
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=PATIENCE_S)
        return self._plain(Said(process.returncode, output, error))

    def _plain(self, said: Said) -> Said:
        return said._replace(output=self._named(said.output), error=self._named(said.error))

    def _named(self, text: str) -> str:
        text = text.replace(self._broker.bootstrap, ADDRESS)
        for name, path in self._log_dirs.items():
            text = text.replace(path, name)
        text = text.replace(f"{self._directory}/", "")
        for pattern, name in _CHANGING:
            text = re.sub(pattern, name, text)
        return text


def without_java(text: str) -> str:
    """Without tables of options, and without stack traces, whose first line says again what was said before."""
    text = re.sub(r"^Option {3,}.*", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\s+at |\t\.\.\. |Caused by: |\s+Suppressed: ).*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^(Error: |)(.*)\n(?:[\w.]+Exception: )+\2\n\n?", r"\1\2\n", text, flags=re.MULTILINE)
