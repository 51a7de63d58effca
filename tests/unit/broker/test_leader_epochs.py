"""Clients that follow another leader than the present one are told so by every API that carries its epoch (KIP-320)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.machines.cluster.topics import NewTopic
from ottla.wire.apis import response_class
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.header import encode_request_frame, read_response_header
from ottla.wire.message import Request
from tests.unit.broker.local_connection import connected

TOPIC = "t"
EPOCH = 2


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.AbstractEventLoop, Broker]]:
    """A partition whose leader was elected three times."""
    loop = asyncio.new_event_loop()

    async def start() -> Broker:
        directory: Path = tmp_path_factory.mktemp("broker") / "data"
        broker = await start_broker(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}))
        await broker.topic_admin.create(NewTopic(TOPIC, 1, 1))
        for _ in range(EPOCH):
            await broker.controller.submit(ElectionAsked((TopicPartition(TOPIC, 0),), ElectionKind.ANEW))
        await broker.controller.delivered([broker.broker_id])
        assert broker.replicas.led(TOPIC, 0).leader_epoch == EPOCH
        return broker

    broker = loop.run_until_complete(start())
    yield loop, broker
    loop.run_until_complete(broker.stop())
    loop.close()


def fetch(epoch: int) -> tuple[Request, int]:
    wanted = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1000)
    topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
    return FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics), 12


def list_offsets(epoch: int) -> tuple[Request, int]:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])]), 6


def offset_for_leader_epoch(epoch: int) -> tuple[Request, int]:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])]), 4


@pytest.mark.parametrize("ask", [fetch, list_offsets, offset_for_leader_epoch])
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH, ErrorCode.NONE),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_another_leaders_clients_are_told(
    running: tuple[asyncio.AbstractEventLoop, Broker], ask: Any, epoch: int, code: ErrorCode
) -> None:
    loop, broker = running
    request, version = ask(epoch)
    frame = memoryview(bytearray(encode_request_frame(request, version, 77, "test")[4:]))

    async def handle() -> bytes:
        pieces = Dispatch(broker, broker.handlers).handle(connected(broker), frame)
        return b"".join(bytes(piece) for piece in pieces)  # type: ignore[union-attr,arg-type]

    reply = loop.run_until_complete(handle())[4:]
    _, position = read_response_header(reply, request.API_KEY, version)
    response: Any = response_class(request.API_KEY).decode(reply, version, position)[0]
    topic = (response.responses if ask is fetch else response.topics)[0]
    (partition,) = topic.partitions
    assert partition.error_code == code
    if ask is fetch and code == ErrorCode.FENCED_LEADER_EPOCH:
        assert partition.current_leader.leader_epoch == EPOCH, "so that the client need not ask for it"
