"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changed.

The machine remembers, per session, what is asked of each partition and what the client was last told. It never reads a
log; the fetch handler asks it which partitions to read and which of the results are worth sending.

A follower's session can have thousands of partitions, nearly all of them idle. Whoever changes one says so
(`SessionWatch`), and only those are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION_ID = 0
_MAX_EPOCH = 2**31 - 1

TopicKey = str | Uuid
"""How a request names a topic: by name, or by id from Fetch v13 on."""
PartitionKey = tuple[TopicKey, int]


class Asked(Protocol):
    """What a request says of one partition."""

    @property
    def partition(self) -> int: ...


class Answer(Protocol):
    """What a reply says of one partition."""

    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...

    @property
    def diverging_epoch(self) -> tuple[int, int] | None: ...


A = TypeVar("A", bound=Asked)
R = TypeVar("R", bound=Answer)


class _Entry(Generic[A]):
    """One partition of a session."""

    __slots__ = ("asked", "high_watermark", "log_start_offset")

    def __init__(self, asked: A) -> None:
        self.asked = asked
        self.high_watermark = -1
        self.log_start_offset = -1

    def told(self, answer: Answer) -> bool:
        """Notes what the client is about to learn; says whether it is news besides records."""
        if answer.error_code != 0 or answer.diverging_epoch is not None:
            # After an error the next good reply has to be sent, whatever the offsets say. A follower that was told
            # where to cut has not taken over anything yet, either.
            self.high_watermark = -1
            return True
        news = answer.high_watermark != self.high_watermark or answer.log_start_offset != self.log_start_offset
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return news


class SessionWatch:
    """A follower's session, as the partitions see it that it fetches."""

    __slots__ = ("heard_at_ms", "on_moved", "open")

    def __init__(self, now_ms: int) -> None:
        self.heard_at_ms = now_ms
        """When its last request came, which spoke for every partition of the session."""
        self.open: dict[PartitionKey, None] = {}
        """Partitions that there may be something to tell about. Of the others everything was told, and nothing has
        happened to them since."""
        self.on_moved: Callable[[], None] | None = None
        """Called when the request that waits may have something to wait for no more."""

    def note(self, key: PartitionKey) -> None:
        """Something to tell with the next reply, but no reason for one."""
        self.open[key] = None

    def moved(self, key: PartitionKey) -> None:
        self.open[key] = None
        if self.on_moved is not None:
            self.on_moved()


