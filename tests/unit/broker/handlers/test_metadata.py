"""Metadata while a broker starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.running_broker import RunningBroker, running_broker


@pytest.mark.parametrize("creates", [False, True])
def test_who_comes_before_the_controllers_first_word_is_answered_after_it(tmp_path: Path, creates: bool) -> None:
    topics = [MetadataRequestTopic(name="new")] if creates else []
    with running_broker(tmp_path) as running:
        answer = running.wait_for(_ask_before_the_first_word(running, MetadataRequest(topics=topics)))
    assert len(answer.brokers) == 1
    assert [topic.name for topic in answer.topics] == (["new"] if creates else [])


async def _ask_before_the_first_word(running: RunningBroker, request: MetadataRequest) -> Any:
    broker = running.broker
    brokers, broker.image.brokers = broker.image.brokers, {}
    broker.introduced.clear()
    answer = asyncio.ensure_future(running.answer(request))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not answer.done()
    broker.image.brokers = brokers
    broker.introduced.set()
    return await answer
