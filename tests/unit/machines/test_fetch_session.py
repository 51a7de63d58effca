"""Fetch sessions remember what was asked and send only what is new (KIP-227)."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.fetch_session import FetchContext, FetchRequestHead, FetchSessions, PartitionKey, next_epoch


class Asked(NamedTuple):
    partition: int
    fetch_offset: int = 0


class Answer(NamedTuple):
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    diverging_epoch: tuple[int, int] | None = None


def key(index: int) -> PartitionKey:
    return ("t", index)


class Client:
    """Drives one session the way a consumer does."""

    def __init__(self, sessions: FetchSessions[Asked], *, from_follower: bool = False) -> None:
        self.sessions = sessions
        self.session_id = 0
        self.epoch = 0
        self.from_follower = from_follower

    def fetch(
        self,
        asked: list[int] | None = None,
        forgotten: list[int] | None = None,
        *,
        now_ms: int = 0,
        new_session_id: int = 7,
        ids: bool = False,
    ) -> FetchContext[Asked]:
        context = self.sessions.begin(
            FetchRequestHead(self.session_id, self.epoch, ids, self.from_follower),
            [(key(index), Asked(index)) for index in asked or []],
            [key(index) for index in forgotten or []],
            now_ms=now_ms,
            new_session_id=new_session_id,
        )
        self.session_id = context.session_id
        self.epoch = next_epoch(self.epoch) if self.session_id else 0
        return context


def sent(context: FetchContext[Asked], answers: dict[int, Answer], data: set[int] = frozenset()) -> list[int]:  # type: ignore[assignment]
    order = [k[1] for k, _ in context.partitions()]
    results = [(key(i), answers.get(i, Answer())) for i in order]
    return [k[1] for k, _ in context.select(results, [i in data for i in order])]


def error_of(call: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


def test_first_fetch_sends_everything_then_only_news() -> None:
    client = Client(FetchSessions(10))
    assert sent(client.fetch([0, 1, 2]), {}) == [0, 1, 2]
    assert sent(client.fetch(), {}) == []
    assert sent(client.fetch(), {1: Answer(high_watermark=5)}) == [1]
    assert sent(client.fetch(), {1: Answer(high_watermark=5)}) == []
    assert sent(client.fetch(), {1: Answer(high_watermark=5), 2: Answer(log_start_offset=1)}) == [2]


def test_after_an_error_the_next_good_answer_is_sent() -> None:
    client = Client(FetchSessions(10))
    sent(client.fetch([0]), {})
    assert sent(client.fetch(), {0: Answer(error_code=3)}) == [0]
    assert sent(client.fetch(), {}) == [0]
    assert sent(client.fetch(), {}) == []


def test_a_follower_that_was_told_where_to_cut_hears_the_high_watermark_afterwards() -> None:
    client = Client(FetchSessions[Asked](10), from_follower=True)
    assert sent(client.fetch([0]), {0: Answer(high_watermark=64, diverging_epoch=(3, 64))}) == [0]
    assert sent(client.fetch(), {0: Answer(high_watermark=64)}) == [0]
    assert sent(client.fetch(), {0: Answer(high_watermark=64)}) == []


def test_partitions_with_data_go_to_the_end() -> None:
    client = Client(FetchSessions(10))
    sent(client.fetch([0, 1, 2]), {})
    assert sent(client.fetch(), {}, {0}) == [0]
    assert [k[1] for k, _ in client.fetch().partitions()] == [1, 2, 0]


def test_changed_added_and_forgotten_partitions() -> None:
    client = Client(FetchSessions(10))
    sent(client.fetch([0, 1]), {})
    context = client.fetch([2], forgotten=[0])
    assert [k[1] for k, _ in context.partitions()] == [1, 2]


def test_a_session_without_partitions_is_closed() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    client = Client(sessions)
    client.fetch([0])
    context = client.fetch(forgotten=[0])
    assert context.session_id == 0
    assert len(sessions) == 0


def test_wrong_id_epoch_and_mixed_ids_are_refused() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    client = Client(sessions)
    client.fetch([0])
    assert error_of(lambda: client.fetch(ids=True)) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.epoch = 5
    assert error_of(client.fetch) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.session_id = 99
    assert error_of(client.fetch) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_zero_replaces_and_minus_one_closes() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    client = Client(sessions)
    client.fetch([0])
    client.epoch = 0
    client.fetch([1], new_session_id=8)
    assert client.session_id == 8 and len(sessions) == 1
    client.epoch = -1
    assert client.fetch([1]).session_id == 0
    assert len(sessions) == 0


def test_ids_never_clash_and_epochs_wrap_to_one() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    first, second = Client(sessions), Client(sessions)
    first.fetch([0], new_session_id=3)
    second.fetch([0], new_session_id=3)
    assert (first.session_id, second.session_id) == (3, 4)
    highest, next_one = Client(sessions), Client(sessions)
    highest.fetch([0], new_session_id=2**31 - 1)
    next_one.fetch([0], new_session_id=2**31 - 1)
    assert (highest.session_id, next_one.session_id) == (2**31 - 1, 1)
    assert next_epoch(2**31 - 1) == 1


def test_full_cache_gives_no_session_until_one_is_idle() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(1, eviction_ms=100)
    Client(sessions).fetch([0], now_ms=0)
    assert Client(sessions).fetch([0], now_ms=100).session_id == 0
    assert Client(sessions).fetch([0], now_ms=101).session_id != 0


def test_who_has_been_idle_for_longest_gives_way_first() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(2, eviction_ms=100)
    used_again, idle = Client(sessions), Client(sessions)
    used_again.fetch([0, 1], now_ms=0, new_session_id=1)
    idle.fetch([0, 1], now_ms=0, new_session_id=2)
    used_again.fetch(now_ms=50)
    assert Client(sessions).fetch([0], now_ms=101, new_session_id=3).session_id == 3
    assert error_of(idle.fetch) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert used_again.fetch(now_ms=102).session_id == 1


def test_of_old_sessions_the_smallest_gives_way_and_of_equal_ones_the_least_used() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(4, eviction_ms=100)
    follower, large, used, unused = (
        Client(sessions, from_follower=is_first) for is_first in (True, False, False, False)
    )
    for session_id, (client, partitions) in enumerate([(follower, 1), (large, 3), (used, 2), (unused, 2)], 1):
        client.fetch(list(range(partitions)), now_ms=0, new_session_id=session_id)
    for client in (unused, used, follower, large):
        client.fetch(now_ms=60 + (client is used))
    newcomers = [Client(sessions).fetch([0, 1, 2], now_ms=110, new_session_id=id_).session_id for id_ in (5, 6, 7)]
    assert newcomers == [5, 6, 0], "as large as all that are left, and none of those is new"
    for client in (unused, used):
        assert error_of(client.fetch) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert [client.fetch(now_ms=111).session_id for client in (follower, large)] == [1, 2]


def test_a_follower_and_then_a_larger_session_displace_a_smaller_old_one() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(1, eviction_ms=100)
    small = Client(sessions)
    small.fetch([0], now_ms=0)
    small.fetch(now_ms=90)
    assert Client(sessions).fetch([0], now_ms=150).session_id == 0
    assert Client(sessions).fetch([0, 1], now_ms=150, new_session_id=8).session_id == 8
    assert Client(sessions, from_follower=True).fetch([0], now_ms=200).session_id == 0
    larger = Client(sessions, from_follower=True).fetch([0], now_ms=251, new_session_id=9)
    assert larger.session_id == 9


def test_without_slots_every_fetch_is_full() -> None:
    context = Client(FetchSessions(0)).fetch([0, 1])
    assert context.session_id == 0
    assert sent(context, {}) == [0, 1]


def looked_at(context: FetchContext[Asked]) -> list[int]:
    return [k[1] for k, _ in context.partitions()]


def test_of_a_followers_partitions_only_those_are_looked_at_that_something_has_happened_to() -> None:
    follower = Client(FetchSessions(10), from_follower=True)
    context = follower.fetch([0, 1, 2, 3])
    assert looked_at(context) == [0, 1, 2, 3]
    sent(context, {}, data={3})
    context.close([key(0), key(1), key(2)])
    watch = context.watch
    assert watch is not None
    assert looked_at(follower.fetch()) == [3], "what was sent may have been lost on the other side"
    watch.note(key(1))
    assert looked_at(follower.fetch([2])) == [3, 1, 2]


def test_one_of_a_followers_partitions_that_was_forgotten_is_not_looked_at() -> None:
    follower = Client(FetchSessions(10), from_follower=True)
    context = follower.fetch([0, 1])
    sent(context, {})
    context.close([key(0), key(1)])
    follower.fetch(forgotten=[0])
    assert context.watch is not None
    context.watch.moved(key(0))
    assert looked_at(follower.fetch([1])) == [1]


def test_a_follower_that_waits_is_called_when_something_moves_and_not_for_notes() -> None:
    context = Client(FetchSessions(10), from_follower=True).fetch([0])
    watch, calls = context.watch, []
    assert watch is not None
    watch.on_moved = lambda: calls.append(True)
    watch.note(key(0))
    assert not calls
    watch.moved(key(0))
    assert calls


def test_what_moves_is_looked_at_whether_somebody_waits_or_not() -> None:
    follower = Client(FetchSessions(10), from_follower=True)
    context = follower.fetch([0, 1])
    context.close([key(0), key(1)])
    assert context.watch is not None
    context.watch.moved(key(1))
    assert looked_at(follower.fetch()) == [1]


@pytest.mark.parametrize("answer", [Answer(0, 0, 0), Answer(0, -1, 0), Answer(0, 0, -1)])
def test_a_partition_that_joins_a_session_is_told_of_whatever_its_offsets_are(answer: Answer) -> None:
    client = Client(FetchSessions(10))
    sent(client.fetch([0]), {})
    assert sent(client.fetch([1]), {1: answer}) == [1]
    assert sent(client.fetch(), {1: answer}) == []


def test_a_partition_that_is_named_again_is_asked_for_as_it_was_named_last() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    for epoch, offset in ((0, 5), (1, 6)):
        head = FetchRequestHead(7 * epoch, epoch, False, False)
        context = sessions.begin(head, [(key(0), Asked(0, offset))], [], now_ms=0, new_session_id=7)
        assert list(context.partitions()) == [(key(0), Asked(0, offset))]


def test_a_session_whose_first_reply_is_not_sent_is_dropped_and_a_later_one_is_kept() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    client = Client(sessions)
    assert sessions.leave_untold(client.fetch([0])) == 0
    assert len(sessions) == 0
    client.session_id = client.epoch = 0
    client.fetch([0])
    assert sessions.leave_untold(client.fetch()) == 7
    assert len(sessions) == 1


def test_the_sole_partition_of_a_session_is_found_only_where_the_session_can_go_on() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(10)
    client = Client(sessions)
    client.fetch([4])

    def sole(session_id: int = 7, epoch: int = 1, ids: bool = False) -> object:
        return sessions.sole_partition(FetchRequestHead(session_id, epoch, ids, False))

    assert sole() == (key(4), Asked(4))
    assert sole() == (key(4), Asked(4)), "it changes nothing"
    assert [sole(session_id=8), sole(epoch=2), sole(epoch=0), sole(ids=True)] == [None] * 4
    client.fetch([5])
    assert sole(epoch=2) is None, "there are two"


@pytest.mark.parametrize(("now_ms", "session_id"), [(100, 0), (101, 8)])
def test_a_session_is_old_when_it_is_older_than_the_limit(now_ms: int, session_id: int) -> None:
    sessions: FetchSessions[Asked] = FetchSessions(1, eviction_ms=100)
    used = Client(sessions)
    used.fetch([0], now_ms=0)
    used.fetch(now_ms=99)
    assert Client(sessions).fetch([0, 1], now_ms=now_ms, new_session_id=8).session_id == session_id


def test_consumers_have_no_watch() -> None:
    assert Client(FetchSessions(10)).fetch([0]).watch is None


def test_a_partition_of_which_nothing_is_known_is_no_news() -> None:
    client = Client(FetchSessions(10))
    sent(client.fetch([0]), {})
    assert sent(client.fetch([1]), {1: Answer(0, -1, -1)}) == []


@pytest.mark.parametrize("has_session", [True, False])
def test_only_a_followers_session_is_told_that_all_was_told(has_session: bool) -> None:
    context = Client(FetchSessions[Asked](10 if has_session else 0)).fetch([0])
    context.close([key(0)])
    assert looked_at(context) == [0]


def test_what_goes_on_with_a_session_is_incremental_and_nothing_else() -> None:
    sessions: FetchSessions[Asked] = FetchSessions(1)

    def begin(session_id: int, epoch: int, asked: list[int], forgotten: list[int] | None = None) -> tuple[bool, int]:
        context = sessions.begin(
            FetchRequestHead(session_id, epoch, False, False),
            [(key(index), Asked(index)) for index in asked],
            [key(index) for index in forgotten or []],
            now_ms=0,
            new_session_id=7,
        )
        return context.is_incremental, context.session_id

    assert begin(0, -1, [0]) == (False, 0)
    assert begin(0, 0, []) == (False, 0)
    assert begin(0, 0, [0]) == (False, 7)
    assert begin(0, 0, [0]) == (False, 0), "there is no room for a second one"
    assert begin(7, 1, [1]) == (True, 7)
    assert begin(7, 2, [], [0, 1]) == (False, 0)
    assert len(sessions) == 0


def test_what_the_session_does_not_know_any_more_is_not_sent() -> None:
    client = Client(FetchSessions[Asked](10))
    context = client.fetch([0, 1])
    client.fetch(forgotten=[1])
    results = [(key(index), Answer()) for index in (1, 0, 2)]
    assert context.select(results, [True] * 3) == [(key(0), Answer())]
