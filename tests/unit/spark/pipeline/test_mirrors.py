"""The section `mirrors` of a description: what it becomes, and what is wrong with it, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.spark.mirror.data_source import MirrorDataSource
from ottla.spark.pipeline import Pipeline, mirrors
from ottla.spark.pipeline.builder import build_model
from ottla.spark.pipeline.mirrors import MirrorSink, MirrorSource
from ottla.spark.pipeline.model import Model
from ottla.spark.pipeline.problems import Problem, SpecError
from ottla.spark.pipeline.yaml_file import read_yaml
from tests.unit.spark.pipeline.plain_columns import Frame, use_plain_columns

WHOLE = """\
name: dr
checkpoint: state
clusters:
  west: {bootstrap.servers: "west:9092", fetch.max.bytes: 70000}
  east: {bootstrap.servers: "east:9092", compression.type: zstd}
mirrors:
  west-to-east:
    from: west
    to: east
    pattern: 'shop.*'
    exclude: ['.*-tmp']
    rename: prefix
    groups: {names: [billing], interval: 2 seconds}
    trigger: 1 second
    max_offsets_per_trigger: 500
    data_loss: continue
  plain:
    from: east
    to: west
    topics: [orders]
    starting_offsets: latest
"""


def model_of(tmp_path: Path, text: str) -> Model:
    path = tmp_path / "dr.yaml"
    path.write_text(text)
    return build_model(read_yaml(path, {}))


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        model_of(tmp_path, text)
    return [f"{problem.place.line}: {problem.message}" for problem in caught.value.problems]


def test_a_mirror_becomes_a_source_a_sink_and_a_flow(tmp_path: Path) -> None:
    model = model_of(tmp_path, WHOLE)
    assert list(model.flows) == list(model.sinks) == ["west-to-east", "plain"]
    flow = model.flows["west-to-east"]
    assert (flow.origin, flow.sink, flow.mode) == ("_mirror_west_to_east", "west-to-east", "append")
    assert (flow.group_id, flow.trigger_ms) == ("ottla-pipeline-dr-west-to-east", 1000)
    assert flow.checkpoint == str(tmp_path / "state" / "west-to-east")
    source, sink = model.sources[flow.origin].part, model.sinks[flow.sink].part
    assert isinstance(source, MirrorSource) and isinstance(sink, MirrorSink)
    assert source.reads("shop-1") and not source.reads("shop-tmp") and not source.reads("east.shop-1")
    mirror = sink.mirror
    assert (mirror.names.on_target("orders"), mirror.marks_origin) == ("west.orders", False)
    assert mirror.groups is not None and mirror.groups.interval_ms == 2000
    assert mirror.map_topic == "ottla.mirror.west-to-east.offsets"
    plain = model.sinks["plain"].part
    assert isinstance(plain, MirrorSink)
    assert (plain.mirror.names.on_target("orders"), plain.mirror.marks_origin, plain.mirror.groups) == (
        "orders",
        True,
        None,
    )


def test_the_same_in_python(tmp_path: Path) -> None:
    servers = {name: {"bootstrap.servers": f"{name}:9092"} for name in ("west", "east")}
    model = Pipeline("dr", clusters=servers).mirror("m", "west", "east", topics=["orders"]).model()
    assert list(model.flows) == ["m"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("from: east", "from: eats", "18: mirror plain: there is no cluster 'eats'. Did you mean 'east'?"),
        ("to: west", "to: east", "19: mirror plain: 'from' and 'to' are both 'east'"),
        ("topics: [orders]", "", "17: mirror plain: give it either 'topics' or 'pattern'"),
        ("[orders]", "[__x]", "20: mirror plain: '__x' is never copied: "),
        ("pattern: 'shop.*'", "pattern: 'shop['", "10: mirror west-to-east: 'shop[' is not a regular expression: "),
        ("rename: prefix", "rename: suffix", "12: mirror west-to-east: 'rename' cannot be 'suffix'."),
        ("names: [billing], ", "", "13: mirror west-to-east, groups: give it either 'names' or 'pattern'"),
        ("compression.type", "compresion.type", "5: cluster east: clients have no setting 'compresion.type'. Did you"),
        ("bootstrap.servers: \"east:9092\", ", "", "5: cluster east: 'bootstrap.servers' is missing"),
        ("starting_offsets", "starting", "21: mirror plain: there is no option 'starting'. Did you mean"),
        ("trigger: 500", "trigger: many", "15: mirror west-to-east: maxOffsetsPerTrigger must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in WHOLE
    found = problems_of(tmp_path, WHOLE.replace(before, after, 1))
    assert any(problem.startswith(told) for problem in found), found


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("compression.type", "x.y", "5: cluster east: clients have no setting 'x.y'."),
        ("  east: {", "  a b: {", "5: cluster a b: a name has letters"),
    ],
)
def test_of_a_cluster_that_is_wrong_nobody_is_told_twice(tmp_path: Path, before: str, after: str, told: str) -> None:
    (found,) = problems_of(tmp_path, WHOLE.replace(before, after, 1))
    assert found.startswith(told)


def test_names_of_mirrors_are_names(tmp_path: Path) -> None:
    (found,) = problems_of(tmp_path, WHOLE.replace("  plain:\n", "  a b:\n"))
    assert found.startswith("17: mirror a b: a name has letters")


def test_names_are_not_shared(tmp_path: Path) -> None:
    both = WHOLE.replace("  plain:\n", "  west.to.east:\n")
    assert any("its name is also that of a flow" in problem for problem in problems_of(tmp_path, both))


class Spark:
    """Reads these records, and notes with which options."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self._records = records
        self.registered: list[object] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.told: dict[str, str] = {}

    def options(self, **options: str) -> Spark:
        self.told = options
        return self

    def load(self) -> Frame:
        return Frame(*self._records)


