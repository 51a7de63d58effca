"""Letters on their way back: which are sent, where, under which time, in how many transactions, and what is noted."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import ottla
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.errors import ClientError
from ottla.client.sync import Consumer
from ottla.spark.pipeline.redrive import redrive as redrive_module
from ottla.spark.pipeline.redrive.letters import LetterFilter
from ottla.spark.pipeline.redrive.redrive import LetterBox, Redrive
from ottla.spark.pipeline.redrive.targets import RedriveError
from ottla.testing import EmbeddedBroker

SOURCE = "source events"
WEEK_MS = 7 * 86_400_000


class World:
    """A topic `origin` of two partitions, and its letters in the two partitions of `bad`."""

    def __init__(self, cluster: EmbeddedBroker, admin: ottla.Admin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.settings = {"bootstrap.servers": cluster.bootstrap_servers}
        self.origin = cluster.new_topic(partitions=2)
        self.bad = cluster.new_topic("bad", partitions=2)
        self.now_ms = int(time.time() * 1000)
        self.box = LetterBox(self.bad, SOURCE, self.settings)

    def put(self, *numbers: int, partition: int = 0, **facts: str) -> None:
        """Letter n was offset n of a partition of `origin`, by default that of the other number."""
        with ottla.Producer(self.settings) as producer:
            for n in numbers:
                told = {
                    "topic": self.origin,
                    "partition": str(1 - partition),
                    "offset": str(n),
                    "timestamp": str(self.now_ms + n),
                    "source": SOURCE,
                    "error": "bad value",
                    **facts,
                }
                headers = [
                    ("trace", b"t"),
                    *((f"ottla.dead-letter.{name}", text.encode()) for name, text in told.items()),
                ]
                producer.send(self.bad, b"%d" % n, b"k", headers, partition)
            producer.flush()

    def records(self, topic: str, partition: int = 0) -> list[Any]:
        place = TopicPartition(topic, partition)
        with Consumer({**self.settings, "isolation.level": "read_committed"}) as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            end, found = consumer.end_offsets([place])[place], list[Any]()
            while consumer.position(place) < end:
                found += consumer.poll(0.1)
        return found

    def sent(self, partition: int = 1, topic: str | None = None) -> list[int]:
        return [int(record.value) for record in self.records(topic or self.origin, partition)]

    def redrive(self, box: LetterBox | None = None, chosen: LetterFilter | None = None, **more: Any) -> Redrive:
        return Redrive(box or self.box, chosen or LetterFilter(), **more)

    def noted(self) -> dict[int, list[list[int]]]:
        """By partition, the runs of offsets that the newest note tells of."""
        found = {}
        for record in self.records(self.box.memory_topic):
            found[json.loads(record.key)["partition"]] = json.loads(record.value)["sent"]
        return found


@pytest.fixture
def world(cluster: EmbeddedBroker, admin: ottla.Admin) -> World:
    return World(cluster, admin)


def test_letters_go_back_as_they_were_and_once(world: World) -> None:
    world.put(0, 1, 2)
    world.put(7, partition=1)
    surveyed = world.redrive().survey()
    assert (surveyed.summary.letters, surveyed.targets, surveyed.retimed) == (4, [world.origin], 0)
    assert world.sent() == []
    outcome = world.redrive().send()
    assert (outcome.summary.letters, outcome.targets, outcome.compacted) == (4, [world.origin], [])
    assert world.sent(1) == [0, 1, 2] and world.sent(0) == [7]
    for n, record in enumerate(world.records(world.origin, 1)):
        assert (record.key, record.headers, record.timestamp) == (b"k", (("trace", b"t"),), world.now_ms + n)
    assert world.noted() == {0: [[0, 2]], 1: [[0, 0]]}
    assert world.redrive().send().summary.letters == 0
    world.put(3)
    assert world.redrive().survey().summary.letters == 1
    assert world.redrive().send().summary.letters == 1
    assert world.sent() == [0, 1, 2, 3]
    assert world.noted()[0] == [[0, 3]]


def test_records_that_are_no_letters_of_the_source_are_passed_over(world: World) -> None:
    world.put(0)
    world.put(1, source="source others")
    with ottla.Producer(world.settings) as producer:
        producer.send(world.bad, b"no letter", partition=0).result()
    world.put(2, 3)
    world.put(4, error="no JSON")
    world.put(5)
    assert world.redrive(chosen=LetterFilter(error="value")).send().summary.letters == 4
    assert world.sent() == [0, 2, 3, 5]
    assert world.noted() == {0: [[0, 0], [3, 4], [6, 6]]}
    assert world.redrive().send().summary.letters == 1
    assert world.sent() == [0, 2, 3, 5, 4]


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, []), (1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_no_more_than_asked_for(world: World, limit: int, expected: Sequence[int]) -> None:
    world.put(0, 1, 2, 3)
    assert world.redrive(limit=limit).survey().summary.letters == len(expected)
    assert world.redrive(limit=limit).send().summary.letters == len(expected)
    assert world.sent() == list(expected)


@pytest.mark.parametrize(("most", "told"), [(1, [1, 2, 3]), (2, [2, 3]), (3, [3]), (4, [3])])
def test_so_many_letters_go_into_a_transaction(world: World, most: int, told: Sequence[int]) -> None:
    world.put(0, 1, 2)
    progress: list[int] = []
    world.redrive(on_progress=progress.append, letters_per_transaction=most).send()
    assert progress == told


@pytest.mark.parametrize(("letters", "told"), [(1, [1, 2, 3]), (2, [2, 3])])
def test_so_many_bytes_go_into_a_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch, letters: int, told: Sequence[int]
) -> None:
    world.put(0, 1, 2)
    size = sum(len(name) + len(value) for name, value in world.records(world.bad)[0].headers) + len(b"k0")
    monkeypatch.setattr(redrive_module, "BYTES_PER_TRANSACTION", letters * size)
    progress: list[int] = []
    world.redrive(on_progress=progress.append).send()
    assert progress == told


def test_all_letters_may_go_to_one_topic_with_what_is_known_of_them(world: World, cluster: EmbeddedBroker) -> None:
    made = cluster.new_topic("own")
    world.put(0, topic="a-topic-that-is-gone")
    outcome = world.redrive(to_topic=made).send()
    assert outcome.targets == [made]
    (record,) = world.records(made)
    headers = dict(record.headers)
    assert headers["trace"] == b"t" and headers["ottla.dead-letter.topic"] == b"a-topic-that-is-gone"
    assert (record.key, record.value, record.timestamp) == (b"k", b"0", world.now_ms)


def test_a_topic_for_letters_is_made_if_it_is_not_there(world: World) -> None:
    name = f"{world.bad}-again"
    box = LetterBox(world.bad, SOURCE, world.settings, name, ottla.NewTopic(name, 3))
    world.put(0)
    assert world.redrive(box, to_topic=name).survey().targets == [name]
    topics = world.admin.list_topics()
    assert name not in topics and box.memory_topic not in topics, "a survey makes nothing"
    world.redrive(box).send()
    assert name not in world.admin.list_topics(), "the letters went elsewhere"
    world.put(1)
    assert world.redrive(box, to_topic=name).send().summary.letters == 1
    assert len(world.admin.describe_topics([name])[name].partitions) == 3
    memory = world.admin.describe_topics([box.memory_topic])[box.memory_topic]
    assert len(memory.partitions) == 1
    resource = ottla.ConfigResource.topic(box.memory_topic)
    assert world.admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"


def test_a_topic_that_cannot_be_made_is_an_error(world: World) -> None:
    world.put(0)
    box = LetterBox(world.bad, SOURCE, world.settings, "not/a/name", ottla.NewTopic("not/a/name", 1))
    with pytest.raises(ClientError) as refusal:
        world.redrive(box, to_topic="not/a/name").send()
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_old_letters_are_sent_under_the_time_of_sending(world: World, cluster: EmbeddedBroker) -> None:
    world.put(0, timestamp=str(world.now_ms - WEEK_MS))
    world.put(1)
    assert world.redrive().survey().retimed == 1
    assert world.redrive().send().retimed == 1
    old, new = world.records(world.origin, 1)
    assert world.now_ms <= old.timestamp and new.timestamp == world.now_ms + 1
    compacted = cluster.new_topic(config={"cleanup.policy": "compact"})
    world.put(2, topic=compacted, partition=1)
    assert world.redrive().send().compacted == [compacted]


def test_letters_of_a_partition_that_is_gone_are_refused(world: World) -> None:
    world.put(0)
    with ottla.Producer(world.settings) as producer:
        facts = {
            "topic": world.origin,
            "partition": "2",
            "offset": "0",
            "timestamp": "0",
            "source": SOURCE,
            "error": "e",
        }
        headers = [(f"ottla.dead-letter.{name}", text.encode()) for name, text in facts.items()]
        producer.send(world.bad, b"9", None, headers, 0).result()
    with pytest.raises(RedriveError, match="has no partition 2"):
        world.redrive().send()
    assert world.sent() == [], "neither is what came before it in the same transaction"
    assert world.redrive(chosen=LetterFilter(partitions=[1])).send().summary.letters == 1


def test_without_the_topic_nothing_was_set_aside(world: World) -> None:
    box = LetterBox("nothing-yet", SOURCE, world.settings)
    for work in (world.redrive(box).survey, world.redrive(box).send):
        with pytest.raises(RedriveError, match="no record was set aside so far"):
            work()


def test_a_second_redrive_fences_the_first(world: World) -> None:
    world.put(0, 1)

    def begin_another(letters: int) -> None:
        if letters == 1:
            world.redrive().send()

    first = world.redrive(on_progress=begin_another, letters_per_transaction=1)
    with pytest.raises(RedriveError, match=f"another redrive of {world.bad} has begun"):
        first.send()
    assert world.sent() == [0, 1]


def test_what_was_left_open_by_a_redrive_that_was_killed_is_sent_again(world: World) -> None:
    world.put(0)
    lost = ottla.Producer({**world.settings, "transactional.id": f"ottla-redrive-{world.bad}"})
    lost.init_transactions()
    lost.begin_transaction()
    lost.send(world.origin, b"0", partition=1).result()
    assert world.redrive().send().summary.letters == 1
    assert world.sent() == [0]
    lost.close()


def test_letters_that_are_deleted_for_their_age_are_no_hindrance(world: World) -> None:
    world.put(0, 1, 2, 3)
    world.admin.delete_records({TopicPartition(world.bad, 0): 2}).check()
    assert world.redrive().send().summary.letters == 2
    assert world.sent() == [2, 3]
    assert world.noted() == {0: [[2, 3]]}


def test_letters_that_are_not_committed_are_not_there(world: World) -> None:
    world.put(0)
    with ottla.Producer({**world.settings, "transactional.id": f"of-{world.bad}"}) as writer:
        writer.init_transactions()
        writer.begin_transaction()
        writer.send(world.bad, b"open", partition=0).result()
        world.put(1)
        assert world.redrive().send().summary.letters == 1
        writer.abort_transaction()
    assert world.redrive().send().summary.letters == 1
    assert world.sent() == [0, 1]
    assert world.noted() == {0: [[0, 2]]}, "what holds no letters is done with the letter behind it"


def test_clients_get_the_settings_that_mean_something_to_them(world: World) -> None:
    box = LetterBox("t", SOURCE, {**world.settings, "fetch.max.bytes": "5", "group.id": "g", "linger.ms": "1"})
    assert box.known(PRODUCER_OPTIONS) == {"bootstrap.fail.fast": "true", **world.settings, "linger.ms": "1"}
    assert box.memory_topic == "ottla.redriven.t"
    world.put(0)
    grouped = LetterBox(world.bad, SOURCE, {**world.settings, "group.id": "g", "enable.auto.commit": "true"})
    assert world.redrive(grouped).send().summary.letters == 1
