"""Kafka's own DumpLogSegments reads the files of a broker that was under load, and ours says the same of them."""

from __future__ import annotations

import itertools
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from ottla.log.transaction_index import TransactionIndex
from tests.broker_process import BrokerProcess
from tests.integration.calls import create_topic
from tests.raw_client import RawClient

from .dataset import CODECS
from .kafka_tools import KafkaTools
from .kafka_tools import kafka_tools_fixture as kafka_tools_fixture

pytestmark = pytest.mark.interop

TOPIC = "dumped"
TIMES = itertools.count(1_700_000_000_000, 3)
SUFFIXES = ("log", "index", "timeindex", "txnindex", "snapshot")
FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--index-sanity-check",),
    ("--verify-index-only",),
)


def produce_with_every_codec(bootstrap: str) -> None:
    for codec in CODECS:
        for idempotent in (True, False):
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": idempotent,
                    "batch.num.messages": 20,
                    "linger.ms": 5,
                }
            )
            for number in range(200):
                producer.produce(
                    TOPIC,
                    key=None if number % 7 == 0 else b"k%d" % number,
                    value=None if number % 11 == 0 else b"%d " % number * 40,
                    headers=[("trace", b"x"), ("empty", None)] if number % 3 == 0 else None,
                    timestamp=next(TIMES),
                )
            assert producer.flush(20) == 0


def produce_in_transactions(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "dumper"})
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        for part in range(60):
            producer.produce(TOPIC, value=b"transaction %d part %d " % (number, part) * 10)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


class Written(NamedTuple):
    stopped: Path
    """The partition's directory after a clean stop."""
    live: Path
    """The same as it was just before, while the broker had it open."""

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.stopped.glob(f"*.{suffix}"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    place = tmp_path_factory.mktemp("dumped")
    broker = BrokerProcess(place / "data").start()
    try:
        with RawClient(broker.port) as client:
            create_topic(client, TOPIC, segment_bytes="30000", index_interval_bytes="1000", segment_index_bytes="4096")
        produce_with_every_codec(broker.bootstrap)
        produce_in_transactions(broker.bootstrap)
        shutil.copytree(broker.data_dir / f"{TOPIC}-0", place / "live")
        assert broker.stop() == 0
    finally:
        broker.kill()
    assert broker.tracebacks() == []
    return Written(broker.data_dir / f"{TOPIC}-0", place / "live")


def our_dump(files: list[Path], *flags: str) -> tuple[str, str]:
    names = ",".join(map(str, files))
    command = [sys.executable, "-m", "ottla", "dump-log", "--files", names, *flags]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_load_has_left_something_of_everything(written: Written) -> None:
    assert len(written.files("log")) >= 4
    assert len(written.files("index")) == len(written.files("timeindex")) == len(written.files("log"))
    assert len(written.files("snapshot")) >= 3
    assert sum(len(TransactionIndex(path, 0).entries()) for path in written.files("txnindex")) == 3
    codecs = set(re.findall(r"compresscodec: (\w+)", our_dump(written.files("log"))[0]))
    assert codecs == set(CODECS)


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: flags[0][2:] if flags else "plain")
def test_no_complaint_and_the_same_lines(kafka_tools: KafkaTools, written: Written, flags: tuple[str, ...]) -> None:
    files = [path for suffix in SUFFIXES for path in written.files(suffix)]
    lines, complaints = kafka_tools.dump_with_complaints(files, *flags)
    assert complaints == ""
    assert "isvalid: false" not in lines and "invalid bytes" not in lines
    assert lines.count("isvalid: true") > 100
    ours, our_complaints = our_dump(files, *flags)
    assert our_complaints == ""
    assert ours.splitlines() == lines.splitlines()


def test_sealed_segments_of_a_broker_that_runs(kafka_tools: KafkaTools, written: Written) -> None:
    sealed = sorted(path.stem for path in written.live.glob("*.log"))[:-1]
    files = [written.live / f"{stem}.{suffix}" for suffix in ("log", "index", "timeindex") for stem in sealed]
    lines, complaints = kafka_tools.dump_with_complaints(files, "--deep-iteration")
    assert complaints == ""
    assert "isvalid: false" not in lines and "invalid bytes" not in lines
    assert our_dump(files, "--deep-iteration") == (lines, "")


def put(position: int, form: str, *values: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        struct.pack_into(form, changed, position, *values)
        return bytes(changed)

    return change


def without_second_batch(data: bytes) -> bytes:
    first = 12 + struct.unpack_from(">i", data, 8)[0]
    second = 12 + struct.unpack_from(">i", data, first + 8)[0]
    return data[:first] + data[first + second :]


@pytest.mark.parametrize(
    ("suffix", "change", "flags"),
    [
        ("log", lambda data: data + b"junk" * 20, ()),
        ("log", lambda data: data[:-9], ()),
        ("log", without_second_batch, ("--deep-iteration",)),
        ("log", put(21 + 8, ">q", 5), ("--deep-iteration",)),
        ("log", bytes, ("--max-bytes", "5000")),
        ("log", bytes, ("--print-data-log", "--skip-record-metadata")),
        ("index", put(8, ">i", 1), ()),
        ("index", put(8, ">i", 1), ("--verify-index-only",)),
        ("timeindex", put(0, ">q", 7), ()),
        ("timeindex", put(8, ">i", 1), ()),
        ("timeindex", put(12, ">q", 7), ("--verify-index-only",)),
    ],
)
def test_the_same_faults_are_found(
    kafka_tools: KafkaTools,
    written: Written,
    tmp_path: Path,
    suffix: str,
    change: Callable[[bytes], bytes],
    flags: tuple[str, ...],
) -> None:
    stem = written.files("log")[1].stem
    for each in ("log", "index", "timeindex"):
        shutil.copy(written.stopped / f"{stem}.{each}", tmp_path)
    damaged = tmp_path / f"{stem}.{suffix}"
    damaged.write_bytes(change(damaged.read_bytes()))
    lines, complaints = kafka_tools.dump_with_complaints([damaged], *flags)
    ours, our_complaints = our_dump([damaged], *flags)
    assert ours.splitlines() == lines.splitlines()
    assert our_complaints == complaints
