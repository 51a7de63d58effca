"""The reader's end of a fetch session (KIP-227): the broker remembers what is fetched, and a request names changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.wire.apis.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION = 0
FIRST_EPOCH = 0

_MAX_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """One partition to fetch, as it stands in a request. The last two are a follower's (KIP-595, KIP-107)."""

    topic_id: Uuid
    fetch_offset: int
    leader_epoch: int
    max_bytes: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class SessionRequest(NamedTuple):
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """With one broker. One request at a time: the epochs of a session go up with every answer."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}
        self.end_offsets: dict[TopicPartition, int] = {}
        """The broker tells them when they change: a partition that comes again may be at the end it was at."""

    @property
    def is_full(self) -> bool:
        return self._epoch == FIRST_EPOCH

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        if self.is_full:
            changed, forgotten = dict(wanted), {}
        else:
            changed = {partition: entry for partition, entry in wanted.items() if self._known.get(partition) != entry}
            forgotten = {
                partition: entry.topic_id
                for partition, entry in self._known.items()
                # A topic that was deleted and made anew is another one, though its name is the same.
                if partition not in wanted or wanted[partition].topic_id != entry.topic_id
            }
        self._known = dict(wanted)
        return SessionRequest(self.session_id, self._epoch, _by_topic(changed), _forgotten_by_topic(forgotten))

    def request_changes(
        self, changed: Mapping[TopicPartition, Wanted], gone: Iterable[TopicPartition]
    ) -> SessionRequest:
        """The same for a reader that knows what has changed since its last request, and looks at nothing else. While
        the session `is_full`, that is everything."""
        known = self._known
        news: dict[TopicPartition, Wanted] = {}
        forgotten: dict[TopicPartition, Uuid] = {}
        for partition, entry in changed.items():
            before = known.get(partition)
            if before != entry:
                news[partition] = known[partition] = entry
                if before is not None and before.topic_id != entry.topic_id:
                    forgotten[partition] = before.topic_id
        for partition in gone:
            dropped = known.pop(partition, None)
            if dropped is not None:
                forgotten[partition] = dropped.topic_id
        return SessionRequest(self.session_id, self._epoch, _by_topic(news), _forgotten_by_topic(forgotten))

    def answered(self, error_code: int, session_id: int) -> None:
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self.reset()
        elif session_id == NO_SESSION:
            # The broker keeps no session for us, so every request names everything.
            self.session_id = NO_SESSION
            self.reset()
        else:
            self.session_id = session_id
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """The next request starts over; naming the old session with epoch 0 lets the broker drop it."""
        self._epoch = FIRST_EPOCH
        self._known = {}

    def dropped(self) -> None:
        """The connection is gone, and maybe the broker with it."""
        self.reset()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._known)


def _by_topic(wanted: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (topic, partition), entry in wanted.items():
        found = topics.setdefault(topic, FetchTopic(topic=topic, topic_id=entry.topic_id))
        found.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=entry.leader_epoch,
                fetch_offset=entry.fetch_offset,
                last_fetched_epoch=entry.last_fetched_epoch,
                log_start_offset=entry.log_start_offset,
                partition_max_bytes=entry.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten_by_topic(forgotten: Mapping[TopicPartition, Uuid]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for (topic, partition), topic_id in forgotten.items():
        found = topics.setdefault((topic, topic_id), ForgottenTopic(topic=topic, topic_id=topic_id))
        found.partitions.append(partition)
    return list(topics.values())
