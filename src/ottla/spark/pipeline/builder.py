"""Makes a pipeline's model from the sections of its description.

Pure: it checks what can be known from the description alone (names, options, who refers to whom), and finds all that is
wrong in one go. Whether topics exist and queries make sense is found out later, by those who can reach a broker or
Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.spark.pipeline.functions import FUNCTION_PATH
from ottla.spark.pipeline.model import Flow, Model, Restarts, Sink, Source, Table, View
from ottla.spark.pipeline.parts import DeadLetterPart, TablePart, sink_class, source_class
from ottla.spark.pipeline.problems import Problem, SpecError, suggestion
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.topics import CLIENT_SETTINGS

MODES = ("append", "update", "complete")
AVAILABLE_NOW = "available-now"
_FRAME_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_FRAME_NAMES = re.compile(r"\W")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def build_model(root: Section, functions: Mapping[str, Callable[..., Any]] | None = None) -> Model:
    """All of a description, or SpecError with everything that is wrong in it. `functions` are views by their names."""
    return _Builder(root, functions or {}).model()


class _Builder:
    def __init__(self, root: Section, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._root = root
        self._functions = functions
        self._problems: list[Problem] = []
        self._kafka: dict[str, str] = {}
        self._common_group_id: str | None = None
        self._name = ""

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            yield
        except SpecError as e:
            self._problems += e.problems

    def model(self) -> Model:
        root = self._root
        with self._collecting():
            self._name = root.take("name", str)
            if not _NAME.fullmatch(self._name):
                root.fail("name", f"{self._name!r} cannot be a name: use letters, digits, '.', '_' and '-'")
        with self._collecting():
            self._take_kafka()
        with self._collecting():
            root.take("checkpoint", str, None)
        master, conf, conf_section = self._spark()
        restarts = self._restarts()
        sources = self._named("sources", "source", self._source)
        tables = self._named("tables", "table", self._table)
        views = self._named("views", "view", self._view)
        sinks = self._named("sinks", "sink", self._sink)
        frames = self._frames()
        flows = self._named("flows", "flow", lambda name, section: self._flow(name, section, frames))
        for source in sources.values():
            flow_name = f"{source.name}-dead-letters"
            if (pair := self._dead_letters(source, flow_name)) is not None:
                if flow_name in flows or flow_name in sinks:
                    taken = f"the name {flow_name} is that of its dead letters; call the other flow or sink differently"
                    self._problems.append(source.section.problem("dead_letter", taken))
                sinks[flow_name], flows[flow_name] = pair
        self._add_mirrors(sources, sinks, flows)
        with self._collecting():
            root.finish()
        self._check_flows(flows)
        if self._problems:
            raise SpecError(self._problems)
        return Model(
            self._name,
            root.place,
            root.directory,
            self._kafka,
            master,
            conf,
            conf_section,
            restarts,
            sources,
            tables,
            views,
            sinks,
            flows,
        )

    def _take_kafka(self) -> None:
        self._kafka = self._root.take("kafka", dict[str, str], {})
        self._common_group_id = self._kafka.pop("group.id", None)
        section = self._root.take_section("kafka")
        for name in self._kafka:
            if section is not None and name not in CLIENT_SETTINGS:
                section.title = "kafka"
                section.fail(name, f"clients have no setting {name!r}.{suggestion(name, CLIENT_SETTINGS)}")

    def _named(self, key: str, what: str, make: Callable[[str, Section], Any]) -> dict[str, Any]:
        """The parts below one key; one that cannot be made is a problem, and the others are looked at all the same."""
        made: dict[str, Any] = {}
        with self._collecting():
            section = self._root.take_section(key)
            if section is None:
                return made
            for name in section.names():
                with self._collecting():
                    part = section.take_section(name)
                    if part is None:
                        section.fail(name, f"{what} {name} is empty")
                    part.title = f"{what} {name}"
                    part.place = section.place_of(name)
                    part.kafka = self._kafka
                    part.directory = self._root.directory
                    made[name] = make(name, part)
        return made

    def _spark(self) -> tuple[str | None, dict[str, str], Section | None]:
        with self._collecting():
            section = self._root.take_section("spark")
            if section is not None:
                section.title = "spark"
                settings = section.take("master", str, None), section.take("conf", dict[str, str], {})
                section.finish()
                return *settings, section.take_section("conf")
        return None, {}, None

    def _restarts(self) -> Restarts:
        with self._collecting():
            section = self._root.take_section("restart")
            if section is not None:
                section.title = "restart"
                default = Restarts()
                restarts = Restarts(
                    section.take("attempts", int, default.attempts),
                    section.take_duration_ms("backoff", default.backoff_ms),
                    section.take_duration_ms("max_backoff", default.backoff_ms_max),
                )
                section.finish()
                return restarts
        return Restarts()

    def _source(self, name: str, section: Section) -> Source:
        _check_frame_name(name, section)
        return Source(name, section, source_class(section).from_section(section))

    def _table(self, name: str, section: Section) -> Table:
        _check_frame_name(name, section)
        part = source_class(section).from_section(section)
        if not isinstance(part, TablePart):
            section.fail("kind", "this kind can only be a source: it has no state to be looked up in")
        return Table(name, section, part)

    def _view(self, name: str, section: Section) -> View:
        _check_frame_name(name, section)
        sql = section.take("sql", str, None)
        function = self._functions.get(name) or section.take("python", str, None)
        if (sql is None) == (function is None):
            section.fail("sql", "give it either 'sql' or 'python'")
        if isinstance(function, str) and not FUNCTION_PATH.fullmatch(function):
            section.fail("python", f"{function!r} names no function; write 'module:function' or 'file.py:function'")
        watermark_section = section.take_section("watermark")
        watermark = None
        if watermark_section is not None:
            watermark_section.title = f"{section.title}, watermark"
            column, _ = watermark_section.take("column", str), watermark_section.take("delay", str)
            # Spark knows fewer names of units than sections do.
            watermark = column, f"{watermark_section.take_duration_ms('delay')} milliseconds"
            watermark_section.finish()
        deduplicate = tuple(section.take("deduplicate", list[str], []))
        section.finish()
        return View(name, section, sql, function, watermark, deduplicate)

    def _sink(self, name: str, section: Section) -> Sink:
        _check_name(name, section)
        return Sink(name, section, sink_class(section).from_section(section))

    def _declared(self, key: str) -> Section | None:
        """The section of one kind of parts, whether or not each could be made; a wrong one was told of before."""
        try:
            return self._root.take_section(key)
        except SpecError:
            return None

    def _frames(self) -> dict[str, str]:
        """Every name rows can come from, with what it is; a name is taken once for all of them."""
        frames: dict[str, str] = {}
        for key, what in (("sources", "source"), ("tables", "table"), ("views", "view")):
            section = self._declared(key)
            if section is None:
                continue
            for name in section.names():
                if name in frames:
                    taken = f"{what} {name}: there is a {frames[name]} of this name already"
                    self._problems.append(Problem(section.place_of(name), taken))
                frames.setdefault(name, what)
        return frames

    def _flow(self, name: str, section: Section, frames: Mapping[str, str]) -> Flow:
        _check_name(name, section)
        origin, sink = section.take("from", str), section.take("to", str)
        if origin not in frames:
            section.fail("from", f"there is no view or source {origin!r}.{suggestion(origin, frames)}")
        if frames[origin] == "table":
            section.fail("from", f"{origin!r} is a table; only views and sources flow")
        sinks = self._declared("sinks")
        sink_names = sinks.names() if sinks is not None else []
        if sink not in sink_names:
            section.fail("to", f"there is no sink {sink!r}.{suggestion(sink, sink_names)}")
        mode = section.take_choice("mode", MODES, "append")
        is_available_now = section.take("trigger", str, "") == AVAILABLE_NOW
        trigger_ms = None if is_available_now else section.take_duration_ms("trigger")
        group_id = section.take("group_id", str, self._common_group_id or self._group_id(name))
        checkpoint = self._checkpoint(name, section.take("checkpoint", str, None))
        section.finish()
        return Flow(name, section, origin, sink, mode, checkpoint, group_id, trigger_ms, is_available_now)

    def _dead_letters(self, source: Source, flow_name: str) -> tuple[Sink, Flow] | None:
        """The sink and the flow of records a source cannot read, if it sets them aside."""
        if not isinstance(source.part, DeadLetterPart) or (part := source.part.dead_letter_sink()) is None:
            return None
        flow = Flow(
            flow_name,
            source.section,
            source.name,
            flow_name,
            "append",
            self._checkpoint(flow_name, None),
            self._group_id(flow_name),
            takes_dead_letters=True,
        )
        return Sink(flow_name, source.section, part), flow

    # Mirrors

    def _add_mirrors(self, sources: dict[str, Source], sinks: dict[str, Sink], flows: dict[str, Flow]) -> None:
        clusters = self._named("clusters", "cluster", self._cluster)
        declared = self._declared("clusters")
        if declared is not None and len(clusters) < len(declared.names()):
            # Of a cluster that is wrong nobody is told a second time that mirrors cannot use it.
            self._declared("mirrors")
            return
        mirrors = self._named("mirrors", "mirror", lambda name, section: self._mirror(name, section, clusters))
        parts = [sink.part for _, sink, _ in mirrors.values()]
        for part in parts:
            part.know_others([other.mirror for other in parts])
        for name, (source, sink, flow) in mirrors.items():
            if name in flows or name in sinks or source.name in sources:
                taken = "its name is also that of a flow, a sink or another mirror; call one of them differently"
                self._problems.append(source.section.problem("from", taken))
            sources[source.name], sinks[name], flows[name] = source, sink, flow

    def _cluster(self, name: str, section: Section) -> dict[str, str]:
        """Settings of clients, by the name that mirrors use for the cluster."""
        _check_name(name, section)
        section.take("bootstrap.servers", str)
        settings = {key: section.take(key, str) for key in section.names()}
        for key in settings:
            if key not in CLIENT_SETTINGS:
                section.fail(key, f"clients have no setting {key!r}.{suggestion(key, CLIENT_SETTINGS)}")
        return settings

    def _mirror(
        self, name: str, section: Section, clusters: Mapping[str, Mapping[str, str]]
    ) -> tuple[Source, Sink, Flow]:
        from ottla.spark.pipeline.mirrors import MirrorSink, MirrorSource, take_mirror  # few pipelines have one

        _check_name(name, section)
        mirror, topics = take_mirror(name, section, clusters)
        source = Source(f"_mirror_{_NOT_IN_FRAME_NAMES.sub('_', name)}", section, MirrorSource(section, mirror, topics))
        flow = Flow(
            name,
            section,
            source.name,
            name,
            "append",
            self._checkpoint(name, section.take("checkpoint", str, None)),
            section.take("group_id", str, self._group_id(name)),
            section.take_duration_ms("trigger"),
        )
        section.finish()
        return source, Sink(name, section, MirrorSink(section, mirror)), flow

    def _group_id(self, flow_name: str) -> str:
        return f"ottla-pipeline-{self._name}-{flow_name}"

    def _checkpoint(self, flow_name: str, own: str | None) -> str:
        """A flow's directory; a relative path starts where the description is, and a URL is left as it is."""
        path = own or f"{self._root.take('checkpoint', str, f'checkpoints/{self._name}').rstrip('/')}/{flow_name}"
        return path if "://" in path else str(self._root.resolve(path).absolute())

    def _check_flows(self, flows: Mapping[str, Flow]) -> None:
        if not flows and not self._problems:
            self._problems.append(Problem(self._root.place, "there is no flow: nothing would run"))
        for key in ("checkpoint", "group_id"):
            owners: dict[str, Flow] = {}
            for flow in flows.values():
                value = str(getattr(flow, key))
                owner = owners.setdefault(value, flow)
                if owner is not flow:
                    shared = f"flow {owner.name} has the {key} {value!r} already, and each flow needs its own"
                    self._problems.append(flow.section.problem(key, shared))


def _check_name(name: str, section: Section) -> None:
    if not _NAME.fullmatch(name):
        message = f"{section.title}: a name has letters, digits, '.', '_' and '-', and begins with a letter or digit"
        raise SpecError([Problem(section.place, message)])


def _check_frame_name(name: str, section: Section) -> None:
    if not _FRAME_NAME.fullmatch(name):
        message = f"{section.title}: queries use this name, so it can only have letters, digits and '_'"
        raise SpecError([Problem(section.place, message)])
