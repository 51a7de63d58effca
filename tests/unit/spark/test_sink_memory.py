"""What the garbage collector is spared in processes that Spark keeps: modules, but not what tasks leave behind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

PROCESS = """
import gc, json, weakref
from pyspark.sql.types import BinaryType, StructField, StructType
from ottla.spark import sink
from ottla.spark.sink_options import Delivery, SinkOptions

class Garbage:
    def __init__(self):
        self.itself = self

schema = StructType([StructField("value", BinaryType())])
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
parsed = SinkOptions.parse(options, schema, default=Delivery.AT_LEAST_ONCE)

def count():
    return len(gc.get_objects()), gc.get_freeze_count()

FIRST_TASK
gc.collect()
first = count()
left = weakref.ref(Garbage())
AGAIN
gc.collect()
print(json.dumps({"first": first, "again": count(), "is_collected": left() is None}))
"""

TASKS = {
    "planning": "sink.batch_writer(options, schema, False)",
    "planning a stream": "sink.stream_writer(options, schema, False)",
    "writing": "sink.PlainBatchWriter(parsed).write(iter(()))",
    "committing": "sink.PlainBatchWriter(parsed).commit([])",
    "committing transactions": "sink.TransactionalBatchWriter(parsed).commit([])",
}


@pytest.mark.parametrize("task", TASKS)
def test_after_the_first_task_only_garbage_is_looked_for(task: str) -> None:
    code = PROCESS.replace("FIRST_TASK", TASKS[task]).replace("AGAIN", TASKS[task])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    found = json.loads(done.stdout)
    tracked, frozen = found["first"]
    assert frozen > 10 * tracked
    assert found["again"][1] <= frozen, "what a later task has made is not kept"
    assert found["is_collected"]
