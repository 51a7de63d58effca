"""D: disks are full, fail, hang, forget and lie."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import confluent_kafka

from tests.cluster.chaos.cluster import IDS, Cluster, short_sleep
from tests.cluster.chaos.load import IN_TRANSACTIONS, PARTITIONS, PLAIN, Figures, same_batches
from tests.cluster.chaos.table import NotHereError, Scene, row
from tests.crash.log_files import PartitionFiles, parse_batches
from tests.interop.transactions.readers import read_all
from tests.waiting import PATIENCE_S, repeat_until

VICTIM = 2
OTHERS = [broker_id for broker_id in IDS if broker_id != VICTIM]
_SMALL = {"log_segment_bytes": "50000"}
"""Segments end often, and with each of them something is synced."""


@row("D01", "the disk of one broker is full, later it is not", gap_s_max=10)
def full_disk(scene: Scene) -> None:
    cluster = scene.cluster(begun=False, log_index_size_max_bytes="65536")
    disk = cluster.data_of(VICTIM)
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        raise NotHereError("mounting a file system is not permitted")
    try:
        cluster.begin()
        with scene.load(cluster) as load:
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as f, suppress(OSError):
                while True:
                    f.write(bytes(1 << 16))
            for index in range(PARTITIONS):
                cluster.wait_for_isr(PLAIN, index, set(OTHERS), ask=OTHERS)
            _has_said(cluster, VICTIM, "has failed")
            load.wait_for_more()
            filler.unlink()
            cluster.kill(VICTIM)
            cluster.start(VICTIM)
            cluster.wait_until_well(PLAIN)
            load.wait_for_more()
    finally:
        cluster.end()
        subprocess.run(["umount", str(disk)], check=True, timeout=PATIENCE_S)


@row("D02", "a sync fails once", gap_s_max=10)
def failing_sync(scene: Scene) -> None:
    cluster, flags = _with_faulty_syncs(scene)
    with scene.load(cluster) as load:
        flag = flags / "fsync_eio"
        flag.touch()
        repeat_until(lambda: not flag.exists(), short_sleep)
        for index in range(PARTITIONS):
            cluster.wait_for_isr(PLAIN, index, set(OTHERS), ask=OTHERS)
        _has_said(cluster, VICTIM, "has failed")
        load.wait_for_more()
        cluster.kill(VICTIM)
        cluster.start(VICTIM)
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()


@row("D03", "syncs hang for 10 s")
def hanging_sync(scene: Scene) -> None:
    cluster, flags = _with_faulty_syncs(scene)
    with scene.load(cluster) as load:
        (flags / "fsync_hang").touch()
        time.sleep(scene.times(10, 2))
        (flags / "fsync_hang").unlink()
        load.wait_for_more()


def _with_faulty_syncs(scene: Scene) -> tuple[Cluster, Path]:
    if shutil.which("gcc") is None:
        raise NotHereError("there is no gcc")
    cluster = scene.cluster(begun=False, **_SMALL)
    library, flags = scene.directory / "fsync_faults.so", scene.directory / "flags"
    flags.mkdir()
    source = Path(__file__).with_name("fsync_faults.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    cluster.brokers[VICTIM].environment = {
        "LD_PRELOAD": str(library),
        "FAULT_DIR": str(flags),
        "FAULT_PREFIX": str(cluster.data_of(VICTIM)),
    }
    cluster.begin()
    return cluster, flags


def _has_said(cluster: Cluster, broker_id: int, words: str) -> None:
    lines = cluster.brokers[broker_id].log_lines
    repeat_until(lambda: any(words in line for line in list(lines)), short_sleep)


@row("D04", "power cut of one broker: all that was not synced is gone", gap_s_max=10)
def power_cut(scene: Scene) -> None:
    cluster = scene.cluster(**_SMALL)
    with scene.load(cluster, transactions=True) as load:
        lost = 0
        for number in range(scene.times(3, 1)):
            victim = cluster.leader(PLAIN, number % PARTITIONS)
            cluster.kill(victim)
            lost += forget_what_was_not_synced(cluster.data_of(victim))
            cluster.start(victim)
            cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
            load.wait_for_more()
        scene.note = f"{lost} bytes forgotten"


def forget_what_was_not_synced(data: Path) -> int:
    """Cuts every log to its recovery point, up to which the broker has synced it. Returns how much that was."""
    checkpoint = data / "recovery-point-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    points = {f"{topic}-{index}": int(offset) for topic, index, offset in (line.rsplit(" ", 2) for line in lines)}
    forgotten = 0
    for directory in data.iterdir():
        if not directory.is_dir() or not any(directory.glob("*.log")):
            continue
        point = points.get(directory.name, 0)
        for path in directory.glob("*.log"):
            content = path.read_bytes()
            kept = 0
            for batch in _whole_batches(content):
                if batch[0] >= point:
                    break
                kept = batch[1]
            os.truncate(path, kept)
            forgotten += len(content) - kept
    return forgotten


def _whole_batches(content: bytes) -> list[tuple[int, int]]:
    """Base offset and end position of each; what kill -9 has torn at the end is left out."""
    found, position = [], 0
    while position + 12 <= len(content):
        base = int.from_bytes(content[position : position + 8], "big")
        end = position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")
        if end > len(content):
            break
        found.append((base, end))
        position = end
    return found


@row("D05", "power cut of the last broker in sync: what is lost is said, and all copies agree")
def power_cut_of_the_last(scene: Scene) -> None:
    cluster = scene.cluster(zookeeper=scene.zookeeper())
    cluster.create(PLAIN, 1)
    sent = _produce(cluster, [f"v{number}" for number in range(2000)])
    last = cluster.leader(PLAIN)
    others = [broker_id for broker_id in IDS if broker_id != last]
    for broker_id in others:
        cluster.stop(broker_id)
    cluster.wait_for_isr(PLAIN, 0, {last}, ask=[last])
    cluster.kill(last)
    forgotten = forget_what_was_not_synced(cluster.data_of(last))
    cluster.start(last)
    cluster.start(*others)
    cluster.wait_until_well(PLAIN)
    found = [value.decode() for _, value in read_all(cluster.servers, PLAIN)[0]]
    lost = len(sent) - len(found)
    assert found == sent[: len(found)], "what is left is not the beginning"
    said = [line for broker in cluster.brokers.values() for line in broker.log_lines if "were committed" in line]
    assert not lost or said, f"{lost} records were lost and nobody said so"
    doubts = f"broker {last} was not stopped cleanly and leads"
    warned = [line for broker in cluster.brokers.values() for line in broker.log_lines if doubts in line]
    assert warned, "whoever elected it has not said what that may cost"
    assert not any(f"broker {other} was not" in line for other in others for line in warned)
    cluster.end()
    scene.figures = Figures(len(sent), batches=same_batches(cluster, PLAIN, 0))
    scene.note = f"{forgotten} bytes forgotten, {lost} acknowledged records lost, said {len(said)} times"


def _produce(cluster: Cluster, values: list[str]) -> list[str]:
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.servers, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    for number, value in enumerate(values):
        producer.produce(
            PLAIN, value.encode(), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        if number % 50 == 49:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0 and not failed, failed[:3]
    return values


@row("D06", "kill -9, and the tail of a log is torn or has a wrong bit, again and again", gap_s_max=10)
def torn_tails(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster) as load:
        for number in range(scene.times(8, 2)):
            victim = IDS[number % len(IDS)]
            cluster.kill(victim)
            for index in range(PARTITIONS):
                _damage_tail(cluster.data_of(victim) / f"{PLAIN}-{index}", scene.rng)
            cluster.start(victim)
            cluster.wait_until_well(PLAIN)
            load.wait_for_more(1)


def _damage_tail(directory: Path, rng: random.Random) -> None:
    path = max(directory.glob("*.log"))
    content = bytearray(path.read_bytes())
    if not content:
        return
    count = min(rng.randint(1, 64), len(content))
    if rng.random() < 0.5:
        os.truncate(path, len(content) - count)
    else:
        content[-count] ^= 1 << rng.randrange(8)
        path.write_bytes(content)


@row("D07", "a wrong bit in an old segment: no wrong record is read or copied, the others are")
def wrong_bit(scene: Scene) -> None:
    cluster = scene.cluster(**_SMALL)
    cluster.create(PLAIN, 1)
    sent = _produce(cluster, [f"v{number} {'x' * 100}" for number in range(3000)])
    leader = cluster.leader(PLAIN)
    path = sorted((cluster.data_of(leader) / f"{PLAIN}-0").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    batches = parse_batches(bytes(content), path)
    bad = batches[len(batches) // 2]
    content[bad.position + 80] ^= 1
    with path.open("r+b") as f:
        f.write(content)
    before = _read_checked(cluster, 0, bad.base_offset)
    after = _read_checked(cluster, bad.last_offset + 1, len(sent))
    assert before == sent[: bad.base_offset] and after == sent[bad.last_offset + 1 :]
    follower = next(broker_id for broker_id in IDS if broker_id != leader)
    cluster.stop(follower)
    shutil.rmtree(cluster.data_of(follower) / f"{PLAIN}-0")
    cluster.start(follower)
    _has_said(cluster, follower, f"{PLAIN}-0 cannot be fetched")
    # What comes with a wrong batch is refused with it, so the copy ends there or a little before.
    cluster.kill(follower)
    copied = [record.value for record in PartitionFiles(cluster.data_of(follower) / f"{PLAIN}-0").records()]
    assert len(copied) <= bad.base_offset
    assert [value.decode() for value in copied if value is not None] == sent[: len(copied)]
    scene.figures = Figures(len(before) + len(after))
    scene.note = f"{bad.last_offset - bad.base_offset + 1} records cannot be read, {len(before) + len(after)} can"


def _read_checked(cluster: Cluster, first: int, end: int) -> list[str]:
    """From `first` to below `end`, by a client that checks what it gets."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.servers, "group.id": "checks", "check.crcs": True, "log_level": 0}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(PLAIN, 0, first)])
        values: list[str] = []
        while len(values) < end - first:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(values)} of {end - first} came"
            error = message.error()
            assert error is None, f"{error} after {len(values)} of {end - first}"
            values.append(message.value().decode())
        return values
    finally:
        consumer.close()


