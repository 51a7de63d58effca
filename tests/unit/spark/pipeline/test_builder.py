"""From sections to a model: what is wrong with a description is found without a broker and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

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
