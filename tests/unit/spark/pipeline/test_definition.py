"""Pipelines made in Python: how they are checked and run, and whose session they run in. Spark is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import Pipeline, definition, topic_sink, topic_source
from ottla.spark.pipeline.observer import Observer, SilentObserver
from ottla.spark.pipeline.problems import Place, Problem, SpecError


class Session:
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self._jvm = self
        self._jsparkSession = name

    def newSession(self) -> Session:
        return Session(self._world, f"{self.name}'s")

    def setActiveSession(self, name: str) -> None:
        self._world.told.append(f"active: {name}")

    def stop(self) -> None:
        self._world.told.append(f"stop {self.name}")


class World:
    """All that a pipeline asks of others, in the order in which it does."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.active: Session | None = None
        self.started: list[dict[str, Any]] = []
        self.runners: list[Any] = []
        self.fails = ""
        self._running = False

    def note(self, what: str) -> None:
        self.told.append(what)
        if what == self.fails:
            raise ZeroDivisionError

    def build_session(self, name: str, **options: Any) -> Session:
        self.started.append({"name": name, **options})
        return Session(self, "started")

    def new_archive(self) -> Any:
        return SimpleNamespace(options="-XX:Archive", keep=lambda: self.note("keep the archive"))

    def frames(self, model: Any, session: Session) -> Any:
        steps = {
            name: (lambda name=name: self.note(f"{name} in {session.name}"))
            for name in ("build", "check_flows", "separate_flows")
        }
        return SimpleNamespace(origin=lambda flow: f"rows of {flow.origin}", **steps)

    def topic_sources(self, frame: str, model: Any) -> list[str]:
        return [f"topics of {frame}"]

    def check_continuity(self, session: Session, model: Any, sources: Any, *, note: bool) -> None:
        assert sources == {"in-out": ["topics of rows of in"]}
        self.note(f"continuity in {session.name}" + (", noted" if note else ""))

    def runner(self, model: Any, frames: Any, sources: Any, session: Session, observer: Observer) -> Any:
        def run(*, once: bool) -> None:
            assert self._running
            self.note(f"run in {session.name}" + (", once" if once else ""))

        self.runners.append(SimpleNamespace(run=run, observer=observer))
        return self.runners[-1]

    def flows_run(self, model: Any) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def running() -> Iterator[None]:
            self._running = True
            yield
            self._running = False

        return running()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    spark = SimpleNamespace(getActiveSession=lambda: world.active, _get_j_spark_session_class=lambda jvm: jvm)
    for name, double in {
        "SparkSession": spark,
        "build_session": world.build_session,
        "NewArchive": world.new_archive,
        "Frames": world.frames,
        "topic_sources": world.topic_sources,
        "check_continuity": world.check_continuity,
        "Runner": world.runner,
        "flows_run": world.flows_run,
        "apply_settings": lambda session, model: world.note(f"settings of {session.name}"),
    }.items():
        monkeypatch.setattr(definition, name, double)
    return world


def pipeline(**settings: Any) -> Pipeline:
    made = Pipeline("p", **settings)
    made.source("in", kind="spark", format="rate").sink("out", kind="console")
    return made.flow("in", "out")


IN_OWN = ["active: {0}'s", "settings of {0}'s", "build in {0}'s", "check_flows in {0}'s"]


def steps(*last: str, session: str = "started") -> list[str]:
    return [step.format(session) for step in (*IN_OWN, *last)]


def test_a_check_starts_nothing_and_notes_nothing(world: World) -> None:
    pipeline().check()
    assert world.told == steps("continuity in {0}'s", "stop started")
    assert [options["is_short_lived"] for options in world.started] == [True]


def test_a_run(world: World) -> None:
    seen: list[Any] = []
    observer: Any = object()
    run_in_own = ("separate_flows in {0}'s", "continuity in {0}'s, noted", "run in {0}'s")
    pipeline().run(on_start=seen.append, observer=observer)
    assert world.told == steps(*run_in_own, "stop started")
    (runner,) = world.runners
    assert seen == [runner] and runner.observer is observer
    world.told.clear()
    pipeline().run(once=True)
    assert world.told[-2:] == ["run in started's, once", "stop started"]
    assert isinstance(world.runners[1].observer, SilentObserver)
    assert [options["is_short_lived"] for options in world.started] == [False, False]
    assert [options["archive_options"] for options in world.started] == [None, None]


def test_the_application_that_is_started_for_it(world: World) -> None:
    spark = {"master": "local[2]", "conf": {"spark.x": "1"}}
    pipeline(spark=spark).run(log_file=Path("/log"))
    pipeline(spark=spark).check(master="local[3]")
    assert [(o["name"], o["master"], dict(o["conf"]), o["log_file"]) for o in world.started] == [
        ("p", "local[2]", {"spark.x": "1"}, Path("/log")),
        ("p", "local[3]", {"spark.x": "1"}, None),
    ]


