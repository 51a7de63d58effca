"""Whether a query that has died may be started again: what failed, as Spark tells it, and how long to wait.

Pure. A query is started again only for what can pass by itself: brokers, databases and executors that were away for a
while. All else would fail in the same way once more, so it ends the pipeline at once.
"""

from __future__ import annotations

import re

from ottla.base.errors import ERRORS

_RETRIABLE_CODES = frozenset(code.name for code, info in ERRORS.items() if info.retriable) | {"NETWORK_EXCEPTION"}
_CODE = re.compile(r"\b[A-Z][A-Z_]{5,}\b")
_PASSING = re.compile(
    r"ClusterUnreachable"
    r"|ConnectionError|Connection ?Refused|Connection ?Reset|ConnectionAborted|BrokenPipe"
    r"|\bTimeoutError\b|MetadataTimeoutError|DeliveryTimeoutError|SocketTimeout"
    r"|OperationalError|DatabaseAwayError|database is locked|AdminShutdown|server closed the connection"
    r"|ExecutorLostFailure|executor \w+ exited|FetchFailed"
    r"|Python worker exited unexpectedly|Python worker failed to connect back",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"USER_RAISED_EXCEPTION|DATA_LOSS|DataLossError|SinkSchemaError|InvalidConfigError|AnalysisException|ParseException"
    r"|ProducerFenced|INVALID_PRODUCER_EPOCH|AUTHORIZATION_FAILED|SASL_AUTHENTICATION_FAILED"
)
"""Named here although something passing may be mentioned with them."""
_PLAN = "=== Streaming Query ==="
"""After this comes the query's plan, in which any word may be a column's name."""


def is_passing(failure: str) -> bool:
    """Whether the same query may well succeed later. `failure` is what Spark says ended it."""
    failure = failure.split(_PLAN, 1)[0]
    if _LASTING.search(failure):
        return False
    return bool(_PASSING.search(failure)) or any(code in _RETRIABLE_CODES for code in _CODE.findall(failure))
