"""A topic as a source of a pipeline: its records as they are, or as rows of a schema, bad ones apart from good ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from ottla.base.errors import InvalidConfigError
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.spark.data_source import FORMAT_NAME
from ottla.spark.options import CLIENT_PREFIX, SourceOptions
from ottla.spark.pipeline.dead_letters import dead_letter_rows
from ottla.spark.pipeline.formats.kinds import take_source_format
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE, evaluated_once
from ottla.spark.pipeline.parts import Finding, SinkPart
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.pipeline.topics import client_options, find_missing_topics, is_client_option
from ottla.spark.progress import observe_bad
from ottla.spark.shared_environment import stream_reader
from ottla.spark.source_schema import source_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_METADATA = ("key", "topic", "partition", "offset", "timestamp", "headers")
_STREAM_OPTIONS = {"starting_offsets": "startingOffsets", "max_offsets_per_trigger": "maxOffsetsPerTrigger"}
_SELECTIONS = {"topic": "subscribe", "topics": "subscribe", "pattern": "subscribePattern"}
_COMMITTED = {f"{CLIENT_PREFIX}isolation.level": "read_committed"}
"""Unlike a consumer's default: what another flow has written and given up is not taken in, nor are dead letters whose
way back was given up."""
BAD_RECORD = "a record cannot be read: "


class TopicSource:
    def __init__(self, section: Section) -> None:
        self._section = section
        self.client_options = {**_COMMITTED, **client_options(section, CONSUMER_OPTIONS)}
        self._selection_key = self._take_selection_key()
        self.redrive_topic = section.take("redrive_topic", str, None)
        """Where dead letters of this source alone may be sent back to; one of `topics`."""
        self.topics = self._take_topics()
        self.pattern = self._take_pattern()
        self._format = take_source_format(section)
        self._metadata = tuple(section.take("metadata", list[str], []))
        self._check_metadata()
        self.dead_letter_topic = section.take("dead_letter", str, None)
        self._sink = self._take_dead_letter_sink()
        self._skips = section.take_choice("bad_records", ("fail", "skip"), "fail") == "skip"
        if self._skips and self._sink is not None:
            section.fail("bad_records", "bad records cannot be both skipped and set aside; leave out one of the two")
        self._options = self._take_options()
        self._expected: frozenset[str] = frozenset()

    @classmethod
    def from_section(cls, section: Section) -> Self:
        made = cls(section)
        section.finish()
        return made

    def _take_selection_key(self) -> str:
        given = [key for key in _SELECTIONS if key in self._section]
        if len(given) != 1:
            self._section.fail(given[-1] if given else "topic", "give it one of 'topic', 'topics' or 'pattern'")
        return given[0]

    def _take_topics(self) -> list[str]:
        one = self._section.take("topic", str, None)
        named = [one] if one is not None else self._section.take("topics", list[str], [])
        return named if self.redrive_topic is None else [*named, self.redrive_topic]

    def _take_pattern(self) -> str | None:
        pattern = self._section.take("pattern", str, None)
        if pattern is None or self.redrive_topic is None:
            return pattern
        return f"(?:{pattern})|{re.escape(self.redrive_topic)}"

    def _check_metadata(self) -> None:
        for name in self._metadata:
            if name not in _METADATA:
                self._section.fail("metadata", f"records have no {name!r}; there is {', '.join(_METADATA)}")
        if self._metadata and self._format is None:
            self._section.fail("metadata", "format raw has all columns of a record as they are")

    def _take_dead_letter_sink(self) -> TopicSink | None:
        topic = self.dead_letter_topic
        if topic is None:
            if self.redrive_topic is not None:
                self._section.fail("redrive_topic", "without a 'dead_letter' topic there is nothing to send back")
            return None
        if self._format is None:
            self._section.fail("dead_letter", "format raw reads every record; there are no bad ones to set aside")
        return TopicSink.for_dead_letters(self._section, topic, self.redrive_topic)

    def _take_options(self) -> dict[str, str]:
        section = self._section
        options = section.take("options", dict[str, str], {})
        selected = self.pattern if self.pattern is not None else ",".join(self.topics)
        named = {_SELECTIONS[self._selection_key]: selected}
        for key, name in _STREAM_OPTIONS.items():
            if (value := section.take(key, str, None)) is not None:
                named[name] = value
        for name in named:
            if any(name.lower() == other.lower() for other in options):
                section.fail("options", f"{name} is said twice, once in options")
        if not any(name.lower().startswith("starting") for name in (*options, *named)):
            # A flow that starts for the first time has missed nothing yet, unlike a query that someone looks at.
            named["startingOffsets"] = "earliest"
        every = {**self.client_options, **options, **named, "includeHeaders": "true"}
        try:
            SourceOptions.for_stream(every)
        except InvalidConfigError as e:
            section.fail(self._key_of(e.key), e.message)
        return every

    def _key_of(self, option: str) -> str:
        if is_client_option(option):
            return "kafka"
        keys = {name: key for key, name in _STREAM_OPTIONS.items()}
        keys |= dict.fromkeys(_SELECTIONS.values(), self._selection_key)
        return keys.get(option, "options")

    # What a pipeline asks for

    def expect_topics(self, topics: Collection[str]) -> None:
        """These need not be there yet: the pipeline makes them before its first batch."""
        self._expected = frozenset(topics)

    def check(self) -> Sequence[Finding]:
        awaited = {*self._expected, self.redrive_topic}
        found = find_missing_topics(self.client_options, [name for name in self.topics if name not in awaited])
        from_topic = [self._section.problem(self._selection_key, sentence) for sentence in found]
        if not found and self.redrive_topic is not None and self.redrive_topic not in self._expected:
            found = find_missing_topics(self.client_options, [self.redrive_topic])
            from_topic = [self._section.problem("redrive_topic", sentence) for sentence in found]
        return from_topic if self._format is None else [*from_topic, *self._format.check()]

    @property
    def stream_options(self) -> Mapping[str, str]:
        return self._options

    def reads(self, topic: str) -> bool:
        """Whether records of this topic are among the source's."""
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)

    def load(self, spark: SparkSession) -> DataFrame:
        reader = stream_reader(spark, FORMAT_NAME).options(**self._options)
        return self._good_rows(reader.schema(self._columns()).load())

    def load_table(self, spark: SparkSession) -> DataFrame:
        options = {name: text for name, text in self._options.items() if name != "maxOffsetsPerTrigger"}
        return self._good_rows(spark.read.format(FORMAT_NAME).options(**options).schema(self._columns()).load())

    def dead_letter_sink(self) -> SinkPart | None:
        return self._sink

    def load_dead_letters(self, spark: SparkSession) -> DataFrame:
        assert self._format is not None
        records = stream_reader(spark, FORMAT_NAME).options(**self._options).load()
        decoded = self._format.decode(records)
        return dead_letter_rows(decoded, source=self._section.title, redrive_topic=self.redrive_topic)

    def _columns(self) -> StructType:
        """What has to be fetched; a raw record is wanted as a whole."""
        every = source_schema(include_headers=True)
        if self._format is None:
            return every
        # Topic, partition and offset are for the message about a bad record.
        wanted = {"partition", "offset", *self._format.inputs, *self._metadata}
        if self._only_topic is None:
            wanted.add("topic")
        return StructType([field for field in every.fields if field.name in wanted])

    @property
    def _only_topic(self) -> str | None:
        """The topic of every record, where it need not be asked for with each."""
        return self.topics[0] if self.pattern is None and len(self.topics) == 1 else None

    def _good_rows(self, records: DataFrame) -> DataFrame:
        if self._format is None:
            return records
        decoded = self._format.decode(records)
        if self._skips or self._sink is not None:
            if decoded.isStreaming:
                decoded = observe_bad(decoded, f.col(ERROR).isNotNull(), source=self._section.title)
            good = decoded.where(f.col(ERROR).isNull())
        else:
            topic = f.col("topic") if self._only_topic is None else f.lit(self._only_topic)
            where = f.format_string("topic %s, partition %d, offset %d: ", topic, "partition", "offset")
            failure = f.raise_error(f.concat(f.lit(BAD_RECORD), where, f.col(ERROR)))
            # Filters of views are looked at after this one: a bad record is not passed over because they drop it.
            good = decoded.where(evaluated_once(f.when(f.col(ERROR).isNull(), f.lit(True)).otherwise(failure)))
        metadata = [f.col(name).alias(f"_{name}") for name in self._metadata]
        return good.select(f.col(f"{VALUE}.*") if self._format.has_columns else f.col(VALUE).alias("value"), *metadata)
