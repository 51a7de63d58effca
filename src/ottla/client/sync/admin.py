"""The admin client for threads: the calls of `ottla.client.aio.Admin`, with an event loop in a thread behind them."""

from __future__ import annotations

from ottla.client.sync.admin_access_calls import AccessCalls
from ottla.client.sync.admin_cluster_calls import ClusterCalls
from ottla.client.sync.admin_group_calls import GroupCalls
from ottla.client.sync.admin_topic_calls import TopicCalls
from ottla.client.sync.admin_transaction_calls import TransactionCalls


class Admin(TopicCalls, ClusterCalls, GroupCalls, TransactionCalls, AccessCalls):
    """Looks after topics, settings, groups, transactions, access and quotas; any thread may use it. Use it with `with`,
    or call `close`.

    Settings have Kafka's names in a mapping (`{"bootstrap.servers": "localhost:9092"}`) or are keywords
    (`bootstrap_servers="localhost:9092"`). A call about several things returns `Outcomes`, a result or an error for
    each; other calls raise. `timeout_ms` is for one call, in place of `default.api.timeout.ms`.
    """
