"""kcat, a command-line client on an older librdkafka.

Keys and values go to its standard input with marks between them, headers onto its command line: records that share the
headers are sent together, in one run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import groupby

from confluent_kafka import KafkaError

from tests.interop.dataset import MESSAGE_BYTES_LIMIT, Header, Received, Sample
from tests.interop.peers.peer import PATIENCE_S, Peer, RefusedError

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
WHY_MISSING = "kcat is not installed (scripts/install_tools.sh)"

_KEY_END = "<end of key>"
_MESSAGE_END = "<end of message>"
_RECORD_END = b"\x1e\x1d\n"
_FORMAT = r"%o %T %K %S %k%s%h\x1e\x1d\n"


def run(*arguments: str, stdin: bytes = b"") -> bytes:
    assert KCAT is not None
    done = subprocess.run([KCAT, *arguments], capture_output=True, input=stdin, timeout=2 * PATIENCE_S, check=False)
    errors = done.stderr.decode(errors="replace")
    if done.returncode or "Delivery failed" in errors or "ERROR" in errors or "PROTOERR" in errors:
        raise RefusedError(_code_of(errors), errors)
    return done.stdout


def _code_of(errors: str) -> int:
    """kcat prints an error's text only; its sister client knows which code has that text."""
    return next((code for code in range(1, 120) if KafkaError(code).str() in errors), -1)


class Kcat(Peer):
    name = "kcat"
    gives_timestamps = False
    is_librdkafka = True

    def can_send(self, sample: Sample) -> bool:
        # An option makes it send all that is empty as null, key and value alike.
        empty_and_null = {sample.key, sample.value} == {b"", None}
        return not empty_and_null and not (sample.key is None and sample.value == b"")

    def create_topic(self, bootstrap: str, topic: str) -> None:
        """It has no command for that: asking for the topic is enough where the broker creates what is missing."""
        deadline = time.monotonic() + PATIENCE_S
        while b" partition 0, leader" not in run(
            "-L", "-b", bootstrap, "-t", topic, "-X", "allow.auto.create.topics=true"
        ):
            assert time.monotonic() < deadline, "the topic was not created"

    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        arguments = ["-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-D", _MESSAGE_END]
        for setting in (
            f"message.max.bytes={10 * MESSAGE_BYTES_LIMIT}",
            "linger.ms=5",
            f"compression.codec={codec}",
            f"enable.idempotence={str(idempotent).lower()}",
            "request.required.acks=-1",
            f"message.timeout.ms={PATIENCE_S * 1000}",
        ):
            arguments += ["-X", setting]
        for options, group in groupby(samples, key=_options):
            run(*arguments, *options, stdin=b"".join(map(_message, group)))

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Received]:
        return self._read(bootstrap, topic, count, partition, str(offset))

    def read_from_time(self, bootstrap: str, topic: str, timestamp_ms: int, count: int) -> list[Received]:
        return self._read(bootstrap, topic, count, 0, f"s@{timestamp_ms}")

    def _read(self, bootstrap: str, topic: str, count: int, partition: int, start: str) -> list[Received]:
        arguments = ["-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", start]
        output = run(*arguments, "-c", str(count), "-X", "check.crcs=true", "-f", _FORMAT)
        return _parse_all(output)

    def read_at_end(
        self, bootstrap: str, topic: str, end_offset: int, once_waiting: Callable[[], None]
    ) -> list[Received]:
        assert KCAT is not None
        arguments = [
            "-C",
            "-u",
            "-b",
            bootstrap,
            "-t",
            topic,
            "-p",
            "0",
            "-o",
            str(end_offset),
            "-c",
            "1",
            "-f",
            _FORMAT,
        ]
        process = subprocess.Popen([KCAT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if b"Reached end of topic" in line:
                    break
            once_waiting()
            output, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, errors
        finally:
            process.kill()
            process.wait(PATIENCE_S)
        return _parse_all(output)


def _options(sample: Sample) -> tuple[str, ...]:
    """What has to be said on the command line about a record; records with the same options go together."""
    options: list[str] = []
    if sample.key is not None or sample.value is None:
        options += ["-K", _KEY_END]
    if sample.value is None:
        options.append("-Z")
    for name, value in sample.headers:
        options += ["-H", name if value is None else f"{name}={os.fsdecode(value)}"]
    return tuple(options)


def _message(sample: Sample) -> bytes:
    key, value, *_ = sample
    if key is None and value is not None:
        return value + _MESSAGE_END.encode()
    return (key or b"") + _KEY_END.encode() + (value or b"") + _MESSAGE_END.encode()


def _parse_all(output: bytes) -> list[Received]:
    records = []
    while output:
        record, output = _parse(output)
        records.append(record)
    return records


def _parse(output: bytes) -> tuple[Received, bytes]:
    *numbers, rest = output.split(b" ", 4)
    offset, timestamp_ms, key_length, value_length = map(int, numbers)
    key, rest = _take(rest, key_length)
    value, rest = _take(rest, value_length)
    headers, rest = rest.split(_RECORD_END, 1)
    return Received(offset, key, value, _parse_headers(headers), timestamp_ms), rest


def _take(data: bytes, length: int) -> tuple[bytes | None, bytes]:
    return (None, data) if length < 0 else (data[:length], data[length:])


def _parse_headers(text: bytes) -> tuple[Header, ...]:
    pairs = (header.split(b"=", 1) for header in text.split(b",")) if text else ()
    return tuple((name.decode(), None if value == b"NULL" else value) for name, value in pairs)
