"""What the controller still has to tell each broker. One queue per broker: a slow one delays nobody but itself.

A queue holds partitions, not states. What is sent is made of the controller's state at that moment, so that changes of
one partition that pile up travel as one, the last. What could not be sent is tried again until the broker is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.decision import DeleteReplicas, Message, TellMetadata, TellRoles
from ottla.machines.cluster.requests import Sender, leader_and_isr, stop_replica, update_metadata
from ottla.machines.cluster.state import ClusterState
from ottla.wire.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.apis.stop_replica import StopReplicaResponse
from ottla.wire.apis.update_metadata import UpdateMetadataResponse
from ottla.wire.message import Request, Response

log = logging.getLogger(__name__)

RETRY_MS = 100
RETRY_MAX_MS = 10_000


_Told = dict[TopicPartition, None] | None
"""What metadata is to be told of. None: nothing; empty: who is alive."""


class BrokerLink(Protocol):
    """How the controller reaches a broker, itself included."""

    async def send(self, broker_id: int, request: Request) -> Response:
        """Raises OSError or KafkaError if there is no answer, for which it does not wait for ever."""


class Outgoing:
    def __init__(
        self,
        link: BrokerLink,
        sender: Sender,
        state: Callable[[], ClusterState],
        *,
        on_deleted: Callable[[int, tuple[TopicPartition, ...]], None],
        on_failed: Callable[[int, tuple[TopicPartition, ...]], None],
        on_stale: Callable[[], None],
        retry_ms: int = RETRY_MS,
    ) -> None:
        """`on_deleted` is told which replicas a broker has deleted, `on_failed` which ones it cannot use because their
        directory has failed, `on_stale` that one knows a newer controller."""
        self._link = link
        self._sender = sender
        self._state = state
        self._on_deleted = on_deleted
        self._on_failed = on_failed
        self._on_stale = on_stale
        self._retry_ms = retry_ms
        self._queues: dict[int, _BrokerQueue] = {}

    def tell(self, messages: Iterable[Message]) -> None:
        for message in messages:
            queue = self._queues.get(message.broker_id)
            if queue is None:
                queue = self._queues[message.broker_id] = _BrokerQueue(
                    message.broker_id,
                    self._link,
                    self._sender,
                    self._state,
                    self._on_deleted,
                    self._on_failed,
                    self._on_stale,
                    self._retry_ms,
                )
            queue.add(message)

    async def delivered(self, brokers: Collection[int]) -> None:
        """Returns once each of `brokers` has answered all it was to be told so far, or is gone."""
        waiting = [queue.delivered() for broker_id in brokers if (queue := self._queues.get(broker_id)) is not None]
        await asyncio.gather(*waiting)

    def drop(self, broker_id: int) -> None:
        """The broker is gone. If it comes back it is another one, which has to be told everything."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            queue.close()

    def close(self) -> None:
        for broker_id in list(self._queues):
            self.drop(broker_id)


