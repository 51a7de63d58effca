"""A topic as a sink of a pipeline: rows become records, exactly once unless the description asks for less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pyspark.sql import functions as f

import ottla
from ottla.base.errors import InvalidConfigError
from ottla.client.core.admin.types import NewTopic
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.spark.data_source import FORMAT_NAME
from ottla.spark.options import CLIENT_PREFIX
from ottla.spark.pipeline.formats.kinds import take_sink_format
from ottla.spark.pipeline.formats.value_format import SinkFormat
from ottla.spark.pipeline.parts import Finding, FlowContext, MovedFlow
from ottla.spark.pipeline.problems import suggestion
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.topics import (
    admin_settings,
    client_options,
    create_topic,
    find_missing_topics,
    is_client_option,
)
from ottla.spark.sink_options import Delivery, SinkOptions, SinkSchemaError
from ottla.spark.sink_transactions import abort_open, end_left_over, forget_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class TopicSink:
    def __init__(
        self,
        section: Section,
        topics: Sequence[str],
        topic_key: str,
        partitions: int | None,
        others: Sequence[str] = (),
    ) -> None:
        """`others` are topics that are made together with those that are written."""
        self._section = section
        self.topics = topics
        self._topic_key = topic_key
        made = () if partitions is None else (*topics, *others)
        self.new_topics = [NewTopic(name, partitions or 1) for name in made]
        """Those that are made if they are not there."""
        self.client_options = client_options(section, PRODUCER_OPTIONS)
        self._format: SinkFormat | None = None
        self._key: str | None = None
        self._options: dict[str, str] = {}

    @classmethod
    def from_section(cls, section: Section) -> Self:
        topics = section.take("topics", list[str], []) if "topics" in section else [section.take("topic", str)]
        made = cls(
            section, topics, "topics" if "topics" in section else "topic", section.take("create_partitions", int, None)
        )
        made._format = take_sink_format(section)
        made._check_topics()
        made._key = section.take("key", str, None)
        made._options = section.take("options", dict[str, str], {})
        delivery = section.take_choice("delivery", [delivery.value for delivery in Delivery], None)
        if delivery is not None:
            made._options["deliveryGuarantee"] = delivery
        section.finish()
        return made

    @classmethod
    def for_dead_letters(cls, section: Section, topic: str, redrive_topic: str | None) -> Self:
        """The sink of a source's dead letters; `section` is the source's."""
        others = [] if redrive_topic is None else [redrive_topic]
        made = cls(section, [topic], "dead_letter", section.take("dead_letter_partitions", int, None), others)
        for name in list(made.client_options):
            if name.removeprefix(CLIENT_PREFIX) not in PRODUCER_OPTIONS:
                del made.client_options[name]
        return made

    def _check_topics(self) -> None:
        section = self._section
        if "topics" not in section:
            return
        if "topic" in section or not self.topics:
            section.fail("topics", "give it either 'topic', or 'topics' with all that rows may name")
        if self._format is not None:
            section.fail("topics", "rows for several topics name theirs in a column 'topic': that needs 'format: raw'")

    def check(self) -> Sequence[Finding]:
        found = find_missing_topics(self.client_options, [] if self.new_topics else self.topics)
        from_topic = [self._section.problem(self._topic_key, sentence) for sentence in found]
        return from_topic if self._format is None else [*from_topic, *self._format.check()]

    def prepare(self) -> None:
        for topic in self.new_topics:
            create_topic(self.client_options, topic)
        if self._format is not None:
            self._format.prepare()

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        rows = self._records(frame)
        options = {**self.client_options, "sinkId": flow.sink_id, **self._options}
        if self._topic_key != "topics":
            (options["topic"],) = self.topics
        try:
            SinkOptions.parse(options, rows.schema, default=Delivery.EXACTLY_ONCE)
        except InvalidConfigError as e:
            self._section.fail("kafka" if is_client_option(e.key) else "options", e.message)
        except SinkSchemaError as e:
            self._section.fail("format", f"flow {flow.name}: {e}. With 'format: json' any columns can be written")
        if flow.mode == "update":
            return rows.writeStream.foreachBatch(_batch_writer(options))
        return rows.writeStream.format(FORMAT_NAME).options(**options)

    @property
    def rewritten_rows(self) -> str:
        return f"{', '.join(self.topics)} keeps what was written before, and their rows come a second time"

    def obstacle_to_move(self) -> str | None:
        return None

    def flow_moved(self, moved: MovedFlow) -> None:
        """Batches are known by their query, so a new one has written none yet."""
        name = f"{self._options.get('sinkId', moved.sink_id)}-{moved.old_query_id}"
        with ottla.Admin(admin_settings(self.client_options)) as admin:
            abort_open(admin, name)

    def forget_batches(self, sink_id: str, query_id: str, committed: int, *, keep_plan: bool) -> None:
        """Puts away what is remembered of the batches of a query up to the one that is committed."""
        name = f"{self._options.get('sinkId', sink_id)}-{query_id}"
        with ottla.Admin(admin_settings(self.client_options)) as admin:
            forget_batches(admin, name, committed, keep_plan=keep_plan)

    def end_left_over(self, sink_id: str) -> None:
        with ottla.Admin(admin_settings(self.client_options)) as admin:
            end_left_over(admin, self._options.get("sinkId", sink_id))

    def _records(self, frame: DataFrame) -> DataFrame:
        """Rows with the columns that the data source writes; a format makes a value of all columns."""
        if self._key is not None and self._key not in frame.columns:
            self._section.fail("key", f"the rows have no column {self._key!r}.{suggestion(self._key, frame.columns)}")
        key = None if self._key is None else f.col(f"`{self._key}`").cast("string").alias("key")
        if self._format is not None:
            value = self._format.encode(frame).alias("value")
            return frame.select(value) if key is None else frame.select(key, value)
        return frame if key is None else frame.withColumn("key", key)


def _batch_writer(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Spark refuses the mode update to sinks written in Python. As a job of each batch the same rows are written under
    the same rules, exactly once included."""
    settings = {"deliveryGuarantee": Delivery.EXACTLY_ONCE.value, **options}

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format(FORMAT_NAME).options(**settings).mode("append").save()

    return write
