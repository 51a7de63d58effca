"""What a reset refuses and tells, and what it leaves where it is cut off. No Spark: checkpoints are written by hand."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

import ottla
from ottla.cli.pipeline import main
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Topics

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import Pipeline, SpecError
from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint
from ottla.spark.pipeline.flows.continuity import check_continuity
from ottla.spark.pipeline.flows.running import FlowBusyError, flow_stands_still, flows_run
from ottla.spark.pipeline.model import Model
from ottla.spark.pipeline.moves.checkpoint_exchange import CheckpointExchange

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DESCRIPTION = """\
name: {prefix}
checkpoint: state
kafka: {{bootstrap.servers: "{bootstrap}"}}
spark: {{conf: {{spark.sql.shuffle.partitions: "7"}}}}
sources:
  numbers: {{kind: topic, topic: {prefix}-numbers, format: json, schema: n BIGINT}}
  others: {{kind: topic, topics: [{prefix}-others], format: text}}
  files: {{kind: files, path: ., format: text}}
views:
  joined: {{sql: "SELECT * FROM numbers JOIN others ON n = value"}}
sinks:
  copy: {{kind: topic, topic: {prefix}-copy, format: json}}
  stored: {{kind: database, url: "sqlite:stored.db", table: stored, create: true}}
  files: {{kind: files, path: out, format: json}}
  parquet: {{kind: spark, format: parquet, options: {{path: /tmp/nowhere/at-all}}}}
  shown: {{kind: console}}
flows:
  copy: {{from: numbers, to: copy}}
  joined: {{from: joined, to: shown}}
  stored: {{from: numbers, to: stored}}
  files: {{from: numbers, to: files}}
  parquet: {{from: numbers, to: parquet}}
  lines: {{from: files, to: shown}}
  far: {{from: numbers, to: shown, checkpoint: "hdfs://far/away"}}
