"""What a consumer asks the coordinator of its group: where it is, and the offsets that are committed there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.base.errors import ERRORS, ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.cluster_link import GROUP
from ottla.client.aio.consumer.position_finder import MEMBER_ERRORS, UNREACHABLE
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import (
    Membership,
    commit_request,
    committed_request,
    read_commit,
    read_committed_offsets,
)
from ottla.client.errors import (
    CommitFailedError,
    FencedInstanceError,
    RebalanceInProgressError,
    SubscriptionStateError,
    client_error,
)
from ottla.wire.apis.offset_commit import OffsetCommitResponse
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from ottla.client.aio.consumer.engine import ConsumerEngine

T = TypeVar("T")

_LOST_MEMBERSHIP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_COMMIT_RETRIED: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH})


class Coordinator:
    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._node_id: int | None = None
        self._limits: set[asyncio.Timeout] = set()
        """Of the questions that wait for its answer."""
        self.membership: Callable[[], Membership] = lambda: Membership(self.group_id())
        """On whose behalf to commit; the group says if there is one."""
        self.held: Callable[[], frozenset[TopicPartition]] = lambda: engine.cursors.partitions
        """What the group has given this consumer."""
        self.is_joining: Callable[[], bool] = lambda: False

    def group_id(self) -> str:
        if self._engine.settings.group_id is None:
            raise SubscriptionStateError("this needs a group.id, and the consumer has none")
        return self._engine.settings.group_id

    async def node_id(self) -> int:
        """Where it is, which is asked for if it is not known."""
        if self._node_id is None or self._node_id not in self._engine.metadata.brokers:
            self._node_id = await self._engine.link.find_coordinator(self.group_id(), GROUP)
        return self._node_id

    def check(self, code: int) -> None:
        """Forgets where it is if an answer says that it is another one."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._node_id = None

    def forget(self) -> None:
        self._node_id = None

    def lose(self) -> None:
        """It answers no more. Who waits for it is told so now: another one may have the answer."""
        self.forget()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def _ask(self, request: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(None) as limit:
                self._limits.add(limit)
                try:
                    return await request
                finally:
                    self._limits.discard(limit)
        except TimeoutError as e:
            raise KafkaError("the coordinator does not answer any more", code=ErrorCode.NETWORK_EXCEPTION) from e
        except asyncio.CancelledError:
            # Who waited has given up, and maybe no answer would ever come. To look for it again costs little.
            self.forget()
            raise
        except KafkaError as e:
            if e.code in UNREACHABLE:
                self.forget()
            raise

    # Committed offsets

    async def find_committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        wanted = list(partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            offsets, errors = await self.ask_committed(wanted)
            for partition, code in errors.items():
                raise client_error(code, where=str(partition))
            return offsets

        return await self._engine.retry(attempt, timeout_ms, retried=MEMBER_ERRORS)

    async def ask_committed(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], dict[TopicPartition, int]]:
        answer = read_committed_offsets(await self._ask(self._fetch_offsets(await self.node_id(), partitions)))
        if answer.error_code:
            self.check(answer.error_code)
            raise client_error(answer.error_code, where=f"group {self._engine.settings.group_id}")
        return answer.offsets, answer.errors

    async def _fetch_offsets(self, node_id: int, partitions: Iterable[TopicPartition]) -> OffsetFetchResponse:
        connection = await self._engine.link.connection_to(node_id)
        version = connection.version_for(OffsetFetchRequest)
        # Offsets of a transaction that is not settled yet could still be taken back (KIP-447).
        request = committed_request(self.membership(), partitions, version, require_stable=True)
        timeout_ms = self._engine.settings.client.request_timeout_ms
        return await connection.request(request, OffsetFetchResponse, version=version, timeout_ms=timeout_ms)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        *,
        final: frozenset[ErrorCode] = frozenset(),
    ) -> None:
        """Tries again until `timeout_ms` are over, except after the errors that are `final`."""
        if offsets:
            await self._engine.retry(
                lambda: self._commit_once(offsets), timeout_ms, retried=_COMMIT_RETRIED, final=final
            )

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        membership = self._membership_to_commit(offsets)
        node_id = await self.node_id()
        request = commit_request(membership, offsets)
        response = await self._ask(self._engine.link.request(node_id, request, OffsetCommitResponse))
        for partition, code in read_commit(response).items():
            self.check(code)
            # A KIP-848 member's epoch may have gone up on the way; with the new one the commit is good.
            has_new_epoch = code == ErrorCode.STALE_MEMBER_EPOCH and self.membership() != membership
            # The next generation may have begun on the way, with this member in it.
            goes_on = code == ErrorCode.ILLEGAL_GENERATION and self._goes_on_from(membership)
            if code == ErrorCode.REBALANCE_IN_PROGRESS or goes_on:
                raise RebalanceInProgressError(
                    "the group is rebalancing; poll, and then commit again what this consumer still holds"
                )
            if code in _LOST_MEMBERSHIP and not has_new_epoch:
                raise CommitFailedError(
                    f"{ERRORS[ErrorCode(code)].message}; the group has gone on without this consumer's offsets."
                    " Poll more often or process less per poll if this happens without members coming or going",
                    code=ErrorCode(code),
                )
            if code == ErrorCode.FENCED_INSTANCE_ID:
                raise FencedInstanceError("another consumer uses the same group.instance.id; close this one")
            raise client_error(code, where=f"committing {partition}")

    def _goes_on_from(self, earlier: Membership) -> bool:
        now = self.membership()
        return now.member_id == earlier.member_id and (self.is_joining() or now.generation > earlier.generation)

    def _membership_to_commit(self, partitions: Iterable[TopicPartition]) -> Membership:
        """Who shares partitions commits as a member, and only what it holds.

        The coordinator would not notice: it takes offsets on behalf of nobody while a group is empty, and any partition
        from a member. Whoever has read on meanwhile would see the group's offsets go back.
        """
        membership = self.membership()
        if not self._engine.subscription.uses_group:
            return membership
        if not membership.is_member:
            raise CommitFailedError(
                "this consumer is not in its group now, and others may have read on where it was; poll to join."
                " Poll more often or process less per poll if it has been thrown out"
            )
        if strange := sorted(set(partitions) - self.held()):
            raise CommitFailedError(
                f"this consumer does not hold {', '.join(map(str, strange))} now, and others may have read on there"
            )
        return membership
