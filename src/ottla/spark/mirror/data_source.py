"""The format "ottla-mirror": that of topics, with a reader and a writer that belong together.

Its own options begin with `mirror.`; all others are those of the format "ottla". Pipelines use it, and register it in
their session; it is not found by name otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
from pyspark.sql.datasource import DataSourceStreamReader as Reader
from pyspark.sql.types import StructType

from ottla.base.errors import InvalidConfigError
from ottla.spark.data_source import OttlaDataSource
from ottla.spark.mirror.reader import MirrorReader
from ottla.spark.mirror.settings import Mirror, TopicNames
from ottla.spark.mirror.target_topics import TargetTopics
from ottla.spark.options import CLIENT_PREFIX, SourceOptions, client_properties
from ottla.spark.source_schema import source_columns, source_schema

MIRROR_FORMAT = "ottla-mirror"
_OWN = "mirror."
_TARGET = f"{_OWN}target."
_PATTERN, _PREFIX, _MAP = f"{_OWN}pattern", f"{_OWN}prefix", f"{_OWN}map"


class _Own(NamedTuple):
    """The options of the format itself, and those that are left for the reader or the writer of topics."""

    names: TopicNames
    map_topic: str
    target: dict[str, str]
    others: dict[str, str]


def mirror_options(mirror: Mirror) -> dict[str, str]:
    """What reader and writer have to be told of a mirror."""
    target = {_TARGET + name: text for name, text in mirror.target.items()}
    return {**target, _PATTERN: mirror.names.pattern, _PREFIX: mirror.names.prefix, _MAP: mirror.map_topic}


class MirrorDataSource(OttlaDataSource):
    @classmethod
    def name(cls) -> str:
        return MIRROR_FORMAT

    def schema(self) -> StructType:
        return source_schema(include_headers=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        raise InvalidConfigError("format", "a mirror is a stream: it cannot be read as a table")

    def streamReader(self, schema: StructType) -> Reader:  # noqa: N802
        own = _split(self.options)
        options = SourceOptions.for_stream(own.others)
        return MirrorReader(options, source_columns(schema), TargetTopics(options.client, own.target, own.names))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        raise InvalidConfigError("format", "a mirror is a stream: it cannot be written as a table")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from ottla.spark.mirror.writer import MirrorWriter
        from ottla.spark.sink_options import Delivery, SinkOptions

        own = _split(self.options)
        parsed = SinkOptions.parse(own.others, schema, default=Delivery.EXACTLY_ONCE)
        return MirrorWriter(parsed, own.names, own.map_topic)


def _split(options: Mapping[str, str]) -> _Own:
    own = {name.lower(): text for name, text in options.items() if name.lower().startswith(_OWN)}
    others = {name: text for name, text in options.items() if not name.lower().startswith(_OWN)}
    target = {
        CLIENT_PREFIX + name.removeprefix(_TARGET): text for name, text in own.items() if name.startswith(_TARGET)
    }
    return _Own(TopicNames(own[_PATTERN], own[_PREFIX]), own[_MAP], client_properties(target), others)