@row("D08", "indexes, snapshots and checkpoints are gone, empty or nonsense: they are made anew")
def lost_indexes(scene: Scene) -> None:
    cluster = scene.cluster(**_SMALL)
    with scene.load(cluster, transactions=True) as load:
        load.wait_for_more(30)
        load.end_writing()
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        before = _views(cluster)
        damaged = 0
        for victim in IDS:
            cluster.kill(victim)
            for path in sorted(cluster.data_of(victim).rglob("*")):
                if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot") or path.name in (
                    "leader-epoch-checkpoint",
                    "recovery-point-offset-checkpoint",
                ):
                    _spoil(path, scene.rng)
                    damaged += 1
            cluster.start(victim)
            cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
            assert _views(cluster) == before
        scene.note = f"{damaged} files damaged"


def _spoil(path: Path, rng: random.Random) -> None:
    match rng.choice(["delete", "empty", "nonsense"]):
        case "delete":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case _:
            path.write_bytes(rng.randbytes(path.stat().st_size % 1000 + 8))


def _views(cluster: Cluster) -> object:
    """What clients see: all committed records, and offsets by time."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": "views", "log_level": 0})
    try:
        views = []
        for topic in (PLAIN, IN_TRANSACTIONS):
            found = read_all(cluster.servers, topic, range(PARTITIONS))
            now_ms = int(time.time() * 1000)
            times = [
                [
                    (each.partition, each.offset)
                    for each in consumer.offsets_for_times(_at(topic, ms), timeout=PATIENCE_S)
                ]
                for ms in (0, now_ms + 3_600_000)
            ]
            views.append((found, times))
        return views
    finally:
        consumer.close()


def _at(topic: str, time_ms: int) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(topic, index, time_ms) for index in range(PARTITIONS)]


@row("D09", "the directory of one broker is wiped", gap_s_max=10)
def wiped_directory(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster, transactions=True) as load:
        cluster.kill(VICTIM)
        shutil.rmtree(cluster.data_of(VICTIM))
        cluster.start(VICTIM)
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        load.wait_for_more()
