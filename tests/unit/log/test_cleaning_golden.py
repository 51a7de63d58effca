"""What Apache Kafka's own cleaner made of logs, and what ours makes of the same (tests/golden/compaction.json)."""

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
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import BatchHeader, crc_is_valid, iter_headers
from ottla.records.compression import Codec
from ottla.records.reader import Record, read_records
from tests.unit.log.cleaning_passes import clean
from tests.unit.log.samples import TOPIC_ID, TP

GOLDEN = Path(__file__).parents[2] / "golden" / "compaction.json"
PASSES = json.loads(GOLDEN.read_text())
FAR_AWAY = 2**62


def unpack(files: dict[str, str], directory: Path) -> Path:
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(zlib.decompress(base64.b64decode(content)))
    return directory


def open_log(case: dict[str, Any], directory: Path) -> PartitionLog:
    settings = dict(case["settings"])
    expiration = {name: settings.pop(name) for name in ["producer.id.expiration.ms"] if name in settings}
    return load_partition(
        unpack(case["before"], directory / str(TP)),
        TP,
        TOPIC_ID,
        topic_config(settings, BrokerConfig(expiration)),
        is_clean=True,
        recovery_point=FAR_AWAY,
        log_start_offset=case["log_start_offset"],
        high_watermark=FAR_AWAY,
        now_ms=case["now_ms"],
        clean_offset=case["clean_offset"],
    )


def comparable(path: Path) -> list[tuple[BatchHeader | bytes, list[Record]]]:
    """The batches of a file as bytes; what is compressed by its header, without sizes, and its records."""
    data = path.read_bytes()
    batches: list[tuple[BatchHeader | bytes, list[Record]]] = []
    for position, header in iter_headers(data):
        batch = data[position : position + header.size]
        assert crc_is_valid(batch, header)
        if header.codec is Codec.NONE:
            batches.append((batch, []))
        else:
            batches.append((header._replace(batch_length=0, crc=0), read_records(batch, header)))
    return batches


def log_files(directory: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(directory.glob("*.log"))}


@pytest.mark.parametrize("case", PASSES, ids=[f"{case['case']}:{case['states'][1]}" for case in PASSES])
def test_a_pass_leaves_what_kafkas_cleaner_leaves(case: dict[str, Any], tmp_path: Path) -> None:
    log = open_log(case, tmp_path / "ours")
    expired = find_expired(log, case["now_ms"])
    if expired is not None:
        drop_expired(log, expired, case["now_ms"])
    cleaner = clean(log, case["now_ms"])
    assert cleaner is not None
    assert cleaner.end_offset == log.clean_offset == case["end_offset"]

    theirs = log_files(unpack(case["after"], tmp_path / "theirs"))
    ours = log_files(log.directory)
    assert list(ours) == list(theirs)
    for name in theirs:
        assert comparable(ours[name]) == comparable(theirs[name]), name
        base_offset = int(name[:20])
        indexes = [TransactionIndex(path.with_suffix(".txnindex"), base_offset) for path in (ours[name], theirs[name])]
        assert indexes[0].entries() == indexes[1].entries()
    log.close()
    again = load_partition(
        log.directory, TP, TOPIC_ID, log.config, is_clean=True, recovery_point=0, log_start_offset=0,
        high_watermark=FAR_AWAY, now_ms=case["now_ms"], clean_offset=log.clean_offset,
    )  # fmt: skip
    assert again.segments.size_bytes == log.segments.size_bytes
    assert again.producers.entries.keys() == log.producers.entries.keys()
