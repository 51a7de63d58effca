"""Data directories as a broker leaves them, with known content: made once, copied for every test that damages one."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from tests.broker_process import BrokerProcess
from tests.crash import wire_view
from tests.crash.log_files import PartitionFiles, partition_directories
from tests.raw_client import RawClient

TOPIC = "written"
PARTITIONS = 30
INDEX_INTERVAL_BYTES = 200
PRODUCER_ID = 4711
FIRST_TIMESTAMP_MS = 1_700_000_000_000
SETTINGS = {
    "log.segment.bytes": "5000",
    "log.index.interval.bytes": str(INDEX_INTERVAL_BYTES),
    "log.index.size.max.bytes": "4096",
    "log.flush.interval.messages": "1",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
}
_BATCHES = 40
_RECORDS_PER_BATCH = 3
_WAIT_S = 20


class WrittenDir(NamedTuple):
    """`was_stopped` tells a clean stop from a kill."""

    path: Path
    was_stopped: bool

    def copy_to(self, target: Path) -> WrittenDir:
        shutil.copytree(self.path, target, ignore=shutil.ignore_patterns(".lock"))
        return WrittenDir(target, self.was_stopped)

    def partition(self, number: int) -> Path:
        return self.path / f"{TOPIC}-{number}"

    def files(self) -> dict[int, PartitionFiles]:
        return {number: PartitionFiles(path) for (_, number), path in partition_directories(self.path).items()}


def write_dir(path: Path, *, stop: bool) -> WrittenDir:
    """Fill every partition, with a restart in the middle so that there are two leader epochs."""
    broker = BrokerProcess(path, dict(SETTINGS)).start()
    try:
        with RawClient(broker.port) as client:
            wire_view.create_topic(client, TOPIC, PARTITIONS, {})
            _write(client, range(_BATCHES // 2))
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            _write(client, range(_BATCHES // 2, _BATCHES))
        _wait_for_recovery_points(path)
        if stop:
            assert broker.stop() == 0
    finally:
        broker.kill()
    return WrittenDir(path, stop)


def numbered_batch(number: int) -> bytes:
    """The batch that is the same in every partition; its producer numbers it as well."""
    rng = random.Random(number)
    records = [
        NewRecord(
            f"key {number}.{i}".encode(),
            f"value {number}.{i} ".encode() + rng.randbytes(rng.choice((0, 20, 300))),
            (),
            FIRST_TIMESTAMP_MS + number * 100 + rng.randrange(-150, 150),
        )
        for i in range(_RECORDS_PER_BATCH)
    ]
    return build_batch(
        records,
        codec=Codec(number % 5),
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=number * _RECORDS_PER_BATCH,
    )


def last_batch_number(log_end_offset: int) -> int:
    return log_end_offset // _RECORDS_PER_BATCH - 1


def _write(client: RawClient, numbers: range) -> None:
    for number in numbers:
        batch = numbered_batch(number)
        replies = wire_view.produce(client, TOPIC, dict.fromkeys(range(PARTITIONS), batch), acks=-1)
        for partition, reply in replies.items():
            assert reply == (0, number * _RECORDS_PER_BATCH), (partition, reply)


def _wait_for_recovery_points(path: Path) -> None:
    """Until the checkpoint says that everything is on disk: a start then trusts all but the last segments."""
    end = str(_BATCHES * _RECORDS_PER_BATCH)
    checkpoint = path / "recovery-point-offset-checkpoint"
    deadline = time.monotonic() + _WAIT_S
    found: list[str] = []
    while found != [end] * PARTITIONS:
        assert time.monotonic() < deadline, "the recovery points were not written down"
        time.sleep(0.05)
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        found = [line.split()[-1] for line in lines[2:]]
