"""Which partitions count as unavailable because their leader can be sent nothing (KIP-794)."""

from __future__ import annotations

from tests.unit.client.core.producer.model_broker import TOPIC, World

TIMEOUT_MS = 100


def two_brokers(timeout_ms: int = TIMEOUT_MS, **settings: object) -> World:
    """Each leads one partition, where a first record is stored already; every record is a batch."""
    world = World(2, **{"batch.size": 0, "linger.ms": 0, "partitioner.availability.timeout.ms": timeout_ms, **settings})
    world.move_leader(1)
    world.learn_metadata()
    for partition in range(2):
        world.send(partition)
    world.pump()
    answer(world, 0)
    answer(world, 1)
    return world


def answer(world: World, node: int) -> None:
    assert world.handle(node) and world.reply(node)
    world.pump()


def fill(world: World, partition: int, count: int) -> None:
    for _ in range(count):
        world.send(partition)
    world.pump()


def unavailable(world: World) -> set[int]:
    return set(world.accumulator.backlog(TOPIC, world.now_ms).unavailable)


def test_a_broker_with_all_requests_in_flight_is_held_up_until_it_answers() -> None:
    world = two_brokers()
    fill(world, 1, 6)
    fill(world, 0, 6)
    world.now_ms += TIMEOUT_MS
    answer(world, 0)
    assert unavailable(world) == set()
    world.now_ms += 1
    assert unavailable(world) == {1}
    answer(world, 1)
    world.send(1)
    assert unavailable(world) == set()
    world.heal()
    world.check_exactly_once()


def test_what_is_sent_meanwhile_does_not_start_the_time_anew() -> None:
    world = two_brokers()
    for _ in range(6):
        fill(world, 1, 6)
        world.now_ms += TIMEOUT_MS // 5
    assert unavailable(world) == {1}


def test_a_broker_that_answers_is_not_held_up_however_much_waits_for_it() -> None:
    world = two_brokers()
    fill(world, 1, 50)
    for _ in range(20):
        world.now_ms += TIMEOUT_MS
        answer(world, 1)
        assert unavailable(world) == set()


def test_a_broker_is_not_held_up_by_what_is_in_flight_or_not_due() -> None:
    world = two_brokers()
    fill(world, 1, 5)
    world.now_ms += 10 * TIMEOUT_MS
    world.pump()
    assert unavailable(world) == set(), "another batch could not be sent, but there is none"
    world = World(1, **{"linger.ms": 1000, "partitioner.availability.timeout.ms": TIMEOUT_MS})
    fill(world, 0, 1)
    world.now_ms += 999
    world.pump()
    assert unavailable(world) == set(), "it waits for more records"


def test_the_first_batch_of_a_partition_lets_nothing_follow() -> None:
    world = World(1, **{"batch.size": 0, "linger.ms": 0, "partitioner.availability.timeout.ms": TIMEOUT_MS})
    fill(world, 0, 2)
    world.now_ms += TIMEOUT_MS + 1
    assert unavailable(world) == {0}


def test_a_broker_that_cannot_be_reached_is_held_up_whenever_something_waits_for_it() -> None:
    world = two_brokers()
    fill(world, 1, 1)
    for _ in range(20):
        world.disconnect(1)
        world.pump()
        world.now_ms += TIMEOUT_MS // 10
    assert unavailable(world) == {1}
    world.heal()
    fill(world, 1, 6)
    assert unavailable(world) == set()


def test_a_partition_that_moves_to_another_broker_is_available_again() -> None:
    world = two_brokers()
    fill(world, 1, 6)
    world.now_ms += TIMEOUT_MS + 1
    assert unavailable(world) == {1}
    world.move_leader(1)
    world.learn_metadata()
    world.pump()
    assert unavailable(world) == set()


def test_without_a_time_every_partition_stays_available() -> None:
    world = two_brokers(timeout_ms=0)
    fill(world, 1, 6)
    world.now_ms += 10**6
    world.pump()
    assert unavailable(world) == set()
    assert world.accumulator.held_up_since_ms == {}
