"""Finds where reading goes on for cursors that do not know: by commit, reset policy, or the word of a new leader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.core.cursors import Cursor, Stage
from ottla.client.core.metadata import NO_LEADER
from ottla.client.core.offset_requests import epoch_end_request, read_epoch_ends
from ottla.client.errors import ClientError, client_error
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from ottla.client.aio.consumer_engine import ConsumerEngine

COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
MEMBER_ERRORS = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Of KIP-848 groups: the answer is another one with the next epoch, or when the member has joined again."""
UNREACHABLE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
_FIRST_EPOCH_CHECK_FOR_CONSUMERS = 3


class PositionFinder:
    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._is_at_work = False

    def start_if_needed(self) -> None:
        """Asks for the cursors that need it, unless that is under way."""
        lost = (Stage.AWAITS_COMMITTED, Stage.AWAITS_RESET, Stage.AWAITS_VALIDATION)
        if not self._is_at_work and any(self._awaiting(stage) for stage in lost):
            self._is_at_work = True
            self._engine.spawn(self._run())

    async def _run(self) -> None:
        try:
            await self._find_committed()
            await self._find_resets()
            await self._validate()
        finally:
            self._is_at_work = False
            self._engine.notify()
            self._engine.wake()

    def _awaiting(self, stage: Stage) -> dict[TopicPartition, tuple[Cursor, int]]:
        now_ms = self._engine.now_ms()
        return {
            cursor.topic_partition: (cursor, cursor.turn)
            for cursor in self._engine.cursors.all()
            if cursor.stage is stage and cursor.not_before_ms <= now_ms
        }

    def _delay(self, cursors: Iterable[tuple[Cursor, int]]) -> None:
        for cursor, _ in cursors:
            cursor.not_before_ms = self._engine.now_ms() + self._settings.client.retry_backoff_ms

    def _settle(self, asked: tuple[Cursor, int], error: ClientError) -> None:
        """An answer that was an error: tried again, and if nothing says that it will pass, the application is told."""
        cursor, turn = asked
        if cursor.turn != turn:
            return
        self._delay([asked])
        if error.retriable or error.code in COORDINATOR_ERRORS | MEMBER_ERRORS | UNREACHABLE:
            self._engine.metadata.request_update()
        else:
            cursor.complain(error)

    async def _find_committed(self) -> None:
        asked = self._awaiting(Stage.AWAITS_COMMITTED)
        if not asked:
            return
        if self._settings.group_id is None:
            for cursor, _ in asked.values():
                cursor.take_committed(None, reset=self._settings.reset)
            return
        try:
            offsets, errors = await self._engine.coordinator.ask_committed(asked)
        except KafkaError as e:
            for entry in asked.values():
                self._settle(entry, as_client_error(e))
            return
        for partition, (cursor, turn) in asked.items():
            if partition in errors:
                self._settle((cursor, turn), client_error(errors[partition], where=str(partition)))
            elif cursor.turn == turn and cursor.stage is Stage.AWAITS_COMMITTED:
                cursor.take_committed(offsets.get(partition), reset=self._settings.reset)

    async def _find_resets(self) -> None:
        asked = self._awaiting(Stage.AWAITS_RESET)
        if not asked:
            return
        wanted = {partition: cursor.reset_timestamp for partition, (cursor, _) in asked.items()}
        for partition, found in (await self._engine.ask_offsets(wanted)).items():
            cursor, turn = asked[partition]
            if isinstance(found, ClientError):
                self._settle((cursor, turn), found)
            elif cursor.turn == turn and cursor.stage is Stage.AWAITS_RESET:
                cursor.seek(found.offset, found.leader_epoch)

    async def _validate(self) -> None:
        asked = self._awaiting(Stage.AWAITS_VALIDATION)
        by_node: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for partition, (cursor, turn) in asked.items():
            node_id = self._engine.metadata.leader_of(*partition)
            if node_id == NO_LEADER:
                self._delay([(cursor, turn)])
            else:
                by_node.setdefault(node_id, {})[partition] = (cursor.fetch_epoch, cursor.leader_epoch)
        for node_id, epochs in by_node.items():
            try:
                connection = await self._engine.link.connection_to(node_id)
                versions = connection.api_versions.get(ApiKey.OFFSET_FOR_LEADER_EPOCH)
                if versions is None or versions.stop <= _FIRST_EPOCH_CHECK_FOR_CONSUMERS:
                    # Before version 3 only brokers might ask; consumers then read on, as they always had.
                    for cursor, turn in map(asked.__getitem__, epochs):
                        if cursor.turn == turn:
                            cursor.stage = Stage.READY
                    continue
                response = await self._engine.link.request(
                    node_id, epoch_end_request(epochs), OffsetForLeaderEpochResponse
                )
            except KafkaError as e:
                for partition in epochs:
                    self._settle(asked[partition], as_client_error(e))
                continue
            for partition, found in read_epoch_ends(response).items():
                cursor, turn = asked[partition]
                if isinstance(found, int):
                    self._settle((cursor, turn), client_error(found, where=str(partition)))
                elif cursor.turn == turn and cursor.leader_epoch == epochs[partition][1]:
                    cursor.take_validation(*found, reset=self._settings.reset)


def as_client_error(error: KafkaError) -> ClientError:
    return error if isinstance(error, ClientError) else ClientError(error.message, code=error.code)
