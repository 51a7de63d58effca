"""What a pipeline is put together from: the interfaces of its parts, and the kinds of parts there are.

A part is made from its section of the description (`from_section`), looks outside before anything runs (`check`), and
only then is asked for a frame or a writer. Kinds are named by module path and imported when a pipeline uses them: a
pipeline of topics needs no database driver. A kind that is not listed may be given as `module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

from ottla.spark.pipeline.problems import Problem, suggestion
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE_KINDS = {
    "topic": "ottla.spark.pipeline.topic_source:TopicSource",
    "spark": "ottla.spark.pipeline.spark_parts:SparkSource",
    "files": "ottla.spark.connect.files:FilesSource",
    "table": "ottla.spark.connect.tables:TableSource",
    "changes": "ottla.spark.connect.changes:ChangesSource",
}
SINK_KINDS = {
    "topic": "ottla.spark.pipeline.topic_sink:TopicSink",
    "console": "ottla.spark.pipeline.spark_parts:ConsoleSink",
    "spark": "ottla.spark.pipeline.spark_parts:SparkSink",
    "files": "ottla.spark.connect.files:FilesSink",
    "database": "ottla.spark.connect.database_sink:DatabaseSink",
}

Finding = str | Problem
"""What a check finds: a sentence, which is placed at the part's own line, or a problem with a place of its own."""


class FlowContext(NamedTuple):
    """The flow a sink writes for."""

    pipeline: str
    name: str
    checkpoint: str
    """The directory the query keeps its progress in; stable across restarts, and not shared with another flow."""
    sink_id: str
    """Names this flow's output wherever a sink must recognise its own writes after a restart."""
    mode: str
    """append, update or complete."""


class SourcePart(Protocol):
    def check(self) -> Sequence[Finding]:
        """Reaches out before anything starts: is the topic, the table, the directory there? Nothing found is fine."""
        ...

    def load(self, spark: SparkSession) -> DataFrame:
        """A streaming frame."""
        ...


@runtime_checkable
class TablePart(Protocol):
    """A source that can also be read as it stands now: what `tables:` are made of."""

    def check(self) -> Sequence[Finding]: ...

    def load_table(self, spark: SparkSession) -> DataFrame:
        """A static frame."""
        ...


@runtime_checkable
class DeadLetterPart(Protocol):
    """A source that can set records aside which it cannot read, instead of failing."""

    def dead_letter_sink(self) -> SinkPart | None:
        """Where they go; None if the description does not ask for it."""
        ...

    def load_dead_letters(self, spark: SparkSession) -> DataFrame:
        """A streaming frame of what `load` leaves out, as its sink takes it."""
        ...


@runtime_checkable
class TopicStreamPart(Protocol):
    """A source that reads topics, with the options of the format "ottla"."""

    @property
    def stream_options(self) -> Mapping[str, str]:
        """Those of the format "ottla" alone."""
        ...

    def reads(self, topic: str) -> bool:
        """Whether records of this topic are among the source's."""
        ...


@runtime_checkable
class PreparingPart(Protocol):
    """A part that has something to make before the first batch, such as a topic; called when all checks have passed."""

    def prepare(self) -> None: ...


class Background(Protocol):
    """What a part does beside the flows; it has threads of its own."""

    def close(self) -> None:
        """Called when all flows have ended."""
        ...


@runtime_checkable
class BackgroundPart(Protocol):
    """A part that has something to do while the flows run."""

    def start(self) -> Background | None:
        """Called after `prepare`; None if there is nothing to do after all."""
        ...


@runtime_checkable
class TopicsPart(Protocol):
    """A source that reads topics, so that its flow shows as a group in their cluster."""

    client_options: Mapping[str, str]
    """Options `kafka.X` of the cluster."""

    def reads(self, topic: str) -> bool:
        """Whether records of this topic are among the source's."""
        ...


@runtime_checkable
class RememberingPart(Protocol):
    """A sink that remembers batches outside of the checkpoint, and can forget them when a flow has ended well."""

    def forget_batches(self, sink_id: str, query_id: str, committed: int, *, keep_plan: bool) -> None:
        """Those of a query up to the one that is committed. `keep_plan` keeps what recognises an old checkpoint."""
        ...

    def end_left_over(self, sink_id: str) -> None:
        """Called for a flow without a checkpoint: what an earlier one of its name has left open is given up."""
        ...


class MovedFlow(NamedTuple):
    """A flow that goes on elsewhere, with a checkpoint that is new but for its offsets."""

    sink_id: str
    old_query_id: str
    new_query_id: str
    sources: tuple[str, ...]
    """Where it goes on, a line for each source, as the checkpoint has it."""


@runtime_checkable
class MovingSinkPart(Protocol):
    """A sink that knows what it means for it if a flow is moved to other offsets."""

    rewritten_rows: str
    """What becomes of rows that come a second time, as the end of a sentence."""

    def obstacle_to_move(self) -> str | None:
        """Why its flow cannot be moved."""
        ...

    def flow_moved(self, moved: MovedFlow) -> None:
        """Lets the new query write, and lets the old one write no more. May be called again after a failure."""
        ...


class SinkPart(Protocol):
    def check(self) -> Sequence[Finding]: ...

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        """All set but name, checkpoint, output mode and trigger: these are the runner's. Raises SpecError or
        AnalysisException if the frame's columns or the flow's mode do not suit it; nothing may be written yet."""
        ...


class SourceKind(SourcePart, Protocol):
    @classmethod
    def from_section(cls, section: Section) -> Self:
        """Takes its options and calls `section.finish()`; raises SpecError."""
        ...


class SinkKind(SinkPart, Protocol):
    @classmethod
    def from_section(cls, section: Section) -> Self:
        """As a source's."""
        ...


def source_class(section: Section) -> type[SourceKind]:
    """The class of a source's `kind`, which is taken from the section."""
    found: type[SourceKind] = _part_class(section, SOURCE_KINDS, "load")
    return found


def sink_class(section: Section) -> type[SinkKind]:
    found: type[SinkKind] = _part_class(section, SINK_KINDS, "writer")
    return found


def _part_class(section: Section, kinds: dict[str, str], method: str) -> Any:
    kind = section.take("kind", str)
    path = kinds.get(kind, kind)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        section.fail("kind", f"there is no kind {kind!r}.{suggestion(kind, kinds)}")
    try:
        found = getattr(import_module(module_name), class_name)
    except ImportError as e:
        section.fail("kind", f"kind {kind!r} cannot be loaded: {e}")
    except AttributeError:
        section.fail("kind", f"module {module_name!r} has no class {class_name!r}")
    if not hasattr(found, method) or not hasattr(found, "from_section"):
        section.fail("kind", f"{path} cannot be used here: it has no method {method!r} or no 'from_section'")
    return found
