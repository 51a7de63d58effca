"""From a frame to its handler. The only thing the server knows of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ProtocolError
from ottla.broker.admission import ANONYMOUS, Admission
from ottla.broker.handler import Handler, RequestContext
from ottla.broker.straight_commit import StraightCommit
from ottla.broker.straight_fetch import StraightFetch
from ottla.broker.straight_produce import StraightProduce
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Outcome
from ottla.wire.api_keys import ApiKey
from ottla.wire.header import read_request_header, skim_request_header

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_PRODUCE = int(ApiKey.PRODUCE)
_FETCH = int(ApiKey.FETCH)
_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)


class Dispatch:
    def __init__(self, broker: Broker, handlers: dict[int, Handler]) -> None:
        self._broker = broker
        self._handlers = handlers
        self._straight_produce = StraightProduce(broker)
        self._straight_fetch = StraightFetch(broker)
        self._straight_commit = StraightCommit(broker)

    def opened(self, connection: ClientConnection) -> None:
        connection.state = Admission(
            self._broker.authorizer,
            self._broker.quotas,
            listener=connection.listener,
            peer_host=connection.peer_host,
            principal=ANONYMOUS if self._asks_for_no_name(connection.listener) else None,
        )

    def _asks_for_no_name(self, listener: str) -> bool:
        listeners = self._broker.config.listeners
        return any(found.name == listener and found.protocol == "PLAINTEXT" for found in listeners)

    def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
        api_key, version, correlation_id, position = skim_request_header(frame)
        if api_key == _PRODUCE and position:
            reply = self._straight_produce.stage(connection, version, correlation_id, frame, position)
            if reply is not None:
                return reply
        elif api_key == _OFFSET_COMMIT and position:
            reply = self._straight_commit.stage(connection, version, correlation_id, frame, position)
            if reply is not None:
                return reply
        # All other requests find a world in which earlier ones are done.
        if self._straight_produce.staged or self._straight_commit.staged:
            self.settle()
        if api_key == _FETCH and position:
            found = self._straight_fetch.reply(connection, version, correlation_id, frame, position)
            if found is not None:
                return found
        handler, context = self.find(connection, frame)
        return handler.handle(context)

    def find(self, connection: ClientConnection, frame: memoryview) -> tuple[Handler, RequestContext]:
        """The handler that has all the rules, and what it is to be given."""
        api_key, version, correlation_id, client_id, position = read_request_header(frame)
        connection.state.check(api_key)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise ProtocolError(f"api {api_key} is not served")
        if not handler.min_version <= version <= handler.max_version:
            raise ProtocolError(
                f"version {version} of api {api_key} is not served, only {handler.min_version} to {handler.max_version}"
            )
        return handler, RequestContext(
            self._broker, connection, api_key, version, correlation_id, client_id, frame, position
        )

    def settle(self) -> None:
        self._straight_produce.settle()
        self._straight_commit.settle()

    def end_turn(self) -> None:
        self._broker.parked.try_moved()

    def closed(self, connection: ClientConnection) -> None:
        pass
