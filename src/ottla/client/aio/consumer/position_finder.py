"""Finds where reading goes on for cursors that do not know: by commit, reset policy, or the word of a new leader."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import Cursor, Stage
from ottla.client.core.consumer.offset_requests import (
    OffsetAndTimestamp,
    epoch_end_request,
    list_offsets_request,
    read_epoch_ends,
    read_list_offsets,
)
from ottla.client.core.metadata import NO_LEADER
from ottla.client.errors import ClientError, client_error
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.list_offsets import ListOffsetsResponse
from ottla.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from ottla.client.aio.consumer.engine import ConsumerEngine

MEMBER_ERRORS = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Of KIP-848 groups: the answer is another one with the next epoch, or when the member has joined again."""
UNREACHABLE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
_FIRST_EPOCH_CHECK_FOR_CONSUMERS = 3


_LOST = frozenset({Stage.AWAITS_COMMITTED, Stage.AWAITS_RESET, Stage.AWAITS_VALIDATION})


class Question(NamedTuple):
    """What a cursor needs to know, and the leader who knows it; for what was committed that is NO_LEADER."""

    cursor: Cursor
    turn: int
    stage: Stage
    leader: int

    @property
    def is_open(self) -> bool:
        """The cursor still needs the answer."""
        return self.cursor.turn == self.turn and self.cursor.stage is self.stage


Questions = dict[TopicPartition, Question]


class PositionFinder:
    """Every broker is asked on its own: one that is silent holds up only what it has to say."""

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._under_way: set[Question] = set()

    def start_if_needed(self) -> None:
        """Asks for the cursors that need it, unless that is under way."""
        now_ms = self._engine.now_ms()
        by_broker: dict[tuple[Stage, int], Questions] = {}
        for cursor in self._engine.cursors.all():
            if cursor.stage in _LOST and cursor.not_before_ms <= now_ms:
                question = self._question_of(cursor)
                if question not in self._under_way:
                    asked = by_broker.setdefault((question.stage, question.leader), {})
                    asked[cursor.topic_partition] = question
        for (stage, leader), asked in by_broker.items():
            self._under_way.update(asked.values())
            self._engine.spawn(self._run(stage, leader, asked))

    def _question_of(self, cursor: Cursor) -> Question:
        is_for_leader = cursor.stage is not Stage.AWAITS_COMMITTED
        leader = self._engine.metadata.leader_of(*cursor.topic_partition) if is_for_leader else NO_LEADER
        return Question(cursor, cursor.turn, cursor.stage, leader)

    async def _run(self, stage: Stage, leader: int, asked: Questions) -> None:
        try:
            if stage is Stage.AWAITS_COMMITTED:
                await self._find_committed(asked)
            elif stage is Stage.AWAITS_RESET:
                await self._find_resets(asked)
            else:
                await self._validate(leader, asked)
        finally:
            self._under_way.difference_update(asked.values())
            self._engine.notify()
            self._engine.wake()

    def _settle(self, question: Question, error: ClientError) -> None:
        """An answer that was an error: tried again, and if nothing says that it will pass, the application is told."""
        if not question.is_open:
            return
        cursor = question.cursor
        cursor.not_before_ms = self._engine.now_ms() + self._settings.client.retry_backoff_ms
        if error.retriable or error.code in MEMBER_ERRORS:
            self._engine.metadata.request_update()
        else:
            cursor.complain(error)

    async def _find_committed(self, asked: Questions) -> None:
        if self._settings.group_id is None:
            for question in asked.values():
                question.cursor.take_committed(None, reset=self._settings.reset)
            return
        try:
            offsets, errors = await self._engine.coordinator.ask_committed(asked)
        except KafkaError as e:
            for question in asked.values():
                self._settle(question, as_client_error(e))
            return
        for partition, question in asked.items():
            if partition in errors:
                self._settle(question, client_error(errors[partition], where=str(partition)))
            elif question.is_open:
                question.cursor.take_committed(offsets.get(partition), reset=self._settings.reset)

    async def _find_resets(self, asked: Questions) -> None:
        wanted = {partition: question.cursor.reset_timestamp for partition, question in asked.items()}
        for partition, found in (await ask_offsets(self._engine, wanted)).items():
            question = asked[partition]
            if isinstance(found, ClientError):
                self._settle(question, found)
            elif question.is_open:
                question.cursor.seek(found.offset, found.leader_epoch)

    async def _validate(self, leader: int, asked: Questions) -> None:
        epochs = {
            partition: (question.cursor.fetch_epoch, question.cursor.leader_epoch)
            for partition, question in asked.items()
        }
        try:
            if leader == NO_LEADER:
                raise client_error(ErrorCode.LEADER_NOT_AVAILABLE)
            connection = await self._engine.link.connection_to(leader)
            versions = connection.api_versions.get(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            if versions is None or versions.stop <= _FIRST_EPOCH_CHECK_FOR_CONSUMERS:
                # Before version 3 only brokers might ask; consumers then read on, as they always had.
                for question in asked.values():
                    if question.is_open:
                        question.cursor.stage = Stage.READY
                return
            response = await self._engine.link.request(leader, epoch_end_request(epochs), OffsetForLeaderEpochResponse)
        except KafkaError as e:
            for question in asked.values():
                self._settle(question, as_client_error(e))
            return
        for partition, found in read_epoch_ends(response).items():
            question = asked[partition]
            if isinstance(found, int):
                self._settle(question, client_error(found, where=str(partition)))
            elif question.is_open and question.cursor.leader_epoch == epochs[partition][1]:
                question.cursor.take_validation(*found, reset=self._settings.reset)


async def ask_offsets(
    engine: ConsumerEngine, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
    """One try: for every partition what its leader says, or why there is no answer."""
    found: dict[TopicPartition, OffsetAndTimestamp | ClientError] = {}
    by_node: dict[int, dict[TopicPartition, int]] = {}
    now_ms = engine.now_ms()
    for partition, timestamp in timestamps.items():
        engine.metadata.use(partition.topic, now_ms)
        node_id = engine.metadata.leader_of(*partition)
        if node_id != NO_LEADER:
            by_node.setdefault(node_id, {})[partition] = timestamp
            continue
        known = engine.metadata.topics.get(partition.topic)
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if engine.is_refused(partition.topic):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is not None and (known.error_code or partition.partition not in known.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found[partition] = client_error(code, where=str(partition))

    async def ask(node_id: int, part: dict[TopicPartition, int]) -> None:
        try:
            request = list_offsets_request(part, engine.settings.isolation)
            answers = read_list_offsets(await engine.link.request(node_id, request, ListOffsetsResponse))
        except KafkaError as e:
            found.update(dict.fromkeys(part, as_client_error(e)))
            return
        for partition in part:
            answer = answers.get(partition, int(ErrorCode.UNKNOWN_SERVER_ERROR))
            found[partition] = client_error(answer, where=str(partition)) if isinstance(answer, int) else answer

    await asyncio.gather(*(ask(node_id, part) for node_id, part in by_node.items()))
    return found


def as_client_error(error: KafkaError) -> ClientError:
    return error if isinstance(error, ClientError) else ClientError(error.message, code=error.code)
