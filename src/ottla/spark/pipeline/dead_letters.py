"""Records a source cannot read, as rows for a topic of dead letters: bytes untouched, what is known of them in headers.

The headers say where a record was and what was wrong, so that it can be mended and sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as f

from ottla.spark.pipeline.formats.value_format import ERROR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADER_PREFIX = "ottla.dead-letter."


def dead_letter_rows(decoded: DataFrame, *, source: str, redrive_topic: str | None = None) -> DataFrame:
    """The decoded records with an error, as columns key, value and headers; the record's own headers come first.

    What was sent back to `redrive_topic` has headers that tell where it was first, and keeps these.
    """
    facts = {
        "topic": f.col("topic"),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
        "timestamp": f.unix_millis("timestamp").cast("string"),
        "source": f.lit(source),
        "error": f.col(ERROR),
    }
    own = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    if redrive_topic is not None:
        came_back = f.col("topic") == redrive_topic
        facts |= {
            name: f.when(came_back, f.coalesce(_told(own, name), facts[name])).otherwise(facts[name])
            for name in ("topic", "partition", "offset", "timestamp")
        }
        own = f.when(came_back, f.filter(own, lambda header: ~header["key"].startswith(HEADER_PREFIX))).otherwise(own)
    added = f.array(*(_header(HEADER_PREFIX + name, value) for name, value in facts.items()))
    bad = decoded.where(f.col(ERROR).isNotNull())
    return bad.select("key", "value", f.concat(own, added).alias("headers"))


def _told(headers: Column, name: str) -> Column:
    """The text of a header that says something of a dead letter; NULL if there is none."""
    found = f.filter(headers, lambda header: header["key"] == HEADER_PREFIX + name)
    return f.get(found, 0)["value"].cast("string")


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