class Session(Generic[A]):
    def __init__(self, session_id: int, *, uses_topic_ids: bool, from_follower: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.from_follower = from_follower
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.expected_epoch = next_epoch(INITIAL_EPOCH)
        self.entries: dict[PartitionKey, _Entry[A]] = {}
        self.watch = SessionWatch(now_ms) if from_follower else None

    def why_not(self, head: FetchRequestHead) -> ErrorCode | None:
        """Why an incremental request cannot go on with this session; None if it can."""
        if self.expected_epoch != head.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if self.uses_topic_ids != head.uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return None

    def update(self, asked: Iterable[tuple[PartitionKey, A]], forgotten: Iterable[PartitionKey]) -> None:
        for key, wanted in asked:
            entry = self.entries.get(key)
            if entry is None:
                self.entries[key] = _Entry(wanted)
            else:
                entry.asked = wanted
            if self.watch is not None:
                self.watch.open[key] = None
        for key in forgotten:
            self.entries.pop(key, None)


def next_epoch(epoch: int) -> int:
    """Epochs run from 1; 0 and -1 keep their special meanings, so the highest is followed by 1."""
    return 1 if epoch >= _MAX_EPOCH else epoch + 1


class FetchContext(Generic[A]):
    """One fetch request as the handler reads it: which partitions, in which order, and what to send of the results."""

    def __init__(
        self, session: Session[A] | None, asked: Sequence[tuple[PartitionKey, A]], *, incremental: bool
    ) -> None:
        self._session = session
        self._asked = asked
        self.is_incremental = incremental

    @property
    def session_id(self) -> int:
        return self._session.session_id if self._session is not None else NO_SESSION_ID

    @property
    def watch(self) -> SessionWatch | None:
        return self._session.watch if self._session is not None else None

    def partitions(self) -> Iterator[tuple[PartitionKey, A]]:
        """Those that there may be something to tell about."""
        session = self._session
        if session is None:
            yield from self._asked
        elif session.watch is None:
            for key, entry in session.entries.items():
                yield key, entry.asked
        else:
            for key in list(session.watch.open):
                watched = session.entries.get(key)
                if watched is None:
                    del session.watch.open[key]
                else:
                    yield key, watched.asked

    def close(self, keys: Iterable[PartitionKey]) -> None:
        """For a follower's session, after `select`: of these all was told that there is to tell."""
        if self._session is not None and self._session.watch is not None:
            for key in keys:
                self._session.watch.open.pop(key, None)

    def select(
        self, results: Sequence[tuple[PartitionKey, R]], has_data: Sequence[bool]
    ) -> list[tuple[PartitionKey, R]]:
        """The results to send. `has_data` marks those that carry records or anything else that must be sent."""
        session = self._session
        if session is None:
            return list(results)
        selected = []
        for (key, result), carries in zip(results, has_data, strict=True):
            entry = session.entries.get(key)
            if entry is None:
                continue
            news = entry.told(result)
            if carries or news or not self.is_incremental:
                selected.append((key, result))
            if carries and self.is_incremental:
                # A partition that was served goes to the end, so that a small size limit starves nobody.
                session.entries[key] = session.entries.pop(key)
                if session.watch is not None:
                    session.watch.open.pop(key, None)
                    session.watch.open[key] = None
        return selected


class FetchRequestHead(NamedTuple):
    """What of a fetch request decides about its session."""

    session_id: int
    session_epoch: int
    uses_topic_ids: bool
    from_follower: bool


class FetchSessions(Generic[A]):
    """All sessions of a broker, at most `max_sessions` of them."""

    def __init__(self, max_sessions: int, *, eviction_ms: int = 120_000) -> None:
        self._max_sessions = max_sessions
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, Session[A]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        head: FetchRequestHead,
        asked: Sequence[tuple[PartitionKey, A]],
        forgotten: Sequence[PartitionKey],
        *,
        now_ms: int,
        new_session_id: int,
    ) -> FetchContext[A]:
        """Finds or makes the session; `new_session_id` is the caller's random positive number.

        Raises a KafkaError that belongs at the top of the reply if the session is not what the client thinks.
        """
        if head.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if head.session_id != NO_SESSION_ID:
                self._sessions.pop(head.session_id, None)
            if head.session_epoch == FINAL_EPOCH or not asked:
                return FetchContext(None, asked, incremental=False)
            session = self._open(head, len(asked), now_ms, new_session_id)
            if session is not None:
                session.update(asked, ())
            return FetchContext(session, asked, incremental=False)
        return self._resume(head, asked, forgotten, now_ms)

    def leave_untold(self, context: FetchContext[A]) -> int:
        """The id to reply with where the results are not sent after all: a session that was just made is dropped."""
        if context.is_incremental:
            return context.session_id
        self._sessions.pop(context.session_id, None)
        return NO_SESSION_ID

    def sole_partition(self, head: FetchRequestHead) -> tuple[PartitionKey, A] | None:
        """The only partition of a session that can go on; None if it cannot, or has others. Changes nothing."""
        session = self._sessions.get(head.session_id)
        if session is None or len(session.entries) != 1 or session.why_not(head) is not None:
            return None
        ((key, entry),) = session.entries.items()
        return key, entry.asked

    def _resume(
        self,
        head: FetchRequestHead,
        asked: Sequence[tuple[PartitionKey, A]],
        forgotten: Sequence[PartitionKey],
        now_ms: int,
    ) -> FetchContext[A]:
        session = self._sessions.get(head.session_id)
        if session is None:
            raise KafkaError(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        error = session.why_not(head)
        if error is not None:
            raise KafkaError(code=error)
        session.update(asked, forgotten)
        if not session.entries:
            del self._sessions[head.session_id]
            return FetchContext(None, (), incremental=False)
        session.last_used_ms = now_ms
        if session.watch is not None:
            session.watch.heard_at_ms = now_ms
        session.expected_epoch = next_epoch(session.expected_epoch)
        return FetchContext(session, asked, incremental=True)

    def _open(self, head: FetchRequestHead, partitions: int, now_ms: int, new_session_id: int) -> Session[A] | None:
        if len(self._sessions) >= self._max_sessions and not self._evict_for(head, partitions, now_ms):
            return None
        session_id = new_session_id
        while session_id in self._sessions:
            session_id = session_id % _MAX_EPOCH + 1
        session: Session[A] = Session(
            session_id, uses_topic_ids=head.uses_topic_ids, from_follower=head.from_follower, now_ms=now_ms
        )
        self._sessions[session_id] = session
        return session

    def _evict_for(self, head: FetchRequestHead, partitions: int, now_ms: int) -> bool:
        """Makes room by dropping an idle session, or an old one that is worth less than the newcomer."""
        if not self._sessions:
            return False
        idle = min(self._sessions.values(), key=lambda s: s.last_used_ms)
        if now_ms - idle.last_used_ms > self._eviction_ms:
            del self._sessions[idle.session_id]
            return True
        cheapest = min(self._sessions.values(), key=lambda s: (s.from_follower, len(s.entries), s.last_used_ms))
        old_enough = now_ms - cheapest.created_ms > self._eviction_ms
        if old_enough and (head.from_follower, partitions) > (cheapest.from_follower, len(cheapest.entries)):
            del self._sessions[cheapest.session_id]
            return True
        return False
