"""How a transaction's coordinator is asked again: after which pauses, and when it is looked for anew."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.aio.cluster_link import TRANSACTION
from ottla.client.aio.producer.transactions import Transactions
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.transaction import ProducerTransaction
from ottla.client.core.producer.transaction_messages import overall_error
from ottla.client.errors import ClientError
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from tests.unit.client.loop_time import now_s, run

E = ErrorCode


class Scene:
    """Codes of answers, or errors of the connection, one after the other; then all is fine."""

    def __init__(self, *answers: Any, **settings: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, int, int | None]] = []
        self.searched: list[tuple[str, int]] = []
        self.calls: list[str] = []
        given = {"bootstrap.servers": "x:1", "transactional.id": "tx", **settings}

        @asynccontextmanager
        async def limit(timeout_ms: int) -> Any:
            async with asyncio.timeout(timeout_ms / 1000):
                yield

        engine: Any = SimpleNamespace(
            settings=ProducerSettings.parse(given),
            lock=nullcontext(),
            limit=limit,
            link=SimpleNamespace(find_coordinator=self._find, request=self._request),
            metadata=SimpleNamespace(request_update=lambda: self.calls.append("update")),
            wake=lambda: self.calls.append("wake"),
            why_waiting=lambda: "cannot reach x:1: refused",
            give_up_records=lambda: self.calls.append("give up"),
        )
        self.transactions = Transactions(engine, ProducerTransaction())

    async def _find(self, key: str, kind: int) -> int:
        self.searched.append((key, kind))
        return 6 + len(self.searched)

    async def _request(self, node_id: int, request: object, kind: Any, *, max_version: int | None) -> Any:
        self.asked.append((now_s(), node_id, max_version))
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, KafkaError):
            raise answer
        return kind(error_code=answer)

    async def ask(self) -> EndTxnResponse:
        return await self.transactions._ask(
            ("tx", TRANSACTION), EndTxnRequest(), EndTxnResponse, overall_error, max_version=3
        )


@pytest.mark.parametrize(
    ("settings", "times_s"),
    [
        ({}, [0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5]),
        ({"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}, [0, 0.02, 0.06, 0.11, 0.16]),
    ],
)
def test_pauses_grow(settings: dict[str, Any], times_s: list[float]) -> None:
    async def scenario() -> None:
        here = Scene(*[E.CONCURRENT_TRANSACTIONS] * (len(times_s) - 1), **settings)
        assert await here.ask() == EndTxnResponse()
        assert [at_s for at_s, *_ in here.asked] == pytest.approx(times_s)
        assert {(node, version) for _, node, version in here.asked} == {(7, 3)}
        assert here.searched == [("tx", 1)] and here.calls == []
        troubles: list[KafkaError | None] = [here.transactions._trouble]
        await here.ask()
        troubles.append(here.transactions._trouble)
        assert [trouble and trouble.code for trouble in troubles] == [E.CONCURRENT_TRANSACTIONS, None]
        assert len(here.searched) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("error", "is_looked_for"),
    [
        (E.NOT_COORDINATOR, True),
        (E.COORDINATOR_NOT_AVAILABLE, True),
        (KafkaError("away", code=E.NETWORK_EXCEPTION), True),
        (KafkaError("late", code=E.REQUEST_TIMED_OUT), True),
        (E.COORDINATOR_LOAD_IN_PROGRESS, False),
        (E.CONCURRENT_TRANSACTIONS, False),
        (E.UNKNOWN_TOPIC_OR_PARTITION, False),
    ],
)
def test_a_coordinator_that_may_have_moved_is_looked_for(error: Any, is_looked_for: bool) -> None:
    async def scenario() -> None:
        here = Scene(error)
        await here.ask()
        assert [node for _, node, _ in here.asked] == ([7, 8] if is_looked_for else [7, 7])
        assert here.calls == (["update", "wake"] if is_looked_for else [])

    run(scenario)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, None),
        (KafkaError("not here", code=E.UNSUPPORTED_VERSION), E.UNSUPPORTED_VERSION, "not here"),
        (KafkaError("gone", code=E.BROKER_NOT_AVAILABLE), E.BROKER_NOT_AVAILABLE, "gone"),
        (ClientError("as it is", code=E.INVALID_REQUEST), E.INVALID_REQUEST, "as it is"),
    ],
)
def test_what_does_not_pass_is_the_end(error: Any, code: ErrorCode, words: str | None) -> None:
    async def scenario() -> None:
        here = Scene(error)
        with pytest.raises(ClientError) as refused:
            await here.ask()
        assert refused.value.code is code and len(here.asked) == 1
        if words is not None:
            assert refused.value.message == words

    run(scenario)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [([], " (cannot reach x:1: refused)"), ([KafkaError("loading", code=E.COORDINATOR_LOAD_IN_PROGRESS)], None)],
)
def test_who_waits_in_vain_is_told_why(answers: list[KafkaError], reason: str | None) -> None:
    async def scenario() -> None:
        here = Scene(*answers * 999, **{"max.block.ms": 2000})

        async def never(key: str, kind: int) -> int:
            await asyncio.Event().wait()
            return 7

        if not answers:
            here.transactions._engine.link.find_coordinator = never  # type: ignore[method-assign]
        with pytest.raises(ClientError) as late:
            await here.transactions.init()
        told = reason or " (COORDINATOR_LOAD_IN_PROGRESS: loading)"
        words = f"init_transactions() was not done within max.block.ms, 2000 ms{told}; call it again"
        assert (late.value.code, late.value.message, now_s()) == (E.REQUEST_TIMED_OUT, words, 2.0)
        assert not late.value.fatal and not here.transactions.is_initialized

    run(scenario)
