"""What Apache Kafka kept of logs: by retention, DeleteRecords, max.compaction.lag.ms, and after a kill -9; and what we
keep of the same (tests/golden/kept.json)."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.topics import topic_config
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition
from ottla.log.retention import drop_expired, find_expired
from ottla.records.batch import iter_headers
from tests.unit.log.cleaning_passes import clean
from tests.unit.log.samples import TOPIC_ID, TP

CASES = json.loads((Path(__file__).parents[2] / "golden" / "kept.json").read_text())
FAR_AWAY = 2**62
HOUR_MS = 3_600_000
SNAPSHOT_HEAD, SNAPSHOT_ENTRY = 10, 46
SUFFIXES = ("leader-epoch-checkpoint", ".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def content(files: dict[str, str]) -> dict[str, bytes]:
    return {name: zlib.decompress(base64.b64decode(data)) for name, data in files.items()}


def open_log(case: dict[str, Any], directory: Path, now_ms: int) -> PartitionLog:
    partition = directory / str(TP)
    partition.mkdir()
    for name, data in content(case["before"]).items():
        (partition / name).write_bytes(data)
    is_clean = case["act"] != "recovery"
    return load_partition(
        partition,
        TP,
        TOPIC_ID,
        topic_config(case["settings"], BrokerConfig({})),
        is_clean=is_clean,
        recovery_point=FAR_AWAY if is_clean else 0,
        log_start_offset=0,
        high_watermark=FAR_AWAY,
        now_ms=now_ms,
    )


def oldest_ms(files: dict[str, bytes]) -> int:
    logs = [data for name, data in files.items() if name.endswith(".log")]
    return min(header.max_timestamp for data in logs for _, header in iter_headers(data))


def act(log: PartitionLog, case: dict[str, Any], now_ms: int) -> None:
    match case["act"]:
        case "retention":
            expired = find_expired(log, now_ms)
            assert expired is not None
            drop_expired(log, expired, now_ms)
        case "delete records":
            log.advance_log_start_offset(case["offset"])
        case "append":
            newest = max(name for name in case["after"] if name.endswith(".log"))
            log.append_as_follower(memoryview(bytearray(content(case["after"])[newest])), now_ms=now_ms)
            log.advance_high_watermark(FAR_AWAY)
            assert clean(log, now_ms) is not None


@pytest.mark.parametrize("case", CASES, ids=[f"{case['case']}:{case['states'][1]}" for case in CASES])
def test_the_same_is_left_as_kafka_leaves(case: dict[str, Any], tmp_path: Path) -> None:
    # What is old in these logs was an hour old.
    now_ms = oldest_ms(content(case["before"])) + HOUR_MS + 1000
    log = open_log(case, tmp_path, now_ms)
    act(log, case, now_ms)
    log.remove_deleted(now_ms, at_once=True)
    log.close()
    theirs = comparable(content(case["after"]))
    ours = comparable({path.name: path.read_bytes() for path in log.directory.iterdir()})
    if case["states"][1] == "after-append":
        # Their broker was running. What a closed log gets: the last time entry, and a snapshot at its end.
        ours[f"{log.segments.active.base_offset:020}.timeindex"] = b""
        del ours[f"{log.log_end_offset:020}.snapshot"]
    for suffix in SUFFIXES:
        assert of_kind(ours, suffix) == of_kind(theirs, suffix)


def comparable(files: dict[str, bytes]) -> dict[str, object]:
    """Producers have no order in a snapshot."""
    return {name: sorted(entries_of(data)) if name.endswith(".snapshot") else data for name, data in files.items()}


def entries_of(snapshot: bytes) -> list[bytes]:
    return [snapshot[at : at + SNAPSHOT_ENTRY] for at in range(SNAPSHOT_HEAD, len(snapshot), SNAPSHOT_ENTRY)]


def of_kind(files: dict[str, object], suffix: str) -> dict[str, object]:
    return {name: data for name, data in files.items() if name.endswith(suffix)}
