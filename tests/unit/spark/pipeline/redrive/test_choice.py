from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import Pipeline, SpecError
from ottla.spark.pipeline.redrive import choice
from ottla.spark.pipeline.redrive.choice import letter_box, other_groups, source_of
from ottla.spark.pipeline.redrive.targets import RedriveError
from ottla.spark.pipeline.topic_source import TopicSource

DESCRIPTION = """\
name: shop
kafka: {bootstrap.servers: "nowhere:1", fetch.max.bytes: "5", max.request.size: "6"}
sources:
  orders:
    {kind: topic, topic: orders, format: json, schema: id BIGINT, dead_letter: orders.bad, redrive_topic: orders.again}
  payments: {kind: topic, pattern: 'pay.*', format: json, schema: id BIGINT, dead_letter: payments.bad}
  plain: {kind: topic, topic: plain, format: text}
views:
  paid: {sql: "SELECT o.id FROM orders o JOIN late USING (id)"}
  late: {sql: "SELECT * FROM payments"}
  only_late: {sql: "SELECT * FROM late"}
  lines: {python: "views.py:lines"}
sinks:
  out: {kind: console}
flows:
  raw: {from: orders, to: out}
  paid: {from: paid, to: out}
  late: {from: only_late, to: out}
  plain: {from: plain, to: out}
  lines: {from: lines, to: out}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "shop.yaml").write_text(DESCRIPTION)
    (tmp_path / "views.py").write_text("def lines(plain, spark):\n    return plain\n")
    return Pipeline.from_file(tmp_path / "shop.yaml")


@pytest.mark.parametrize(
    ("flow", "source"),
    [("raw", "orders"), ("orders-dead-letters", "orders"), ("payments-dead-letters", "payments"), ("late", "payments")],
)
def test_a_flow_names_the_letters_of_its_source(pipeline: Pipeline, flow: str, source: str) -> None:
    assert source_of(pipeline.model(), flow).name == source


@pytest.mark.parametrize(
    ("flow", "told"),
    [
        ("rwa", "there is no flow 'rwa'. Did you mean 'raw'?"),
        ("plain", "flow plain has no dead letters: no source that it reads has a 'dead_letter' topic"),
        ("lines", "flow lines has no dead letters"),
        ("paid", "flow paid reads several sources with dead letters: say which by its flow: orders-dead-letters, pay"),
    ],
)
def test_a_flow_without_letters_of_one_source_says_so(pipeline: Pipeline, flow: str, told: str) -> None:
    with pytest.raises(RedriveError) as error:
        source_of(pipeline.model(), flow)
    assert str(error.value).startswith(told)


def test_what_is_known_of_the_letters(pipeline: Pipeline) -> None:
    model = pipeline.model()
    box = letter_box(model.sources["orders"])
    assert (box.topic, box.source, box.redrive_topic) == ("orders.bad", "source orders", "orders.again")
    assert box.memory_topic == "ottla.redriven.orders.bad"
    # Of a reader and of a writer: a letter may be as large as what was set aside.
    assert box.settings["bootstrap.servers"] == "nowhere:1"
    assert (box.settings["fetch.max.bytes"], box.settings["max.request.size"]) == ("5", "6")
    assert letter_box(model.sources["payments"]).redrive_topic is None


def test_a_source_reads_the_topic_its_letters_come_back_to(pipeline: Pipeline) -> None:
    orders = pipeline.model().sources["orders"].part
    assert isinstance(orders, TopicSource)
    assert orders.stream_options["subscribe"] == "orders,orders.again"
    assert [orders.reads(topic) for topic in ("orders", "orders.again", "orders.bad")] == [True, True, False]


def test_what_others_write_is_read_when_it_is_committed(pipeline: Pipeline) -> None:
    parts = [source.part for source in pipeline.model().sources.values()]
    levels = [part.stream_options.get("kafka.isolation.level") for part in parts if isinstance(part, TopicSource)]
    assert levels == ["read_committed"] * 3


def test_one_that_reads_a_pattern_reads_it_too(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(DESCRIPTION.replace("payments.bad}", "payments.bad, redrive_topic: again+pay}"))
    payments = Pipeline.from_file(path).model().sources["payments"].part
    assert isinstance(payments, TopicSource)
    reads = [payments.reads(topic) for topic in ("pay.1", "again+pay", "againnpay", "again+pay.2")]
    assert reads == [True, True, False, False]


def test_nothing_can_come_back_that_was_not_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(DESCRIPTION.replace("format: text}", "format: text, redrive_topic: again}"))
    with pytest.raises(SpecError, match="source plain: without a 'dead_letter' topic there is nothing to send back"):
        Pipeline.from_file(path).model()


PIPELINE = "ottla-pipeline-shop-"


@pytest.mark.parametrize(
    ("source", "topics", "own"),
    [
        (
            "orders",
            ["orders"],
            {"raw", "paid", "late", "plain", "lines", "orders-dead-letters", "payments-dead-letters"},
        ),
        ("plain", ["plain", "elsewhere"], {"raw", "paid", "late", "plain", "lines"} | {
            "orders-dead-letters", "payments-dead-letters"}),
        ("orders", ["orders", "pay.1"], {"raw", "orders-dead-letters"}),
        ("payments", ["orders"], {"payments-dead-letters"}),
    ],
)  # fmt: skip
def test_groups_of_the_sources_own_flows_are_not_others(
    pipeline: Pipeline, source: str, topics: list[str], own: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pipeline.model()

    def groups_at(admin: object, asked: list[str], *, except_for: Iterable[str]) -> Any:
        assert (admin, asked) == ("admin", topics)
        return sorted(except_for)

    monkeypatch.setattr(choice, "groups_at", groups_at)
    admin: Any = "admin"
    expected = sorted(PIPELINE + flow for flow in own)
    assert other_groups(model, model.sources[source], admin, topics) == expected


def test_the_topic_of_the_way_back_is_made_as_the_source_says(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        DESCRIPTION.replace("redrive_topic: orders.again", "dead_letter_partitions: 3, redrive_topic: back")
    )
    sources = Pipeline.from_file(path).model().sources
    made = letter_box(sources["orders"]).new_topic
    assert made is not None and (made.name, made.partitions) == ("back", 3)
    assert letter_box(sources["payments"]).new_topic is None