def header(key: str, value: bytes) -> dict[str, object]:
    return {"key": key, "value": value}


ORIGIN = "ottla.mirror.origin"
RECORD = {"topic": "orders", "partition": 1, "offset": 7, "key": b"k", "value": b"v", "timestamp": 5, "headers": None}


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The ids of clusters by their address."""
    ids: dict[str, str | None] = {"west:9092": "W", "east:9092": "E"}

    def admin_for(settings: Mapping[str, str]) -> Any:
        described = SimpleNamespace(cluster_id=ids[settings["bootstrap.servers"]])
        return SimpleNamespace(describe_cluster=lambda: described)

    use_plain_columns(monkeypatch, mirrors)
    monkeypatch.setattr(mirrors, "admin_for", admin_for)
    monkeypatch.setattr(mirrors, "stream_reader", lambda spark, name: spark)
    return ids


def copied(tmp_path: Path, flow: str, *records: dict[str, Any]) -> tuple[Spark, list[Any]]:
    """What becomes of records of the mirror's source."""
    spark = Spark(*records)
    model = model_of(tmp_path, WHOLE)
    part = model.sources[model.flows[flow].origin].part
    frame: Any = part.load(spark)  # type: ignore[arg-type]
    assert spark.registered == [MirrorDataSource]
    return spark, frame.rows


def test_a_copy_is_the_record_with_its_origin(tmp_path: Path, clusters: object) -> None:
    spark, (bare, traced) = copied(tmp_path, "plain", RECORD, {**RECORD, "headers": [header("trace", b"1")]})
    assert bare == {**RECORD, "headers": [header(ORIGIN, b"E")]}
    assert traced["headers"] == [header("trace", b"1"), header(ORIGIN, b"E")]
    assert spark.told["startingOffsets"] == "latest"


def test_what_came_from_the_target_does_not_go_back_to_it(tmp_path: Path, clusters: object) -> None:
    origins = (b"W", b"E", b"N")
    _, rows = copied(tmp_path, "plain", *({**RECORD, "headers": [header(ORIGIN, origin)]} for origin in origins))
    assert [row["headers"] for row in rows] == [[header(ORIGIN, b"E")], [header(ORIGIN, b"N")]], (
        "the first origin stays"
    )
    _, rows = copied(tmp_path, "plain", {**RECORD, "headers": [header("another", b"W")]})
    assert len(rows) == 1


def test_copies_under_other_names_need_no_origin(tmp_path: Path, clusters: object) -> None:
    _, (copy,) = copied(tmp_path, "west-to-east", RECORD)
    assert copy == {**RECORD, "topic": "west.orders"}
    _, rows = copied(tmp_path, "west-to-east", {**RECORD, "headers": [header(ORIGIN, b"E")]})
    assert rows == []


def test_a_cluster_without_an_id(tmp_path: Path, clusters: dict[str, str | None]) -> None:
    clusters["east:9092"] = None
    with pytest.raises(ottla.errors.ClientError, match="the cluster at east:9092 has no id"):
        copied(tmp_path, "plain", RECORD)


@pytest.mark.parametrize(("flow", "asked", "key"), [("plain", ["orders"], "topics"), ("west-to-east", [], "from")])
def test_topics_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, asked: list[str], key: str
) -> None:
    model = model_of(tmp_path, WHOLE)
    source = model.sources[model.flows[flow].origin]

    def find(options: Mapping[str, str], topics: list[str]) -> list[str]:
        assert options["kafka.bootstrap.servers"] == ("east:9092" if flow == "plain" else "west:9092")
        assert topics == asked
        return ["not there"]

    monkeypatch.setattr(mirrors, "find_missing_topics", find)
    (problem,) = source.part.check()
    assert isinstance(problem, Problem)
    assert problem.place == source.section.place_of(key)
    assert problem.message.endswith("not there")


