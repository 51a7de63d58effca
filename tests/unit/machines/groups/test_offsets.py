"""Committed offsets: who may commit, what open transactions hold back, what expires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.offset_requests import expired
from ottla.machines.groups.offsets import CommittedOffset, OffsetStore, committed_offset, offset_record
from ottla.machines.groups.record_types import parse
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from ottla.wire.stored.consumer_protocol import ConsumerProtocolSubscription
from tests.unit.machines.groups.runner import GROUP, SESSION_MS, Runner, subscription

A, B = ("orders", 0), ("orders", 1)
DAY_MS = 24 * 60 * 60_000
RETENTION_MS = 7 * DAY_MS


@pytest.fixture
def runner() -> Runner:
    return Runner()


def delete_offsets(runner: Runner, *partitions: tuple[str, int], group: str = GROUP) -> tuple[int, list[int]]:
    token = runner.token()
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for topic, index in partitions
        ],
    )
    runner.perform(runner.shard.delete_offsets(request, token, now_ms=runner.now_ms))
    reply = runner.reply(token)
    return reply.error_code, [item.error_code for topic in reply.topics for item in topic.partitions]


def expire(runner: Runner) -> None:
    runner.perform(runner.shard.expire_offsets(runner.now_ms))


# Commit and fetch


def test_a_consumer_that_assigns_itself_commits_without_a_group(runner: Runner) -> None:
    assert runner.commit({A: 7, B: 9}) == {A: 0, B: 0}
    assert runner.fetch(A, B, ("clicks", 3)) == {A: (7, 0), B: (9, 0), ("clicks", 3): (-1, 0)}
    assert runner.fetch() == {A: (7, 0), B: (9, 0)}
    assert runner.group.state is GroupState.EMPTY


def test_the_empty_group_id_may_commit_and_fetch(runner: Runner) -> None:
    assert runner.commit({A: 7}, group="") == {A: 0}
    assert runner.fetch(A, group="") == {A: (7, 0)}


def test_a_fetch_gives_back_metadata_and_leader_epoch(runner: Runner) -> None:
    runner.commit({A: 7}, metadata="note")
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    request = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    found, missing = runner.shard.fetch_offsets(request, require_stable=True).topics[0].partitions
    assert (found.committed_offset, found.metadata, found.committed_leader_epoch) == (7, "note", -1)
    assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", 0)


def test_a_group_nobody_knows_has_no_offsets(runner: Runner) -> None:
    assert runner.fetch(A) == {A: (-1, 0)}
    assert runner.fetch() == {}
    assert not runner.has_group()


@pytest.mark.parametrize(("version", "error"), [(8, 22), (9, 69)])
def test_a_member_of_an_unknown_group(runner: Runner, version: int, error: int) -> None:
    assert runner.commit({A: 1}, "m", 3, version=version) == {A: error}
    assert runner.commit_in_transaction({A: 1}, 7, "m", 3) == {A: ErrorCode.ILLEGAL_GENERATION}
    assert not runner.has_group()


def test_one_bad_partition_does_not_spoil_the_others(runner: Runner) -> None:
    unknown_topic, unknown_partition, negative = ("nowhere", 0), ("orders", 4), ("clicks", -1)
    errors = runner.commit({unknown_topic: 1, A: 7, negative: 1})
    assert errors == {unknown_topic: 3, A: 0, negative: 3}
    assert runner.commit({unknown_partition: 1}) == {unknown_partition: 3}
    assert runner.fetch() == {A: (7, 0)}


def test_metadata_has_a_limit(runner: Runner) -> None:
    assert runner.commit({A: 1}, metadata="x" * 4096) == {A: 0}
    assert runner.commit({A: 2}, metadata="x" * 4097) == {A: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert runner.fetch(A) == {A: (1, 0)}


def test_an_offset_may_go_back_if_its_owner_wants_it(runner: Runner) -> None:
    runner.commit({A: 9})
    runner.commit({A: 2})
    assert runner.fetch(A) == {A: (2, 0)}


# Transactions


def test_an_open_transaction_holds_its_offsets_back(runner: Runner) -> None:
    runner.commit({A: 1})
    assert runner.commit_in_transaction({A: 5, B: 6}, 7) == {A: 0, B: 0}
    assert runner.fetch(A, B) == {A: (1, 0), B: (-1, 0)}
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert runner.fetch(A, B, require_stable=True) == {A: unstable, B: unstable}
    assert runner.fetch(require_stable=True) == {A: unstable, B: unstable}
    runner.marker(7, committed=True)
    assert runner.fetch(A, B, require_stable=True) == {A: (5, 0), B: (6, 0)}


def test_an_aborted_transaction_leaves_nothing(runner: Runner) -> None:
    runner.commit_in_transaction({A: 5}, 7)
    runner.marker(7, committed=False)
    assert runner.fetch(A, require_stable=True) == {A: (-1, 0)}
    assert not runner.has_group()


def test_of_a_plain_and_a_transactional_commit_the_later_in_the_log_wins(runner: Runner) -> None:
    runner.commit_in_transaction({A: 5, B: 5}, 7)
    runner.commit({A: 9})
    runner.marker(7, committed=True)
    assert runner.fetch(A, B) == {A: (9, 0), B: (5, 0)}


def test_a_marker_ends_only_its_own_producer(runner: Runner) -> None:
    runner.commit_in_transaction({A: 5}, 7)
    runner.commit_in_transaction({A: 6}, 8)
    runner.marker(7, committed=True)
    assert runner.fetch(A) == {A: (5, 0)}
    assert runner.fetch(A, require_stable=True) == {A: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    runner.marker(8, committed=True)
    assert runner.fetch(A, require_stable=True) == {A: (6, 0)}


def test_transactional_records_name_their_producer(runner: Runner) -> None:
    runner.commit_in_transaction({A: 5}, 7)
    entry = runner.log[-1]
    assert len(entry) == 3
    assert entry[2] == (7, 0)


def test_a_commit_in_a_transaction_is_a_sign_of_life(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.now_ms += 1_000
    assert runner.commit_in_transaction({A: 5}, 7, leader, 1) == {A: 0}
    assert runner.timers["session", GROUP, leader] == runner.now_ms + SESSION_MS


# Commits as whole batches


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([("orders", [(0, 5, -1, ""), (3, 5, -1, "m" * 4096)]), ("clicks", [(1, 5, -1, "")])], True),
        ([("orders", [(0, 5, -1, "")]), ("nowhere", [(0, 5, -1, "")])], False),
        ([("orders", [(0, 5, -1, ""), (4, 5, -1, "")])], False),
        ([("orders", [(-1, 5, -1, "")])], False),
        ([("orders", [(0, 5, -1, "m" * 4097)])], False),
    ],
)
def test_a_commit_is_stored_as_a_whole_or_looked_at_one_by_one(
    runner: Runner, topics: list[tuple[str, list[tuple[int, int, int, str]]]], expected: bool
) -> None:
    assert runner.shard.stores_all(topics) is expected


def test_a_commit_that_is_replayed_as_a_whole_is_as_if_each_record_had_been(runner: Runner) -> None:
    topics = [("orders", [(0, 5, 2, "a"), (1, 6, -1, "")]), ("clicks", [(3, 7, 4, "b")])]
    assert runner.shard.replay_commit(GROUP, topics, 99, 40) == 43
    assert runner.shard._offsets.of_group(GROUP) == {
        A: CommittedOffset(5, 2, "a", 99, -1, 40),
        B: CommittedOffset(6, -1, "", 99, -1, 41),
        ("clicks", 3): CommittedOffset(7, 4, "b", 99, -1, 42),
    }


# Deletion


def test_offsets_can_be_deleted_from_an_idle_group(runner: Runner) -> None:
    runner.commit({A: 1, B: 2})
    assert delete_offsets(runner, A, ("orders", 3), ("nowhere", 0)) == (0, [0, 0, 3])
    assert runner.fetch() == {B: (2, 0)}
    assert delete_offsets(runner, A, group="other") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_offsets_of_subscribed_topics_stay(runner: Runner) -> None:
    runner.commit({A: 1, ("clicks", 0): 2})
    runner.stable_group("a")
    assert delete_offsets(runner, A, ("clicks", 0)) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])
    assert runner.fetch() == {A: (1, 0)}


def test_nothing_is_deleted_under_members_that_are_no_consumers(runner: Runner) -> None:
    runner.commit({A: 1})
    runner.join(version=3, protocol_type="connect")
    assert delete_offsets(runner, A) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_a_deleted_topic_takes_its_offsets_along(runner: Runner) -> None:
    runner.commit({A: 1, ("clicks", 0): 2})
    runner.commit({A: 3}, group="other")
    runner.commit_in_transaction({B: 4}, 7)
    runner.perform(runner.shard.topic_deleted({"orders"}, runner.now_ms))
    runner.marker(7, committed=True)
    assert runner.fetch() == {("clicks", 0): (2, 0)}
    assert not runner.has_group("other")


# Expiry (KIP-211)


def test_offsets_without_members_expire_after_their_commit(runner: Runner) -> None:
    runner.commit({A: 1})
    runner.advance(DAY_MS)
    runner.commit({B: 2})
    runner.advance(RETENTION_MS - DAY_MS - 1)
    expire(runner)
    assert runner.fetch() == {A: (1, 0), B: (2, 0)}
    runner.advance(1)
    expire(runner)
    assert runner.fetch() == {B: (2, 0)}
    runner.advance(DAY_MS)
    expire(runner)
    assert runner.fetch() == {}
    assert not runner.has_group()
    assert not runner.reloaded().has_group()


def test_offsets_of_a_group_expire_after_its_last_member_has_gone(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.commit({A: 1}, leader, 1)
    runner.advance(SESSION_MS)
    emptied_ms = runner.now_ms
    assert runner.group.is_empty
    runner.advance(emptied_ms + RETENTION_MS - runner.now_ms - 1)
    expire(runner)
    assert runner.fetch() == {A: (1, 0)}
    runner.advance(1)
    expire(runner)
    assert runner.fetch() == {}
    assert not runner.has_group()
    assert not runner.reloaded().has_group()


def test_members_keep_what_they_read_and_lose_what_they_do_not(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.commit({A: 1, ("clicks", 0): 2}, leader, 1)
    runner.perform(runner.shard.expire_offsets(runner.now_ms + RETENTION_MS))
    assert runner.fetch() == {A: (1, 0)}
    runner.join(leader, protocols=(("range", subscription("clicks")),))
    runner.perform(runner.shard.expire_offsets(runner.now_ms + RETENTION_MS))
    assert runner.group.state is GroupState.COMPLETING_REBALANCE
    assert runner.fetch() == {A: (1, 0)}, "nothing expires during a rebalance"


def test_subscriptions_that_cannot_be_read_protect_all_offsets(runner: Runner) -> None:
    token = runner.join(version=3, protocols=(("range", b"\xff"),))
    runner.advance(3_000)
    member_id = runner.reply(token).member_id
    runner.sync(member_id, 1, {})
    runner.commit({A: 1}, member_id, 1)
    runner.perform(runner.shard.expire_offsets(runner.now_ms + RETENTION_MS))
    assert runner.fetch() == {A: (1, 0)}


def test_subscriptions_of_every_version_protect_only_what_they_name(runner: Runner) -> None:
    for version in ConsumerProtocolSubscription.VERSIONS:
        group = f"group of version {version}"
        metadata = ConsumerProtocolSubscription(topics=["orders"]).encode_versioned(version)
        token = runner.join(version=3, protocols=(("range", metadata),), group=group)
        runner.advance(3_000)
        member_id = runner.reply(token).member_id
        runner.sync(member_id, 1, {}, group=group)
        runner.commit({A: 1, ("clicks", 0): 2}, member_id, 1, group=group)
        runner.perform(runner.shard.expire_offsets(runner.now_ms + RETENTION_MS))
        assert runner.fetch(group=group) == {A: (1, 0)}


def test_what_an_open_transaction_touches_does_not_expire(runner: Runner) -> None:
    runner.commit({A: 1})
    runner.commit_in_transaction({A: 2}, 7)
    runner.perform(runner.shard.expire_offsets(runner.now_ms + RETENTION_MS))
    assert runner.fetch() == {A: (1, 0)}
    assert runner.has_group()


def test_a_client_may_ask_for_a_retention_of_its_own(runner: Runner) -> None:
    runner.commit({A: 1}, version=4, retention_time_ms=1_000)
    runner.commit({B: 2})
    assert runner.reloaded().fetch() == {A: (1, 0), B: (2, 0)}
    runner.advance(999)
    expire(runner)
    assert len(runner.fetch()) == 2
    runner.advance(1)
    expire(runner)
    assert runner.fetch() == {B: (2, 0)}


@pytest.mark.parametrize(("retention_ms", "expires_in_ms"), [(-1, None), (0, 0), (1, 1)])
def test_the_retention_a_client_asks_for_begins_with_the_commit(
    runner: Runner, retention_ms: int, expires_in_ms: int | None
) -> None:
    runner.commit({A: 1}, version=4, retention_time_ms=retention_ms)
    (committed,) = runner.shard._offsets.of_group(GROUP).values()
    expected = -1 if expires_in_ms is None else runner.now_ms + expires_in_ms
    assert (committed.expire_timestamp_ms, committed.commit_timestamp_ms) == (expected, runner.now_ms)


def test_many_offsets_expire_group_by_group(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.machines.groups.offset_shard._EXPIRED_AT_ONCE", 2)
    for group in ("a", "b", "c"):
        runner.commit({A: 1}, group=group)
    runner.advance(RETENTION_MS)
    assert len(runner.shard.expire_offsets(runner.now_ms).records) == 2
    expire(runner)
    assert [runner.has_group(group) for group in ("a", "b", "c")] == [False, False, True]
    expire(runner)
    assert not runner.has_group("c")


def test_an_empty_group_without_offsets_is_removed(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.leave(leader)
    expire(runner)
    assert not runner.has_group()
    assert not runner.reloaded().has_group()


def test_a_group_somebody_is_about_to_join_is_not_removed(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.leave(leader)
    member_id = runner.reply(runner.join()).member_id
    expire(runner)
    assert runner.reply(runner.join(member_id)) is None


# The store by itself

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([-1, 0, 7]), st.sampled_from([A, B]), st.integers(0, 9)),
        st.tuples(st.just("tombstone"), st.just(-1), st.sampled_from([A, B]), st.just(0)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from([0, 7]), st.just(A), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_an_offset_is_the_last_write_in_the_log_that_counts(
    steps: list[tuple[str, int, tuple[str, int], int]],
) -> None:
    """The model looks at the whole log at once: which transactions committed, which tombstones came later."""
    store = OffsetStore()
    for position, (kind, producer_id, (topic, index), offset) in enumerate(steps):
        if kind in ("commit", "abort"):
            store.end_transaction(producer_id, committed=kind == "commit")
            continue
        if kind == "put":
            committed = committed_offset(OffsetCommitValue(offset=offset), position)
            store.put(GROUP, (topic, index), committed, producer_id)
        else:
            store.forget(GROUP, (topic, index))

    expected: dict[tuple[str, int], int] = {}
    for partition in (A, B):
        tombstone = max(
            (at for at, step in enumerate(steps) if step[0] == "tombstone" and step[2] == partition), default=-1
        )
        for at, (kind, producer_id, step_partition, offset) in enumerate(steps):
            if kind != "put" or step_partition != partition or at < tombstone:
                continue
            ends = [step[0] for step in steps[at:] if step[0] in ("commit", "abort") and step[1] == producer_id]
            if producer_id == -1 or ends[:1] == ["commit"]:
                expected[partition] = offset
    assert {partition: entry.offset for partition, entry in store.of_group(GROUP).items()} == expected
    for partition in (A, B):
        assert store.is_pending(GROUP, partition) == (partition in store.pending_of_group(GROUP))


def put(store: OffsetStore, partition: tuple[str, int], producer_id: int, *, at: int, group: str = GROUP) -> None:
    store.put(group, partition, committed_offset(OffsetCommitValue(offset=at), at), producer_id)


def test_a_tombstone_takes_one_partition_out_of_a_transaction_and_leaves_the_rest() -> None:
    store = OffsetStore()
    put(store, A, 7, at=0)
    put(store, B, 7, at=1)
    put(store, A, 7, at=2, group="other")
    store.forget(GROUP, A)
    assert store.pending_of_group(GROUP) == {B}
    assert store.pending_of_group("other") == {A}
    store.forget(GROUP, B)
    assert not store.has_any(GROUP)
    assert store.end_transaction(7, committed=True) == ["other"]
    assert store.get("other", A) is not None


def test_a_transaction_of_which_nothing_is_left_holds_no_group() -> None:
    store = OffsetStore()
    put(store, A, 7, at=0)
    store.forget(GROUP, A)
    assert store._pending == {}, "a producer without offsets is not kept"
    assert store.end_transaction(7, committed=True) == []
    assert not store.has_any(GROUP)


def test_an_offset_that_is_forgotten_leaves_the_others_of_its_group() -> None:
    store = OffsetStore()
    put(store, A, -1, at=0)
    put(store, B, -1, at=1)
    store.forget(GROUP, A)
    store.forget(GROUP, A)
    assert list(store.of_group(GROUP)) == [B]
    store.forget(GROUP, B)
    assert not store.has_any(GROUP)


def test_tombstones_cover_what_is_committed_and_what_is_pending_in_order() -> None:
    store = OffsetStore()
    put(store, B, -1, at=0)
    put(store, ("clicks", 0), 7, at=1)
    put(store, A, 0, at=2, group="other")
    keys = [record.key for record in store.tombstones(GROUP)]
    assert keys == [
        OffsetCommitKey(group=GROUP, topic="clicks", partition=0),
        OffsetCommitKey(group=GROUP, topic="orders", partition=1),
    ]
    of_topics = [record.key for record in store.tombstones_of_topics({"orders"})]
    assert of_topics == [
        OffsetCommitKey(group=GROUP, topic="orders", partition=1),
        OffsetCommitKey(group="other", topic="orders", partition=0),
    ]


@pytest.mark.parametrize(
    ("starts_ms", "expire_ms", "now_ms", "is_old"),
    [
        (0, -1, 99, False),
        (0, -1, 100, True),
        (50, -1, 149, False),
        (50, -1, 150, True),
        (None, -1, 10**6, False),
        (None, 10, 10**6, False),
        (0, 0, 0, True),
        (0, 10, 9, False),
        (0, 10, 10, True),
        (0, 200, 150, False),
    ],
)
def test_an_offset_is_old_after_the_retention_or_at_the_time_its_client_named(
    starts_ms: int | None, expire_ms: int, now_ms: int, is_old: bool
) -> None:
    store = OffsetStore()
    store.put(GROUP, A, committed_offset(OffsetCommitValue(offset=1, expire_timestamp=expire_ms), 0), -1)
    assert expired(store, GROUP, lambda topic, committed_ms: starts_ms, 100, now_ms) == ([A] if is_old else [])


@pytest.mark.parametrize("expire_ms", [-1, 0, 55])
def test_offset_records_read_back_as_they_were_written(expire_ms: int) -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=44, expire_timestamp=expire_ms)
    key_bytes, value_bytes = offset_record(GROUP, A, value).encode()
    assert key_bytes[:2] == b"\0\1"
    assert value_bytes is not None
    assert value_bytes[:2] == (b"\0\3" if expire_ms < 0 else b"\0\1")
    parsed = parse(key_bytes, value_bytes)
    assert parsed == (OffsetCommitKey(group=GROUP, topic="orders", partition=0), value)


def test_records_of_an_unknown_kind_are_left_alone() -> None:
    assert parse(b"\0\x63rest", b"anything") is None
