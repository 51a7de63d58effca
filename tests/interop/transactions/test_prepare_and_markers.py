"""The broker dies after a transaction's outcome is in the log, and before all of its markers are written.

A broker in this process writes some markers and never gets to the others. Its files are copied as they are then, which
is what a killed process leaves behind, and a real broker process is started on the copy.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.coordinators.markers import Marker, Markers
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from tests.broker_process import BrokerProcess
from tests.integration.calls import create_topic
from tests.interop.coordinator_requests import LOADING
from tests.interop.transactions.conftest import QUICK_TRANSACTIONS
from tests.interop.transactions.raw_producer import (
    END_NEW,
    END_OLD,
    OFFSETS_NEW,
    PRODUCE_NEW,
    RawProducer,
    committed_offset,
    fetch,
    last_stable_offset,
    until,
)
from tests.interop.transactions.readers import read_all
from tests.raw_client import RawClient

pytestmark = [pytest.mark.interop, pytest.mark.crash]

PARTITIONS = 8
TOPIC = "eightfold"
GROUP = "readers"


class BrokerInThread:
    """Serves until its block ends. It is then stopped in good order, which its copied files know nothing of."""

    def __init__(self, data_dir: Path) -> None:
        self._settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_dir)} | QUICK_TRANSACTIONS
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._broker: Broker | None = None

    @property
    def port(self) -> int:
        assert self._broker is not None
        return self._broker.endpoints[0].port

    def __enter__(self) -> BrokerInThread:
        self._thread.start()
        starting = start_broker(BrokerConfig(self._settings))
        self._broker = asyncio.run_coroutine_threadsafe(starting, self._loop).result(20)
        return self

    def __exit__(self, *_: object) -> None:
        if self._broker is not None:
            asyncio.run_coroutine_threadsafe(self._broker.stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()


@pytest.fixture(params=[0, 3, PARTITIONS])
def markers_written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Only partitions below this number get their marker, and the offsets of groups only if all of them do."""
    allowed: int = request.param

    write = Markers.write

    async def write_some(self: Markers, tp: TopicPartition, marker: Marker, *, wait_ms: int) -> None:
        if tp.partition >= allowed or (tp.topic != TOPIC and allowed < PARTITIONS):
            await asyncio.Event().wait()
        await write(self, tp, marker, wait_ms=wait_ms)

    monkeypatch.setattr(Markers, "write", write_some)
    monkeypatch.setattr(Markers, "write_at_once", lambda *_: False)
    yield allowed


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_all_or_nothing(tmp_path: Path, markers_written: int, commit: bool, is_new: bool) -> None:
    end_version = END_NEW if is_new else END_OLD
    copy = tmp_path / "copy"
    with BrokerInThread(tmp_path / "data") as first, RawClient(first.port) as raw:
        create_topic(raw, TOPIC, partitions=PARTITIONS)
        producer = RawProducer(raw, "t").init()
        for partition in range(PARTITIONS):
            assert producer.produce(TOPIC, b"%d" % partition, partition=partition, version=PRODUCE_NEW).error_code == 0
        assert producer.commit_offset(GROUP, TOPIC, 5, version=OFFSETS_NEW) == 0
        old_epoch = producer.epoch
        producer.end(commit=commit, version=end_version)
        until(
            lambda: [fetch(raw, TOPIC, partition=number).high_watermark for number in range(PARTITIONS)],
            lambda found: found == [2] * markers_written + [1] * (PARTITIONS - markers_written),
        )
        shutil.copytree(tmp_path / "data", copy, ignore=shutil.ignore_patterns(".lock"))
    second = BrokerProcess(copy, dict(QUICK_TRANSACTIONS)).start()
    try:
        with RawClient(second.port) as raw:
            for number in range(PARTITIONS):
                until(
                    lambda partition=number: last_stable_offset(raw, TOPIC, partition),  # type: ignore[misc]
                    lambda offset: offset >= 2,
                )
            stored = until(
                lambda: committed_offset(raw, GROUP, TOPIC),
                lambda found: found[0] not in {*LOADING, ErrorCode.UNSTABLE_OFFSET_COMMIT},
            )
            assert stored == (0, 5 if commit else -1)
            # The client did not see its old broker go: it may ask for the end again, and goes on.
            producer.client = raw
            again = until(
                lambda: producer.ask_end(commit=commit, version=end_version, as_epoch=old_epoch),
                lambda got: got.error_code not in {*LOADING, ErrorCode.CONCURRENT_TRANSACTIONS},
            )
            assert again.error_code == 0
            assert producer.produce(TOPIC, b"next", version=PRODUCE_NEW).error_code == 0
            producer.end(commit=True, version=end_version)
            until(lambda: last_stable_offset(raw, TOPIC), lambda offset: offset == fetch(raw, TOPIC).high_watermark)
        found = read_all(second.bootstrap, TOPIC, range(PARTITIONS))
        seen = {partition: [value for _, value in records] for partition, records in found.items()}
        wanted = {partition: [b"%d" % partition] if commit else [] for partition in range(PARTITIONS)}
        wanted[0].append(b"next")
        assert seen == wanted
        assert second.tracebacks() == []
    finally:
        second.kill()
