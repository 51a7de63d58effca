"""Turns a model into Spark's frames, and finds what is wrong with them before any query starts.

Sources, tables and views become temporary views of one session, so that a query can name them all. Views may stand in
any order: a query that names a view which is not made yet is tried again after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from ottla.base.errors import OttlaError
from ottla.spark.pipeline.functions import SESSION, find_function, inputs_of
from ottla.spark.pipeline.model import Flow, Model, View
from ottla.spark.pipeline.parts import DeadLetterPart, FlowContext
from ottla.spark.pipeline.problems import Problem, SpecError, suggestion
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.sql_errors import line_of, missing_relation, short_message
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.progress import observe_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_WORD = re.compile(r"\w+")


class _NotYetError(Exception):
    """A view needs another one that is still to be made."""

    def __init__(self, name: str) -> None:
        self.name = name


class Frames:
    """The frames of one model in one session. `build` makes them all; `writer` is asked for each flow."""

    def __init__(self, model: Model, spark: SparkSession) -> None:
        self._model = model
        self._spark = spark
        self._frames: dict[str, DataFrame] = {}
        self._dead_letters: dict[str, DataFrame] = {}
        """By flow. To load them asks a Python process, and both the check and the start want them."""
        self._separated: dict[str, DataFrame] = {}
        """By flow, if each has frames of its own."""
        self._failed: set[str] = set()
        self._problems: list[Problem] = []

    def build(self) -> None:
        """SpecError tells of all sources, tables and views that are wrong."""
        self._build({*self._model.sources, *self._model.tables, *self._model.views})

    def _build(self, names: Collection[str]) -> None:
        for name in self._frames.keys() & set(names):
            del self._frames[name]
            self._spark.catalog.dropTempView(name)
        for source in self._model.sources.values():
            if source.name in names:
                self._load(source.name, source.section, source.part.load)
        for table in self._model.tables.values():
            if table.name in names:
                self._load(table.name, table.section, table.part.load_table)
        self._make_views({name: view for name, view in self._model.views.items() if name in names})
        self._raise_problems()

    def check_flows(self) -> None:
        """SpecError tells of flows that could not start: a wrong mode, columns a sink cannot write."""
        for flow in self._model.flows.values():
            with self._collecting(flow.section, "from"):
                self.writer(flow)
        self._raise_problems()

    def separate_flows(self) -> None:
        """Gives each flow frames that have nothing in common with another's: Spark notes things in the parts of a plan
        while it plans and runs a query."""
        flows = [flow for flow in self._model.flows.values() if not flow.takes_dead_letters]
        for number, flow in enumerate(flows):
            if number:
                self._build(self._needed_for(flow.origin))
            self._separated[flow.name] = self._frames[flow.origin]

    def _needed_for(self, origin: str) -> set[str]:
        """A frame and all that it is made from, or a little more: a query may only look as if it named another one."""
        every = {*self._model.sources, *self._model.tables, *self._model.views}
        needed: set[str] = set()
        waiting = [origin]
        while waiting:
            name = waiting.pop()
            needed.add(name)
            view = self._model.views.get(name)
            if view is not None:
                waiting += self._named_in(view, every) - needed
        return needed

    def _named_in(self, view: View, every: set[str]) -> set[str]:
        if view.sql is not None:
            words = {word.lower() for word in _WORD.findall(view.sql)}
            return {name for name in every if name.lower() in words}
        inputs = set(inputs_of(view, find_function(view)))
        return every if SESSION in inputs else inputs & every

    def writer(self, flow: Flow) -> DataStreamWriter:
        """A flow's query, but for its name, checkpoint and trigger."""
        frame = self.origin(flow)
        if not frame.isStreaming:
            flow.section.fail("from", f"{flow.origin!r} is made of tables alone: without a source nothing flows")
        context = FlowContext(
            self._model.name, flow.name, flow.checkpoint, f"{self._model.name}-{flow.name}", flow.mode
        )
        part = self._model.sinks[flow.sink].part
        # Topics tell Spark how many rows were written, unless they are written by way of foreachBatch.
        counted = frame if isinstance(part, TopicSink) and flow.mode != "update" else observe_written(frame)
        writer = part.writer(counted, flow=context).outputMode(flow.mode)
        check_output_mode(self._spark, frame, flow)
        return writer

    def origin(self, flow: Flow) -> DataFrame:
        """The rows that a flow brings to its sink."""
        if not flow.takes_dead_letters:
            return self._separated.get(flow.name, self._frames[flow.origin])
        if flow.name not in self._dead_letters:
            part = self._model.sources[flow.origin].part
            assert isinstance(part, DeadLetterPart)
            self._dead_letters[flow.name] = part.load_dead_letters(self._spark)
        return self._dead_letters[flow.name]

    def _raise_problems(self) -> None:
        if self._problems:
            raise SpecError(self._problems)

    @contextmanager
    def _collecting(self, section: Section, key: str) -> Iterator[None]:
        try:
            yield
        except SpecError as e:
            self._problems += e.problems
        except (PySparkException, Py4JError, OttlaError) as e:
            self._problems.append(section.problem(key, short_message(e)))

    def _load(self, name: str, section: Section, load: Callable[[SparkSession], DataFrame]) -> None:
        self._failed.add(name)
        with self._collecting(section, "kind"):
            self._keep(name, load(self._spark))
            self._failed.discard(name)

    def _keep(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._frames[name] = frame

    # Views

    def _make_views(self, waiting: dict[str, View]) -> None:
        needs: dict[str, str] = {}
        while waiting:
            before = len(waiting)
            for name, view in list(waiting.items()):
                try:
                    self._make_view(view)
                except _NotYetError as e:
                    needs[name] = e.name
                    continue
                except SpecError as e:
                    self._problems += e.problems
                    self._failed.add(name)
                del waiting[name]
            if len(waiting) == before:
                self._tell_of_cycle(waiting, needs)
                return

    def _tell_of_cycle(self, waiting: dict[str, View], needs: dict[str, str]) -> None:
        for name, view in waiting.items():
            if self._needs_failed(name, needs):
                continue
            path = [name]
            while needs[path[-1]] not in path:
                path.append(needs[path[-1]])
            if needs[path[-1]] == name:
                round_trip = " -> ".join([*path, name])
                self._problems.append(view.section.problem("sql", f"it is made from itself: {round_trip}"))

    def _needs_failed(self, name: str, needs: dict[str, str]) -> bool:
        """Whether a view waits only because something below it is wrong, which is told already."""
        seen = set()
        while name in needs and name not in seen:
            seen.add(name)
            name = needs[name]
        return name in self._failed

    def _make_view(self, view: View) -> None:
        frame = self._query(view) if view.sql is not None else self._call(view)
        try:
            if view.watermark is not None:
                self._check_columns(view, "watermark", frame, [view.watermark[0]])
                frame = frame.withWatermark(*view.watermark)
            if view.deduplicate:
                self._check_columns(view, "deduplicate", frame, list(view.deduplicate))
                columns = list(view.deduplicate)
                # Only with a watermark can the memory of what was seen be given up again.
                has_watermark = view.watermark is not None
                frame = frame.dropDuplicatesWithinWatermark(columns) if has_watermark else frame.dropDuplicates(columns)
            self._keep(view.name, frame)
        except PySparkException as e:
            view.section.fail("watermark" if view.watermark is not None else "deduplicate", short_message(e))

    def _query(self, view: View) -> DataFrame:
        assert view.sql is not None
        try:
            return self._spark.sql(view.sql.rstrip())
        except PySparkException as e:
            missing = missing_relation(e)
            if missing in self._model.views or missing in self._failed:
                raise _NotYetError(str(missing)) from None
            message = short_message(e)
            if missing is not None:
                known = {*self._model.sources, *self._model.tables, *self._model.views} - {view.name}
                message = f"there is no source, table or view {missing!r}.{suggestion(missing, known)}"
            place = view.section.text_place_of("sql").below(line_of(e) - 1)
            raise SpecError([Problem(place, f"{view.section.title}: {message}")]) from None

    def _call(self, view: View) -> DataFrame:
        function = find_function(view)
        arguments: dict[str, Any] = {}
        known = {*self._model.sources, *self._model.tables, *self._model.views} - {view.name}
        for name in inputs_of(view, function):
            if name == SESSION:
                arguments[name] = self._spark
            elif name in self._frames:
                arguments[name] = self._frames[name]
            elif name in self._model.views or name in self._failed:
                raise _NotYetError(name)
            else:
                wanted = f"its function asks for {name!r}, and there is no such source, table or view"
                view.section.fail("python", f"{wanted}.{suggestion(name, known)}")
        try:
            made = function(**arguments)
        except Exception as e:  # a user's function may raise anything; it is told with the view's place
            view.section.fail("python", f"its function failed: {type(e).__name__}: {short_message(e)}")
        if not isinstance(made, DataFrame):
            view.section.fail("python", f"its function returned {type(made).__name__}; it has to return a DataFrame")
        return made

    def _check_columns(self, view: View, key: str, frame: DataFrame, columns: list[str]) -> None:
        for column in columns:
            if column not in frame.columns:
                view.section.fail(key, f"it has no column {column!r}.{suggestion(column, frame.columns)}")


def check_output_mode(spark: SparkSession, frame: DataFrame, flow: Flow) -> None:
    """The check Spark makes when a query starts, made before any has started."""
    jvm: Any = spark._jvm  # type: ignore[attr-defined,unused-ignore]
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, flow.mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except AnalysisException as e:
        flow.section.fail("mode", short_message(e))