class _BrokerQueue:
    def __init__(
        self,
        broker_id: int,
        link: BrokerLink,
        sender: Sender,
        state: Callable[[], ClusterState],
        on_deleted: Callable[[int, tuple[TopicPartition, ...]], None],
        on_failed: Callable[[int, tuple[TopicPartition, ...]], None],
        on_stale: Callable[[], None],
        retry_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._link = link
        self._sender = sender
        self._state = state
        self._on_deleted = on_deleted
        self._on_failed = on_failed
        self._on_stale = on_stale
        self._retry_ms = retry_ms
        self._roles: dict[TopicPartition, bool] = {}
        """Each with whether the partition is new."""
        self._introduction: _Told = None
        self._metadata: _Told = None
        self._deletions: dict[TopicPartition, None] = {}
        self._added = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, message: Message) -> None:
        match message:
            case TellRoles(_, partitions, are_new):
                self._roles = _merged(self._roles, dict.fromkeys(partitions, are_new))
            case TellMetadata(_, partitions, comes_first=True):
                self._introduction = _with(self._introduction, partitions)
            case TellMetadata(_, partitions):
                self._metadata = _with(self._metadata, partitions)
            case DeleteReplicas(_, partitions):
                self._deletions.update(dict.fromkeys(partitions))
        self._added += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def delivered(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._task is None:
            future.set_result(None)
        else:
            self._waiting.append((self._added, future))
        return future

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._release(self._added)

    def _release(self, sent: int) -> None:
        for number, future in self._waiting:
            if number <= sent and not future.done():
                future.set_result(None)
        self._waiting = [(number, future) for number, future in self._waiting if number > sent]

    @property
    def _is_empty(self) -> bool:
        has_metadata = self._introduction is not None or self._metadata is not None
        return not self._roles and not has_metadata and not self._deletions

    async def _run(self) -> None:
        retry_ms = self._retry_ms
        while not self._is_empty:
            added = self._added
            try:
                # A broker leads before clients are sent to it, and clients are sent away before it stops.
                await self._send_introduction()
                await self._send_roles()
                await self._send_metadata()
                await self._send_deletions()
            except _StaleError:
                log.warning("broker %d knows a newer controller than epoch %d", self._broker_id, self._sender[1])
                self._task = None
                self._on_stale()
                return
            except (OSError, KafkaError) as e:
                log.warning("broker %d cannot be told of changes, next try in %d ms: %s", self._broker_id, retry_ms, e)
            except Exception:
                log.exception("broker %d cannot be told of changes, next try in %d ms", self._broker_id, retry_ms)
            else:
                self._release(added)
                retry_ms = self._retry_ms
                continue
            await asyncio.sleep(retry_ms / 1000)
            retry_ms = min(retry_ms * 2, RETRY_MAX_MS)
        # What came during the last round was sent along with it, or there would be another one.
        self._release(self._added)
        self._task = None

    async def _send_roles(self) -> None:
        if not self._roles:
            return
        roles, self._roles = self._roles, {}
        request = leader_and_isr(self._state(), self._sender, self._broker_id, roles)
        if request is None:
            return
        try:
            response = await self._send(request)
        except BaseException:
            self._roles = _merged(roles, self._roles)
            raise
        assert isinstance(response, LeaderAndIsrResponse)
        self._take_refused_roles(request, response)

    async def _send_introduction(self) -> None:
        partitions, self._introduction = self._introduction, None
        if partitions is not None:
            try:
                await self._tell_metadata(partitions)
            except BaseException:
                self._introduction = _with(self._introduction, partitions)
                raise

    async def _send_metadata(self) -> None:
        partitions, self._metadata = self._metadata, None
        if partitions is not None:
            try:
                await self._tell_metadata(partitions)
            except BaseException:
                self._metadata = _with(self._metadata, partitions)
                raise

    async def _tell_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        response = await self._send(update_metadata(self._state(), self._sender, self._broker_id, partitions))
        assert isinstance(response, UpdateMetadataResponse)

    async def _send_deletions(self) -> None:
        if not self._deletions:
            return
        partitions, self._deletions = self._deletions, {}
        request = stop_replica(self._state(), self._sender, self._broker_id, partitions)
        if request is None:
            return
        try:
            response = await self._send(request)
        except BaseException:
            self._deletions = {**partitions, **self._deletions}
            raise
        assert isinstance(response, StopReplicaResponse)
        sent = [
            TopicPartition(topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        refused: dict[TopicPartition, int] = {
            TopicPartition(error.topic_name, error.partition_index): error.error_code
            for error in response.partition_errors
            if error.error_code != ErrorCode.NONE
        }
        for tp, code in refused.items():
            log.warning("broker %d cannot delete its replica of %s: %s", self._broker_id, tp, ErrorCode(code).name)
        self._on_deleted(self._broker_id, tuple(tp for tp in sent if tp not in refused))

    async def _send(self, request: Request) -> Response:
        response = await self._link.send(self._broker_id, request)
        code = ErrorCode(getattr(response, "error_code", ErrorCode.NONE))
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            raise _StaleError
        if code != ErrorCode.NONE:
            raise KafkaError(code=code)
        return response

    def _take_refused_roles(self, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        failed: list[TopicPartition] = []
        for topic in response.topics:
            for error in topic.partition_errors:
                if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic.topic_id in names:
                    failed.append(TopicPartition(names[topic.topic_id], error.partition_index))
                # A role the broker has already is refused as stale, which says nothing.
                if error.error_code not in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
                    log.warning(
                        "broker %d cannot take its role for %s-%d: %s",
                        self._broker_id,
                        names.get(topic.topic_id, "an unknown topic"),
                        error.partition_index,
                        ErrorCode(error.error_code).name,
                    )
        if failed:
            self._on_failed(self._broker_id, tuple(failed))


def _with(told: _Told, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, None]:
    return {**(told or {}), **dict.fromkeys(partitions)}


def _merged(first: dict[TopicPartition, bool], second: dict[TopicPartition, bool]) -> dict[TopicPartition, bool]:
    """A partition that was new to the broker is so until the broker has heard of it."""
    return first | {tp: is_new or first.get(tp, False) for tp, is_new in second.items()}


class _StaleError(Exception):
    """The broker was told something by a controller with a higher epoch."""
