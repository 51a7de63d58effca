"""Records a source cannot read, as rows for a topic of dead letters: bytes untouched, what is known of them in headers.

The headers say where a record was and what was wrong, so that it can be mended and sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADER_PREFIX = "ottla.dead-letter."
_ERROR = "_ottla_error"


def dead_letter_rows(records: DataFrame, error: Column, *, source: str) -> DataFrame:
    """The records with an error, with columns key, value and headers; the record's own headers come first."""
    facts = {
        "topic": f.col("topic"),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
        "timestamp": f.unix_millis("timestamp").cast("string"),
        "source": f.lit(source),
        "error": f.col(_ERROR),
    }
    added = f.array(*(_header(HEADER_PREFIX + name, value) for name, value in facts.items()))
    own = f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>"))
    bad = records.select("*", error.alias(_ERROR)).where(f.col(_ERROR).isNotNull())
    return bad.select("key", "value", f.concat(own, added).alias("headers"))


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
