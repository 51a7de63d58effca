"""What may be tried again, and how Spark's messages become sentences."""

from __future__ import annotations

import pytest

from ottla.spark.pipeline.failures import is_passing
from ottla.spark.pipeline.sql_errors import shorten

PYTHON = """[STREAM_FAILED] Query [id = 704b, runId = 4f53] terminated with exception: [PYTHON_EXCEPTION] An exception \
was thrown from the Python worker: Traceback (most recent call last):
  File "/somewhere/views.py", line 36, in bad
    raise {error}
{error}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: y [id = 704b, runId = 4f53]
Logical Plan:
+- ~Project [TimeoutError#11L]
"""
RAISED = (
    "[USER_RAISED_EXCEPTION] a record cannot be read: topic a, partition 0, offset 7: NETWORK_EXCEPTION SQLSTATE: P0001"
)

RAISED_SENTENCE = "a record cannot be read: topic a, partition 0, offset 7: NETWORK_EXCEPTION"
IN_FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/somewhere/batch_writer.py", line 42, in __call__
    if not self._write(frame, batch):
py4j.protocol.Py4JJavaError: An error occurred while calling o2050.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
\t... 2 more
Caused by: {cause}
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2857)

=== Streaming Query ===
Identifier: f [id = 395d, runId = be9c]
"""


@pytest.mark.parametrize(
    "failure",
    [
        PYTHON.format(error="ottla.client.errors.ClusterUnreachableError: NETWORK_EXCEPTION: cannot reach 127.0.0.1:1"),
        PYTHON.format(error="ConnectionResetError: [Errno 104] Connection reset by peer"),
        PYTHON.format(error="psycopg.OperationalError: server closed the connection unexpectedly"),
        PYTHON.format(error="ottla.base.errors.KafkaError: NOT_LEADER_OR_FOLLOWER: this broker does not lead it"),
        PYTHON.format(error="KafkaError: REQUEST_TIMED_OUT: too late"),
        "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "org.apache.spark.SparkException: Python worker failed to connect back.",
    ],
)
def test_what_passes_by_itself(failure: str) -> None:
    assert is_passing(failure)


@pytest.mark.parametrize(
    "failure",
    [
        PYTHON.format(error="ZeroDivisionError: division by zero"),
        PYTHON.format(
            error="ottla.spark.data_loss.DataLossError: records are gone. REQUEST_TIMED_OUT is not the reason"
        ),
        PYTHON.format(error="KafkaError: UNKNOWN_SERVER_ERROR: oh"),
        RAISED,
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0. SQLSTATE: 22012",
        "requirement failed: noop does not support Update mode",
        "[STREAM_FAILED] Query [id = 704b, runId = 4f53] terminated with exception: Task not serializable",
    ],
)
def test_what_does_not(failure: str) -> None:
    assert not is_passing(failure)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (PYTHON.format(error="ZeroDivisionError: division by zero"), "ZeroDivisionError: division by zero"),
        (PYTHON.format(error="some.module.OddError: it [is] so"), "OddError: it [is] so"),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `foo` cannot be resolved. Did you mean one of the "
            "following? [`value`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['foo]\n+- ~SubqueryAlias clicks",
            "A column with name `foo` cannot be resolved. Did you mean one of the following? [`value`]",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '('. SQLSTATE: 42601 (line 2, pos 18)\n\n== SQL ==\n(",
            "Syntax error at or near '('",
        ),
        (
            "An error occurred while calling o7061.start.\n: org.apache.spark.SparkClassNotFoundException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: x. SQLSTATE: 42K02\n\tat org.apache",
            "Failed to find the data source: x",
        ),
        (RAISED, RAISED_SENTENCE),
        (IN_FOREACH_BATCH.format(cause=f"org.apache.spark.SparkRuntimeException: {RAISED}"), RAISED_SENTENCE),
        (
            IN_FOREACH_BATCH.format(
                cause="org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from "
                "the Python worker: Traceback (most recent call last):\n"
                '  File "v.py", line 4, in boom\nValueError: never\n SQLSTATE: 38000'
            ),
            "ValueError: never",
        ),
        (
            IN_FOREACH_BATCH.format(cause="java.io.IOException: No space left on device"),
            "IOException: No space left on device",
        ),
        (
            "[CANNOT_PARSE_INTERVAL] Unable to parse '2 secnds'. Please ensure that the value provided is in a valid "
            "format. SQLSTATE: 22006",
            "'2 secnds' is not a length of time. Write it as in '10 seconds' or '5 minutes'",
        ),
        ("plain words", "plain words"),
        ("", ""),
    ],
)
def test_sentences(message: str, expected: str) -> None:
    assert shorten(message) == expected
