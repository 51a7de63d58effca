"""How views find what they are made from, which problems are told and where, and what a flow's query is made of.

The session is a stand-in that knows just enough of queries: which names they mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from ottla.base.errors import OttlaError
from ottla.spark.pipeline import frames as frames_module
from ottla.spark.pipeline.frames import Frames
from ottla.spark.pipeline.model import Flow, Model, Restarts, Sink, Source, Table, View
from ottla.spark.pipeline.parts import FlowContext
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Entry, Scalar, Section
from ottla.spark.pipeline.sql_errors import NOT_FOUND
from ottla.spark.pipeline.topic_sink import TopicSink

COLUMNS = ("id", "at")


class Frame(DataFrame):
    """What it was made from, in words."""

    def __new__(cls, *_: object, **__: object) -> Frame:
        return object.__new__(cls)

    def __init__(self, session: Session, told: str, is_streaming: bool = True) -> None:
        self._session: Any = session
        self.told = told
        self._is_streaming = is_streaming
        self._jdf: Any = SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: self))

    @property
    def isStreaming(self) -> bool:
        return self._is_streaming

    @property
    def columns(self) -> list[str]:
        return list(COLUMNS)

    def createOrReplaceTempView(self, name: str) -> None:
        self._session.views[name] = self
        self._session.made.append(name)

    def withWatermark(self, column: str, delay: str) -> Any:
        if delay == "bad":
            raise AnalysisException("the time is bad.")
        return Frame(self._session, f"{self.told} late({column}, {delay})")

    def dropDuplicates(self, columns: Any = None) -> Any:
        if columns == ["at"]:
            raise AnalysisException("the column is bad.")
        return Frame(self._session, f"{self.told} once{columns}")

    def dropDuplicatesWithinWatermark(self, columns: Any = None) -> Any:
        return Frame(self._session, f"{self.told} once within{columns}")


class Session:
    """Queries are `SELECT ... FROM a, b`; those with a `?` are refused at their second line."""

    def __init__(self) -> None:
        self.views: dict[str, Frame] = {}
        self.made: list[str] = []
        self.dropped: list[str] = []
        self.catalog = SimpleNamespace(dropTempView=self._drop)
        self.refused_modes: set[str] = set()
        modes = SimpleNamespace(Append=lambda: "append", Update=lambda: "update", Complete=lambda: "complete")
        checker = SimpleNamespace(checkForStreaming=self._check_mode)
        sql = SimpleNamespace(
            streaming=SimpleNamespace(OutputMode=modes),
            catalyst=SimpleNamespace(analysis=SimpleNamespace(UnsupportedOperationChecker=checker)),
        )
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=sql))))

    def _drop(self, name: str) -> None:
        del self.views[name]
        self.dropped.append(name)

    def _check_mode(self, frame: Frame, mode: str) -> None:
        if mode in self.refused_modes:
            raise AnalysisException(f"{frame.told} cannot be {mode}.")

    def sql(self, text: str) -> Frame:
        assert text == text.rstrip()
        if "?" in text:
            raise AnalysisException("[PARSE] this is wrong. SQLSTATE: 42601 (line 2, pos 1)")
        names = re.split(r",\s*", text.partition("FROM ")[2])
        for name in names:
            if name not in self.views:
                parameters = {"relationName": f"`{name}`"}
                raise AnalysisException(
                    "no such thing; line 1 pos 7", errorClass=NOT_FOUND, messageParameters=parameters
                )
        return Frame(self, f"<{'+'.join(self.views[name].told for name in names)}>")


class Part:
    """Of any source, table or sink."""

    def __init__(self, told: str, error: Exception | None = None, is_streaming: bool = True) -> None:
        self._told, self._error, self._is_streaming = told, error, is_streaming
        self.loads = self.letters = 0
        self.written: list[tuple[str, FlowContext]] = []
        self.modes: list[str] = []

    def check(self) -> Sequence[str]:
        return []

    def load(self, session: Any) -> Any:
        self.loads += 1
        if self._error is not None:
            raise self._error
        return Frame(session, f"{self._told}{self.loads if self.loads > 1 else ''}", self._is_streaming)

    load_table = load

    def dead_letter_sink(self) -> None: ...

    def load_dead_letters(self, session: Any) -> Any:
        self.letters += 1
        return Frame(session, f"letters of {self._told}")

    def writer(self, frame: Any, *, flow: FlowContext) -> Any:
        if self._error is not None:
            raise self._error
        self.written.append((frame.told, flow))

        def output_mode(mode: str) -> str:
            self.modes.append(mode)
            return f"query of {frame.told}"

        return SimpleNamespace(outputMode=output_mode)


class TopicPart(Part, TopicSink):
    pass


def section(title: str, line: int, *keys: str) -> Section:
    """Each key is a line below the one before; texts begin a line below their key."""
    entries = {
        key: Entry(Scalar("", ""), Place("p.yaml", line + n), Place("p.yaml", line + n + 1))
        for n, key in enumerate(keys, 1)
    }
    return Section(entries, Place("p.yaml", line), title)


class World:
    def __init__(self) -> None:
        self.session: Any = Session()
        self.sources: dict[str, Any] = {"clicks": Part("clicks")}
        self.tables: dict[str, Any] = {}
        self.views: dict[str, View] = {}
        self.sinks: dict[str, Any] = {"out": Part("out")}
        self.flows: dict[str, Flow] = {}

    def view(self, name: str, sql: str | None = None, function: Callable[..., Any] | None = None, **more: Any) -> None:
        keys = ("sql" if function is None else "python", "watermark", "deduplicate")
        below = section(f"view {name}", 10 * (len(self.views) + 2), *keys)
        self.views[name] = View(name, below, sql, function, **more)

    def flow(self, origin: str, mode: str = "append", sink: str = "out", **more: Any) -> Flow:
        name = f"of-{origin}" if not more else f"of-{origin}-letters"
        below = section(f"flow {name}", 100, "from", "mode")
        self.flows[name] = Flow(name, below, origin, sink, mode, f"/state/{name}", "g", **more)
        return self.flows[name]

    @property
    def frames(self) -> Any:
        """Frames of these parts, whose queries are sentences."""

        def parts(kind: Any, found: Mapping[str, Any], title: str) -> dict[str, Any]:
            return {name: kind(name, section(f"{title} {name}", 3, "kind"), part) for name, part in found.items()}

        model = Model(
            "shop",
            Place("p.yaml"),
            Path(),
            {},
            None,
            {},
            None,
            Restarts(),
            parts(Source, self.sources, "source"),
            parts(Table, self.tables, "table"),
            self.views,
            parts(Sink, self.sinks, "sink"),
            self.flows,
        )
        return Frames(model, self.session)

    def built(self) -> Any:
        frames = self.frames
        frames.build()
        return frames

    def told(self, name: str) -> str:
        """What a view was made from."""
        found: str = self.session.views[name].told
        return found

    def problems(self, work: Callable[[], object] | None = None) -> list[str]:
        with pytest.raises(SpecError) as caught:
            (work or self.frames.build)()
        return [f"{problem.place.line}: {problem.message}" for problem in caught.value.problems]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(frames_module, "observe_written", lambda frame: Frame(frame._session, f"counted {frame.told}"))
    return World()


# Views


def test_views_may_stand_in_any_order(world: World) -> None:
    world.tables["users"] = Part("users", is_streaming=False)
    world.view("c", "SELECT * FROM b, users \n")
    world.view("b", "SELECT * FROM a")
    world.view("a", "SELECT * FROM clicks")
    world.built()
    assert world.told("c") == "<<<clicks>>+users>"
    assert world.session.made == ["clicks", "users", "a", "b", "c"]


def test_a_function_gets_the_frames_that_it_names(world: World) -> None:
    def joined(b: Any, clicks: Any, spark: Any, more: int = 5) -> Any:
        assert spark is world.session and more == 5
        return Frame(spark, f"{b.told} with {clicks.told}")

    world.view("joined", function=joined)
    world.view("b", "SELECT * FROM clicks")
    world.built()
    assert world.told("joined") == "<clicks> with clicks"


def test_late_and_repeated_rows_are_left_out(world: World) -> None:
    world.view("late", "SELECT * FROM clicks", watermark=("at", "1 minute"))
    world.view("once", "SELECT * FROM clicks", deduplicate=("id", "at"))
    world.view("both", "SELECT * FROM clicks", watermark=("at", "1 minute"), deduplicate=("id",))
    world.built()
    assert [world.told(name) for name in ("late", "once", "both")] == [
        "<clicks> late(at, 1 minute)",
        "<clicks> once['id', 'at']",
        "<clicks> late(at, 1 minute) once within['id']",
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"watermark": ("tat", "1 s")}, "22: view v: it has no column 'tat'. Did you mean 'at'?"),
        ({"deduplicate": ("id", "it")}, "23: view v: it has no column 'it'. There is 'at', 'id'."),
        ({"watermark": ("at", "bad"), "deduplicate": ("id",)}, "22: view v: the time is bad"),
        ({"deduplicate": ("at",)}, "23: view v: the column is bad"),
    ],
)
def test_columns_that_a_view_has_not_got(world: World, more: Mapping[str, Any], told: str) -> None:
    world.view("v", "SELECT * FROM clicks", **more)
    assert world.problems() == [told]


def test_everything_that_is_wrong_is_told_at_once(world: World) -> None:
    world.sources["lost"] = Part("lost", OttlaError("no broker"))
    world.sources["broken"] = Part("broken", Py4JError("An error"))
    world.tables["none"] = Part("none", AnalysisException("[PATH] Path does not exist. SQLSTATE: 42K03"))
    world.view("wrong", "SELECT ?\nFROM clicks")
    world.view("unknown", "SELECT * FROM clikcs")
    world.view("after", "SELECT * FROM wrong")
    assert world.problems() == [
        "4: source broken: An error",
        "4: source lost: no broker",
        "4: table none: Path does not exist",
        "23: view wrong: this is wrong",
        "32: view unknown: there is no source, table or view 'clikcs'. Did you mean 'clicks'?",
    ]


def test_what_is_made_from_something_wrong_is_not_told_as_well(world: World) -> None:
    world.sources["lost"] = Part("lost", OttlaError("no broker"))
    world.view("b", "SELECT * FROM a")
    world.view("a", "SELECT * FROM lost")
    world.view("called", function=lambda lost: lost)
    world.view("c", "SELECT * FROM called")
    assert world.problems() == ["4: source lost: no broker"]


def test_a_view_that_is_made_from_itself(world: World) -> None:
    world.view("a", "SELECT * FROM b")
    world.view("b", "SELECT * FROM c")
    world.view("c", "SELECT * FROM d")
    world.view("own", "SELECT * FROM own")
    world.view("called", function=lambda called_too: called_too)
    world.view("called_too", function=lambda called: called)
    world.view("fine", "SELECT * FROM clicks")
    world.view("d", "SELECT * FROM b")
    assert world.problems() == [
        "31: view b: it is made from itself: b -> c -> d -> b",
        "41: view c: it is made from itself: c -> d -> b -> c",
        "51: view own: it is made from itself: own -> own",
        "60: view called: it is made from itself: called -> called_too -> called",
        "70: view called_too: it is made from itself: called_too -> called -> called_too",
        "91: view d: it is made from itself: d -> b -> c -> d",
    ]
    assert world.told("fine") == "<clicks>"


def test_what_functions_do_wrong(world: World) -> None:
    def fails(clicks: Any) -> Any:
        raise ValueError("not today")

    world.view("asks", function=lambda clikcs: clikcs)
    world.view("fails", function=fails)
    world.view("none", function=lambda clicks: 5)
    world.view("any", function=lambda *frames: frames)
    assert world.problems() == [
        "21: view asks: its function asks for 'clikcs', and there is no such source, table or view. "
        "Did you mean 'clicks'?",
        "31: view fails: its function failed: ValueError: not today",
        "41: view none: its function returned int; it has to return a DataFrame",
        "51: view any: its function takes any arguments (frames); name the frames it needs",
    ]


def test_a_view_is_not_suggested_to_itself(world: World) -> None:
    world.view("clock", "SELECT * FROM clocks")
    world.view("clock2", function=lambda clock3: clock3)
    assert world.problems() == [
        "22: view clock: there is no source, table or view 'clocks'. Did you mean 'clock2'?",
        "31: view clock2: its function asks for 'clock3', and there is no such source, table or view. "
        "Did you mean 'clock'?",
    ]


# Flows


def test_a_flow_is_written_by_its_sink(world: World) -> None:
    world.view("v", "SELECT * FROM clicks")
    flow = world.flow("v", "update")
    assert world.built().writer(flow) == "query of counted <clicks>"
    assert world.sinks["out"].written == [
        ("counted <clicks>", FlowContext("shop", "of-v", "/state/of-v", "shop-of-v", "update"))
    ]
    assert world.sinks["out"].modes == ["update"]


@pytest.mark.parametrize(("mode", "told"), [("append", "clicks"), ("complete", "clicks"), ("update", "counted clicks")])
def test_topics_count_what_is_written_themselves(world: World, mode: str, told: str) -> None:
    world.sinks["out"] = TopicPart("out")
    assert world.built().writer(world.flow("clicks", mode)) == f"query of {told}"


def test_what_keeps_flows_from_starting_is_told_at_once(world: World) -> None:
    world.tables["users"] = Part("users", is_streaming=False)
    world.sinks["bad"] = Part("bad", OttlaError("it is full"))
    world.flow("users")
    world.flow("clicks", "complete")
    world.view("v", "SELECT * FROM clicks")
    world.flow("v", sink="bad")
    world.session.refused_modes = {"complete"}
    frames = world.built()
    assert world.problems(frames.check_flows) == [
        "101: flow of-users: 'users' is made of tables alone: without a source nothing flows",
        "101: flow of-v: it is full",
        "102: flow of-clicks: clicks cannot be complete",
    ]
    world.session.refused_modes = {"append"}
    world.flows = {"of-clicks": world.flows["of-clicks"]}
    world.built().check_flows()


def test_dead_letters_are_loaded_once_and_not_counted_as_rows(world: World) -> None:
    flow = world.flow("clicks", takes_dead_letters=True)
    frames = world.built()
    assert [frames.origin(flow) is frames.origin(flow), world.sources["clicks"].letters] == [True, 1]
    assert frames.writer(flow) == "query of counted letters of clicks"


def test_flows_have_nothing_in_common_once_they_are_separated(world: World) -> None:
    world.sources["others"] = Part("others")
    world.tables["users"] = Part("users")
    world.view("named", "SELECT * FROM CLICKS2, clicks, users")
    world.sources["clicks2"] = Part("clicks2")
    world.session.views["CLICKS2"] = Frame(world.session, "upper")
    world.view("called", function=lambda others: others)
    world.view("any", function=lambda spark, others: others)
    flows = [world.flow(name) for name in ("named", "called", "any")]
    letters = world.flow("clicks", takes_dead_letters=True)
    frames = world.built()
    shared = [frames.origin(flow) for flow in flows]
    frames.separate_flows()
    origins = [frames.origin(flow) for flow in flows]
    assert origins[0] is shared[0], "the first has those that are there"
    assert origins[1] is not shared[1] and origins[2] is not shared[2]
    assert [frame.told for frame in origins] == ["<upper+clicks+users>", "others2", "others3"]
    # For the second flow only what it is made from; who has the session may name anything.
    loads = {name: part.loads for name, part in (world.sources | world.tables).items()}
    assert loads == {"clicks": 2, "others": 3, "users": 2, "clicks2": 2}
    assert sorted(world.session.dropped) == sorted(
        ["others", "called", "clicks", "others", "users", "clicks2", "named", "called", "any"]
    )
    assert frames.origin(letters).told == "letters of clicks"


def test_names_in_queries_are_found_in_any_case(world: World) -> None:
    """The second flow has frames of its own of everything that its query mentions, and of what that is made from."""
    world.view("base", "SELECT * FROM clicks")
    world.view("Top", "SELECT * FROM base")
    world.view("first", "SELECT * FROM Top")
    world.view("second", "SELECT top FROM Top")
    world.sources["aside"] = Part("aside")
    for name in ("first", "second"):
        world.flow(name)
    frames = world.built()
    frames.separate_flows()
    assert sorted(world.session.dropped) == ["Top", "base", "clicks", "second"]
    assert frames.origin(world.flows["of-second"]).told == "<<<clicks2>>>"
    assert frames.origin(world.flows["of-first"]).told == "<<<clicks>>>"
