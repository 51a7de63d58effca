"""Whom an admin client asks: any broker, the controller, leaders of partitions, coordinators; and asking again.

What is asked and what an answer means comes with the `Call`. Only what failed in a way that may pass is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from ottla.base.clock import SystemClock
from ottla.base.errors import EncodeError, ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.core.admin.arguments import sort_out
from ottla.client.core.admin.options import AdminSettings
from ottla.client.core.admin.outcomes import Call, Outcomes, admin_error, tries_again
from ottla.client.core.metadata import NO_LEADER, BrokerAddress, MetadataCache
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientClosedError, ClientError
from ottla.net.connection import Connection
from ottla.wire.message import Request

K = TypeVar("K")
V = TypeVar("V")

_CLUSTER = "the cluster"

Ask = Callable[[list[K]], Awaitable[Mapping[K, V | ClientError]]]


class AdminCaller:
    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings
        client = settings.client
        self.metadata = MetadataCache(backoff_ms=client.retry_backoff_ms, backoff_max_ms=client.retry_backoff_max_ms)
        self.link = ClusterLink(client, self.metadata, default_client_id="ottla-admin")
        self.clock = SystemClock()
        self._is_closed = False

    async def start(self) -> None:
        await self.link.find_cluster(self.clock.monotonic_ms())

    def close(self) -> None:
        self._is_closed = True
        self.link.close()

    def check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("this admin client is closed; make another one")

    async def refresh(self, topics: Collection[str]) -> None:
        await self.link.refresh_metadata(list(topics), self.clock.monotonic_ms())

    # Asking again

    async def settle(
        self, keys: Iterable[K], ask: Ask[K, V], what: str, timeout_ms: int | None, *, grace: bool = False
    ) -> Outcomes[K, V]:
        """Asks until every key has a result or an error that will not pass, or the time is up."""
        self.check_open()
        loop = asyncio.get_running_loop()
        allowed_ms = self.settings.api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = loop.time() + allowed_ms / 1000
        settled: dict[K, V | ClientError] = {}
        pending = list(dict.fromkeys(keys))
        last: dict[K, ClientError] = {}
        tries = 0
        try:
            async with asyncio.timeout_at(deadline_s):
                while pending:
                    answers = await self._ask_known(ask, pending)
                    tries += 1
                    last = {}
                    for key in pending:
                        answer = answers.get(key, unanswered(key))
                        if isinstance(answer, ClientError) and tries_again(answer, tries, grace=grace):
                            last[key] = answer
                        else:
                            settled[key] = answer
                    pending = list(last)
                    if pending:
                        await self._pause(tries)
        except TimeoutError:
            self.check_open()
            for key in pending:
                settled[key] = _timed_out(allowed_ms, last.get(key), self.link.outages.causes())
        return Outcomes(settled, what=what)

    async def _ask_known(self, ask: Ask[K, V], pending: list[K]) -> Mapping[K, V | ClientError]:
        """A client that was started before its brokers does not know yet whom to ask."""
        if not self.metadata.brokers:
            try:
                await self.refresh([])
            except KafkaError as e:
                return dict.fromkeys(pending, _as_client_error(e))
        return await ask(pending)

    async def _pause(self, tries: int) -> None:
        client = self.settings.client
        await asyncio.sleep(backoff_ms(tries, client.retry_backoff_ms, client.retry_backoff_max_ms) / 1000)
        self.check_open()
        try:
            await self.refresh([])
        except KafkaError:
            # The next try meets the same and keeps it as its error.
            return

    async def learn_brokers(self, timeout_ms: int | None) -> None:
        """Which brokers there are, and which of them is the controller."""

        async def ask(pending: list[str]) -> Mapping[str, ClientError | None]:
            try:
                await self.refresh([])
            except KafkaError as e:
                return dict.fromkeys(pending, _as_client_error(e))
            return dict.fromkeys(pending)

        (await self.settle([_CLUSTER], ask, "describe_cluster", timeout_ms)).check()

    # One request

    async def ask_node(self, node_id: int, call: Call[K, V], keys: list[K]) -> dict[K, V | ClientError]:
        """One request to one broker. What goes wrong with the request is the error of every key in it."""
        sendable, refused = sort_out(call, keys)
        if not sendable:
            return {**refused}
        try:
            answers = await self._exchange(await self.link.connection_to(node_id), call, sendable)
            return {**refused, **answers}
        except (KafkaError, EncodeError) as e:
            return {**refused, **dict.fromkeys(sendable, _as_client_error(e))}

    async def _exchange(self, connection: Connection, call: Call[K, V], keys: list[K]) -> dict[K, V | ClientError]:
        version = connection.version_for(call.request)
        if call.max_version is not None:
            version = min(version, call.max_version)
        response = await connection.request(
            call.build(keys, version),
            call.response,
            version=version,
            timeout_ms=self.settings.client.request_timeout_ms,
        )
        return call.answers(keys, response)

    async def ask_many(self, asked: Mapping[int, tuple[Call[K, V], list[K]]]) -> dict[K, V | ClientError]:
        """Several brokers at once."""
        parts = await asyncio.gather(*(self.ask_node(node, call, keys) for node, (call, keys) in asked.items()))
        return {key: answer for part in parts for key, answer in part.items()}

    # Whom to ask

    async def any_broker(self, call: Call[K, V], keys: Iterable[K], timeout_ms: int | None) -> Outcomes[K, V]:
        async def ask(pending: list[K]) -> Mapping[K, V | ClientError]:
            return await self._ask_any(call, pending)

        return await self.settle(keys, ask, call.name, timeout_ms)

    async def _ask_any(self, call: Call[K, V], keys: list[K]) -> dict[K, V | ClientError]:
        sendable, refused = sort_out(call, keys)
        if not sendable:
            return {**refused}

        def make(connection: Connection) -> tuple[Request, int]:
            version = connection.version_for(call.request)
            return call.build(sendable, version), version

        try:
            response = await self.link.request_any(make, call.response)
            return {**refused, **call.answers(sendable, response)}
        except (KafkaError, EncodeError) as e:
            return {**refused, **dict.fromkeys(sendable, _as_client_error(e))}

    async def controller(self, call: Call[K, V], keys: Iterable[K], timeout_ms: int | None) -> Outcomes[K, V]:
        async def ask(pending: list[K]) -> Mapping[K, V | ClientError]:
            controller_id = self.metadata.controller_id
            if controller_id not in self.metadata.brokers:
                error = admin_error(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
                return dict.fromkeys(pending, error)
            return await self.ask_node(controller_id, call, pending)

        return await self.settle(keys, ask, call.name, timeout_ms)

    async def brokers(
        self, call: Callable[[int], Call[int, V]], nodes: Iterable[int] | None, timeout_ms: int | None
    ) -> Outcomes[int, V]:
        """The same question to several brokers, or to all there are."""
        if nodes is None:
            await self.learn_brokers(timeout_ms)
            nodes = sorted(self.metadata.brokers)

        async def ask(pending: list[int]) -> Mapping[int, V | ClientError]:
            return await self.ask_many({node: (call(node), [node]) for node in pending})

        return await self.settle(nodes, self._knowing_brokers(ask), call(-1).name, timeout_ms)

    def _knowing_brokers(self, ask: Ask[int, V]) -> Ask[int, V]:
        """A broker that is not in the cluster is an error that will not pass."""

        async def checked(pending: list[int]) -> Mapping[int, V | ClientError]:
            try:
                await self._look_for(pending)
            except KafkaError as e:
                return dict.fromkeys(pending, _as_client_error(e))
            known = [node for node in pending if node in self.metadata.brokers]
            missing = {node: _no_such_broker(node) for node in pending if node not in self.metadata.brokers}
            return {**(await ask(known)), **missing}

        return checked

    async def _look_for(self, nodes: Iterable[int]) -> None:
        """One may have joined since the metadata were read: they are read again before it is said to be missing."""
        if not self.metadata.brokers.keys() >= set(nodes):
            await self.refresh([])

    async def placed(
        self,
        call: Callable[[int | None], Call[K, V]],
        keys: Iterable[K],
        node_of: Callable[[K], int | None],
        timeout_ms: int | None,
    ) -> Outcomes[K, V]:
        """Each key to the broker it belongs to; those that belong to none to any."""

        async def ask(pending: list[K]) -> Mapping[K, V | ClientError]:
            try:
                await self._look_for(node for node in map(node_of, pending) if node is not None)
            except KafkaError as e:
                return dict.fromkeys(pending, _as_client_error(e))
            answers: dict[K, V | ClientError] = {}
            asked: dict[int, tuple[Call[K, V], list[K]]] = {}
            anywhere: list[K] = []
            for key in pending:
                node = node_of(key)
                if node is None:
                    anywhere.append(key)
                elif node not in self.metadata.brokers:
                    answers[key] = _no_such_broker(node)
                else:
                    asked.setdefault(node, (call(node), []))[1].append(key)
            by_anyone = await self._ask_any(call(None), anywhere) if anywhere else {}
            by_owners = await self.ask_many(asked)
            return {**answers, **by_anyone, **by_owners}

        return await self.settle(keys, ask, call(None).name, timeout_ms)

    async def leaders(
        self, call: Call[TopicPartition, V], partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> Outcomes[TopicPartition, V]:
        async def ask(pending: list[TopicPartition]) -> Mapping[TopicPartition, V | ClientError]:
            # Before their leaders are looked for: that may be a request that cannot be sent either.
            sendable, refused = sort_out(call, pending)
            answers: dict[TopicPartition, V | ClientError] = {**refused}
            try:
                await self.refresh(sorted({partition.topic for partition in sendable}))
            except KafkaError as e:
                return {**answers, **dict.fromkeys(sendable, _as_client_error(e))}
            asked: dict[int, tuple[Call[TopicPartition, V], list[TopicPartition]]] = {}
            for partition in sendable:
                leader = self.metadata.leader_of(*partition)
                if leader != NO_LEADER:
                    asked.setdefault(leader, (call, []))[1].append(partition)
                else:
                    answers[partition] = self._why_no_leader(partition)
            by_leaders = await self.ask_many(asked)
            return {**answers, **by_leaders}

        wanted = [TopicPartition(*partition) for partition in partitions]
        return await self.settle(wanted, ask, call.name, timeout_ms, grace=True)

    def _why_no_leader(self, partition: TopicPartition) -> ClientError:
        topic = self.metadata.topics.get(partition.topic)
        if topic is not None and topic.error_code:
            return admin_error(topic.error_code, where=partition)
        if not self.metadata.knows(partition):
            return admin_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where=partition)
        return admin_error(ErrorCode.LEADER_NOT_AVAILABLE, where=partition)

    async def coordinators(
        self,
        kind: int,
        call: Callable[[str], Call[str, V]],
        ids: Iterable[str],
        timeout_ms: int | None,
    ) -> Outcomes[str, V]:
        """Each group or transactional id to its coordinator, which is looked for again whenever it has moved."""

        async def ask_one(coordinated: str) -> V | ClientError:
            answers = await self.ask_coordinator(kind, coordinated, call(coordinated), [coordinated])
            return answers.get(coordinated, unanswered(coordinated))

        async def ask(pending: list[str]) -> Mapping[str, V | ClientError]:
            return dict(zip(pending, await asyncio.gather(*map(ask_one, pending)), strict=True))

        return await self.settle(ids, ask, call("").name, timeout_ms)

    async def coordinator(
        self, kind: int, coordinated: str, call: Call[K, V], keys: Iterable[K], timeout_ms: int | None
    ) -> Outcomes[K, V]:
        """Several things of one group."""

        async def ask(pending: list[K]) -> Mapping[K, V | ClientError]:
            return await self.ask_coordinator(kind, coordinated, call, pending)

        return await self.settle(keys, ask, call.name, timeout_ms)

    async def find_coordinators(
        self, kind: int, ids: Iterable[str], timeout_ms: int | None
    ) -> Outcomes[str, BrokerAddress]:
        async def find(coordinated: str) -> BrokerAddress | ClientError:
            try:
                return self.metadata.brokers[await self.link.find_coordinator(coordinated, kind)]
            except KafkaError as e:
                return _as_client_error(e)

        async def ask(pending: list[str]) -> Mapping[str, BrokerAddress | ClientError]:
            return dict(zip(pending, await asyncio.gather(*map(find, pending)), strict=True))

        return await self.settle(ids, ask, "find_coordinators", timeout_ms)

    async def ask_coordinator(
        self, kind: int, coordinated: str, call: Call[K, V], keys: list[K]
    ) -> dict[K, V | ClientError]:
        sendable, refused = sort_out(call, keys)
        if not sendable:
            return {**refused}
        try:
            node = await self.link.find_coordinator(coordinated, kind)
        except KafkaError as e:
            return {**refused, **dict.fromkeys(sendable, _as_client_error(e))}
        answers = await self.ask_node(node, call, sendable)
        return {**refused, **answers}


def _as_client_error(error: KafkaError | EncodeError) -> ClientError:
    if isinstance(error, ClientError):
        return error
    if isinstance(error, EncodeError):
        return admin_error(ErrorCode.UNSUPPORTED_VERSION, f"the broker is too old for this request: {error}")
    return admin_error(error.code, error.message)


def unanswered(key: object) -> ClientError:
    return admin_error(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not mention it", where=key)


def _no_such_broker(node_id: int) -> ClientError:
    return admin_error(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not in the cluster")


def _timed_out(allowed_ms: int, last: ClientError | None, outages: str) -> ClientError:
    why = f"; the last error was {last}" if last is not None else f"; cannot reach {outages}" if outages else ""
    return admin_error(ErrorCode.REQUEST_TIMED_OUT, f"there was no success within {allowed_ms} ms{why}")
