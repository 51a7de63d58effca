"""Calls about producers and transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio.admin.calls import AdminCalls
from ottla.client.aio.cluster_link import TRANSACTION
from ottla.client.core.admin import partitions as admin_partitions
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    FencedProducer,
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.producer.transaction import PreparedTransaction

HANGING_AFTER_MS = 15 * 60 * 1000
"""Longer than any transaction may take by default (`transaction.max.timeout.ms`)."""


class TransactionCalls(AdminCalls):
    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers that leaders of partitions remember."""
        wanted = as_list(partitions, "partitions")
        return await self._caller.leaders(admin_partitions.describe_producers_call(), wanted, timeout_ms)

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those in some states, of some producers, or with transactions open for long."""
        wanted = as_list(states, "states"), as_list(producer_ids, "producer_ids")
        outcomes = await self._caller.brokers(
            lambda node: admin_partitions.list_transactions_call(node, *wanted, min_duration_ms),
            None,
            timeout_ms,
        )
        return sorted({entry for entries in outcomes.check().values() for entry in entries})

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        call = admin_partitions.describe_transactions_call()
        wanted = as_list(transactional_ids, "transactional_ids")
        return await self._caller.coordinators(TRANSACTION, lambda _: call, wanted, timeout_ms)

    async def find_transaction_coordinators(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, BrokerAddress]:
        """The brokers that look after these transactional ids."""
        return await self._caller.find_coordinators(
            TRANSACTION, as_list(transactional_ids, "transactional_ids"), timeout_ms
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, FencedProducer]:
        """Aborts what producers have open, and shuts them out: they find themselves fenced."""
        wanted = as_list(transactional_ids, "transactional_ids")
        return await self._caller.coordinators(TRANSACTION, admin_partitions.fence_producer_call, wanted, timeout_ms)

    async def end_transactions(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Commits or aborts transactions that producers have prepared, wherever these are. Asking twice is harmless.

        The errors, by transactional id: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH if another producer has taken over or
        the time was up, and INVALID_TXN_STATE if the transaction has been ended the other way.
        """
        by_id = {transaction.transactional_id: transaction for transaction in as_list(transactions, "transactions")}
        return await self._caller.coordinators(
            TRANSACTION,
            lambda found: admin_partitions.end_transaction_call(found, by_id, committed=committed),
            by_id,
            timeout_ms,
        )

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        min_age_ms: int = HANGING_AFTER_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Transactions open in these partitions that no coordinator will end; nothing is written for `min_age_ms`."""
        producers = (await self.describe_producers(partitions, timeout_ms=timeout_ms)).check()
        open_in = {
            partition: [producer for producer in found if producer.txn_start_offset is not None]
            for partition, found in producers.items()
        }
        ids = {producer.producer_id for found in open_in.values() for producer in found}
        if not ids:
            return []
        listed = await self.list_transactions(producer_ids=ids, timeout_ms=timeout_ms)
        described = await self.describe_transactions(
            [entry.transactional_id for entry in listed], timeout_ms=timeout_ms
        )
        for error in described.errors.values():
            # An id that has expired since it was listed has no transaction.
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
        return admin_partitions.hanging(
            open_in, described.results.values(), older_than_ms=self._caller.clock.wall_ms() - min_age_ms
        )

    async def abort_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        """Ends a transaction in one partition behind its coordinator's back. For hanging ones only."""
        call = admin_partitions.abort_call(hanging.partition, hanging.producer)
        (await self._caller.leaders(call, [hanging.partition], timeout_ms)).check()