"""
QUERY = "6c2f5b0e-0000-4000-8000-0123456789ab"
OWN = {"batchWatermarkMs": 5, "batchTimestampMs": 6, "conf": {"spark.sql.shuffle.partitions": "4", "spark.x": "y"}}


class Scene:
    def __init__(self, bootstrap: str, prefix: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.topics = Topics(bootstrap, prefix)
        self.topics.create(numbers=2, others=1, copy=1)
        self.topics.send("others", [b"%d" % n for n in range(10)])
        with ottla.Producer(bootstrap_servers=bootstrap) as producer:
            for n in range(100):
                producer.send(self.topics.name("numbers"), b"%d" % n, partition=n % 2, timestamp_ms=1000 * n)
        self.directory = directory
        self.capsys = capsys
        self.path = directory / "numbers.yaml"
        self.path.write_text(DESCRIPTION.format(prefix=prefix, bootstrap=bootstrap))

    @property
    def model(self) -> Model:
        return Pipeline.from_file(self.path).model()

    def checkpoint(self, flow: str, *lines: str, committed: int = 3, begun: int = 3, query_id: str = QUERY) -> Path:
        """As Spark writes it. A line is the position in one source."""
        directory = self.directory / "state" / flow
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True)
        (directory / "metadata").write_text(json.dumps({"id": query_id}))
        for batch in range(begun + 1):
            (directory / "offsets" / str(batch)).write_text("\n".join(["v1", json.dumps(OWN), *lines]))
        for batch in range(committed + 1):
            (directory / "commits" / str(batch)).write_text("v1\n{}")
        return directory

    def numbers(self, *offsets: int) -> str:
        return json.dumps({self.topics.name("numbers"): {str(one): at for one, at in enumerate(offsets)}})

    def told(self, *arguments: str) -> str:
        assert main([arguments[0], str(self.path), *arguments[1:]]) == 0, self.capsys.readouterr().err
        return self.capsys.readouterr().out

    def refused(self, *arguments: str, exit_code: int = 1) -> str:
        assert main([arguments[0], str(self.path), *arguments[1:]]) == exit_code
        told = self.capsys.readouterr()
        assert told.out == ""
        assert told.err.count("\n") == 1
        return told.err


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    spark_broker: BrokerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Scene:
    prefix = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_")).rstrip("-")
    return Scene(spark_broker.bootstrap, prefix, tmp_path, capsys)


def test_mistakes(scene: Scene) -> None:
    scene.checkpoint("copy", scene.numbers(50, 50))
    scene.checkpoint("lines", '{"logOffset":3}')
    with ottla.Admin(bootstrap_servers=scene.topics.bootstrap) as admin:
        admin.alter_group_offsets("mistakes-elsewhere", {(scene.topics.name("others"), 0): 1}).check()  # type: ignore[dict-item]
    once = "say where to, once: --to-earliest, --to-latest, --to-time, --to-group or --to-offsets\n"
    for arguments, told in [
        (["coyp", "--to-earliest"], "there is no flow 'coyp'. Did you mean 'copy'?\n"),
        (["copy"], once),
        (["copy", "--to-earliest", "--to-latest"], once),
        (["copy", "--to-time", "yesterday"], "--to-time 'yesterday' is no time: write 2026-03-01, "),
        (["copy", "--to-group", "mistakes-elswhere"], "there is no group 'mistakes-elswhere'. Did you mean "),
        (
            ["copy", "--to-group", "mistakes-elsewhere"],
            "group mistakes-elsewhere has no position in mistakes-numbers\n",
        ),
        (["copy", "--to-offsets", "12"], '--to-offsets must be earliest, latest or JSON like {"topic": {"0": 23}}'),
        (["copy", "--to-offsets", '{"x": {"1": 5}}'], "the flow does not read x-1\n"),
        (
            ["joined", "--to-latest"],
            "flow joined has not run yet: it will start where 'starting_offsets' of its source",
        ),
        (
            ["lines", "--to-latest"],
            "flow lines reads something else than topics, too, and cannot be moved within that\n",
        ),
        (
            ["far", "--to-latest"],
            "flow far has its checkpoint at hdfs://far/away, not in a directory of this machine\n",
        ),
    ]:
        misused = told == once or told.startswith(("--to-time", "--to-offsets"))
        assert scene.refused("reset", *arguments, exit_code=2 if misused else 1).startswith(told)
    assert scene.refused("position", "coyp").startswith("there is no flow 'coyp'")
    nowhere = ["copy", "--bootstrap-server", "127.0.0.1:1"]
    assert "Is a broker running?" in scene.refused("reset", *nowhere, "--to-latest")
    assert "Is a broker running?" in scene.refused("position", *nowhere)
    assert sorted(path.name for path in (scene.directory / "state").iterdir() if path.is_dir()) == ["copy", "lines"]


def test_files_are_listed_by_batch(scene: Scene) -> None:
    for flow in ("files", "parquet"):
        scene.checkpoint(flow, scene.numbers(50, 50))
    scene.told("reset", "files", "--to-latest")
    (scene.directory / "out" / "_spark_metadata").mkdir(parents=True)
    assert scene.refused("reset", "files", "--to-latest").startswith("flow files cannot be moved: the files in")
    scene.told("reset", "parquet", "--to-latest", "--dry-run")


def test_a_flow_is_running(scene: Scene) -> None:
    scene.checkpoint("copy", scene.numbers(50, 50))
    model = scene.model
    with flows_run(model), flows_run(model):
        assert scene.refused("reset", "copy", "--to-latest") == "flow copy is running: stop the pipeline first\n"
        assert "POSITION" in scene.told("position", "copy")
    with (
        flow_stands_still(model.flows["copy"]),
        pytest.raises(FlowBusyError, match="flow copy is being moved by `ottla pipeline reset`"),
        flows_run(model),
    ):
        pass
    scene.told("reset", "copy", "--to-latest")


def test_what_is_told(scene: Scene) -> None:
    scene.checkpoint("copy", scene.numbers(10, 45), begun=4)
    told = scene.told("reset", "copy", "--to-time", "60000", "--dry-run")
    assert told.splitlines() == [
        "TOPIC                 PARTITION  POSITION  NEW-POSITION  END  CHANGE",
        "what-is-told-numbers          0        10            30   50     +20",
        "what-is-told-numbers          1        45            30   50     -15",
        "batch 4 was begun and is not known to be done: some of its rows may be in the sink already",
        "15 offsets are read again: what-is-told-copy keeps what was written before, and their rows come a second time",
        "20 offsets are passed over: the flow never reads them",
        "flow copy would go on at its new position; nothing was changed",
    ]
    assert scene.told("position", "copy").splitlines() == [
        "TOPIC                 PARTITION  POSITION  END  LAG",
        "what-is-told-numbers          0        10   50   40",
        "what-is-told-numbers          1        45   50    5",
    ]
    aside = scene.told("reset", "copy", "--to-time", "2030-01-01").splitlines()[-1].split()[-1]
    assert FlowCheckpoint(None, aside).state() == (QUERY, 3, 4, _offsets(scene, 10, 45))
    moved = FlowCheckpoint(None, str(scene.directory / "state" / "copy"))
    state, plan = moved.state(), moved.planned(0)
    assert state is not None and plan is not None and state.query_id != QUERY
    assert state[1:] == (-1, 0, _offsets(scene, 50, 50))
    own = json.loads(plan.own)
    assert own["batchWatermarkMs"] == 0 and own["batchTimestampMs"] > 10**12
    assert own["conf"] == {"spark.sql.shuffle.partitions": "7", "spark.x": "y"}
    assert set(moved.topic_ids()) == {scene.topics.name("numbers")}


def _offsets(scene: Scene, *offsets: int) -> dict[ottla.TopicPartition, int]:
    return {ottla.TopicPartition(scene.topics.name("numbers"), one): at for one, at in enumerate(offsets)}


def test_offsets_that_are_not_there(scene: Scene) -> None:
    scene.checkpoint("copy", scene.numbers(10, 45))
    told = json.loads(scene.told("reset", "copy", "--to-offsets", scene.numbers(70, -1), "--dry-run", "--json"))
    one = f"{scene.topics.name('numbers')}-0"
    assert told["after"] == json.loads(scene.numbers(50, 50))
    assert told["notes"][0] == f"{one} holds 0 to 50: 70 is not there, 50 is the nearest"
    with ottla.Admin(bootstrap_servers=scene.topics.bootstrap) as admin:
        admin.alter_group_offsets("late", {ottla.TopicPartition(scene.topics.name("numbers"), 0): 3}).check()
        admin.delete_records({ottla.TopicPartition(scene.topics.name("numbers"), 0): 7}).check()
    told = json.loads(scene.told("reset", "copy", "--to-group", "late", "--dry-run", "--json"))
    assert told["after"] == json.loads(scene.numbers(7, 0))
    assert told["notes"][0] == f"{one} holds 7 to 50: 3 is not there, 7 is the nearest"


def test_every_source_of_a_flow_is_moved(scene: Scene) -> None:
    others = json.dumps({scene.topics.name("others"): {"0": 4}})
    scene.checkpoint("joined", others, scene.numbers(1, 2), "{}")
    scene.told("reset", "joined", "--to-latest")
    plan = FlowCheckpoint(None, str(scene.directory / "state" / "joined")).planned(0)
    assert plan is not None
    placed = [json.loads(line) for line in plan.sources]
    numbers = scene.topics.name("numbers")
    assert [line.get(scene.topics.name("others")) for line in placed] == [{"0": 10}, None, None]
    assert [line.get(numbers) for line in placed] == [None, {"0": 50, "1": 50}, None]


def test_a_position_becomes_that_of_a_group(scene: Scene) -> None:
    scene.checkpoint("copy", scene.numbers(10, 45))
    assert scene.told("position", "copy", "--to-group", "new-readers", "--dry-run").endswith("would go on there\n")
    with ottla.Admin(bootstrap_servers=scene.topics.bootstrap) as admin:
        assert "new-readers" not in [group.group_id for group in admin.list_groups()]
        assert scene.told("position", "copy", "--to-group", "new-readers").endswith("group new-readers goes on there\n")
        committed = admin.list_group_offsets(["new-readers"])["new-readers"]
        assert {one: at.offset for one, at in committed.items()} == _offsets(scene, 10, 45)
    with ottla.Consumer(bootstrap_servers=scene.topics.bootstrap, group_id="new-readers") as consumer:
        consumer.subscribe([scene.topics.name("numbers")])
        while not consumer.poll(0.2):
            pass
        told = scene.refused("position", "copy", "--to-group", "new-readers")
        assert told == "group new-readers has members at work: stop them first\n"


def test_what_a_killed_run_has_left_open_is_aborted(scene: Scene) -> None:
    scene.checkpoint("copy", scene.numbers(10, 45), begun=4)
    one = ottla.TopicPartition(scene.topics.name("copy"), 0)
    name = f"{scene.topics.prefix}-copy-{QUERY}-0"
    settings = {"bootstrap_servers": scene.topics.bootstrap, "transactional_id": name}
    with ottla.Admin(bootstrap_servers=scene.topics.bootstrap) as admin:
        producer = ottla.Producer(**settings)  # type: ignore[arg-type]
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(one.topic, b"half")
        producer.flush()
        scene.told("reset", "copy", "--to-earliest")
        ends = [admin.list_offsets({one: -1}, read_committed=committed)[one].offset for committed in (True, False)]
        assert ends[0] == ends[1] > 0
        with pytest.raises(ottla.errors.ClientError):
            producer.commit_transaction()
        producer.close()
    assert scene.topics.records("copy") == []


def _progress(scene: Scene) -> list[tuple[Any, ...]]:
    with sqlite3.connect(scene.directory / "stored.db") as connection:
        return connection.execute("SELECT sink, query_id, batch_id, offsets FROM ottla_progress").fetchall()


def _remember(scene: Scene, query_id: str) -> None:
    from ottla.spark.connect.batch_progress import Progress
    from ottla.spark.connect.database import open_database

    with open_database("sqlite:stored.db", directory=scene.directory).transaction() as session:
        sink = f"{scene.topics.prefix}-stored"
        session.claim(sink)
        session.save_progress(sink, Progress(query_id, 3, (scene.numbers(10, 45),)))


@pytest.mark.parametrize("cut_after", ["prepared", "set aside", "exchanged", "nothing"])
def test_cut_off_anywhere_the_next_one_completes_it(scene: Scene, cut_after: str) -> None:
    """And nothing runs meanwhile where it could not be told which of the two checkpoints is the flow's."""
    directory = scene.checkpoint("stored", scene.numbers(10, 45))
    _remember(scene, QUERY)
    checkpoint = FlowCheckpoint(None, str(directory))
    exchange = CheckpointExchange(directory, 1_772_366_410_250)
    plan = checkpoint.planned(3)
    assert plan is not None
    exchange.prepare(plan._replace(sources=(scene.numbers(0, 0),)), {}, {})
    if cut_after in ("set aside", "exchanged"):
        aside = exchange.carry_out()
        assert aside == directory.with_name("stored.before-20260301T120010Z")
        if cut_after == "set aside":
            directory.rename(directory.with_name("stored.new"))
    elif cut_after == "nothing":
        exchange.take_back()
    may_run = cut_after in ("prepared", "nothing")
    assert _may_run(scene) is may_run
    # One that cannot be done itself ends the other all the same: the sink knows the query of the checkpoint there is.
    assert scene.refused("reset", "stored", "--to-group", "nobody").startswith("there is no group 'nobody'")
    assert _may_run(scene)
    between = checkpoint.state()
    assert between is not None and (between.query_id != QUERY) is (cut_after == "exchanged")
    assert [query_id for _, query_id, _, _ in _progress(scene)] == [between.query_id]

    told = json.loads(scene.told("reset", "stored", "--to-offsets", scene.numbers(5, 5), "--json"))
    assert told["after"] == json.loads(scene.numbers(5, 5))
    assert _may_run(scene)
    state = checkpoint.state()
    assert state is not None and state[1:] == (-1, 0, _offsets(scene, 5, 5))
    ((sink, query_id, batch_id, offsets),) = _progress(scene)
    assert (sink, query_id, batch_id) == (f"{scene.topics.prefix}-stored", state.query_id, -1)
    plan = checkpoint.planned(0)
    assert plan is not None and json.loads(offsets) == list(plan.sources)
    kept = [path for path in directory.parent.iterdir() if path.name.startswith("stored.before-")]
    assert QUERY in [json.loads((path / "metadata").read_text())["id"] for path in kept]
    assert sorted(path.name for path in directory.parent.iterdir() if ".before-" not in path.name) == [
        ".stored.lock",
        "stored",
    ]


