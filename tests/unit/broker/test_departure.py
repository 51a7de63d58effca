"""A broker that leaves its cluster: whom it asks, how often, and what it waits for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker import departure
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.departure import leave_cluster
from tests.waiting import run_async, until

LEFT = [TopicPartition("t", 0)]
RETRIES = {"controlled.shutdown.max.retries": "3", "controlled.shutdown.retry.backoff.ms": "1"}


class Leaving:
    """A broker of two, and a controller that answers what a test says."""

    def __init__(self, *answers: list[TopicPartition] | Exception, **settings: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int]] = []
        self.led: list[Any] = []
        self.broker: Any = SimpleNamespace(
            config=BrokerConfig({**RETRIES, **{name.replace("_", "."): value for name, value in settings.items()}}),
            image=SimpleNamespace(brokers={1: None, 2: None}),
            orphaned=asyncio.Event(),
            controller_client=SimpleNamespace(relieve=self._relieve),
            broker_id=1,
            orders=SimpleNamespace(broker_epoch=40),
            replicas=self.led,
        )

    async def _relieve(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        self.asked.append((broker_id, broker_epoch))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def partition(*followers: int, leads: bool = True) -> Any:
    return SimpleNamespace(leader=SimpleNamespace(followers=followers) if leads else None)


def test_it_waits_until_it_leads_nothing_that_others_have() -> None:
    async def test() -> None:
        leaving = Leaving([])
        leaving.led += [partition(2), partition(), partition(leads=False)]
        task = asyncio.create_task(leave_cluster(leaving.broker))
        await until(lambda: bool(leaving.asked))
        await asyncio.sleep(0.03)
        assert not task.done(), "clients are still served"
        leaving.led[0].leader = None
        await task
        assert leaving.asked == [(1, 40)]

    run_async(test())


def test_it_does_not_wait_for_ever_for_its_new_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "_HANDOVER_S", 0.03)

    async def test() -> None:
        leaving = Leaving([])
        leaving.led.append(partition(2))
        await leave_cluster(leaving.broker)

    run_async(test())


@pytest.mark.parametrize(
    ("answers", "tries", "gives_up"),
    [
        ([LEFT, []], 2, False),
        ([KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION), OSError("refused"), []], 3, False),
        ([LEFT, LEFT, LEFT], 3, True),
    ],
)
def test_it_asks_again_but_not_for_ever(
    caplog: pytest.LogCaptureFixture, answers: list[Any], tries: int, gives_up: bool
) -> None:
    async def test() -> None:
        leaving = Leaving(*answers)
        await leave_cluster(leaving.broker)
        assert len(leaving.asked) == tries

    run_async(test())
    assert any("this broker stops although" in message for message in caplog.messages) == gives_up


@pytest.mark.parametrize("case", ["alone", "orphaned", "switched off"])
def test_there_may_be_nobody_to_ask(case: str) -> None:
    async def test() -> None:
        leaving = Leaving(controlled_shutdown_enable="false") if case == "switched off" else Leaving()
        if case == "alone":
            del leaving.broker.image.brokers[2]
        if case == "orphaned":
            leaving.broker.orphaned.set()
        await leave_cluster(leaving.broker)
        assert leaving.asked == []

    run_async(test())
