"""A full disk: what was not written is not acknowledged, what was acknowledged is there once there is room again."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.pass_plan import CleanerLimits, plan_pass
from ottla.log.cleaning.process import CleaningProcess
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.builder import NewRecord, build_batch
from ottla.records.reader import Record, read_records
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.broker_process import BrokerProcess
from tests.crash import wire_view
from tests.crash.log_files import PartitionFiles, parse_batches, partition_directories
from tests.raw_client import ConnectionClosedError, RawClient
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.crash

TOPIC = "filling"
PARTITIONS = 4
SMALL_BYTES = 4 << 20
INDEX_INTERVAL_BYTES = 4096
SETTINGS = {"log.segment.bytes": "500000", "log.index.size.max.bytes": "65536"}
_ROUNDS_MAX = 1000
_STOP_TIMEOUT_S = 20


class SmallDisk:
    """A file system in memory with little room."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self) -> None:
        self.path.mkdir()
        size = f"size={SMALL_BYTES}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.path)],
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            pytest.skip("mounting a file system is not permitted here")

    def grow(self) -> None:
        subprocess.run(
            ["mount", "-o", f"remount,size={SMALL_BYTES * 8}", str(self.path)], check=True, timeout=PATIENCE_S
        )

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True, timeout=PATIENCE_S)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small")
    disk.mount()
    yield disk
    # Files are closed with their last holder, which may be the trace of an error.
    gc.collect()
    disk.unmount()


class Writer:
    """Sends numbered batches to every partition and remembers the fate of each."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        """Per partition: the base offset by the batch's number."""
        self.errors: dict[int, list[int]] = defaultdict(list)
        self.number = 0

    def write_round(self, client: RawClient, acks: int = -1) -> bool:
        """One batch to each partition; returns whether any was refused."""
        self.number += 1
        batch = build_batch([NewRecord(None, b"%d " % self.number + bytes(20_000), (), self.number)])
        any_error = False
        for partition, (code, offset) in wire_view.produce(
            client, TOPIC, dict.fromkeys(range(PARTITIONS), batch), acks
        ).items():
            if code:
                self.errors[partition].append(code)
                any_error = True
            else:
                self.acknowledged[partition][self.number] = offset
        return any_error

    def check(self, partition: int, data: bytes) -> None:
        """`data` holds what was acknowledged where it was, and nothing that was not sent."""
        values = {
            record.offset: record.value
            for batch in parse_batches(data, f"partition {partition}")
            for record in batch.records()
        }
        for number, offset in self.acknowledged[partition].items():
            assert values[offset] == b"%d " % number + bytes(20_000), f"{partition} at {offset}"
        # One batch may be there whose reply could not be given, but none that was refused.
        assert len(values) <= len(self.acknowledged[partition]) + 1


def check_everything(broker: BrokerProcess, writer: Writer) -> None:
    with RawClient(broker.port) as client:
        for partition in range(PARTITIONS):
            writer.check(partition, wire_view.fetch_all(client, TOPIC, partition))
        assert not writer.write_round(client)


def check_files(directory: Path) -> None:
    for path in partition_directories(directory).values():
        PartitionFiles(path).check(INDEX_INTERVAL_BYTES)


def test_one_of_two_directories_is_full(small_disk: SmallDisk, tmp_path: Path) -> None:
    roomy = tmp_path / "roomy"
    broker = BrokerProcess(roomy, {**SETTINGS, "log.dirs": f"{roomy},{small_disk.path}"}).start()
    writer = Writer()
    try:
        with RawClient(broker.port) as client:
            wire_view.create_topic(client, TOPIC, PARTITIONS, {})
            in_small = {number for _, number in partition_directories(small_disk.path)}
            assert 0 < len(in_small) < PARTITIONS
            for _ in range(_ROUNDS_MAX):
                if writer.write_round(client):
                    break
            assert set(writer.errors) <= in_small and writer.errors
            # From here on the whole directory is offline, and the other one does not care.
            before = len(writer.acknowledged[(set(range(PARTITIONS)) - in_small).pop()])
            for acks in (1, -1, 1):
                writer.write_round(client, acks)
            for partition in range(PARTITIONS):
                fetched = wire_view.fetch(client, TOPIC, partition, 0)
                if partition in in_small:
                    assert set(writer.errors[partition]) == {ErrorCode.KAFKA_STORAGE_ERROR}
                    assert (fetched.error_code, fetched.data) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
                else:
                    assert len(writer.acknowledged[partition]) == before + 3
                    assert fetched.error_code == 0 and fetched.data
        assert broker.stop() == 0
        assert broker.tracebacks() == []
        assert any(str(small_disk.path) in line and "has failed" in line for line in broker.log_lines)
        small_disk.grow()
        broker.start()
        check_everything(broker, writer)
        assert broker.stop() == 0
    finally:
        broker.kill()
    check_files(roomy)
    check_files(small_disk.path)