def _may_run(scene: Scene) -> bool:
    model = scene.model
    try:
        check_continuity(cast(Any, None), model, {flow: [] for flow in model.flows}, note=False)
    except SpecError as e:
        assert "`ottla pipeline reset` of flow stored was cut off: do it once more, to complete it" in str(e)
        return False
    return True


def test_a_database_takes_the_new_query_alone(scene: Scene) -> None:
    from ottla.spark.connect.batch_progress import BatchRefusedError, Progress, must_write

    directory = scene.checkpoint("stored", scene.numbers(10, 45))
    _remember(scene, QUERY)
    told = scene.told("reset", "stored", "--to-earliest")
    assert "55 offsets are read again: the rows in stored stay, and theirs are added a second time\n" in told
    ((sink, query_id, batch_id, offsets),) = _progress(scene)
    remembered = Progress(query_id, batch_id, tuple(json.loads(offsets)))
    state = FlowCheckpoint(None, str(directory)).state()
    assert state is not None
    assert must_write(remembered, Progress(state.query_id, 0, ("anything",)), sink=sink)
    with pytest.raises(BatchRefusedError):
        must_write(remembered, Progress(QUERY, 4, ("anything",)), sink=sink)


def test_a_database_that_is_away_leaves_everything_as_it_was(scene: Scene) -> None:
    directory = scene.checkpoint("stored", scene.numbers(10, 45))
    away = ["--set", "sinks.stored.url=postgresql://me@127.0.0.1:1/shop"]
    assert main(["reset", str(scene.path), "stored", "--to-earliest", *away]) == 1
    assert "no connection to postgresql://me@127.0.0.1:1/shop" in scene.capsys.readouterr().err
    assert sorted(path.name for path in directory.parent.iterdir()) == [".stored.lock", "stored"]
    state = FlowCheckpoint(None, str(directory)).state()
    assert state is not None and state.query_id == QUERY
