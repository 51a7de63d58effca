"""A broker in this process, asked without sockets: messages in, messages out, in any version."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.broker.admission import AccessRules
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.handlers import all_handlers
from ottla.broker.node import Broker
from ottla.broker.startup import Surroundings, start_broker
from ottla.net.service import Deferred
from ottla.wire.apis import response_class
from ottla.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.header import encode_request_frame, read_response_header
from ottla.wire.message import Request
from tests.unit.broker.local_connection import connected
from tests.waiting import in_time


class RunningBroker:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self._loop = loop
        self._dispatch = Dispatch(broker, all_handlers())
        self._connection = connected(broker)
        self.takes_short_ways = True
        """Whether ordinary requests go the short ways where there are some."""
        self._numbers = itertools.count()

    def ask(self, request: Request, version: int | None = None) -> Any:
        """What the broker answers, as soon as it does; the newest version it serves unless another one is named."""
        return self.wait_for(self.answer(request, version))

    def new_topic(self, **configs: str) -> str:
        """One of two partitions, with a name of its own; `configs` have underscores for dots."""
        name = f"topic-{next(self._numbers)}"
        wanted = CreatableTopic(
            name=name,
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        assert self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)).topics[0].error_code == 0
        return name

    def wait_for(self, outcome: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(in_time(outcome))

    async def answer(self, request: Request, version: int | None = None) -> Any:
        """The same for who does more than one thing at a time."""
        version = all_handlers()[request.API_KEY].max_version if version is None else version
        outcome = self._handle(request, version)
        while isinstance(outcome, Deferred) and outcome.pieces is None:
            await asyncio.sleep(0.001)
        pieces = outcome.pieces if isinstance(outcome, Deferred) else outcome
        while not pieces:
            await asyncio.sleep(0.001)
        data = b"".join(
            piece if isinstance(piece, bytes | memoryview) else os.pread(piece.file.fd, piece.length, piece.position)
            for piece in pieces
        )[4:]
        _, position = read_response_header(data, request.API_KEY, version)
        return response_class(request.API_KEY).decode(data, version, position)[0]

    def answers_at_once(self, request: Request, version: int) -> bool:
        """Whether the reply is there without waiting for anything. If it is not, nobody waits for it any more."""

        async def handle() -> bool:
            outcome = self._handle(request, version)
            if not isinstance(outcome, Deferred) or outcome.pieces is not None:
                return True
            outcome.abandon()
            return False

        return bool(self.wait_for(handle()))

    def _handle(self, request: Request, version: int) -> Any:
        frame = memoryview(bytearray(encode_request_frame(request, version, 77, "tester")[4:]))
        if not self.takes_short_ways:
            handler, context = self._dispatch.find(self._connection, frame)
            return handler.handle(context)
        outcome = self._dispatch.handle(self._connection, frame)
        self._dispatch.settle()
        return outcome


@contextmanager
def running_broker(data_dir: Path, access: AccessRules | None = None, /, **settings: object) -> Iterator[RunningBroker]:
    """`settings` have underscores for dots."""
    loop = asyncio.new_event_loop()
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_dir)}
    given |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    around = Surroundings(access=access or AccessRules())
    broker = loop.run_until_complete(start_broker(BrokerConfig(given), around))
    try:
        yield RunningBroker(broker, loop)
    finally:
        loop.run_until_complete(broker.stop())
        loop.close()
