"""A dump that users' documents show, to the byte: what a Kafka of 2021 wrote for these records, we write and show.

Topic `items` of two partitions; for each value every key is sent, one record at a time, so that every batch has one.
Checksums cover keys, values and times: the ten that are printed there can only come from the same bytes.
"""

from __future__ import annotations

import itertools
import re

import pytest

import ottla
from ottla.cli.main import main
from tests.broker_process import BrokerProcess

FIRST = (
    (1626784177890, 763541509),
    (1626784178017, 1310507740),
    (1626784178090, 951837132),
    (1626784178116, 1246563562),
    (1626784178186, 4190955258),
    (1626784178210, 2136029853),
    (1626784178289, 2299961112),
    (1626784178320, 3043161180),
    (1626784178395, 3255449515),
    (1626784178418, 952333721),
)
"""Time and checksum of the first batches of partition 0."""
INDEXED = {51: 1626784180854, 102: 1626784182926}
COUNT = 110
BATCH_BYTES = 81


def times() -> list[int]:
    """Those that are known; the others lie between them."""
    known = {**{offset: time_ms for offset, (time_ms, _) in enumerate(FIRST)}, **INDEXED}
    return [max(time_ms + offset - at for at, time_ms in known.items() if at <= offset) for offset in range(COUNT)]


def test_the_dump_of_the_documents(own_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    own_broker.start()
    with (
        ottla.Admin(bootstrap_servers=own_broker.bootstrap) as admin,
        ottla.Producer(bootstrap_servers=own_broker.bootstrap, enable_idempotence=False, acks="all") as producer,
    ):
        admin.create_topics([ottla.NewTopic("items", 2, 1)]).check()
        for time_ms, value in zip(times(), itertools.cycle((b"value_0", b"value_1", b"value_2")), strict=False):
            partitions = [
                producer.send("items", value, key, timestamp_ms=time_ms).result().partition
                for key in (b"item_0", b"item_1", b"item_2")
            ]
            assert partitions == [1, 1, 0]
    assert own_broker.stop() == 0
    start = own_broker.data_dir / "items-0" / f"{0:020}"
    files = [f"{start}.{suffix}" for suffix in ("log", "index", "timeindex")]
    assert main(["dump-log", "--files", ",".join(files), "--print-data-log"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    log, index, time_index = said.out.split("Dumping ")[1:]
    header = (
        "baseOffset: {0} lastOffset: {0} count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: {1} CreateTime: {2} size: 81 magic: 2 compresscodec: none crc: {3} isvalid: true\n"
        "| offset: {0} CreateTime: {2} keySize: 6 valueSize: 7 sequence: -1 headerKeys: [] "
        "key: item_2 payload: value_{4}\n"
    )
    expected = "".join(
        header.format(offset, BATCH_BYTES * offset, time_ms, crc, offset % 3)
        for offset, (time_ms, crc) in enumerate(FIRST)
    )
    assert log.removeprefix(f"{start}.log\nLog starting offset: 0\n").startswith(expected)
    assert (own_broker.data_dir / "items-0" / f"{0:020}.log").stat().st_size == COUNT * BATCH_BYTES == 8910
    assert log.count("isvalid: true") == COUNT
    assert index == f"{start}.index\noffset: 51 position: 4131\noffset: 102 position: 8262\n"
    # A last entry is made when the file is closed.
    entries = re.findall(r"timestamp: (\d+) offset: (\d+)", time_index)
    assert [(int(time_ms), int(offset)) for time_ms, offset in entries][:2] == [(t, o) for o, t in INDEXED.items()]
