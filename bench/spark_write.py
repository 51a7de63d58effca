"""The same rows, kept in Spark's memory, written to a topic and to Parquet files, in turn, in one Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

import ottla

PARTITIONS = 4
SIDES = ("ottla", "ottla exactly once", "parquet")


def write_rounds(frame: DataFrame, servers: str, place: Path, rounds: int) -> dict[str, list[float]]:
    """Rows per second of each side, round by round; one round before that warms up. `frame` needs a column `value`."""
    rows = frame.select("value").persist()
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with ottla.Admin(bootstrap_servers=servers) as admin:
        try:
            row_count = rows.count()
            for round_number in range(-1, rounds):
                for side in SIDES:
                    topic = f"spark-write-{round_number + 1}-{SIDES.index(side)}"
                    if side != "parquet":
                        admin.create_topics([ottla.NewTopic(topic, PARTITIONS)]).check()
                    taken_s = _seconds(_writing(rows, side, servers, topic, place))
                    if side != "parquet":
                        admin.delete_topics([topic]).check()
                    if round_number >= 0:
                        rates[side].append(row_count / taken_s)
        finally:
            rows.unpersist()
    return rates


def _writing(rows: DataFrame, side: str, servers: str, topic: str, place: Path) -> Callable[[], None]:
    if side == "parquet":
        return lambda: rows.write.mode("overwrite").parquet(str(place / "written"))
    guarantee = "exactly-once" if side == "ottla exactly once" else "at-least-once"
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": guarantee}
    return lambda: rows.write.format("ottla").options(**options).mode("append").save()


def _seconds(work: Callable[[], None]) -> float:
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s
