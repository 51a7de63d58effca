# Written by `make generate` from src/ottla/client/aio/admin/admin.py: change that instead.

"""The admin client for threads. What it can be asked is in families of calls, each in a module of its own."""

from __future__ import annotations

from ottla.client.sync.admin.access_calls import AccessCalls
from ottla.client.sync.admin.cluster_calls import ClusterCalls
from ottla.client.sync.admin.group_calls import GroupCalls
from ottla.client.sync.admin.topic_calls import TopicCalls
from ottla.client.sync.admin.transaction_calls import TransactionCalls


class Admin(TopicCalls, ClusterCalls, GroupCalls, TransactionCalls, AccessCalls):
    """Looks after topics, settings, groups, transactions, access and quotas; any thread may use it. Use it with `with`,
    or call `close`.

    Settings have Kafka's names in a mapping (`{"bootstrap.servers": "localhost:9092"}`) or are keywords
    (`bootstrap_servers="localhost:9092"`). A call about several things returns `Outcomes`, a result or an error for
    each; other calls raise. `timeout_ms` is for one call, in place of `default.api.timeout.ms`.
    """

    # Life

    def close(self) -> None:
        """Closes the connections. Closing twice is harmless."""
        self._close()
