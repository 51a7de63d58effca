"""The short way of a produce request gives what the long way gives: the same replies, and the same log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, ProtocolError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import RequestContext
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from ottla.log.stage import NOT_STAGED, Stage
from ottla.machines.cluster.topics import NewTopic
from ottla.net.outgoing import Piece
from ottla.net.service import Deferred
from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.header import encode_request_frame, read_request_header, read_response_header
from tests.unit.broker.local_connection import connected
from tests.waiting import run_async

NOW_MS = 1_700_000_000_000
LONG, SHORT = "way-a", "way-b"


@dataclass
class Running:
    broker: Broker
    dispatch: Dispatch
    loop: asyncio.AbstractEventLoop

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def in_loop(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return call()

        return self.wait_for(run())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    directory = tmp_path_factory.mktemp("broker") / "data"
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)})
    broker = loop.run_until_complete(start_broker(config))
    yield Running(broker, Dispatch(broker, broker.handlers), loop)
    loop.run_until_complete(broker.stop())
    loop.close()


def request_frame(
    topic: str, version: int, records: bytes | None, *, acks: int, partition: int, transactional_id: str | None
) -> memoryview:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
        ],
    )
    return memoryview(bytearray(encode_request_frame(request, version, 77, "test")[4:]))


def by_the_long_way(running: Running, frame: memoryview) -> Any:
    api_key, version, correlation_id, client_id, position = read_request_header(frame)
    context = RequestContext(
        running.broker, connected(running.broker), api_key, version, correlation_id, client_id, frame, position
    )
    return running.broker.handlers[api_key].handle(context)


def reply_of(outcome: Any) -> object:
    if isinstance(outcome, Deferred):
        return "deferred"
    frame = b"".join(outcome)
    return frame.replace(SHORT.encode(), LONG.encode())


def ask(call: Callable[[], Any]) -> object:
    try:
        return call()
    except ProtocolError as e:
        return str(e).replace(SHORT, LONG)


def _batch(size: int, count: int, codec: Codec, fields: dict[str, Any], key: bytes | None = None) -> bytes:
    records = [NewRecord(key, b"v" * size, (), NOW_MS) for _ in range(count)]
    return build_batch(records, codec=codec, **fields)


def _damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


_producers = st.one_of(
    st.just({}),
    st.builds(
        lambda producer_id, sequence, transactional: {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "transactional": transactional,
        },
        st.integers(1, 2),
        st.integers(0, 5),
        st.sampled_from([False, False, False, True]),
    ),
)
_batches = st.builds(
    _batch,
    st.integers(0, 300),
    st.integers(1, 2),
    st.sampled_from(list(Codec)),
    _producers,
    st.sampled_from([b"k", None]),
)
_records = st.one_of(_batches, _batches, _batches.map(_damaged), st.just(b""), st.none(), st.just(b"short"))
_requests = st.tuples(
    _records,
    st.integers(3, 11),
    st.sampled_from([1, -1, 1, -1, 0, 5]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([None, None, None, "tx"]),
)


_topic_settings = st.sampled_from(
    [
        {},
        {},
        {"segment.bytes": "700"},
        {"cleanup.policy": "compact"},
        {"compression.type": "lz4"},
        {"max.message.bytes": "250"},
        {"message.timestamp.before.max.ms": "1000"},
    ]
)


class _ClosedStage(Stage):
    """Even behind its handler a batch has a short way; this one sends all of them the long way."""

    def add(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        return NOT_STAGED


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.lists(_requests, min_size=1, max_size=5), min_size=1, max_size=4),
    topic_settings=_topic_settings,
)
def test_both_ways_are_the_same(running: Running, groups: list[list[Any]], topic_settings: dict[str, str]) -> None:
    broker = running.broker
    for topic in (LONG, SHORT):
        if topic in broker.image.topics:
            running.wait_for(broker.topic_admin.delete(topic))
        running.wait_for(broker.topic_admin.create(NewTopic(topic, 1, 1, configs=topic_settings)))

    connection = connected(broker)

    def run() -> None:
        log = broker.replicas.led(LONG, 0).log
        log.stage = _ClosedStage(log, log.stage.rules)
        for group in groups:
            expected, got = [], []
            for records, version, acks, partition, transactional_id in group:
                more = {"acks": acks, "partition": partition, "transactional_id": transactional_id}
                frames = [request_frame(topic, version, records, **more) for topic in (LONG, SHORT)]
                expected.append(ask(lambda frame=frames[0]: by_the_long_way(running, frame)))  # type: ignore[misc]
                got.append(ask(lambda frame=frames[1]: running.dispatch.handle(connection, frame)))  # type: ignore[misc]
            running.dispatch.settle()
            for one, other in zip(expected, got, strict=True):
                if isinstance(one, str):
                    assert other == one
                else:
                    assert reply_of(other) == reply_of(one)
            logs = [broker.replicas.led(topic, 0).log for topic in (LONG, SHORT)]
            assert logs[0].log_end_offset == logs[1].log_end_offset
            assert logs[0].high_watermark == logs[1].high_watermark
            files = [[(s.base_offset, os.pread(s.log.fd, s.size, 0)) for s in log.segments.all()] for log in logs]
            assert files[0] == files[1]

    running.in_loop(run)


def test_a_failed_write_is_told_to_everybody_it_concerns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        broker = await start_broker(BrokerConfig(config))
        try:
            await broker.topic_admin.create(NewTopic(LONG, 1, 1))
            dispatch = Dispatch(broker, broker.handlers)
            connection = connected(broker)

            def produce() -> Any:
                records = _batch(10, 1, Codec.NONE, {})
                frame = request_frame(LONG, 9, records, acks=-1, partition=0, transactional_id=None)
                return dispatch.handle(connection, frame)

            first = produce()
            dispatch.settle()
            assert error_of(first) is ErrorCode.NONE
            replies = [produce() for _ in range(3)]
            assert replies == [[], [], []], "they wait for the write"
            with monkeypatch.context() as patched:
                patched.setattr(os, "pwritev", _no_space)
                dispatch.settle()
            assert [error_of(reply) for reply in replies] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
            partition = broker.replicas.find(LONG, 0)
            assert partition is not None
            assert (partition.is_offline, partition.log.log_end_offset, partition.log.high_watermark) == (True, 1, 1)
            assert error_of(produce()) is ErrorCode.KAFKA_STORAGE_ERROR
        finally:
            await broker.stop()

    run_async(run())


def _no_space(*_: Any) -> int:
    raise OSError(28, "No space left on device")


def error_of(reply: list[Piece]) -> ErrorCode:
    frame = b"".join(piece for piece in reply if isinstance(piece, bytes))[4:]
    _, position = read_response_header(frame, 0, 9)
    response, _ = ProduceResponse.decode(frame, 9, position)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)
