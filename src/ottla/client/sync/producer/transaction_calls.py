# Written by `make generate` from src/ottla/client/aio/producer/transaction_calls.py: change that instead.

"""What a producer for threads that has a transactional.id can be asked besides sending."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from ottla.client.aio.producer.transactions import Transactions
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.client.core.producer.transaction_messages import Offsets
from ottla.client.sync.thread_client import InThread


class ProducerTransactionCalls(InThread, ABC):
    @abstractmethod
    def _transactional(self) -> Transactions:
        """Raises if the producer cannot be used, or has no transactional.id."""

    def init_transactions(self) -> None:
        """Registers the transactional id: an older producer that uses it is fenced, what it left open is aborted."""
        self._call(self._transactional().init())

    def begin_transaction(self) -> None:
        self._transactional().begin()

    def send_offsets(self, offsets: Offsets, group: Membership | str) -> None:
        """Makes positions of a consumer group part of the transaction. `group` is its id, or a consumer's membership,
        which is checked: a member that has been replaced cannot commit."""
        self._call(self._transactional().send_offsets(offsets, group))

    def prepare_transaction(self) -> PreparedTransaction:
        """Sends what is left and leaves the transaction open. Another process may end it (`Admin.end_transactions`)."""
        return self._call(self._transactional().prepare())

    def commit_transaction(self) -> None:
        """Sends what is left and commits. If the error that is raised `requires_abort`, abort and start anew."""
        self._call(self._transactional().commit())

    def abort_transaction(self) -> None:
        self._call(self._transactional().abort())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction as a block: committed at its end, aborted if it raises. Initializes on first use."""
        transactions = self._transactional()
        if not transactions.is_initialized:
            self.init_transactions()
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if transactions.can_abort:
                self.abort_transaction()
            raise
