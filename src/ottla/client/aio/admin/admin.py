"""The admin client for asyncio. What it can be asked is in families of calls, each in a module of its own."""

from __future__ import annotations

from typing import Self

from ottla.client.aio.admin.access_calls import AccessCalls
from ottla.client.aio.admin.cluster_calls import ClusterCalls
from ottla.client.aio.admin.group_calls import GroupCalls
from ottla.client.aio.admin.topic_calls import TopicCalls
from ottla.client.aio.admin.transaction_calls import TransactionCalls


class Admin(TopicCalls, ClusterCalls, GroupCalls, TransactionCalls, AccessCalls):
    """Looks after topics, settings, groups, transactions, access and quotas. Use it with `async with`, or `start` and
    `close`.

    Settings have Kafka's names in a mapping (`{"bootstrap.servers": "localhost:9092"}`) or are keywords
    (`bootstrap_servers="localhost:9092"`). A call about several things returns `Outcomes`, a result or an error for
    each; other calls raise. `timeout_ms` is for one call, in place of `default.api.timeout.ms`.
    """

    # Life

    async def start(self) -> Self:
        """Finds the cluster; `async with` calls this."""
        self._caller.check_open()
        try:
            await self._caller.start()
        except BaseException:
            self._caller.close()
            raise
        return self

    async def close(self) -> None:
        """Closes the connections. Closing twice is harmless."""
        self._caller.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
