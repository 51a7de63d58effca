"""What a producer that has a transactional.id can be asked besides sending."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from ottla.client.aio.producer.transactions import Transactions
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.client.core.producer.transaction_messages import Offsets


class ProducerTransactionCalls(ABC):
    @abstractmethod
    def _transactional(self) -> Transactions:
        """Raises if the producer cannot be used, or has no transactional.id."""

    async def init_transactions(self) -> None:
        """Registers the transactional id: an older producer that uses it is fenced, what it left open is aborted."""
        await self._transactional().init()

    async def begin_transaction(self) -> None:
        self._transactional().begin()

    async def send_offsets(self, offsets: Offsets, group: Membership | str) -> None:
        """Makes positions of a consumer group part of the transaction. `group` is its id, or a consumer's membership,
        which is checked: a member that has been replaced cannot commit."""
        await self._transactional().send_offsets(offsets, group)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Sends what is left and leaves the transaction open. Another process may end it (`Admin.end_transactions`)."""
        return await self._transactional().prepare()

    async def commit_transaction(self) -> None:
        """Sends what is left and commits. If the error that is raised `requires_abort`, abort and start anew."""
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        await self._transactional().abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction as a block: committed at its end, aborted if it raises. Initializes on first use."""
        transactions = self._transactional()
        if not transactions.is_initialized:
            await self.init_transactions()
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if transactions.can_abort:
                await self.abort_transaction()
            raise
