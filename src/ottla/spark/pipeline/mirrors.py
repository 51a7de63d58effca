"""Mirrors as parts of a pipeline: each becomes a source, a sink and the flow between them.

The flow is like any other: it has a checkpoint, is started again, and shows as a group on the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

import ottla
from ottla.base.errors import InvalidConfigError, KafkaError
from ottla.base.options import OptionSet
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.errors import ClusterUnreachableError
from ottla.spark.connections import admin_for
from ottla.spark.mirror.data_source import MIRROR_FORMAT, MirrorDataSource, mirror_options
from ottla.spark.mirror.group_sync import GroupSync
from ottla.spark.mirror.settings import ORIGIN_HEADER, GroupChoice, Mirror, TopicNames
from ottla.spark.mirror.target_topics import TargetTopics, create_map_topic
from ottla.spark.options import CLIENT_PREFIX, SourceOptions
from ottla.spark.pipeline.parts import Background, Finding, FlowContext, MovedFlow
from ottla.spark.pipeline.problems import suggestion
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.topics import admin_settings, find_missing_topics
from ottla.spark.shared_environment import stream_reader
from ottla.spark.sink_options import Delivery, SinkOptions
from ottla.spark.sink_transactions import abort_open, end_left_over, forget_batches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RENAMES = ("none", "prefix")
_BATCH_OFFSETS = "1000000"
"""The most one batch takes unless told otherwise. All of it is one transaction per partition, which has to be done
within its time-out, however far the mirror is behind."""
_GROUPS_INTERVAL_MS = 10_000
_CHECK_TIMEOUT_MS = 15_000


def take_mirror(name: str, section: Section, clusters: Mapping[str, Mapping[str, str]]) -> tuple[Mirror, list[str]]:
    """A mirror as its section describes it, and the topics it names; SpecError if it cannot be."""
    source, target = (_take_cluster(section, key, clusters) for key in ("from", "to"))
    if source == target:
        section.fail("to", f"'from' and 'to' are both {source!r}")
    topics = section.take("topics", list[str], [])
    pattern = _take_pattern(section, "pattern")
    if bool(topics) == (pattern is not None):
        section.fail("pattern" if topics else "topics", "give it either 'topics' or 'pattern'")
    prefix = f"{source}." if section.take_choice("rename", RENAMES, "none") == "prefix" else ""
    names = TopicNames.of(topics, pattern, _take_patterns(section), prefix=prefix, target_prefix=f"{target}.")
    never = [topic for topic in topics if not names.are_copied(topic)]
    if never:
        section.fail("topics", f"{never[0]!r} is never copied: 'exclude' or the rules of mirroring leave it out")
    mirror = Mirror(
        name,
        clusters[source],
        clusters[target],
        names,
        section.take("origin_header", bool, not prefix),
        _take_groups(section),
    )
    return mirror, topics


def _take_cluster(section: Section, key: str, clusters: Mapping[str, object]) -> str:
    name = section.take(key, str)
    if name not in clusters:
        section.fail(key, f"there is no cluster {name!r}.{suggestion(name, clusters)}")
    return name


def _take_pattern(section: Section, key: str) -> str | None:
    pattern = section.take(key, str, None)
    if pattern is not None:
        _check_pattern(section, key, pattern)
    return pattern


def _take_patterns(section: Section) -> list[str]:
    patterns = section.take("exclude", list[str], [])
    for pattern in patterns:
        _check_pattern(section, "exclude", pattern)
    return patterns


def _check_pattern(section: Section, key: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as e:
        section.fail(key, f"{pattern!r} is not a regular expression: {e}")


def _take_groups(section: Section) -> GroupChoice | None:
    below = section.take_section("groups")
    if below is None:
        return None
    below.title = f"{section.title}, groups"
    names, pattern = below.take("names", list[str], []), _take_pattern(below, "pattern")
    if bool(names) == (pattern is not None):
        below.fail("pattern" if names else "names", "give it either 'names' or 'pattern'")
    interval_ms = below.take_duration_ms("interval", _GROUPS_INTERVAL_MS)
    choice = GroupChoice.of(names, pattern, _take_patterns(below), interval_ms)
    below.finish()
    return choice


class MirrorSource:
    """The chosen topics of one cluster, as rows for the other."""

    def __init__(self, section: Section, mirror: Mirror, topics: Sequence[str]) -> None:
        self._section = section
        self._mirror = mirror
        self._topics = topics
        self.client_options = _known(mirror.source, CONSUMER_OPTIONS)
        self._options = self._take_options()

    def _take_options(self) -> dict[str, str]:
        section = self._section
        fails = section.take_choice("data_loss", ("fail", "continue"), "fail") == "fail"
        options = {
            **self.client_options,
            f"{CLIENT_PREFIX}isolation.level": "read_committed",
            "subscribePattern": self._mirror.names.pattern,
            "startingOffsets": section.take_choice("starting_offsets", ("earliest", "latest"), "earliest"),
            "maxOffsetsPerTrigger": section.take("max_offsets_per_trigger", str, _BATCH_OFFSETS),
            "includeHeaders": "true",
            "failOnDataLoss": str(fails).lower(),
        }
        try:
            SourceOptions.for_stream(options)
        except InvalidConfigError as e:
            section.fail("max_offsets_per_trigger" if e.key == "maxOffsetsPerTrigger" else "from", e.message)
        self.stream_options = options
        return {**options, **mirror_options(self._mirror)}

    def check(self) -> Sequence[Finding]:
        found = find_missing_topics(self.client_options, self._topics)
        return [self._section.problem("topics" if self._topics else "from", sentence) for sentence in found]

    def reads(self, topic: str) -> bool:
        return self._mirror.names.are_copied(topic)

    def load(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(MirrorDataSource)
        records = stream_reader(spark, MIRROR_FORMAT).options(**self._options).load()
        source_id, target_id = (_cluster_id(one) for one in (self._mirror.source, self._mirror.target))
        came_from_target = _has_origin(f.col("headers"), target_id)
        headers = f.col("headers")
        if self._mirror.marks_origin:
            headers = f.when(_has_origin(headers), headers).otherwise(_with_origin(headers, source_id))
        topic = f.concat(f.lit(self._mirror.names.prefix), f.col("topic"))
        copied = ("partition", "offset", "key", "value", "timestamp")
        return records.where(~came_from_target).select(topic.alias("topic"), *copied, headers.alias("headers"))


class MirrorSink:
    """The copies in the other cluster, and the map of their offsets."""

    def __init__(self, section: Section, mirror: Mirror) -> None:
        self._section = section
        self.mirror = mirror
        self._options = {**_known(mirror.target, PRODUCER_OPTIONS), **mirror_options(mirror)}
        self._others: Sequence[Mirror] = ()

    def know_others(self, mirrors: Sequence[Mirror]) -> None:
        """All mirrors of the pipeline."""
        self._others = mirrors

    def check(self) -> Sequence[Finding]:
        """Whether the target can be reached, is not the source under another name, and is written to by nobody else if
        offsets are to be translated."""
        ids, topics = [], list[str]()
        for key, settings in (("from", self.mirror.source), ("to", self.mirror.target)):
            try:
                with ottla.Admin(admin_settings(settings)) as admin:
                    ids.append(admin.describe_cluster(timeout_ms=_CHECK_TIMEOUT_MS).cluster_id)
                    topics = topics or list(admin.list_topics(timeout_ms=_CHECK_TIMEOUT_MS))
            except ClusterUnreachableError as e:
                # That of the source is told by the source.
                return [self._section.problem(key, f"{e.summary}. Is a broker running?")] if key == "to" else []
            except KafkaError as e:
                return [self._section.problem(key, f"the cluster cannot be asked: {e.message}")]
        if ids[0] == ids[1]:
            return [self._section.problem("to", f"'from' and 'to' are the same cluster, {ids[0]}")]
        return self._check_groups(topics)

    def _check_groups(self, topics: Sequence[str]) -> Sequence[Finding]:
        """A copy that holds records of its own cluster between those of the mirror has no place that corresponds to an
        offset of the source: whatever was committed, some records before it may not have been read."""
        mirror = self.mirror
        back = [other for other in self._others if (other.source, other.target) == (mirror.target, mirror.source)]
        if mirror.groups is None or mirror.names.prefix:
            return []
        for topic in topics:
            for other in back:
                if mirror.names.are_copied(topic) and other.names.are_copied(topic) and not other.names.prefix:
                    told = f"{topic!r} is mirrored both ways under one name, so offsets of groups cannot be translated"
                    return [self._section.problem("groups", f"{told}; use 'rename: prefix', or exclude it")]
        return []

    def prepare(self) -> None:
        create_map_topic(self.mirror.target, self.mirror.map_topic)
        described = admin_for(self.mirror.source).describe_topics().results.values()
        chosen = [topic for topic in described if self.mirror.names.are_copied(topic.name)]
        copies = TargetTopics(self.mirror.source, self.mirror.target, self.mirror.names)
        copies.ensure({topic.name: len(topic.partitions) for topic in chosen})

    def start(self) -> Background | None:
        groups = self.mirror.groups
        return None if groups is None else GroupSync(self.mirror, groups.interval_ms)

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        options = {**self._options, "sinkId": flow.sink_id}
        try:
            own = {name: text for name, text in options.items() if not name.startswith("mirror.")}
            SinkOptions.parse(own, frame.schema, default=Delivery.EXACTLY_ONCE)
        except InvalidConfigError as e:
            self._section.fail("to", e.message)
        return frame.writeStream.format(MIRROR_FORMAT).options(**options)

    @property
    def rewritten_rows(self) -> str:
        return "the copies are kept, and these records are copied a second time"

    def obstacle_to_move(self) -> str | None:
        return None

    def flow_moved(self, moved: MovedFlow) -> None:
        with ottla.Admin(admin_settings(self.mirror.target)) as admin:
            abort_open(admin, f"{moved.sink_id}-{moved.old_query_id}")

    def forget_batches(self, sink_id: str, query_id: str, committed: int, *, keep_plan: bool) -> None:
        with ottla.Admin(admin_settings(self.mirror.target)) as admin:
            forget_batches(admin, f"{sink_id}-{query_id}", committed, keep_plan=keep_plan)

    def end_left_over(self, sink_id: str) -> None:
        with ottla.Admin(admin_settings(self.mirror.target)) as admin:
            end_left_over(admin, sink_id)


def _known(settings: Mapping[str, str], known: OptionSet) -> dict[str, str]:
    """Options `kafka.X`: those of a cluster's settings that mean something to one kind of client."""
    return {CLIENT_PREFIX + name: text for name, text in settings.items() if name in known}


def _cluster_id(settings: Mapping[str, str]) -> str:
    found = admin_for(settings).describe_cluster().cluster_id
    if found is None:
        raise ottla.errors.ClientError(f"the cluster at {settings['bootstrap.servers']} has no id")
    return found


def _has_origin(headers: Column, cluster_id: str | None = None) -> Column:
    """Whether a record is known to come from this cluster, or from any if none is named."""

    def is_origin(header: Column) -> Column:
        named = header["key"] == ORIGIN_HEADER
        return named if cluster_id is None else named & (header["value"] == f.lit(cluster_id.encode()))

    return f.coalesce(f.exists(headers, is_origin), f.lit(False))


def _with_origin(headers: Column, cluster_id: str) -> Column:
    added = f.struct(f.lit(ORIGIN_HEADER).alias("key"), f.lit(cluster_id.encode()).alias("value"))
    return f.concat(f.coalesce(headers, f.array().cast("array<struct<key:string,value:binary>>")), f.array(added))
