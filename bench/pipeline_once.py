"""A small flow from its beginning to its end, as a program: by `ottla pipeline run --once`, and by a script without us.

python -m bench.pipeline_once SERVERS PLACE ROUNDS

Both start Spark, read a topic of JSON, make windows of it, write them to another topic and end. Prints one line of
JSON: for each side its rounds, in seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import ottla
from bench.pipeline_load import DELAY, PARTITIONS, PLAIN_SCHEMA, SCHEMA, WINDOW, fill, json_value

ROWS = 1_000
TOPIC = "bench-once"
TIMEOUT_S = 600

DESCRIPTION = f"""\
name: once
checkpoint: ${{PLACE}}/${{RUN}}
kafka: {{bootstrap.servers: "${{SERVERS}}"}}
spark: {{master: "local[2]"}}
sources:
  orders: {{kind: topic, topic: {TOPIC}, format: json, schema: "{SCHEMA}"}}
views:
  recent: {{sql: SELECT * FROM orders, watermark: {{column: at, delay: {DELAY}}}}}
  totals: {{sql: "{WINDOW}"}}
sinks:
  out: {{kind: topic, topic: "${{RUN}}", format: json, key: customer}}
flows:
  totals: {{from: totals, to: out}}
"""
BARE = f"""\
import os
from pyspark.sql import SparkSession, functions as f

servers, run = os.environ["SERVERS"], os.environ["RUN"]
spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4).getOrCreate()
reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", "{TOPIC}")
records = reader.option("startingOffsets", "earliest").load()
parsed = f.from_json(f.col("value").cast("string"), "{PLAIN_SCHEMA}").alias("row")
records.select(parsed).select("row.*").withWatermark("at", "{DELAY}").createOrReplaceTempView("recent")
totals = spark.sql("{WINDOW}").select(f.col("customer").alias("key"), f.to_json(f.struct("*")).alias("value"))
writer = totals.writeStream.format("ottla").option("kafka.bootstrap.servers", servers).option("topic", run)
query = writer.option("checkpointLocation", os.environ["PLACE"] + "/" + run).trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
"""


def main() -> None:
    servers, place, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    fill(servers, TOPIC, ROWS, json_value)
    (place / "once.yaml").write_text(DESCRIPTION)
    sides = {
        "ottla": [sys.executable, "-m", "ottla", "pipeline", "run", str(place / "once.yaml"), "--once"],
        "bare session": [sys.executable, "-c", BARE],
    }
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side, command in sides.items():
            run = f"once-{number}-{side.split()[0]}"
            with ottla.Admin(bootstrap_servers=servers) as admin:
                admin.create_topics([ottla.NewTopic(run, PARTITIONS)]).check()
            environment = {**os.environ, "PLACE": str(place), "RUN": run, "SERVERS": servers}
            if side != "ottla":
                environment["PYSPARK_PYTHON"] = sys.executable  # the only one that has the format, for certain
            begun_s = time.perf_counter()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
            taken[side].append(time.perf_counter() - begun_s)
            if done.returncode:
                raise RuntimeError(f"{side} ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
