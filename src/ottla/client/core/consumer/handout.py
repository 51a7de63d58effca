"""Hands out what was fetched, by the record or as bytes to be decoded, and moves the positions of cursors past it.

Batches are decoded one at a time, when somebody asks for records, and answers in the order in which they came: so no
partition waits for ever because another has more. What was handed out to a poll that did not come to its end is given
back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.base.collector import COLLECTOR_PAUSE
from ottla.client.core.consumer.cursors import NO_EPOCH, Cursor, Cursors
from ottla.client.core.consumer.fetched_data import AwaitedRecord, Converters, FetchedData
from ottla.client.core.consumer.record import AnyRecord
from ottla.client.errors import ClientError
from ottla.records.batch import BatchHeader

_RECORDS_PER_KEPT = 256
_KEPT_BATCHES = 8
"""Some records of the last batches are kept. Python gives a megabyte of small objects back to the system once none of
them is used. Whoever reads on needs it again at once, page by page: that can take a quarter as long as decoding."""


_Obstacles: TypeAlias = dict[Cursor, ClientError | AwaitedRecord]


class ClaimedData(NamedTuple):
    """What was fetched of one partition, taken out to be decoded; void if the cursor has had another turn meanwhile."""

    cursor: Cursor
    turn: int
    chunk: FetchedData


class Handout:
    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._ready: list[AnyRecord] = []
        """Records of one batch that was decoded and not all taken yet; they belong to `_ready_cursor`."""
        self._ready_at = 0
        self._ready_cursor: Cursor | None = None
        self._ready_turn = 0
        self._ready_end = -1
        self._ready_epoch = -1
        self._kept: deque[list[AnyRecord]] = deque(maxlen=_KEPT_BATCHES)
        self._taken_from: dict[Cursor, tuple[int, int, int]] = {}
        """The cursors that were read by the poll under way: their turns, positions and epochs before that."""
        self._one_by_one: dict[Cursor, tuple[int, int, int]] = {}
        """The cursors of an iteration: their turns, and the positions and epochs when it is through its records."""

    def has_records(self) -> bool:
        """Whether `take` could return something, or raise. Batches may turn out to hold nothing visible."""
        return self._has_ready() or any(
            not cursor.is_paused and (cursor.chunks or (cursor.error is not None and cursor.ends_a_poll))
            for cursor in self._cursors.all()
        )

    def _has_ready(self) -> bool:
        cursor = self._ready_cursor
        return (
            cursor is not None
            and cursor.turn == self._ready_turn
            and not cursor.is_paused
            and self._cursors.find(cursor.topic_partition) is cursor
        )

    def take(self, records_max: int, convert: Converters | None = None) -> list[AnyRecord]:
        """Up to `records_max` records, of one partition after the other; their cursors' positions move past them.

        Raises what stands in the way of a partition: once at first, and from then on if there is nothing else to give.
        What may pass by itself is raised in that case only.
        """
        taken: list[AnyRecord] = []
        obstacles: _Obstacles = {}
        self._tell_errors()
        while len(taken) < records_max:
            if not self._has_ready():
                try:
                    if not self._decode_next(convert, obstacles):
                        break
                except Exception:
                    if taken:
                        break
                    raise
                continue
            self._take_ready(taken, records_max - len(taken))
        if not taken:
            for obstacle in obstacles.values():
                if isinstance(obstacle, ClientError):
                    raise obstacle
        return taken

    def take_decoded(self, records_max: int) -> list[AnyRecord]:
        """Of a batch that was decoded for an earlier call; nothing if that is used up."""
        taken: list[AnyRecord] = []
        if self._has_ready():
            self._take_ready(taken, records_max)
        return taken

    def claim(self, bytes_max: int) -> list[ClaimedData]:
        """What was fetched, up to about `bytes_max`, for whoever decodes it and moves the cursors past it.

        Raises what stands in the way of a partition, as `take` does.
        """
        self._tell_errors()
        self._set_ready_aside()
        claimed: list[ClaimedData] = []
        while bytes_max > 0 and (cursor := self._first_in_line()) is not None:
            self._note_position(cursor)
            claimed.append(ClaimedData(cursor, cursor.turn, cursor.chunks.popleft()))
            bytes_max -= claimed[-1].chunk.byte_count
        if not claimed:
            self._tell_errors(again=True)
        return claimed

    def _first_in_line(self, passed_over: Collection[Cursor] = ()) -> Cursor | None:
        waiting = (
            cursor
            for cursor in self._cursors.all()
            if cursor.chunks and not cursor.is_paused and cursor not in passed_over
        )
        return min(waiting, key=lambda cursor: cursor.chunks[0].arrival, default=None)

    def _tell_errors(self, *, again: bool = False) -> None:
        for cursor in self._cursors.all():
            if cursor.error is None or cursor.is_paused or cursor.chunks or cursor is self._ready_cursor:
                continue
            if again or not cursor.error_is_told:
                cursor.error_is_told = True
                # The same error is raised by many polls, and would collect the tracebacks of all of them.
                raise cursor.error.with_traceback(None)

    def begin_poll(self) -> bool:
        """Whatever was taken or claimed up to now has reached the application; True if not all of it has.

        Then an iteration was left in the middle, and `give_back_unread` comes first.
        """
        self._taken_from.clear()
        return bool(self._one_by_one)

    def give_back(self) -> None:
        """What was taken or claimed since `begin_poll` did not reach the application, so it is read again."""
        for cursor, (turn, position, epoch) in self._taken_from.items():
            if cursor.turn == turn:
                _read_again(cursor, position, epoch)
        self._taken_from.clear()

    # Iteration

    def one_by_one(self, records: Iterable[AnyRecord]) -> Iterator[AnyRecord]:
        """The records of the poll that has just ended. Each counts as read when it is asked for, and not before.

        Whoever has been moved meanwhile, or read by another poll, has no more records here.
        """
        ends = self._one_by_one = {
            cursor: (turn, cursor.position, cursor.position_epoch)
            for cursor, (turn, _, _) in self._taken_from.items()
            if cursor.turn == turn
        }
        for cursor in ends:
            _, cursor.position, cursor.position_epoch = self._taken_from[cursor]
        kind: type[AnyRecord] | None = None
        current: Cursor | None = None
        turn, epoch = -1, NO_EPOCH
        for record in records:
            if record.__class__ is not kind:
                kind = record.__class__
                current = self._cursors.find(record.topic_partition)
                turn = ends[current][0] if current in ends else -1
                epoch = NO_EPOCH if record.leader_epoch is None else record.leader_epoch
            if current is not None and turn >= 0:
                if current.turn != turn:
                    continue
                current.position, current.position_epoch = record.offset + 1, epoch
            yield record
        if self._one_by_one is ends:
            self._one_by_one = {}
            for cursor, (turn, position, epoch) in ends.items():
                if cursor.turn == turn:
                    cursor.position, cursor.position_epoch = position, epoch

    def give_back_unread(self) -> None:
        """What an iteration did not come to is read again."""
        ends, self._one_by_one = self._one_by_one, {}
        for cursor, (turn, end_offset, _) in ends.items():
            if cursor.turn == turn and cursor.position < end_offset:
                _read_again(cursor, cursor.position, cursor.position_epoch)

    # Taking

    def _note_position(self, cursor: Cursor) -> None:
        self._taken_from.setdefault(cursor, (cursor.turn, cursor.position, cursor.position_epoch))

    def _take_ready(self, taken: list[AnyRecord], room: int) -> None:
        cursor, ready, at = self._ready_cursor, self._ready, self._ready_at
        assert cursor is not None
        self._note_position(cursor)
        if not at and len(ready) <= room:
            # The common case: a whole batch, whose list is given away as it is.
            taken += ready
            at = len(ready)
        else:
            end = min(at + room, len(ready))
            taken += ready[at:end]
            at = end
        cursor.position_epoch = self._ready_epoch
        if at >= len(ready):
            cursor.position = self._ready_end
            self._ready, self._ready_at, self._ready_cursor = [], 0, None
        else:
            cursor.position = ready[at - 1].offset + 1
            self._ready_at = at

    def _decode_next(self, convert: Converters | None, obstacles: _Obstacles) -> bool:
        """Decodes the next batch that has something to show; False if there is none.

        A cursor whose next record cannot be converted for now is noted among the obstacles, and passed over.
        """
        # A paused partition keeps what was decoded of it: its position says where to go on.
        self._set_ready_aside()
        while (cursor := self._first_in_line(obstacles)) is not None:
            turn, chunk = cursor.turn, cursor.chunks[0]
            with COLLECTOR_PAUSE:
                found = chunk.next_batch()
            if found is None:
                if cursor.chunks and cursor.chunks[0] is chunk:
                    cursor.chunks.popleft()
                continue
            header, records = found
            if len(records) >= _RECORDS_PER_KEPT:
                self._kept.append(records[::_RECORDS_PER_KEPT])
            if records and records[0].offset < cursor.position:
                records = [record for record in records if record.offset >= cursor.position]
            end_offset = chunk.next_offset
            if records and convert is not None:
                records, end_offset = _converted(convert, cursor, header, records, obstacles)
            if not records:
                cursor.position = max(cursor.position, end_offset)
                continue
            self._ready, self._ready_at = records, 0
            self._ready_cursor, self._ready_turn = cursor, turn
            self._ready_end, self._ready_epoch = end_offset, header.partition_leader_epoch
            return True
        self._tell_errors(again=True)
        return False

    def _set_ready_aside(self) -> None:
        cursor = self._ready_cursor
        if cursor is None:
            return
        self._ready, self._ready_at, self._ready_cursor = [], 0, None
        if cursor.turn == self._ready_turn and self._cursors.find(cursor.topic_partition) is cursor:
            # Cheaper than keeping half a batch for every paused partition: it is fetched again when it goes on.
            _read_again(cursor, cursor.position, cursor.position_epoch)


def _converted(
    convert: Converters, cursor: Cursor, header: BatchHeader, fetched: list[AnyRecord], obstacles: _Obstacles
) -> tuple[list[AnyRecord], int]:
    """What can be converted, and the offset after it. What cannot be for now goes back to where it came from."""
    chunk = cursor.chunks[0]
    records, obstacle = convert.convert(cursor.topic_partition.topic, fetched)
    cursor.is_held_up = obstacle is not None
    if obstacle is None:
        return records, chunk.next_offset
    end_offset = fetched[len(records)].offset
    if isinstance(obstacle, AwaitedRecord) or obstacle.retriable:
        chunk.put_back(header, fetched[len(records) :])
        obstacles[cursor] = obstacle
    else:
        cursor.chunks.clear()
        cursor.halt(obstacle)
    return records, end_offset


def _read_again(cursor: Cursor, position: int, epoch: int) -> None:
    leader_epoch = cursor.leader_epoch
    cursor.seek(position, epoch if epoch >= 0 else None)
    cursor.leader_epoch = leader_epoch
