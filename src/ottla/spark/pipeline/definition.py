"""The Python side of pipelines: declares what a file would, checks it, and runs it.

Both ways lead to the same sections, so both know the same options and give the same messages, with a file and a line.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from pyspark.sql import SparkSession

from ottla.spark.class_archive import NewArchive
from ottla.spark.pipeline.builder import build_model
from ottla.spark.pipeline.flows.continuity import check_continuity
from ottla.spark.pipeline.flows.running import flows_run
from ottla.spark.pipeline.flows.topics import topic_sources
from ottla.spark.pipeline.frames import Frames
from ottla.spark.pipeline.model import Model, Sink, Source, Table
from ottla.spark.pipeline.observer import Observer, SilentObserver
from ottla.spark.pipeline.problems import Place, Problem, SpecError
from ottla.spark.pipeline.runner import Runner
from ottla.spark.pipeline.section import Entry, Section
from ottla.spark.pipeline.settings import apply_settings
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.pipeline.topic_source import TopicSource
from ottla.spark.pipeline.yaml_file import read_yaml, set_value
from ottla.spark.sessions import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = TypeVar("Function", bound=Callable[..., "DataFrame"])


class Pipeline:
    """Sources, tables, views, sinks and flows. The options of each are those of a pipeline's file.

    orders = Pipeline("orders", kafka={"bootstrap.servers": "localhost:9092"})
    orders.source("clicks", kind="topic", topic="clicks", format="json", schema="id BIGINT, at TIMESTAMP")
    orders.view("per_minute", sql="SELECT window(at, '1 minute') AS minute, count(*) AS n FROM clicks GROUP BY 1")
    orders.sink("results", kind="topic", topic="results", format="json")
    orders.flow("per_minute", "results", mode="update")
    orders.run(once=True)
    """

    def __init__(self, name: str, *, directory: Path | str | None = None, **settings: object) -> None:
        """`settings` are the file's other keys outside of its parts: checkpoint, kafka, spark, restart. `directory` is
        what relative paths start from."""
        self._functions: dict[str, Callable[..., Any]] = {}
        self._place = _caller()
        self._root = Section.of(
            {"name": name, **settings}, self._place, "pipeline", directory=Path(directory) if directory else Path()
        )

    @classmethod
    def from_file(cls, path: Path | str, overrides: Sequence[tuple[str, str]] = ()) -> Self:
        """A pipeline from its YAML file. `overrides` set single values by their dotted keys."""
        made = cls.__new__(cls)
        made._functions = {}
        made._root = read_yaml(Path(path), os.environ)
        made._place = made._root.place
        for key, value in overrides:
            set_value(made._root, key, value)
        return made

    # Declaring

    def source(self, name: str, **options: object) -> Self:
        return self._declare("sources", "source", name, options)

    def table(self, name: str, **options: object) -> Self:
        """Rows that do not flow: looked up anew in each batch."""
        return self._declare("tables", "table", name, options)

    @overload
    def view(self, name: Function, /) -> Function: ...
    @overload
    def view(self, name: str, /, **options: object) -> Self: ...
    def view(self, name: Function | str, /, **options: object) -> Function | Self:
        """A view by its `sql`; or, as a decorator, by a function whose parameters name the frames it takes."""
        if isinstance(name, str):
            function = options.pop("python", None)
            if callable(function):
                self._functions[name] = function
            elif function is not None:
                options["python"] = function
            return self._declare("views", "view", name, options)
        self._functions[name.__name__] = name
        self._declare("views", "view", name.__name__, {})
        return name

    def sink(self, name: str, **options: object) -> Self:
        return self._declare("sinks", "sink", name, options)

    def flow(self, origin: str, sink: str, *, name: str | None = None, **options: object) -> Self:
        """The rows of `origin`, a view or source, go to `sink`."""
        return self._declare("flows", "flow", name or f"{origin}-{sink}", {"from": origin, "to": sink, **options})

    def mirror(self, name: str, source: str, target: str, **options: object) -> Self:
        """Topics of the cluster `source` are copied to the cluster `target`; both are named in `clusters`."""
        return self._declare("mirrors", "mirror", name, {"from": source, "to": target, **options})

    def _declare(self, key: str, what: str, name: str, options: Mapping[str, object]) -> Self:
        place = _caller()
        if key not in self._root:
            parts = Section({}, place, key, directory=self._root.directory)
            self._root.put(key, Entry(parts, place, place))
        section = self._root.take_section(key)
        assert section is not None
        if name in section:
            first = section.place_of(name)
            raise SpecError([Problem(place, f"{what} {name} is there twice; the first is at {first}")])
        declared = Section.of(options, place, f"{what} {name}", directory=self._root.directory)
        section.put(name, Entry(declared, place, place))
        return self

    # Checking and running

    def model(self) -> Model:
        """SpecError says what is wrong with the description itself."""
        return build_model(self._root, self._functions)

    def check(self, spark: SparkSession | None = None, *, master: str | None = None) -> None:
        """Looks for everything that would keep it from running, brokers and queries included, and starts nothing."""
        model = self.model()
        _check_parts(model)
        with _session_for(model, spark, master, None, is_short_lived=True) as session:
            sources = _topic_sources(model, _checked_frames(model, session))
            check_continuity(session, model, sources, note=False)

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        once: bool = False,
        master: str | None = None,
        log_file: Path | None = None,
        observer: Observer | None = None,
        on_start: Callable[[Runner], None] | None = None,
        save_classes: bool = False,
    ) -> None:
        """Checks it, and runs it until it is stopped, or with `once` until nothing is left to read.

        It runs in a session of its own, of `spark`'s application, of the active one, or of one that is started for it.
        `on_start` is given the runner, to stop it with. With `save_classes`, a Java process that is started for it
        writes an archive of its classes when it ends, with which others start faster. Raises SpecError, or
        PipelineFailedError.
        """
        model = self.model()
        _check_parts(model)
        with flows_run(model), _session_for(model, spark, master, log_file, save_classes=save_classes) as session:
            frames = _checked_frames(model, session)
            frames.separate_flows()
            sources = _topic_sources(model, frames)
            check_continuity(session, model, sources, note=True)
            runner = Runner(model, frames, sources, session, observer or SilentObserver())
            if on_start is not None:
                on_start(runner)
            runner.run(once=once)


def _check_parts(model: Model) -> None:
    """Asks every part to look outside; no Spark is needed for that."""
    problems: list[Problem] = []
    sink_parts = [sink.part for sink in model.sinks.values()]
    made = {topic.name for part in sink_parts if isinstance(part, TopicSink) for topic in part.new_topics}
    for source in model.sources.values():
        if isinstance(source.part, TopicSource):
            source.part.expect_topics(made)
    parts: list[Source | Table | Sink] = [*model.sources.values(), *model.tables.values(), *model.sinks.values()]
    for part in parts:
        for finding in part.part.check():
            placed = Problem(part.section.place, f"{part.section.title}: {finding}")
            problems.append(finding if isinstance(finding, Problem) else placed)
    if problems:
        raise SpecError(problems)


@contextmanager
def _session_for(
    model: Model,
    spark: SparkSession | None,
    master: str | None,
    log_file: Path | None,
    *,
    is_short_lived: bool = False,
    save_classes: bool = False,
) -> Iterator[SparkSession]:
    """A session for one pipeline; an application that is started for it ends with it."""
    given = spark or SparkSession.getActiveSession()
    archive = NewArchive() if save_classes and given is None else None
    application = given or build_session(
        model.name,
        master=master or model.master,
        conf=model.conf,
        log_file=log_file,
        is_short_lived=is_short_lived,
        archive_options=None if archive is None else archive.options,
    )
    # Temporary views, settings and listeners of one pipeline are not those of another.
    session = application.newSession()
    # A thread that has not made a session itself has none, and Spark would not find the format in it.
    _activate(session)
    try:
        apply_settings(session, model)
        yield session
    finally:
        if given is None:
            application.stop()
            if archive is not None:
                archive.keep()
        else:
            _activate(given)


def _activate(session: SparkSession) -> None:
    java_class = SparkSession._get_j_spark_session_class(session._jvm)
    java_class.setActiveSession(session._jsparkSession)


def _checked_frames(model: Model, session: SparkSession) -> Frames:
    frames = Frames(model, session)
    frames.build()
    frames.check_flows()
    return frames


def _topic_sources(model: Model, frames: Frames) -> dict[str, list[Source]]:
    return {flow.name: topic_sources(frames.origin(flow), model) for flow in model.flows.values()}


def _caller() -> Place:
    """The line of the first frame outside this module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Place("python") if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)
