"""When leadership goes back to preferred replicas, and when it does not."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.machines.cluster.balance import BalanceDue, unbalanced
from ottla.machines.cluster.controller import DemotionAsked, ShutdownAsked
from ottla.machines.cluster.state import NoteOffline
from tests.unit.machines.cluster.test_controller import T0, World
from tests.unit.machines.cluster.test_reassignment import in_sync, move


def bounced() -> World:
    """Broker 1 is preferred by eight of ten partitions, was away and is in sync again; broker 2 leads all."""
    world = World(1, 2)
    world.create("t", {index: [1, 2] if index < 8 else [2, 1] for index in range(10)})
    world.brokers(b1=None)
    world.brokers(b1=50)
    for index in range(10):
        in_sync(world, 1, 2, tp=TopicPartition("t", index))
    return world


def test_leaders_go_back() -> None:
    world = bounced()
    world.happens(BalanceDue(10))
    assert [partition.leader for _, partition in world.state.partitions()] == [1] * 8 + [2] * 2
    world.happens(BalanceDue(0))
    assert world.messages == []


def test_a_few_that_are_led_by_others_are_let_be() -> None:
    world = bounced()
    assert unbalanced(world.state, 100) == ()
    assert len(unbalanced(world.state, 99)) == 8


def test_nothing_is_done_while_replicas_are_moved() -> None:
    world = bounced()
    world.brokers(b3=60)
    assert move(world, 3, 2) is None
    assert unbalanced(world.state, 10) == ()


def test_who_is_away_or_about_to_stop_is_given_nothing_even_if_only_it_is_in_sync() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    in_sync(world, 1, tp=T0)
    world.happens(DemotionAsked(T0))
    assert unbalanced(world.state, 0) == (T0,)
    world.happens(ShutdownAsked(1, 1))
    assert world.of(T0).isr == (1,)
    assert unbalanced(world.state, 0) == ()
    world.brokers(b1=None)
    assert unbalanced(world.state, 0) == ()


def test_only_who_can_lead_is_given_leadership() -> None:
    world = bounced()
    in_sync(world, 2, tp=T0)
    world.state.note(NoteOffline(1, (TopicPartition("t", 1),)))
    assert unbalanced(world.state, 10) == tuple(TopicPartition("t", index) for index in range(2, 8))
    world.happens(ShutdownAsked(1, 50))
    assert unbalanced(world.state, 10) == ()
