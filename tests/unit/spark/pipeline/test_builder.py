"""From sections to a model: what is wrong with a description is found without a broker and without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.builder import build_model
from ottla.spark.pipeline.model import Model, Restarts
from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.yaml_file import read_yaml

WHOLE = """\
name: orders
checkpoint: state
kafka:
  bootstrap.servers: localhost:9092
  fetch.max.bytes: 1000
restart:
  attempts: 3
  backoff: 200 ms
spark:
  master: local[2]
  conf:
    spark.sql.shuffle.partitions: 2
sources:
  clicks:
    kind: topic
    topic: clicks
    format: json
    schema: id BIGINT, at TIMESTAMP
    dead_letter: clicks.dead
tables:
  users:
    kind: topic
    topic: users
views:
  counts:
    sql: SELECT count(*) AS n FROM clicks
    watermark: {column: at, delay: 10 minutes}
    deduplicate: [id]
sinks:
  results:
    kind: topic
    topic: results
    format: json
flows:
  count:
    from: counts
    to: results
    mode: complete
    trigger: 5 seconds
  once:
    from: clicks
    to: results
    trigger: available-now
    checkpoint: s3://bucket/once
    group_id: watched
"""


def build(tmp_path: Path, text: str) -> Model:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return build_model(read_yaml(path, {}))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as error:
        build(tmp_path, text)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in error.value.problems]


class TestAWholePipeline:
    def test_flows(self, tmp_path: Path) -> None:
        model = build(tmp_path, WHOLE)
        assert list(model.flows) == ["count", "once", "clicks-dead-letters"]
        count, once, dead = model.flows.values()
        assert (count.origin, count.sink, count.mode, count.trigger_ms) == ("counts", "results", "complete", 5000)
        assert count.checkpoint == str(tmp_path / "state" / "count")
        assert count.group_id == "ottla-pipeline-orders-count"
        assert once.is_available_now and once.trigger_ms is None
        assert (once.checkpoint, once.group_id) == ("s3://bucket/once", "watched")
        assert dead.takes_dead_letters and dead.origin == "clicks" and dead.sink in model.sinks

    def test_the_rest(self, tmp_path: Path) -> None:
        model = build(tmp_path, WHOLE)
        assert model.master == "local[2]"
        assert model.conf == {"spark.sql.shuffle.partitions": "2"}
        assert model.restarts == Restarts(3, 200, 60_000)
        assert model.views["counts"].watermark == ("at", "600000 milliseconds")
        assert model.views["counts"].deduplicate == ("id",)

    def test_a_group_for_the_only_flow(self, tmp_path: Path) -> None:
        text = WHOLE.replace("  fetch.max.bytes: 1000", "  group.id: ours").replace(
            "    dead_letter: clicks.dead\n", ""
        )
        text = text[: text.index("  once:")]
        assert build(tmp_path, text).flows["count"].group_id == "ours"


MATRIX = [
    # what is replaced, by what, and what is said about it
    ("name: orders", "nme: orders", ["p.yaml:1: pipeline: 'name' is missing", "there is no option 'nme'"]),
    ("name: orders", "name: a/b", ["p.yaml:1: pipeline: 'a/b' cannot be a name"]),
    (
        "fetch.max.bytes",
        "fetch.max.byte",
        ["p.yaml:5: kafka: clients have no setting", "Did you mean 'fetch.max.bytes'?"],
    ),
    ("attempts: 3", "atempts: 3", ["p.yaml:7: restart: there is no option 'atempts'. Did you mean 'attempts'?"]),
    ("backoff: 200 ms", "backoff: soon", ["p.yaml:8: restart: 'backoff' is not a length of time"]),
    ("master: local[2]", "mastr: local[2]", ["p.yaml:10: spark: there is no option 'mastr'. Did you mean 'master'?"]),
    (
        "kind: topic\n    topic: clicks",
        "kind: topc\n    topic: clicks",
        ["p.yaml:15: source clicks: there is no kind 'topc'"],
    ),
    (
        "kind: topic\n    topic: clicks",
        "kind: json:Nowhere\n    topic: clicks",
        ["p.yaml:15: source clicks: module 'json' has no class 'Nowhere'"],
    ),
    (
        "kind: topic\n    topic: clicks",
        "kind: no_such_module:Source\n    topic: clicks",
        ["p.yaml:15: source clicks: kind 'no_such_module:Source' cannot be loaded: No module named 'no_such_module'"],
    ),
    ("    kind: topic\n    topic: clicks\n", "    topic: clicks\n", ["p.yaml:14: source clicks: 'kind' is missing"]),
    ("format: json\n    schema", "formt: json\n    schema", ["p.yaml:14: source clicks: format raw has no schema"]),
    ("    schema: id BIGINT, at TIMESTAMP\n", "", ["p.yaml:17: source clicks: format json needs a 'schema'"]),
    (
        "dead_letter:",
        "dead_leter:",
        ["p.yaml:19: source clicks: there is no option 'dead_leter'. Did you mean 'dead_letter'?"],
    ),
    (
        "topic: clicks\n",
        "topics: [a]\n    pattern: b\n",
        ["p.yaml:17: source clicks: give it one of 'topic', 'topics'"],
    ),
    ("topic: clicks\n", "topic: clicks\n    starting_offsets: soon\n", ["p.yaml:17: source clicks: startingOffsets"]),
    (
        "topic: clicks\n",
        "topic: clicks\n    options: {failOnLoss: true}\n",
        ["p.yaml:17: source clicks: unknown source option"],
    ),
    (
        "topic: clicks\n",
        "topic: clicks\n    metadata: [ofset]\n",
        ["p.yaml:17: source clicks: records have no 'ofset'"],
    ),
    (
        "topic: clicks\n",
        "topic: clicks\n    bad_records: skip\n",
        ["p.yaml:17: source clicks: bad records cannot be both"],
    ),
    ("  bootstrap.servers: localhost:9092\n", "", ["source clicks: the option kafka.bootstrap.servers is missing"]),
    ("sql: SELECT", "sq: SELECT", ["p.yaml:25: view counts: give it either 'sql' or 'python'"]),
    (
        "sql: SELECT count(*) AS n FROM clicks",
        "python: nothing",
        ["p.yaml:26: view counts: 'nothing' names no function"],
    ),
    ("column: at, ", "colum: at, ", ["p.yaml:27: view counts, watermark: 'column' is missing"]),
    ("delay: 10 minutes", "delay: late", ["view counts, watermark: 'delay' is not a length of time"]),
    (
        "  counts:",
        "  clicks:",
        ["p.yaml:25: view clicks: there is a source of this name already", "no view or source 'counts'"],
    ),
    ("  counts:", "  my-counts:", ["p.yaml:25: view my-counts: queries use this name"]),
    ("topic: results", "topics: [a, b]", ["p.yaml:32: sink results: rows for several topics name theirs in a column"]),
    ("topic: results", "topic: a\n    topics: [b]", ["p.yaml:33: sink results: give it either 'topic', or 'topics'"]),
    ("    format: json\nflows", "    formt: json\nflows", ["p.yaml:33: sink results: there is no option 'formt'"]),
    (
        "from: counts",
        "from: count",
        ["p.yaml:36: flow count: there is no view or source 'count'. Did you mean 'counts'?"],
    ),
    ("from: counts", "from: users", ["p.yaml:36: flow count: 'users' is a table"]),
    (
        "to: results\n    mode",
        "to: result\n    mode",
        ["p.yaml:37: flow count: there is no sink 'result'. Did you mean 'results'?"],
    ),
    (
        "mode: complete",
        "mode: compleat",
        ["p.yaml:38: flow count: 'mode' cannot be 'compleat'. Did you mean 'complete'?"],
    ),
    ("trigger: 5 seconds", "trigger: often", ["p.yaml:39: flow count: 'trigger' is not a length of time"]),
    (
        "s3://bucket/once",
        "state/count",
        ["p.yaml:44: flow once: flow count has the checkpoint", "each flow needs its own"],
    ),
    (
        "group_id: watched",
        "group_id: ottla-pipeline-orders-count",
        ["p.yaml:45: flow once: flow count has the group_id"],
    ),
    ("views:", "view:", ["p.yaml:24: pipeline: there is no option 'view'. Did you mean 'views'?"]),
    (
        "  count:\n    from",
        "  clicks-dead-letters:\n    from",
        ["p.yaml:19: source clicks: the name clicks-dead-letters"],
    ),
    ("  users:", "  my-users:", ["p.yaml:21: table my-users: queries use this name"]),
    ("  clicks:", "  my-clicks:", ["p.yaml:14: source my-clicks: queries use this name"]),
    ("  results:\n", "  my results:\n", ["p.yaml:30: sink my results: a name has letters, digits, '.', '_' and '-'"]),
    ("  count:\n", "  -count:\n", ["p.yaml:35: flow -count: a name has letters, digits, '.', '_' and '-'"]),
    ("10 minutes}", "10 minutes, by: 5}", ["p.yaml:27: view counts, watermark: there is no option 'by'."]),
    ("deduplicate: [id]", "deduplicates: [id]", ["p.yaml:28: view counts: there is no option 'deduplicates'."]),
    ("sql: SELECT", "python: a:b\n    sql: SELECT", ["p.yaml:27: view counts: give it either 'sql' or 'python'"]),
    ("mode: complete", "mood: complete", ["p.yaml:38: flow count: there is no option 'mood'. Did you mean 'mode'?"]),
    ("    kind: topic\n    topic: users\n", "", ["p.yaml:21: tables: table users is empty"]),
    ("topic: users", "topic: users\n    x: 1", ["table users: there is no option 'x'"]),
    ("    kind: topic\n    topic: users", "    kind: changes\n    url: postgresql://h/d", ["table users: "]),
    ("checkpoint: state", "checkpoint: {a: b}", ["p.yaml:2: pipeline: 'checkpoint' must be text"]),
]


class TestCheckpoints:
    def test_one_that_no_flow_needs_is_not_unknown(self, tmp_path: Path) -> None:
        text = WHOLE.replace("    dead_letter: clicks.dead\n", "").replace("mode: complete", "checkpoint: own")
        assert build(tmp_path, text).flows["count"].checkpoint == str(tmp_path / "own")

    def test_without_one_they_lie_where_the_description_is(self, tmp_path: Path) -> None:
        model = build(tmp_path, WHOLE.replace("checkpoint: state\n", ""))
        assert model.flows["count"].checkpoint == str(tmp_path / "checkpoints" / "orders" / "count")
        model = build(tmp_path, WHOLE.replace("checkpoint: state\n", "checkpoint: s3://b/c/\n"))
        assert model.flows["count"].checkpoint == "s3://b/c/count"


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("old", "new", "expected"), MATRIX, ids=[new.strip().split("\n")[0] for _, new, _ in MATRIX]
    )
    def test_it_is_told_with_its_line(self, tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
        assert WHOLE.count(old) >= 1
        told = "\n".join(problems(tmp_path, WHOLE.replace(old, new, 1)))
        for words in expected:
            assert words in told

    def test_one_group_for_two_flows(self, tmp_path: Path) -> None:
        text = WHOLE.replace("fetch.max.bytes: 1000", "group.id: all").replace("    group_id: watched\n", "")
        assert "the group_id 'all' already" in problems(tmp_path, text)[0]

    def test_all_is_told_in_one_go(self, tmp_path: Path) -> None:
        text = WHOLE.replace("mode: complete", "mode: x").replace("attempts: 3", "attempts: many").replace("sql:", "q:")
        lines = [told.split(":")[1] for told in problems(tmp_path, text)]
        assert lines == sorted(lines, key=int) and len(lines) == 3

    def test_nothing_to_run(self, tmp_path: Path) -> None:
        assert problems(tmp_path, "name: a\n") == ["p.yaml:1: there is no flow: nothing would run"]

    def test_secrets_are_not_told(self, tmp_path: Path) -> None:
        told = problems(tmp_path, WHOLE.replace("fetch.max.bytes: 1000", "sasl.pasword: hunter2"))
        assert "clients have no setting 'sasl.pasword'" in told[0]
        assert "hunter2" not in "".join(told)


class TestRestarts:
    def test_the_wait_doubles_up_to_a_limit(self) -> None:
        restarts = Restarts(attempts=9, backoff_ms=100, backoff_ms_max=1000)
        assert [restarts.wait_ms(n) for n in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
        assert restarts.wait_ms(1000) == 1000


SERVERS = {"bootstrap.servers": "h:1"}


def described(**settings: Any) -> Pipeline:
    """In Python, where sections have no titles of their own."""
    made = Pipeline("p", **{"kafka": SERVERS, **settings})
    made.source("in", kind="topic", topic="a").sink("out", kind="console")
    return made.flow("in", "out")


def told(made: Pipeline) -> list[str]:
    with pytest.raises(SpecError) as error:
        made.model()
    return [problem.message for problem in error.value.problems]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kafka": {**SERVERS, "fetch.max.byte": "1"}},
            "kafka: clients have no setting 'fetch.max.byte'. Did you mean",
        ),
        ({"spark": {"mastr": "x"}}, "spark: there is no option 'mastr'. Did you mean 'master'?"),
        ({"spark": {"conf": 5}}, "spark: 'conf' must be keys with plain values"),
        ({"restart": {"attempts": "x"}}, "restart: 'attempts' must be a whole number"),
        ({"restart": {"max_backof": "1 s"}}, "restart: there is no option 'max_backof'. Did you mean 'max_backoff'?"),
        ({"restart": {"max_backoff": "x"}}, "restart: 'max_backoff' is not a length of time: 'x'. Write it as in"),
        ({"sources": 5}, "pipeline: 'sources' must be a section of keys and values"),
        ({"chekpoint": "x"}, "pipeline: there is no option 'chekpoint'. Did you mean 'checkpoint'?"),
        ({"clusters": {"west": {"acks": "all"}}}, "cluster west: 'bootstrap.servers' is missing"),
        ({"clusters": {"west": None}}, "pipeline, clusters: cluster west is empty"),
        ({"clusters": {"we/st": SERVERS}}, "cluster we/st: a name has letters, digits, '.', '_' and '-', and begins"),
    ],
)
def test_what_is_wrong_is_told_by_the_name_of_its_section(settings: dict[str, Any], message: str) -> None:
    made = Pipeline("p", **settings) if "sources" in settings else described(**settings)
    assert told(made)[0].startswith(message)


def test_defaults() -> None:
    model = described().model()
    assert (model.name, model.master, dict(model.conf), model.conf_section) == ("p", None, {}, None)
    assert dict(model.kafka) == SERVERS
    assert model.restarts == Restarts(5, 1000, 60_000)
    assert described(restart={"max_backoff": "2 s"}).model().restarts == Restarts(5, 1000, 2000)
    assert described(restart={"backoff": "2 ms"}).model().restarts == Restarts(5, 2, 60_000)
    flow = model.flows["in-out"]
    assert (flow.mode, flow.trigger_ms, flow.is_available_now, flow.takes_dead_letters) == (
        "append",
        None,
        False,
        False,
    )
    assert flow.checkpoint == str(Path("checkpoints/p/in-out").absolute())
    assert flow.group_id == "ottla-pipeline-p-in-out"
    conf = described(spark={"conf": {"spark.x": 1}}).model()
    assert conf.conf_section is not None and conf.conf_section.names() == ["spark.x"]
    assert (conf.master, dict(conf.conf)) == (None, {"spark.x": "1"})
    assert Restarts(backoff_ms=1, backoff_ms_max=2**40).wait_ms(100) == 1 << 30


@pytest.mark.parametrize(("name", "is_one"), [("a", True), ("0.a_b-c", True), ("-a", False), (".a", False), ("", False),
                                               ("a b", False), ("ä", False)])  # fmt: skip
def test_names_of_pipelines(name: str, is_one: bool) -> None:
    made = Pipeline(name, kafka=SERVERS).source("in", kind="topic", topic="a").sink("out", kind="console")
    made.flow("in", "out")
    if is_one:
        assert made.model().name == name
    else:
        told_of = f"pipeline: {name!r} cannot be a name: use letters, digits, '.', '_' and '-'"
        assert told(made) == [told_of]


def test_a_part_knows_where_it_is_and_whose_clients_it_has(tmp_path: Path) -> None:
    model = build(tmp_path, WHOLE)
    clicks = model.sources["clicks"].section
    assert (clicks.title, clicks.place.line, clicks.directory) == ("source clicks", 14, tmp_path)
    assert clicks.kafka == {"bootstrap.servers": "localhost:9092", "fetch.max.bytes": "1000"}
    assert dict(model.kafka) == clicks.kafka
    assert (model.place.line, model.directory) == (1, tmp_path)
    dead = model.flows["clicks-dead-letters"]
    assert (dead.section, dead.sink, dead.mode) == (clicks, "clicks-dead-letters", "append")
    assert dead.group_id == "ottla-pipeline-orders-clicks-dead-letters"
    assert dead.checkpoint == str(tmp_path / "state" / "clicks-dead-letters")
    assert model.sinks["clicks-dead-letters"].section is clicks
    assert list(model.sinks) == ["results", "clicks-dead-letters"]
    assert [(view.sql, view.function) for view in model.views.values()] == [("SELECT count(*) AS n FROM clicks", None)]


@pytest.mark.parametrize("kind", ["sink", "flow"])
def test_dead_letters_have_a_flow_and_a_sink_of_their_own(kind: str) -> None:
    made = Pipeline("p", kafka=SERVERS, checkpoint="state")
    made.source("in", kind="topic", topic="a", format="json", schema="id INT", dead_letter="bad")
    made.sink("out", kind="console")
    if kind == "sink":
        made.sink("in-dead-letters", kind="console").flow("in", "out")
    else:
        made.flow("in", "out", name="in-dead-letters")
    assert told(made) == [
        "source in: the name in-dead-letters is that of its dead letters; call the other flow or sink differently"
    ]


def test_a_name_is_taken_once_for_all_that_rows_come_from() -> None:
    made = described().table("users", kind="files", path="u", format="text").view("users", sql="SELECT 1")
    made.view("in", sql="SELECT 1")
    assert sorted(told(made)) == [
        "view in: there is a source of this name already",
        "view users: there is a table of this name already",
    ]


def test_all_problems_of_all_parts() -> None:
    made = Pipeline("p", kafka=SERVERS)
    made.source("in", kind="topic").sink("out", kind="console", rws=1).sink("none")
    made.view("v", sql="x", pyton="y").view("w", python="a").flow("in", "uot").flow("v", "out", mode="x")
    assert sorted(told(made)) == [
        "flow in-uot: there is no sink 'uot'. Did you mean 'out'?",
        "flow v-out: 'mode' cannot be 'x'. There is 'append', 'complete', 'update'.",
        "sink none: 'kind' is missing",
        "sink out: there is no option 'rws'. Did you mean 'rows'?",
        "source in: give it one of 'topic', 'topics' or 'pattern'",
        "view v: there is no option 'pyton'. Did you mean 'python'?",
        "view w: 'a' names no function; write 'module:function' or 'file.py:function'",
    ]
