"""Edges of the plan of work: when partitions pause and go on, what is given up, and what a partition leaves behind."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.processing.failures import KINDS_MAX
from ottla.client.core.processing.parallel import Retries

from .test_parallel import ERROR, offsets, plan, record, start_all

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_is_done_if_nothing_is_said() -> None:
    assert Retries() == (3, 200, 30_000, 0.5)
    assert KINDS_MAX == 100


@pytest.mark.parametrize(("queued_max", "goes_on_at"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_a_full_partition_goes_on_when_half_of_it_is_settled(queued_max: int, goes_on_at: int) -> None:
    given = plan("unordered", queued_max=queued_max)
    given.add([record(offset) for offset in range(queued_max - 1)])
    assert given.to_pause() == [], "there is room for one more"
    given.add([record(queued_max - 1), record(0, partition=1)])
    assert given.to_pause() == ([PLACE] if queued_max > 1 else [PLACE, OTHER])
    left = queued_max
    for work in start_all(given):
        if work.record.partition:
            continue
        assert given.to_resume() == []
        given.finish(work)
        left -= 1
        if left == goes_on_at:
            assert given.to_resume() == [PLACE]
            return


def test_a_partition_that_is_forgotten_is_full_of_nothing() -> None:
    given = plan("unordered", queued_max=1)
    given.add([record(0)])
    assert given.to_pause() == [PLACE]
    given.forget([PLACE])
    assert given.to_resume() == [] and given.to_pause() == []
    given.add([record(0)])
    assert given.to_pause() == [PLACE], "it is another one"


def test_nothing_of_a_partition_that_is_forgotten_is_started_or_awaited() -> None:
    given = plan("unordered", concurrency=1)
    given.add([record(0), record(1)])
    (work,) = start_all(given)
    assert given.fail(work, ERROR, 0, 0.0) and given.next_due_ms() == 100
    given.forget([PLACE, OTHER])
    assert work.is_dropped and given.next_due_ms() is None
    assert start_all(given, 10_000) == [] and given.running == 0
    fresh = plan("unordered")
    fresh.add([record(0), record(1)])
    fresh.forget([PLACE])
    assert start_all(fresh) == [], "not even the first of all"


def test_what_is_abandoned_is_never_committed_past() -> None:
    given = plan("unordered", concurrency=3)
    given.add([record(0), record(1), record(2)])
    first, second, third = start_all(given)
    given.abandon(second)
    assert given.running == 2
    given.finish(first)
    given.finish(third)
    assert given.running == 0
    assert given.committable() == {PLACE: OffsetAndMetadata(1, "", 7)}
    assert start_all(given) == [], "nobody tries again"
    with pytest.raises(ValueError, match="is not being worked on: it waits for others of its lane"):
        given.abandon(second)


def test_a_failure_is_put_off_and_then_worked_on_in_the_order_in_which_it_is_due() -> None:
    given = plan("unordered", retries=3)
    given.add([record(offset) for offset in range(3)])
    first, second, third = start_all(given)
    assert given.fail(third, ERROR, 0, 0.0)
    assert given.fail(first, ERROR, 0, 0.0)
    given.postpone(second, 0, 0.0)
    assert given.next_due_ms() == 0, "it has not failed"
    assert offsets(start_all(given, 99)) == [1]
    assert given.next_due_ms() == 100
    assert offsets(start_all(given, 100)) == [2, 0], "those due together as they have failed"
    assert (first.failures, second.failures, third.failures) == (1, 0, 1)


def test_what_was_committed_before_is_not_committed_again_and_never_goes_back() -> None:
    given = plan("unordered")
    given.add([record(0), record(1), record(2), record(0, partition=1)])
    works = start_all(given)
    given.finish(works[0])
    given.committed([(PLACE, OffsetAndMetadata(2)), (TopicPartition("u", 0), OffsetAndMetadata(9))])
    given.committed([(PLACE, OffsetAndMetadata(1))])
    given.finish(works[1])
    assert given.committable() == {}
    given.finish(works[2])
    given.finish(works[3])
    assert given.committable([PLACE, TopicPartition("u", 0)]) == {PLACE: OffsetAndMetadata(3, "", 7)}
    assert set(given.committable()) == {PLACE, OTHER}


@pytest.mark.parametrize(("given", "names"), [((0, 1), "0 and 1"), ((1, 0), "1 and 0")])
def test_there_is_one_worker_and_one_place_at_least(given: tuple[int, int], names: str) -> None:
    concurrency, queued_max = given
    with pytest.raises(ValueError, match=f"{names} were given"):
        plan(concurrency=concurrency, queued_max=queued_max)
    assert plan(concurrency=1, queued_max=1, retries=0).running == 0


def test_a_failure_with_nothing_left_to_try_keeps_its_worker_and_its_reason() -> None:
    given = plan(retries=0)
    given.add([record(0)])
    (work,) = start_all(given)
    assert work.failure is None and (work.failures, work.waits) == (0, 0)
    assert not given.fail(work, ERROR, 0, 0.0)
    assert (work.failures, given.running) == (1, 1)
    (failed,) = given.running_of([PLACE])
    assert failed.failure is ERROR
    given.finish(work)
    assert given.running == 0 and given.committable() == {PLACE: OffsetAndMetadata(1, "", 7)}
