"""Offsets of a transaction that another broker coordinates: they are stored only while it lasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.handlers.txn_offset_commit import _check_in_transaction
from ottla.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from tests.waiting import run_async

TP = TopicPartition("__consumer_offsets", 3)
PRODUCER_ID, EPOCH = 7, 2
FIRST_THAT_ADDS = 5


class Coordinator:
    """The transactions of this broker, whose coordinator is another one, and the partition of the group."""

    def __init__(self, version: int, *, verifies: bool = True, code: ErrorCode = ErrorCode.NONE) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.code = code
        self.verified_producers: dict[int, int] = {}
        self.meanwhile: dict[int, int] | None = None
        """What becomes of the verified producers while the coordinator is asked."""
        self.context: Any = SimpleNamespace(
            version=version,
            broker=SimpleNamespace(
                transactions=self,
                replicas=SimpleNamespace(led=lambda topic, partition: self),
                config=SimpleNamespace(flag=lambda name: verifies),
            ),
        )

    def is_coordinated_elsewhere(self, transactional_id: str) -> bool:
        return transactional_id == "tx"

    async def add_elsewhere(self, *arguments: object) -> dict[TopicPartition, ErrorCode]:
        return self._answer("add", *arguments)

    async def verify_committed(self, *arguments: object) -> dict[TopicPartition, ErrorCode]:
        return self._answer("verify", *arguments)

    def _answer(self, *asked: object) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(asked)
        assert self.verified_producers == {PRODUCER_ID: EPOCH}
        if self.meanwhile is not None:
            self.verified_producers = self.meanwhile
        return {TP: self.code}

    def check(self) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id="tx", group_id="g", producer_id=PRODUCER_ID, producer_epoch=EPOCH
        )
        run_async(_check_in_transaction(self.context, request, TP))


@pytest.mark.parametrize(("version", "asked"), [(FIRST_THAT_ADDS - 1, "verify"), (FIRST_THAT_ADDS, "add")])
def test_newer_clients_join_the_transaction_and_older_ones_must_be_in_it(version: int, asked: str) -> None:
    elsewhere = Coordinator(version)
    elsewhere.check()
    assert elsewhere.asked == [(asked, "tx", PRODUCER_ID, EPOCH, [TP])]
    assert elsewhere.verified_producers == {}


def test_without_verification_only_those_who_join_are_asked_for() -> None:
    older, newer = Coordinator(FIRST_THAT_ADDS - 1, verifies=False), Coordinator(FIRST_THAT_ADDS, verifies=False)
    older.check()
    newer.check()
    assert (len(older.asked), len(newer.asked)) == (0, 1)


@pytest.mark.parametrize("version", [FIRST_THAT_ADDS - 1, FIRST_THAT_ADDS])
def test_what_the_coordinator_refuses_is_refused(version: int) -> None:
    with pytest.raises(KafkaError) as refused:
        Coordinator(version, code=ErrorCode.INVALID_PRODUCER_EPOCH).check()
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("meanwhile", [{}, {PRODUCER_ID: EPOCH + 1}], ids=["it ended", "another one began"])
@pytest.mark.parametrize("version", [FIRST_THAT_ADDS - 1, FIRST_THAT_ADDS])
def test_a_transaction_that_ends_while_it_is_asked_for(version: int, meanwhile: dict[int, int]) -> None:
    elsewhere = Coordinator(version)
    elsewhere.meanwhile = dict(meanwhile)
    with pytest.raises(KafkaError) as refused:
        elsewhere.check()
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