@pytest.mark.parametrize("is_given", [True, False], ids=["given", "active"])
def test_an_application_that_is_there_is_used_and_stays(world: World, is_given: bool) -> None:
    """Its session is active again when the pipeline is done."""
    there = Session(world, "there")
    world.active = Session(world, "other") if is_given else there
    spark: Any = there if is_given else None
    pipeline().check(spark)
    assert world.started == []
    assert world.told == steps("continuity in {0}'s", "active: there", session="there")
    world.told.clear()
    pipeline().run(spark, save_classes=True)
    assert world.told[-2:] == ["run in there's", "active: there"], "its Java writes no archive"


@pytest.mark.parametrize("fails", ["settings of started's", "check_flows in started's", "run in started's"])
def test_an_application_that_was_started_ends_whatever_happens(world: World, fails: str) -> None:
    world.fails = fails
    with pytest.raises(ZeroDivisionError):
        pipeline().run()
    assert world.told[-2:] == [fails, "stop started"]


def test_an_archive_of_classes_is_kept_once_java_has_ended(world: World) -> None:
    pipeline().run(save_classes=True)
    assert world.started[0]["archive_options"] == "-XX:Archive"
    assert world.told[-2:] == ["stop started", "keep the archive"]


def test_all_parts_look_outside_before_anything_starts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pipeline()
    model = made.model()
    there = Place("elsewhere", 5)
    model.sources["in"].part.check = lambda: ["one", Problem(there, "two")]  # type: ignore[method-assign]
    model.sinks["out"].part.check = lambda: ["three"]  # type: ignore[method-assign]
    monkeypatch.setattr(made, "model", lambda: model)
    for look in (made.check, made.run):
        with pytest.raises(SpecError) as caught:
            look()
        said = [(str(problem.place), problem.message) for problem in caught.value.problems]
        assert ("elsewhere:5", "two") in said
        assert {message for _, message in said} == {"source in: one", "two", "sink out: three"}
    assert world.told == []


def test_topics_that_the_pipeline_makes_need_not_be_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for module in (topic_source, topic_sink):
        monkeypatch.setattr(module, "find_missing_topics", lambda options, topics: asked.extend(topics) or [])
    made = Pipeline("p", kafka={"bootstrap.servers": "nowhere:1"})
    made.source("in", kind="topic", topics=["made", "there"])
    made.sink("out", kind="topic", topic="made", create_partitions=1)
    made.flow("in", "out").check()
    assert asked == ["there"]


def frames(spark: Any) -> Any:
    return spark


@pytest.mark.parametrize("how", ["named", "decorated"])
def test_a_view_by_a_function(how: str) -> None:
    made = pipeline()
    if how == "named":
        assert made.view("frames", python=frames) is made
    else:
        assert made.view(frames) is frames, "as it was"
    view = made.model().views["frames"]
    assert (view.function, view.sql) == (frames, None)
    assert view.section.place.file == __file__


def test_a_view_by_the_place_of_its_function_or_by_a_query() -> None:
    made = pipeline().view("a", python="views.py:a").view("b", sql="SELECT * FROM in")
    views = made.model().views
    assert (views["a"].function, views["a"].sql) == ("views.py:a", None)
    assert (views["b"].function, views["b"].sql) == (None, "SELECT * FROM in")
    with pytest.raises(SpecError, match="view b is there twice; the first is at"):
        made.view("b", sql="SELECT 1")


def test_a_table_and_a_name_for_a_flow() -> None:
    made = pipeline().table("users", kind="files", path="u", format="text").flow("in", "out", name="again")
    model = made.model()
    assert list(model.tables) == ["users"]
    assert list(model.flows) == ["in-out", "again"]
    assert (model.flows["again"].origin, model.flows["again"].sink) == ("in", "out")


def test_paths_start_where_it_is_told(tmp_path: Path) -> None:
    made = Pipeline("p", directory=tmp_path).source("in", kind="files", path="u", format="text")
    part: Any = made.sink("out", kind="console").flow("in", "out").model().sources["in"].part
    assert part.path == str(tmp_path / "u")


def test_a_file_with_other_values(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: p\nsources: {in: {kind: spark, format: rate}}\nsinks: {out: {kind: console}}\n"
        "flows: {f: {from: in, to: out}}\n"
    )
    assert Pipeline.from_file(path).model().name == "p"
    made = Pipeline.from_file(str(path), [("name", "q"), ("flows.f.mode", "update")])
    assert (made.model().name, made.model().flows["f"].mode) == ("q", "update")
    made.view("v", sql="SELECT 1")
    assert list(made.model().views) == ["v"]
