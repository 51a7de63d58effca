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


def dead_letter_rows(decoded: DataFrame, *, source: str) -> DataFrame:
    """The decoded records with an error, as columns key, value and headers; the record's own headers come first."""
    facts = {
        "topic": f.col("topic"),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
        "timestamp": f.unix_millis("timestamp").cast("string"),
        "source": f.lit(source),
        "error": f.col(ERROR),
    }
    added = f.array(*(_header(HEADER_PREFIX + name, value) for name, value in facts.items()))
    own = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    bad = decoded.where(f.col(ERROR).isNotNull())
    return bad.select("key", "value", f.concat(own, added).alias("headers"))


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