@pytest.mark.parametrize("ending", ["by itself", "killed"])
def test_the_only_directory_is_full(small_disk: SmallDisk, ending: str) -> None:
    broker = BrokerProcess(small_disk.path, dict(SETTINGS)).start()
    writer = Writer()
    try:
        with RawClient(broker.port) as client:
            wire_view.create_topic(client, TOPIC, PARTITIONS, {})
            try:
                for _ in range(_ROUNDS_MAX):
                    if writer.write_round(client):
                        break
            except ConnectionClosedError:
                pytest.fail("the broker left before it had said why")
        for codes in writer.errors.values():
            assert set(codes) == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert writer.errors
        if ending == "by itself":
            assert _wait_for_end(broker) == 1
            assert any("no log directory can be used" in line for line in broker.log_lines)
        broker.kill()
        assert broker.tracebacks() == []
        small_disk.grow()
        broker.start()
        check_everything(broker, writer)
        assert broker.stop() == 0
    finally:
        broker.kill()
    check_files(small_disk.path)


def _wait_for_end(broker: BrokerProcess) -> int:
    process = broker._process
    assert process is not None
    code = process.wait(_STOP_TIMEOUT_S)
    deadline = time.monotonic() + 5
    while not any("stopped" in line for line in broker.log_lines) and time.monotonic() < deadline:
        time.sleep(0.02)
    return code


@pytest.mark.parametrize(("free_kib", "ending"), [(0, "stop"), (0, "kill"), (8, "kill"), (24, "kill"), (36, "stop")])
def test_a_start_on_a_full_disk_harms_nothing(small_disk: SmallDisk, free_kib: int, ending: str) -> None:
    """It is refused with a sentence, or it runs and refuses; the next start that has room finds everything."""
    broker = BrokerProcess(small_disk.path, dict(SETTINGS)).start()
    writer = Writer()
    filler = small_disk.path / "filler"
    try:
        with RawClient(broker.port) as client:
            wire_view.create_topic(client, TOPIC, PARTITIONS, {})
            for _ in range(5):
                assert not writer.write_round(client)
        broker.stop() if ending == "stop" else broker.kill()
        _fill(filler, free_kib * 1024)
        try:
            broker.start()
        except RuntimeError:
            assert any("cannot start" in line for line in broker.log_lines), "\n".join(broker.log_lines)
        else:
            assert free_kib
            _make_topics_until_refused(broker)
            broker.stop()
        assert broker.tracebacks() == [], "\n".join(broker.log_lines)
        filler.unlink()
        broker.start()
        check_everything(broker, writer)
        assert broker.stop() == 0
    finally:
        broker.kill()
    check_files(small_disk.path)


def _make_topics_until_refused(broker: BrokerProcess) -> None:
    """Until the store has no room for another topic, or the broker no directory to put it in."""
    with RawClient(broker.port) as client:
        for number in range(100):
            topic = CreatableTopic(name=f"further-{number}", num_partitions=20, replication_factor=1)
            try:
                response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
            except ConnectionClosedError:
                return
            assert isinstance(response, CreateTopicsResponse)
            if response.topics[0].error_code:
                assert response.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
                return
    pytest.fail("the disk was not full")


def _fill(path: Path, free_bytes: int) -> None:
    with path.open("wb", buffering=0) as f:
        with contextlib.suppress(OSError):
            while True:
                f.write(bytes(4096))
        f.truncate(f.tell() - free_bytes)


def test_a_disk_that_is_full_in_the_middle_of_a_compaction_loses_nothing(small_disk: SmallDisk) -> None:
    """All records stay, so the copy needs as much as there is: there is room for the first of the groups only."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=700_000, segment_index_bytes=4096)
    log = PartitionLog.create(small_disk.path / "t-0", TopicPartition("t", 0), NIL_UUID, config, now_ms=0)
    log.begin_leader_epoch(0)
    for number in range(170):
        values = [NewRecord(b"%d" % key, bytes(10_000), (), 1) for key in (number, 1000)]
        log.append_as_leader(memoryview(bytearray(build_batch(values))), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.log_end_offset)
    before = records_of(log)
    limits = CleanerLimits(map_bytes=1 << 20, map_load_factor=0.9, buffer_bytes=1 << 16)

    def clean() -> None:
        candidate = find_candidate(log, 0)
        assert candidate is not None
        cleaning = CleaningProcess(
            plan_pass(candidate, 0), limits, bytes_per_second=2.0**63, is_called_off=lambda: False
        )
        for sources, segment in cleaning.groups():
            log.exchange(sources, segment)
        log.clean_offset = cleaning.end_offset

    with pytest.raises(OSError, match="No space left on device"):
        clean()
    left = records_of(log)
    assert not list(log.directory.glob("*.cleaned")) and log.clean_offset == -1
    newest = {record.key: record.offset for record in before}
    assert {record.key: record.offset for record in left} == newest
    small_disk.grow()
    clean()
    assert {record.key: record.offset for record in records_of(log)} == newest
    assert len(records_of(log)) < len(before)


def records_of(log: PartitionLog) -> list[Record]:
    return [
        record
        for segment in log.segments.all()
        for position, header in segment.headers()
        for record in read_records(segment.batch_at(position, header), header)
    ]
