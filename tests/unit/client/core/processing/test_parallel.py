"""What may run, what is finished and what may be committed, for any interleaving of outcomes and rebalances."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.record import make_record_class
from ottla.client.core.processing.dead_letters import check_template, dead_letter, dead_letter_topics
from ottla.client.core.processing.parallel import Ordering, RawRecord, Retries, Work, WorkPlan
from ottla.records.batch import TimestampType

ERROR = RuntimeError("no")


def record(
    offset: int, key: bytes | None = None, partition: int = 0, headers: Sequence[tuple[str, bytes]] = ()
) -> RawRecord:
    made = make_record_class("t", partition, TimestampType.CREATE_TIME, 7)
    return made(offset, 1000 + offset, key, b"v%d" % offset, list(headers))


def plan(ordering: Ordering = "key", concurrency: int = 10, queued_max: int = 100, retries: int = 2) -> WorkPlan:
    return WorkPlan(
        ordering=ordering, concurrency=concurrency, queued_max=queued_max, retries=Retries(retries, 100, 1000, 0.5)
    )


def start_all(given: WorkPlan, now_ms: int = 0) -> list[Work]:
    started = []
    while (work := given.start_next(now_ms)) is not None:
        started.append(work)
    return started


def offsets(works: Sequence[Work]) -> list[int]:
    return [work.record.offset for work in works]


@pytest.mark.parametrize(
    ("ordering", "expected"), [("key", [0, 1, 4, 5]), ("partition", [0]), ("unordered", [0, 1, 2, 3, 4, 5])]
)
def test_what_may_run_at_once(ordering: Ordering, expected: list[int]) -> None:
    given = plan(ordering)
    given.add([record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, b"b"), record(4), record(5)])
    assert offsets(start_all(given)) == expected


def test_concurrency_is_a_bound() -> None:
    given = plan("unordered", concurrency=2)
    given.add([record(offset) for offset in range(5)])
    first = start_all(given)
    assert offsets(first) == [0, 1]
    given.finish(first[1])
    assert offsets(start_all(given)) == [2]


@pytest.mark.parametrize("last_is_done", [True, False])
def test_of_partitions_that_go_only_gaps_before_what_is_done_or_running_are_filled(last_is_done: bool) -> None:
    given = plan("key")
    given.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"b"), record(4, b"a")])
    first, third = start_all(given)
    partitions = [TopicPartition("t", 0)]
    if last_is_done:
        given.finish(third)
    given.hold(partitions)
    assert not given.is_settled(partitions)
    if not last_is_done:
        given.finish(third)
    assert offsets(given.running_of(partitions)) == [0]
    given.finish(first)
    (gap,) = start_all(given)
    assert gap.record.offset == 1, "what comes after the last one that was begun is the next owner's"
    assert not given.is_settled(partitions)
    given.finish(gap)
    assert start_all(given) == [] and given.is_settled(partitions)
    assert given.committable()[partitions[0]].offset == 3


def test_of_partitions_that_go_nothing_is_begun() -> None:
    given = plan("key")
    given.add([record(0, b"a"), record(1, b"b")])
    partitions = [TopicPartition("t", 0)]
    given.hold(partitions)
    assert given.is_settled(partitions) and start_all(given) == [] and given.running_of(partitions) == []


def test_the_lowest_unfinished_offset_is_committed_with_its_epoch() -> None:
    given = plan("unordered")
    given.add([record(10), record(12), record(15)])
    works = start_all(given)
    partition = TopicPartition("t", 0)
    given.finish(works[1])
    assert given.committable() == {}
    given.finish(works[0])
    ((found, offset),) = given.committable().items()
    assert (found, offset.offset, offset.leader_epoch) == (partition, 13, 7)
    given.committed(given.committable().items())
    assert given.committable() == {}
    given.finish(works[2])
    assert given.committable()[partition].offset == 16


def test_a_failed_record_keeps_its_lane_and_frees_its_worker() -> None:
    given = plan("key", concurrency=1)
    given.add([record(0, b"a"), record(1, b"a"), record(2, b"b")])
    (first,) = start_all(given)
    assert given.fail(first, ERROR, now_ms=0, fraction=1.0)
    assert given.next_due_ms() == 50
    (other,) = start_all(given, now_ms=49)
    assert offsets([other]) == [2]
    given.finish(other)
    assert start_all(given, now_ms=49) == []
    assert start_all(given, now_ms=50) == [first]
    assert given.fail(first, ERROR, now_ms=50, fraction=0.0)
    assert given.next_due_ms() == 250
    assert start_all(given, now_ms=250) == [first]
    assert not given.fail(first, ERROR, now_ms=250, fraction=0.0)
    assert first.failure is ERROR
    assert first.failures == 3
    given.finish(first)
    assert offsets(start_all(given)) == [1]


def test_a_final_error_is_not_tried_again() -> None:
    given = plan()
    given.add([record(0)])
    (work,) = start_all(given)
    assert not given.fail(work, ERROR, 0, 0.0, is_final=True)
    assert work.failures == 1


def test_waiting_uses_up_no_attempts() -> None:
    given = plan(retries=1)
    given.add([record(0, b"a"), record(1, b"a")])
    (work,) = start_all(given)
    now_ms = 0
    for pause_ms in (100, 200, 400, 800, 1000, 1000):
        given.wait(work, now_ms, fraction=0.0)
        assert given.next_due_ms() == now_ms + pause_ms
        assert start_all(given, now_ms + pause_ms - 1) == []
        now_ms += pause_ms
        assert start_all(given, now_ms) == [work]
    assert work.failures == 0
    assert given.fail(work, ERROR, now_ms, 0.0)
    assert given.next_due_ms() == now_ms + 100


def test_partitions_are_paused_and_resumed_once() -> None:
    given = plan("unordered", queued_max=4)
    given.add([record(offset) for offset in range(4)])
    partition = TopicPartition("t", 0)
    assert given.to_pause() == [partition]
    assert given.to_pause() == []
    works = start_all(given)
    given.finish(works[0])
    given.finish(works[2])
    given.finish(works[3])
    assert given.to_resume() == [], "three are not settled, for the second is not done"
    given.finish(works[1])
    assert given.to_resume() == [partition]
    assert given.to_resume() == []


def test_a_partition_that_goes_is_neither_started_nor_committed() -> None:
    given = plan("unordered", concurrency=2)
    given.add([record(0), record(1), record(2), record(0, partition=1)])
    running = start_all(given)
    gone = [TopicPartition("t", 0)]
    given.hold(gone)
    assert given.running_of(gone) == running
    given.finish(running[0])
    assert offsets(start_all(given)) == [0], "of the other partition"
    assert not given.is_settled(gone)
    assert given.committable(gone)[gone[0]].offset == 1
    given.forget(gone)
    given.finish(running[1])
    assert given.committable() == {}


def test_a_gap_is_filled_before_a_partition_goes() -> None:
    given = plan("key")
    given.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"a"), record(4, b"b")])
    first, other = start_all(given)
    given.finish(other)
    (last,) = start_all(given)
    given.finish(last)
    partition = TopicPartition("t", 0)
    given.add([record(5, b"c")])
    given.hold([partition])
    for expected in (1, 3):
        given.finish(first)
        assert not given.is_settled([partition])
        (first,) = start_all(given)
        assert first.record.offset == expected
    given.finish(first)
    assert start_all(given) == []
    assert given.is_settled([partition])
    assert given.committable()[partition].offset == 5


def test_a_gap_that_needs_another_try_is_not_filled() -> None:
    given = plan("key")
    given.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"c")])
    first, other, third = start_all(given)
    given.finish(third)
    partition = TopicPartition("t", 0)
    given.hold([partition])
    given.finish(other)
    assert given.fail(first, ERROR, 0, 0.0)
    assert given.is_settled([partition])
    assert start_all(given, 10_000) == []
    assert given.next_due_ms() is None


def test_a_partition_that_comes_again_is_not_held_up_by_what_is_left_of_its_earlier_life() -> None:
    given = plan("key")
    given.add([record(0, b"a")])
    (left,) = start_all(given)
    partition = TopicPartition("t", 0)
    given.hold([partition])
    given.forget([partition])
    given.add([record(0, b"a"), record(1, b"a")])
    (again,) = start_all(given)
    given.finish(left)
    assert given.committable() == {}
    assert start_all(given) == []
    given.finish(again)
    assert given.committable()[partition].offset == 1


def test_an_outcome_is_told_once() -> None:
    given = plan()
    given.add([record(0)])
    (work,) = start_all(given)
    given.finish(work)
    with pytest.raises(ValueError, match="not being worked on"):
        given.finish(work)


@pytest.mark.parametrize(
    "wrong", [{"ordering": "keys"}, {"concurrency": 0}, {"queued_max": 0}, {"retries": -1}], ids=str
)
def test_bad_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        plan(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("jitter", [-0.1, 1.1])
def test_jitter_is_a_part(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        Retries(jitter=jitter).checked()


@pytest.mark.parametrize(
    "retries", [Retries(jitter=0.0), Retries(jitter=1.0), Retries(0), Retries(3, 0, 0), Retries(3, 5, 5)]
)
def test_retries_at_their_bounds_are_fine(retries: Retries) -> None:
    assert retries.checked() is retries


@pytest.mark.parametrize("retries", [Retries(-1), Retries(1, -1), Retries(1, 5, 4)])
def test_retries_beyond_their_bounds_are_not(retries: Retries) -> None:
    with pytest.raises(ValueError, match="must not be negative, nor the longest pause shorter"):
        retries.checked()


@pytest.mark.parametrize(
    ("failures", "fraction", "pause_ms"), [(1, 0.0, 100), (2, 0.0, 200), (2, 1.0, 100), (1, 0.5, 75), (9, 0.0, 1000)]
)
def test_a_pause_is_shorter_by_the_part_that_is_left_to_chance(failures: int, fraction: float, pause_ms: int) -> None:
    assert Retries(3, 100, 1000, 0.5).pause_ms(failures, fraction) == pause_ms


@pytest.mark.parametrize(
    ("template", "topics", "others"),
    [
        ("{topic}.dlt", ["t.dlt", "t.dlt.dlt", "a.b.dlt"], ["t", ".dlt", "t.dlt2", "tXdlt"]),
        ("dead", ["dead"], ["dead2", "t.dead"]),
        ("dead.{topic}.{topic}", ["dead.t.t"], ["dead.t", "t.dead.t"]),
    ],
)
def test_topics_of_dead_letters_are_known_by_their_names(template: str, topics: list[str], others: list[str]) -> None:
    names = dead_letter_topics(template)
    assert [name for name in topics + others if names.fullmatch(name)] == topics


def test_an_error_without_a_text_can_become_a_dead_letter() -> None:
    class NoTextError(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    letter = dead_letter(record(5), "{topic}.dlt", error=NoTextError(), attempts=1, group_id="g")
    assert dict(letter.headers)["ottla.dead-letter.message"] == b"(no text, for that raises LookupError)"


def test_a_dead_letter_keeps_the_record_and_says_where_it_is_from() -> None:
    given = record(5, b"k", partition=3, headers=[("trace", b"1"), ("ottla.dead-letter.topic", b"earlier")])
    letter = dead_letter(given, "{topic}.dlt", error=ValueError("x" * 5000), attempts=4, group_id="g")
    assert letter[:3] == ("t.dlt", b"k", b"v5")
    assert letter.timestamp_ms == 1005
    assert letter.headers[0] == ("trace", b"1")
    told = dict(letter.headers[1:])
    assert len(told) == len(letter.headers) - 1
    assert told["ottla.dead-letter.topic"] == b"t"
    assert told["ottla.dead-letter.partition"] == b"3"
    assert told["ottla.dead-letter.offset"] == b"5"
    assert told["ottla.dead-letter.timestamp"] == b"1005"
    assert told["ottla.dead-letter.exception"] == b"builtins.ValueError"
    assert told["ottla.dead-letter.message"] == b"x" * 2000
    assert told["ottla.dead-letter.attempts"] == b"4"
    assert told["ottla.dead-letter.group"] == b"g"
    with_place, bare = letter.shorter()
    assert with_place.headers == [
        ("trace", b"1"),
        ("ottla.dead-letter.topic", b"t"),
        ("ottla.dead-letter.partition", b"3"),
        ("ottla.dead-letter.offset", b"5"),
    ]
    assert bare == letter._replace(headers=[("trace", b"1")])


@pytest.mark.parametrize("template", ["", "{topic}", "{other}", "{", "{0}", "{topic.x}"])
def test_bad_dead_letter_topics(template: str) -> None:
    with pytest.raises(ValueError, match="dead-letter topic"):
        check_template(template)


class AnyInterleaving(RuleBasedStateMachine):
    """Records of two partitions and three keys; outcomes, rebalances and commits in any order."""

    ordering: Ordering = "key"

    def __init__(self) -> None:
        super().__init__()
        self.plan = plan(self.ordering, concurrency=4, queued_max=8, retries=2)
        self.now_ms = 0
        self.next_offset = {0: 0, 1: 0}
        self.unfinished: dict[int, dict[int, Work | None]] = {0: {}, 1: {}}
        self.running: list[Work] = []
        self.last_done: dict[tuple[int, bytes | None], int] = {}
        self.committed = {0: -1, 1: -1}
        self.held: dict[int, int] = {}
        self.begun: dict[int, int] = {0: -1, 1: -1}

    @rule(
        partition=st.integers(0, 1),
        made=st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", None]), st.integers(1, 3)), min_size=1, max_size=6),
    )
    def add(self, partition: int, made: list[tuple[bytes | None, int]]) -> None:
        if partition in self.held:
            return
        batch = []
        for key, gap in made:
            offset = self.next_offset[partition] + gap - 1
            self.next_offset[partition] = offset + 1
            self.unfinished[partition][offset] = None
            batch.append(record(offset, key, partition))
        self.plan.add(batch)

    @rule()
    def start(self) -> None:
        work = self.plan.start_next(self.now_ms)
        if work is None:
            return
        partition = work.record.partition
        assert work.record.offset < self.held.get(partition, 2**62), "only what fills a gap"
        self.begun[partition] = max(self.begun[partition], work.record.offset)
        self.running.append(work)
        assert len(self.running) <= 4
        lane = self.lane(work)
        if lane is None:
            return
        live = [other for other in self.running if not other.is_dropped and self.lane(other) == lane]
        assert live == [work], "one at a time"
        assert work.record.offset > self.last_done.get(lane, -1), "in order"
        waiting = [offset for offset in self.unfinished[work.record.partition] if offset < work.record.offset]
        assert all(self.key_of[work.record.partition, offset] != lane for offset in waiting if lane[1] is not None)

    @property
    def key_of(self) -> dict[tuple[int, int], tuple[int, bytes | None]]:
        return {
            (claim.topic_partition.partition, work.record.offset): (claim.topic_partition.partition, work.record.key)
            for claim in self.plan._claims.values()
            for work in claim.unfinished
        }

    def lane(self, work: Work) -> tuple[int, bytes | None] | None:
        if self.ordering == "partition":
            return work.record.partition, None
        if self.ordering == "unordered" or work.record.key is None:
            return None
        return work.record.partition, work.record.key

    def done(self, work: Work) -> None:
        if work.is_dropped:
            return
        del self.unfinished[work.record.partition][work.record.offset]
        lane = self.lane(work)
        if lane is not None:
            self.last_done[lane] = work.record.offset

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        work = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.done(work)
        self.plan.finish(work)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fraction=st.floats(0, 1), is_final=st.booleans())
    def fail(self, data: st.DataObject, fraction: float, is_final: bool) -> None:
        work = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if not self.plan.fail(work, ERROR, self.now_ms, fraction, is_final=is_final):
            assert is_final or work.failures == 3
            self.done(work)
            self.plan.finish(work)

    @rule(ms=st.integers(0, 1500))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def commit(self) -> None:
        offsets = self.plan.committable()
        for partition, offset in offsets.items():
            left = self.unfinished[partition.partition]
            assert all(offset.offset <= unfinished for unfinished in left), "never past what is not done"
            assert offset.offset > self.committed[partition.partition]
            self.committed[partition.partition] = offset.offset
        self.plan.committed(offsets.items())

    @rule(partition=st.integers(0, 1))
    def hold(self, partition: int) -> None:
        held = TopicPartition("t", partition)
        self.plan.hold([held])
        mine = [work for work in self.running if work.record.partition == partition and not work.is_dropped]
        assert self.plan.running_of([held]) == sorted(mine, key=lambda work: work.record.offset)
        if held in self.plan._claims:
            self.held.setdefault(partition, self.begun[partition])

    @rule(partition=st.integers(0, 1))
    def forget(self, partition: int) -> None:
        """What comes again starts at the committed offset."""
        self.plan.forget([TopicPartition("t", partition)])
        self.held.pop(partition, None)
        self.begun[partition] = -1
        self.unfinished[partition] = {}
        self.next_offset[partition] = max(self.committed[partition], 0)
        self.last_done = {lane: offset for lane, offset in self.last_done.items() if lane[0] != partition}

    @invariant()
    def nothing_is_forgotten(self) -> None:
        for claim in self.plan._claims.values():
            here = {work.record.offset for work in claim.unfinished if work.progress.name != "DONE"}
            assert here == set(self.unfinished[claim.topic_partition.partition])

    def teardown(self) -> None:
        """Everything that is left can be finished, and then all of it can be committed."""
        for work in self.running:
            self.plan.finish(work)
        while (filler := self.plan.start_next(self.now_ms)) is not None:
            self.plan.finish(filler)
        for partition in self.held:
            held = TopicPartition("t", partition)
            assert self.plan.is_settled([held])
            left = [work.progress.name for work in self.plan._claims[held].unfinished]
            assert "DONE" not in left or "POSTPONED" in left, "a gap is left only where something failed"
            self.plan.forget([held])
        while (due_ms := self.plan.next_due_ms()) is not None or self.plan._ready:
            work_or_none = self.plan.start_next(max(self.now_ms, due_ms or 0))
            if work_or_none is not None:
                self.plan.finish(work_or_none)
        assert self.plan.running == 0
        assert not self.plan._lanes
        for claim in self.plan._claims.values():
            assert not claim.unfinished
            assert claim.finished is not None


class AnyInterleavingOfPartitions(AnyInterleaving):
    ordering = "partition"


class AnyInterleavingOfAll(AnyInterleaving):
    ordering = "unordered"


TestKeys = AnyInterleaving.TestCase
TestPartitions = AnyInterleavingOfPartitions.TestCase
TestUnordered = AnyInterleavingOfAll.TestCase