def test_what_a_mirror_asks_of_its_source(tmp_path: Path, clusters: object) -> None:
    spark, _ = copied(tmp_path, "west-to-east", RECORD)
    told = {name: spark.told[name] for name in spark.told if not name.startswith("mirror.")}
    assert told.pop("subscribePattern").endswith("(?:(?:shop.*))")
    assert told == {
        "kafka.bootstrap.servers": "west:9092",
        "kafka.fetch.max.bytes": "70000",
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "500",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
    }
    spark, _ = copied(tmp_path, "plain", RECORD)
    assert (spark.told["maxOffsetsPerTrigger"], spark.told["failOnDataLoss"]) == ("1000000", "true")


def test_one_pattern_of_several_that_is_none(tmp_path: Path) -> None:
    text = WHOLE.replace("exclude: ['.*-tmp']", "exclude: ['.*-tmp', '(']")
    (found,) = problems_of(tmp_path, text)
    assert found.startswith("11: mirror west-to-east: '(' is not a regular expression: ")
    text = WHOLE.replace("interval: 2 seconds}", "exclude: ['[']}")
    (found,) = problems_of(tmp_path, text)
    assert found.startswith("13: mirror west-to-east, groups: '[' is not a regular expression: ")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("names: [billing], ", "names: [billing], pattern: x, ", "13: mirror west-to-east, groups: give it either 'na"),
        ("names: [billing], ", "pattern: '(', ", "13: mirror west-to-east, groups: '(' is not a regular expression: "),
        ("interval: 2 seconds", "interval: soon", "13: mirror west-to-east, groups: 'interval' is not a length of"),
        ("interval: 2 s", "intervall: 2 s", "13: mirror west-to-east, groups: there is no option 'intervall'. Did you"),
        ("pattern: 'shop.*'", "topics: [a]\n    pattern: a", "11: mirror west-to-east: give it either 'topics' or"),
        ("data_loss: continue", "data_loss: stop", "16: mirror west-to-east: 'data_loss' cannot be 'stop'. There is"),
        ("offsets: latest", "offsets: soon", "21: mirror plain: 'starting_offsets' cannot be 'soon'. There is 'earl"),
        ("from: west", "frm: west", "7: mirror west-to-east: 'from' is missing"),
        ("fetch.max.bytes: 70000", "fetch.max.bytes: x", "8: mirror west-to-east: fetch.max.bytes must be a whole"),
    ],
)  # fmt: skip
def test_what_else_is_wrong_is_told_with_its_line(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in WHOLE
    found = problems_of(tmp_path, WHOLE.replace(before, after, 1))
    assert any(problem.startswith(told) for problem in found), found


def test_what_a_mirror_is_unless_told_otherwise(tmp_path: Path) -> None:
    text = WHOLE.replace("    groups: {names: [billing], interval: 2 seconds}", "    groups: {pattern: 'b.*'}")
    text = text.replace(
        "    exclude: ['.*-tmp']\n", "    origin_header: true\n    group_id: mine\n    checkpoint: own\n"
    )
    text = text.replace("topics: [orders]", "topics: [orders, a.b]\n    origin_header: false")
    model = model_of(tmp_path, text)
    sink, plain = (model.sinks[name].part for name in ("west-to-east", "plain"))
    assert isinstance(sink, MirrorSink) and isinstance(plain, MirrorSink)
    groups = sink.mirror.groups
    assert groups is not None and groups.interval_ms == 10_000
    assert [groups.are_translated(name) for name in ("billing", "other", "ottla-spark-x")] == [True, False, False]
    assert (sink.mirror.marks_origin, plain.mirror.marks_origin) == (True, False)
    assert (sink.mirror.name, sink.mirror.names.prefix, plain.mirror.names.prefix) == ("west-to-east", "west.", "")
    assert dict(sink.mirror.source) == {"bootstrap.servers": "west:9092", "fetch.max.bytes": "70000"}
    assert dict(sink.mirror.target) == {"bootstrap.servers": "east:9092", "compression.type": "zstd"}
    flow = model.flows["west-to-east"]
    assert (flow.group_id, flow.checkpoint) == ("mine", str(tmp_path / "own"))
    assert model.flows["plain"].trigger_ms is None
    names = plain.mirror.names
    assert [names.are_copied(topic) for topic in ("orders", "a.b", "axb")] == [True, True, False]


def test_mirrors_of_a_pipeline_know_each_other(tmp_path: Path) -> None:
    model = model_of(tmp_path, WHOLE)
    parts = [sink.part for sink in model.sinks.values()]
    assert all(isinstance(part, MirrorSink) for part in parts)
    for part in parts:
        assert part._others == [other.mirror for other in parts]  # type: ignore[attr-defined]
