"""Which topics a frame's plan is made of, and what clusters are asked about them. Plans of Spark are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import ottla
from ottla.base.types import TopicPartition
from ottla.spark.pipeline.flows import topics
from ottla.spark.pipeline.flows.topics import TopicQuestions, topic_sources
from ottla.spark.pipeline.model import Source
from ottla.spark.pipeline.problems import Place
from ottla.spark.pipeline.section import Section
from ottla.testing import EmbeddedBroker


def source(name: str, **options: str) -> Source:
    part: Any = SimpleNamespace(stream_options=options, reads=lambda topic: True)
    return Source(name, Section({}, Place("p.yaml"), f"source {name}"), part)


def of_topic(name: str, servers: str, topic: str, **more: str) -> Source:
    return source(name, **{"kafka.bootstrap.servers": servers, "subscribe": topic, **more})


def leaf(kind: str = "StreamingRelationV2", **options: str) -> Any:
    java_class = SimpleNamespace(getSimpleName=lambda: kind)
    return SimpleNamespace(getClass=lambda: java_class, extraOptions=lambda: options)


def frame(*leaves: Any) -> Any:
    found = SimpleNamespace(size=lambda: len(leaves), apply=lambda index: leaves[index])
    plan = SimpleNamespace(collectLeaves=lambda: found)
    return SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan)))


def test_a_plan_names_its_sources_by_cluster_and_selection() -> None:
    here, there = {"kafka.bootstrap.servers": "here:1"}, {"kafka.bootstrap.servers": "there:1"}
    selections = {
        "one": {**here, "subscribe": "a"},
        "far": {**there, "subscribe": "a"},
        "pattern": {**here, "subscribePattern": "a"},
        "assigned": {**here, "assign": '{"a":[0]}'},
        "unread": {**here, "subscribe": "b"},
    }
    sources = {name: source(name, **options) for name, options in selections.items()}
    sources["files"] = Source("files", Section({}, Place("p.yaml"), "source files"), SimpleNamespace())
    model: Any = SimpleNamespace(sources=sources)

    def found(*leaves: Any) -> list[str]:
        return [one.name for one in topic_sources(frame(*leaves), model)]

    for name, options in selections.items():
        assert found(leaf(**options, includeHeaders="true")) == [name]
    assert found() == []
    assert found(leaf("LocalRelation", **selections["one"])) == [], "a table is read anew with each batch"
    assert found(leaf(**here, subscribe="c"), leaf(path="/x")) == []
    mixed = [leaf("LocalRelation"), leaf(**selections["far"]), leaf(path="/x"), leaf(**selections["one"])]
    assert found(*mixed, leaf(**selections["far"])) == ["far", "one"]


class Clients:
    """Made instead of admin clients, which would look for their brokers at once."""

    def __init__(self) -> None:
        self.made: list[dict[str, str]] = []
        self.closed: list[dict[str, str]] = []

    def make(self, settings: dict[str, str]) -> Any:
        self.made.append(settings)
        return SimpleNamespace(close=lambda: self.closed.append(settings))


def test_each_cluster_is_asked_by_one_client_that_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients()
    monkeypatch.setattr(topics, "ottla", SimpleNamespace(Admin=clients.make))
    long = {"kafka.default.api.timeout.ms": "90000", "kafka.fetch.max.bytes": "5", "kafka.bootstrap.fail.fast": "false"}
    files = Source("files", Section({}, Place("p.yaml"), "source files"), SimpleNamespace())
    sources = [of_topic("a", "h:1", "a", **long), of_topic("b", "h:1", "b"), of_topic("c", "g:1", "a"), files]
    questions = TopicQuestions(sources)
    own = {"bootstrap.fail.fast": "true", "default.api.timeout.ms": "2000"}
    assert clients.made == [{"bootstrap.servers": "h:1", **own}, {"bootstrap.servers": "g:1", **own}]
    assert clients.closed == []
    questions.close()
    assert clients.closed == clients.made


def test_what_clusters_answer(cluster: EmbeddedBroker, admin: ottla.Admin) -> None:
    first, second = cluster.new_topic(partitions=2), cluster.new_topic()
    servers = cluster.bootstrap_servers
    one, other, single = TopicPartition(first, 0), TopicPartition(first, 1), TopicPartition(second, 0)
    with ottla.Producer(bootstrap_servers=servers) as producer:
        for topic, partition, count in ((first, 0, 3), (first, 1, 2), (second, 0, 1)):
            for _ in range(count):
                producer.send(topic, b"v", partition=partition)
        producer.flush()
    admin.delete_records({one: 1}).check()
    noted = ottla.OffsetAndMetadata(2, metadata="so far")
    admin.alter_group_offsets(f"g-{first}", {one: noted}).check()
    questions = TopicQuestions(
        [
            of_topic("in", servers, first, startingOffsets="earliest"),
            of_topic("late", servers, first, startingOffsets="latest"),
            of_topic("single", servers, second, startingOffsets="earliest"),
        ]
    )
    assert questions.ends("in") == questions.ends("late") == {one: 3, other: 2}
    assert questions.start("in") == {one: 1, other: 0}
    assert questions.start("late") == {one: 3, other: 2}
    assert (questions.ends("single"), questions.start("single")) == ({single: 1}, {single: 0})
    assert questions.topic_ids("single") == {second: admin.describe_topics([second])[second].topic_id}
    assert {place: at.metadata for place, at in questions.committed("in", f"g-{first}").items()} == {one: "so far"}
    questions.close()
