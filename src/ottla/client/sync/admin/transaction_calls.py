# Written by `make generate` from src/ottla/client/aio/admin/transaction_calls.py: change that instead.

"""Calls about producers and transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.base.types import TopicPartition
from ottla.client.aio.admin.transaction_calls import HANGING_AFTER_MS
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
from ottla.client.sync.admin.calls import AdminCalls


class TransactionCalls(AdminCalls):
    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers that leaders of partitions remember."""
        return self._call(self._inner.describe_producers(partitions, timeout_ms=timeout_ms))

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those in some states, of some producers, or with transactions open for long."""
        return self._call(
            self._inner.list_transactions(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms, timeout_ms=timeout_ms
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        return self._call(self._inner.describe_transactions(transactional_ids, timeout_ms=timeout_ms))

    def find_transaction_coordinators(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, BrokerAddress]:
        """The brokers that look after these transactional ids."""
        return self._call(self._inner.find_transaction_coordinators(transactional_ids, timeout_ms=timeout_ms))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, FencedProducer]:
        """Aborts what producers have open, and shuts them out: they find themselves fenced."""
        return self._call(self._inner.fence_producers(transactional_ids, timeout_ms=timeout_ms))

    def end_transactions(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Commits or aborts transactions that producers have prepared, wherever these are. Asking twice is harmless.

        The errors, by transactional id: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH if another producer has taken over or
        the time was up, and INVALID_TXN_STATE if the transaction has been ended the other way.
        """
        return self._call(self._inner.end_transactions(transactions, committed=committed, timeout_ms=timeout_ms))

    def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        min_age_ms: int = HANGING_AFTER_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Transactions open in these partitions that no coordinator will end; nothing is written for `min_age_ms`."""
        return self._call(
            self._inner.find_hanging_transactions(partitions, min_age_ms=min_age_ms, timeout_ms=timeout_ms)
        )

    def abort_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        """Ends a transaction in one partition behind its coordinator's back. For hanging ones only."""
        self._call(self._inner.abort_transaction(hanging, timeout_ms=timeout_ms))
