"""Files cut, flipped, garbled or gone between two runs: the valid prefix is kept and answers stay the same."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException

from ottla.base.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.crash import wire_view
from tests.crash.log_files import Batch, PartitionFiles, parse_batches
from tests.crash.written_dirs import (
    FIRST_TIMESTAMP_MS,
    INDEX_INTERVAL_BYTES,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    WrittenDir,
    last_batch_number,
    numbered_batch,
    write_dir,
)
from tests.raw_client import RawClient
from tests.waiting import run_async

pytestmark = pytest.mark.crash

CHECKPOINTS = ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
_TIMES = range(FIRST_TIMESTAMP_MS - 200, FIRST_TIMESTAMP_MS + 5000, 130)

Damage = Callable[[Path, random.Random], None]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> WrittenDir:
    return write_dir(tmp_path_factory.mktemp("killed") / "data", stop=False)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> WrittenDir:
    return write_dir(tmp_path_factory.mktemp("stopped") / "data", stop=True)


@pytest.fixture(params=["killed", "stopped"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> WrittenDir:
    """A copy that the test may damage."""
    original: WrittenDir = request.getfixturevalue(request.param)
    return original.copy_to(tmp_path / "data")


@contextmanager
def restarted(written: WrittenDir) -> Iterator[tuple[BrokerProcess, RawClient]]:
    broker = BrokerProcess(written.path, dict(SETTINGS))
    broker.start()
    try:
        with RawClient(broker.port) as client:
            yield broker, client
        assert broker.tracebacks() == [], "\n".join(broker.log_lines)
    finally:
        broker.kill()


def zero(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garble(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def shorten(path: Path, rng: random.Random) -> None:
    """To a size that no whole number of entries has."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 | 1])


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


FILE_DAMAGES: list[Damage] = [delete, zero, garble, empty, shorten, flip]


def check_same_answers(client: RawClient, partition: int, before: PartitionFiles, what: str) -> None:
    """Whatever is asked for, by offset or by time, the answer is what the log held before the damage."""
    assert wire_view.fetch_all(client, TOPIC, partition) == before.data, what
    for batch in before.batches:
        middle = (batch.base_offset + batch.last_offset) // 2
        found = wire_view.fetch(client, TOPIC, partition, middle, max_bytes=1)
        assert (found.error_code, found.data) == (0, batch.data), f"{what}: offset {middle}"
    for timestamp in _TIMES:
        found_time = wire_view.offset_for_time(client, TOPIC, partition, timestamp)
        assert found_time == before.first_at_or_after(timestamp), f"{what}: time {timestamp}"


def check_producer_is_known(client: RawClient, partition: int, before: PartitionFiles, what: str) -> None:
    """The last batch is recognised when it is sent again, and the next one is welcome."""
    last = last_batch_number(before.log_end_offset)
    again = wire_view.produce(client, TOPIC, {partition: numbered_batch(last)}, acks=-1)
    assert again == {partition: (0, before.batches[-1].base_offset)}, f"{what}: a duplicate"
    going_on = wire_view.produce(client, TOPIC, {partition: numbered_batch(last + 1)}, acks=-1)
    assert going_on == {partition: (0, before.log_end_offset)}, f"{what}: the next batch"


# -- the end of the log ------------------------------------------------------------------------------------------


def cut(size: int) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        path.write_bytes(path.read_bytes()[:-size])

    return damage


