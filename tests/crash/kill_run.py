"""Kills a broker again and again under load and judges what it leaves behind. `python -m tests.crash.kill_run` runs it.

After every kill a second broker is started over the same files, on a port the clients do not know: what it serves and
what it leaves on disk is the outcome of recovery and of nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.crash import wire_view
from tests.crash.load import IdempotentLoad, Load, PlainLoad, key_of, value_of, writer_and_number
from tests.crash.log_files import PartitionFiles, parse_batches, partition_directories
from tests.raw_client import RawClient
from tests.waiting import join

INDEX_INTERVAL_BYTES = 300
SETTINGS = {
    "log.segment.bytes": "80000",
    "log.index.interval.bytes": str(INDEX_INTERVAL_BYTES),
    "log.index.size.max.bytes": "65536",
    "replica.high.watermark.checkpoint.interval.ms": "150",
    "log.flush.offset.checkpoint.interval.ms": "150",
    "log.flush.start.offset.checkpoint.interval.ms": "150",
    "log.cleaner.enable": "false",  # all that was acknowledged is looked for
}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "keyed": {"cleanup.policy": "compact"},
    "recoded": {"compression.type": "zstd", "flush.messages": "50"},
}
PARTITIONS = 3
_PARTITIONS = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
_LOAD_S_MAX = 1.0
_START_KILL_S_MAX = 0.8
_START_KILL_SHARE = 0.25


@dataclass
class Figures:
    kills: int = 0
    kills_during_start: int = 0
    starts: int = 0
    slowest_start_s: float = 0.0
    recoveries_that_cut: int = 0
    segments: int = 0
    records: int = 0
    acknowledged: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.kills_during_start} of them during a start), {self.starts} starts (slowest "
            f"{self.slowest_start_s:.2f} s, {self.recoveries_that_cut} cut a torn tail); {self.acknowledged} records "
            f"acknowledged, {self.records} in the logs ({self.records - self.acknowledged} whose reply was lost), "
            f"{self.segments} segments, {self.bytes / 1e6:.1f} MB; nothing lost, duplicated or out of order"
        )


class KillRun:
    """One run. Any rule that is broken raises AssertionError with the partition and offset."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.broker = BrokerProcess(data_dir, dict(SETTINGS))
        self.figures = Figures()
        self._rng = random.Random(seed)
        self._loads: list[Load] = []
        self._began_ms = time.time_ns() // 1_000_000
        self._stored: dict[str, dict[tuple[int, int], int]] = {}
        """Per writer: the offset of each (partition, number) that was found in a log."""
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        """Per partition: how many bytes were judged already, and their checksum."""

    def run(self, kills: int, *, say: bool = False) -> Figures:
        try:
            self._start(self.broker)
            self._begin_load()
            while self.figures.kills < kills:
                self._kill_under_load()
                while self.figures.kills < kills and self._rng.random() < _START_KILL_SHARE:
                    self._kill_during_start()
                self._audit()
                self._start(self.broker)
                if say:
                    done = f"kill {self.figures.kills}/{kills}"
                    print(f"{done}: {self.figures.acknowledged} acknowledged, {self.figures.records} in the logs")
            for load in self._loads:
                load.finish()
            assert self.broker.stop() == 0, "\n".join(self.broker.log_lines)
            self._audit(is_final=True)
        finally:
            self.broker.kill()
        return self.figures

    def _begin_load(self) -> None:
        with RawClient(self.broker.port) as client:
            for topic, configs in TOPICS.items():
                wire_view.create_topic(client, topic, PARTITIONS, configs)
        port, bootstrap = self.broker.port, self.broker.bootstrap
        self._loads = [
            IdempotentLoad("id-lz4", bootstrap, "plain", PARTITIONS, "lz4"),
            IdempotentLoad("id-none", bootstrap, "stamped", PARTITIONS, "none"),
            IdempotentLoad("id-gzip", bootstrap, "recoded", PARTITIONS, "gzip"),
            IdempotentLoad("id-snappy", bootstrap, "keyed", PARTITIONS, "snappy"),
            PlainLoad("raw-1", port, "plain", PARTITIONS, 1),
            PlainLoad("raw-all", port, "keyed", PARTITIONS, -1),
            PlainLoad("raw-stamped", port, "stamped", PARTITIONS, 1),
        ]
        self._stored = {load.writer: {} for load in self._loads}
        for load in self._loads:
            load.start()

    # -- processes -----------------------------------------------------------------------------------------------

    def _start(self, broker: BrokerProcess) -> None:
        began = time.monotonic()
        broker.start()
        self.figures.starts += 1
        self.figures.slowest_start_s = max(self.figures.slowest_start_s, time.monotonic() - began)

    def _kill_under_load(self) -> None:
        time.sleep(self._rng.uniform(0, _LOAD_S_MAX))
        self.broker.kill()
        self._note_output(self.broker)
        self.figures.kills += 1

    def _kill_during_start(self) -> None:
        broker = BrokerProcess(self.broker.data_dir, self.broker.overrides)
        delay_s = self._rng.uniform(0, _START_KILL_S_MAX)
        starting = threading.Thread(target=_start_whatever_happens, args=(broker,))
        starting.start()
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline or broker._process is None:
            time.sleep(0.005)
        os.kill(broker.pid, signal.SIGKILL)
        join(starting)
        broker.kill()
        self._note_output(broker)
        self.figures.kills += 1
        self.figures.kills_during_start += 1

    def _note_output(self, broker: BrokerProcess) -> None:
        assert broker.tracebacks() == [], "\n".join(broker.log_lines)
        self.figures.recoveries_that_cut += sum("damaged bytes dropped" in line for line in broker.log_lines)
        broker.log_lines.clear()

    # -- judgement -----------------------------------------------------------------------------------------------

    def _audit(self, *, is_final: bool = False) -> None:
        acknowledged = {load.writer: dict(load.acknowledged) for load in self._loads}
        judge = BrokerProcess(self.broker.data_dir, self.broker.overrides)
        self._start(judge)
        try:
            with RawClient(judge.port) as client:
                served = {key: wire_view.fetch_all(client, *key) for key in _PARTITIONS}
                times = [(*key, self._some_time()) for key in _PARTITIONS for _ in range(2)]
                found = [wire_view.offset_for_time(client, *asked) for asked in times]
        finally:
            judge.kill()
        self._note_output(judge)
        directories = partition_directories(self.broker.data_dir)
        files = {key: PartitionFiles(directories[key]) for key in _PARTITIONS}
        for key, partition in files.items():
            partition.check(INDEX_INTERVAL_BYTES)
            assert served[key] == partition.data, f"{key}: other bytes are served than stored"
            self._collect(key, partition)
        for (topic, number, timestamp), answer in zip(times, found, strict=True):
            expected = files[topic, number].first_at_or_after(timestamp)
            assert answer == expected, f"{topic}-{number} at time {timestamp}: {answer}, not {expected}"
        for load in self._loads:
            assert load.failures == [], f"{load.writer}: {load.failures[:5]}"
            self._audit_writer(load, self._stored[load.writer], acknowledged[load.writer], is_final)
        self.figures.segments = sum(len(partition.segments) for partition in files.values())
        self.figures.bytes = sum(map(len, served.values()))
        self.figures.records = sum(map(len, self._stored.values()))
        self.figures.acknowledged = sum(map(len, acknowledged.values()))

    def _some_time(self) -> int:
        return self._rng.randrange(self._began_ms, time.time_ns() // 1_000_000 + 100)

    def _collect(self, key: tuple[str, int], files: PartitionFiles) -> None:
        """Judge the records that were not there at the last audit; those that were must not have changed."""
        data = files.data
        seen_bytes, seen_crc = self._seen.get(key, (0, 0))
        assert zlib.crc32(data[:seen_bytes]) == seen_crc, f"{key}: what had been read once has changed"
        self._seen[key] = (len(data), zlib.crc32(data[seen_bytes:], seen_crc))
        topic, partition = key
        for batch in parse_batches(data[seen_bytes:], key):
            for record in batch.records():
                assert record.value is not None
                writer, number = writer_and_number(record.value)
                where = f"{topic}-{partition} at {record.offset}"
                assert record.value == value_of(writer, number), f"{where}: wrong bytes"
                assert record.key == key_of(writer, number), f"{where}: wrong key"
                stored = self._stored[writer]
                assert (partition, number) not in stored, f"{where}: {writer} {number} is there twice"
                stored[partition, number] = record.offset

    @staticmethod
    def _audit_writer(
        load: Load,
        stored: dict[tuple[int, int], int],
        acknowledged: dict[tuple[int, int], int | None],
        is_final: bool,
    ) -> None:
        for (partition, number), offset in acknowledged.items():
            found = stored.get((partition, number))
            where = f"{load.topic}-{partition}: {load.writer} {number}"
            assert found is not None, f"{where} was acknowledged at {offset} and is lost"
            assert offset in (None, found), f"{where} was acknowledged at {offset} and is at {found}"
        for partition in range(PARTITIONS):
            numbers = [number for at, number in sorted(stored, key=stored.__getitem__) if at == partition]
            assert numbers == sorted(numbers), f"{load.topic}-{partition}: {load.writer} is out of order"
            if load.is_idempotent:
                assert numbers == list(range(len(numbers))), f"{load.topic}-{partition}: {load.writer} has a gap"
        if is_final and load.is_idempotent:
            assert stored.keys() == acknowledged.keys(), f"{load.writer}: the client does not know what is stored"


def _start_whatever_happens(broker: BrokerProcess) -> None:
    # The error says that it was killed before it was ready: that is what this is for.
    with contextlib.suppress(RuntimeError):
        broker.start()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}, {options.kills} kills")
    with tempfile.TemporaryDirectory(prefix="ottla-crash-") as directory:
        began = time.monotonic()
        try:
            figures = KillRun(Path(directory) / "data", seed).run(options.kills, say=True)
        except AssertionError as e:
            print(f"BROKEN with seed {seed}: {e}", file=sys.stderr)
            return 1
        print(f"seed {seed}, {time.monotonic() - began:.0f} s: {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