def append(garbage: Callable[[bytes, random.Random], bytes]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        data = path.read_bytes()
        path.write_bytes(data + garbage(data, rng))

    return damage


def flip_in_last_batch(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    # Behind the offset and the epoch, which no checksum covers.
    start = parse_batches(bytes(data), path)[-1].position + 16
    data[rng.randrange(start, len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


_TAILS: list[Callable[[bytes, random.Random], bytes]] = [
    lambda data, rng: rng.randbytes(1),
    lambda data, rng: rng.randbytes(60),
    lambda data, rng: rng.randbytes(3000),
    lambda data, rng: bytes(4096),
    lambda data, rng: data[: rng.randrange(1, 61)],
    lambda data, rng: b"\x7f" * 61,
]


def _first_batch(data: bytes, rng: random.Random) -> bytes:
    """A valid batch, but of an offset long past."""
    return parse_batches(data, "a segment")[0].data


@pytest.mark.parametrize("seed", [1, 2])
def test_a_torn_end_is_cut_at_the_last_whole_batch(written: WrittenDir, seed: int) -> None:
    rng = random.Random(seed)
    appended = [append(tail) for tail in _TAILS]
    losing: list[Damage] = [cut(rng.randrange(1, 65)) for _ in range(12)]
    if not written.was_stopped:
        # After a clean stop nobody looks inside batches; then it is the reader who finds out.
        appended.append(append(_first_batch))
        losing += [flip_in_last_batch] * (PARTITIONS - len(appended) - len(losing))
    damages = appended + losing
    before = written.files()
    for partition, damage in enumerate(damages):
        damage(sorted(written.partition(partition).glob("*.log"))[-1], rng)
    with restarted(written) as (broker, client):
        for partition, damage in enumerate(damages):
            batches = before[partition].batches[:-1] if damage in losing else before[partition].batches
            what = f"{partition}: {damage.__qualname__}"
            served = wire_view.fetch_all(client, TOPIC, partition)
            assert served == b"".join(batch.data for batch in batches), what
            number = last_batch_number(batches[-1].last_offset + 1)
            again = wire_view.produce(client, TOPIC, {partition: numbered_batch(number)}, acks=1)
            assert again == {partition: (0, batches[-1].base_offset)}, what
            going_on = wire_view.produce(client, TOPIC, {partition: numbered_batch(number + 1)}, acks=1)
            assert going_on == {partition: (0, batches[-1].last_offset + 1)}, what
        broker.stop()
    for files in written.files().values():
        files.check(INDEX_INTERVAL_BYTES)


# -- files beside the log ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_damaged_indexes_change_no_answer(written: WrittenDir, suffix: str) -> None:
    before = written.files()
    whats = {}
    for partition in range(PARTITIONS):
        rng = random.Random(partition)
        damage = FILE_DAMAGES[partition % len(FILE_DAMAGES)]
        segments = sorted(written.partition(partition).glob("*.log"))
        assert len(segments) > 2
        chosen = rng.choice([segments[:1], segments[1:2], segments[-1:], segments])
        for segment in chosen:
            path = segment.with_suffix(suffix)
            if path.exists() and path.stat().st_size:
                damage(path, rng)
        whats[partition] = f"{partition}: {damage.__name__} {[path.stem for path in chosen]}"
    with restarted(written) as (_, client):
        for partition, what in whats.items():
            check_same_answers(client, partition, before[partition], what)
            check_producer_is_known(client, partition, before[partition], what)


def test_missing_indexes_are_made_anew(written: WrittenDir) -> None:
    for partition in range(PARTITIONS):
        for suffix in (".index", ".timeindex"):
            for path in written.partition(partition).glob(f"*{suffix}"):
                path.unlink()
    with restarted(written) as (broker, _):
        assert broker.stop() == 0
    for files in written.files().values():
        files.check(INDEX_INTERVAL_BYTES)


def test_damaged_snapshots_and_epochs_are_made_anew(written: WrittenDir) -> None:
    before = written.files()
    whats = {}
    for partition in range(PARTITIONS):
        rng = random.Random(partition)
        damage = FILE_DAMAGES[partition // 2 % len(FILE_DAMAGES)]
        directory = written.partition(partition)
        snapshots = sorted(directory.glob("*.snapshot"))
        assert snapshots
        chosen = [directory / "leader-epoch-checkpoint"] if partition % 2 else rng.choice([snapshots, snapshots[-1:]])
        for path in chosen:
            damage(path, rng)
        whats[partition] = f"{partition}: {damage.__name__} {[path.name for path in chosen]}"
    with restarted(written) as (broker, client):
        for partition, what in whats.items():
            assert wire_view.fetch_all(client, TOPIC, partition) == before[partition].data, what
            check_producer_is_known(client, partition, before[partition], what)
        assert broker.stop() == 0
    for partition, files in written.files().items():
        assert len({batch.leader_epoch for batch in files.batches}) > 1
        try:
            files.check(INDEX_INTERVAL_BYTES)
        except AssertionError as e:
            raise AssertionError(whats[partition]) from e


@pytest.mark.parametrize("damage", [delete, zero, garble, shorten])
def test_damaged_checkpoints_lose_nothing(written: WrittenDir, damage: Damage) -> None:
    before = written.files()
    for name in CHECKPOINTS:
        damage(written.path / name, random.Random(name))
    with restarted(written) as (broker, client):
        for partition in range(PARTITIONS):
            check_producer_is_known(client, partition, before[partition], str(partition))
        assert broker.stop() == 0
    for partition, files in written.files().items():
        files.check(INDEX_INTERVAL_BYTES)
        assert files.data.startswith(before[partition].data)


def test_without_the_mark_of_a_clean_stop_everything_is_checked(stopped: WrittenDir, tmp_path: Path) -> None:
    written = stopped.copy_to(tmp_path / "data")
    before = written.files()
    (written.path / ".kafka_cleanshutdown").unlink()
    with restarted(written) as (broker, client):
        assert any("not closed cleanly" in line for line in broker.log_lines)
        for partition in range(PARTITIONS):
            assert wire_view.fetch_all(client, TOPIC, partition) == before[partition].data
            check_producer_is_known(client, partition, before[partition], str(partition))


def test_what_a_deletion_or_compaction_left_behind_is_cleared_away(written: WrittenDir) -> None:
    before = written.files()
    for partition in range(0, PARTITIONS, 3):
        directory = written.partition(partition)
        segments = sorted(directory.glob("*.log"))
        for suffix in (".log", ".index", ".timeindex"):
            # A segment that was dropped, one whose cleaning was not done, one that was cleaned and not yet in place.
            shutil.copy(segments[1].with_suffix(suffix), directory / f"{0:020d}{suffix}.deleted")
            shutil.copy(segments[2].with_suffix(suffix), directory / f"{segments[2].stem}{suffix}.cleaned")
            segments[1].with_suffix(suffix).rename(directory / f"{segments[1].stem}{suffix}.swap")
        (directory / f"{7:020d}.snapshot.tmp").write_bytes(b"half a snaps")
    (written.path / "replication-offset-checkpoint.tmp").write_bytes(b"0\n3")
    doomed = written.path / f"gone-0.{'ab' * 16}-delete"
    shutil.copytree(written.partition(1), doomed)
    with restarted(written) as (broker, client):
        assert not doomed.exists()
        for partition in range(PARTITIONS):
            check_same_answers(client, partition, before[partition], str(partition))
        assert broker.stop() == 0
    for files in written.files().values():
        files.check(INDEX_INTERVAL_BYTES)


# -- damage inside the log ---------------------------------------------------------------------------------------


def _flip_inside(path: Path, rng: random.Random, first_byte: int) -> Batch:
    """Damages a batch in the middle of a segment, not before its `first_byte`; returns what it was."""
    data = bytearray(path.read_bytes())
    batches = parse_batches(bytes(data), path)
    batch = batches[len(batches) // 2]
    data[batch.position + rng.randrange(first_byte, len(batch.data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return batch


def test_a_flipped_bit_in_an_old_segment_reaches_nobody_as_a_record(written: WrittenDir) -> None:
    """The batch is served as it is, so that the client's checksum finds it; all others are served as before."""
    before = written.files()
    damaged = {}
    for partition in range(PARTITIONS):
        path = sorted(written.partition(partition).glob("*.log"))[1]
        damaged[partition] = _flip_inside(path, random.Random(partition), first_byte=17)
    with restarted(written) as (broker, client):
        for partition, batch in damaged.items():
            served = wire_view.fetch_all(client, TOPIC, partition)
            expected = before[partition].data
            at = expected.index(batch.data)
            assert len(served) == len(expected)
            assert served[:at] == expected[:at] and served[at + len(batch.data) :] == expected[at + len(batch.data) :]
            with pytest.raises(AssertionError, match=r"damaged|holds"):
                parse_batches(served[at : at + len(batch.data)], partition)
        values = [record.value for record in before[0].records()]
        seen = _consume_values(broker.bootstrap, 0, damaged[0].last_offset + 1)
        assert seen == values[damaged[0].last_offset + 1 :]
        seen = _consume_values(broker.bootstrap, 0, 0)
        assert seen == values[: len(seen)] and len(seen) <= damaged[0].base_offset


def _consume_values(bootstrap: str, partition: int, offset: int) -> list[bytes | None]:
    """What a checking consumer gives to its application, up to the end of the log or its first complaint."""

    async def consume() -> list[bytes | None]:
        # Not librdkafka: when it is closed right after a damaged batch it can wait for a lock that it holds itself.
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True, auto_offset_reset="none")
        await consumer.start()
        seen: list[bytes | None] = []
        try:
            tp = TopicPartition(TOPIC, partition)
            consumer.assign([tp])
            consumer.seek(tp, offset)
            end_offset = (await consumer.end_offsets([tp]))[tp]
            while await consumer.position(tp) < end_offset:
                message = await asyncio.wait_for(consumer.getone(), 20)
                seen.append(message.value)
        except CorruptRecordException:
            pass
        finally:
            await consumer.stop()
        return seen

    return run_async(consume())


def test_a_damaged_header_in_an_old_segment_is_an_error_and_not_an_end(stopped: WrittenDir, tmp_path: Path) -> None:
    """Behind a length or version that cannot be, only an index knows where the next batch begins."""
    written = stopped.copy_to(tmp_path / "data")
    before = written.files()
    damaged = {}
    for partition in range(PARTITIONS):
        path = sorted(written.partition(partition).glob("*.log"))[1]
        data = bytearray(path.read_bytes())
        batches = parse_batches(bytes(data), path)
        batch = damaged[partition] = batches[len(batches) // 2]
        data[batch.position + (8, 16)[partition % 2]] ^= 0x40
        path.write_bytes(data)
    with restarted(written) as (_, client):
        for partition, batch in damaged.items():
            by_offset = {record.offset: record for record in before[partition].records()}
            for offset in by_offset:
                part = wire_view.fetch(client, TOPIC, partition, offset, max_bytes=1)
                if part.error_code == 0 and part.data[:61] != _damaged_header(batch, partition):
                    found = parse_batches(part.data, f"{partition} at {offset}")
                    assert [by_offset[r.offset] for b in found for r in b.records()] == found[0].records()
                    assert found[0].base_offset <= offset <= found[0].last_offset
                else:
                    assert part.error_code in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)
                    # An index that leads to the damage is made anew, and then leads no further in this segment.
                    assert batch.base_offset <= offset < before[partition].segments[2].base_offset
            # Writing goes on as if nothing had happened.
            check_producer_is_known(client, partition, before[partition], str(partition))


def _damaged_header(batch: Batch, partition: int) -> bytes:
    data = bytearray(batch.data[:61])
    data[(8, 16)[partition % 2]] ^= 0x40
    return bytes(data)


def test_every_batch_in_flight_is_recognised_after_a_kill(killed: WrittenDir, tmp_path: Path) -> None:
    """A client may have five batches under way when a broker dies, and a segment may have been rolled among them.

    What lies before the recovery point is known from a snapshot, which holds only the newest; the others are looked up
    in the log, for librdkafka takes the refusal of the first one for lost data and gives up.
    """
    written = killed.copy_to(tmp_path / "data")
    files = written.files()[0]
    last = last_batch_number(files.log_end_offset)
    assert len(files.segments[-1].batches) == 5
    with restarted(written) as (broker, client):
        # The sixth of the last segment starts another one, which then holds the newest batch only.
        sizes = [len(numbered_batch(last + further)) for further in range(1, 30)]
        room = int(SETTINGS["log.segment.bytes"]) - len(files.segments[-1].data)
        further = next(n for n in range(1, 30) if sum(sizes[:n]) > room)
        for number in range(last + 1, last + 1 + further):
            assert wire_view.produce(client, TOPIC, {0: numbered_batch(number)}, acks=-1)[0][0] == 0
        end = (last + 1 + further) * 3
        deadline = time.monotonic() + 20
        while f"{TOPIC} 0 {end}\n" not in (written.path / "recovery-point-offset-checkpoint").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as again:
            for number in range(last + further - 4, last + further + 1):
                reply = wire_view.produce(again, TOPIC, {0: numbered_batch(number)}, acks=-1)
                assert reply == {0: (0, number * 3)}, number
