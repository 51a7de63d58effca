"""Where the settings of each client end up: in its metadata, its buffer and its coordinators."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from ottla.client.aio.admin.caller import AdminCaller
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.producer import engine as engine_module
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.core.admin.options import AdminSettings
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.metadata import MetadataCache
from ottla.client.core.producer.options import ProducerSettings
from tests.waiting import run_async

SERVERS: dict[str, Any] = {"bootstrap.servers": "x:1"}
OWN: dict[str, Any] = {
    **SERVERS,
    "metadata.max.age.ms": 7001,
    "retry.backoff.ms": 7002,
    "retry.backoff.max.ms": 7003,
}


def limits(metadata: MetadataCache) -> tuple[int, int, int, int]:
    return metadata._max_age_ms, metadata._max_idle_ms, metadata._backoff_ms, metadata._backoff_max_ms


@pytest.mark.parametrize(
    ("given", "expected"), [(SERVERS, (300_000, 2000, 100, 1000)), (OWN, (7001, 2000, 7002, 7003))]
)
def test_the_metadata_of_a_consumer(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    """A topic that was only looked up is not asked about for long: that might make it anew."""

    async def scenario() -> None:
        engine = ConsumerEngine(ConsumerSettings.parse(given))
        assert limits(engine.metadata) == expected
        assert (engine.is_closed, engine.failure, engine.refusal, engine.has_refusal) == (False, None, None, False)
        assert engine.group_topics == frozenset() and engine.take_refusal() is None

    run_async(scenario())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (SERVERS, (300_000, 300_000, 100, 1000)),
        ({**OWN, "metadata.max.idle.ms": 7004}, (7001, 7004, 7002, 7003)),
    ],
)
def test_the_metadata_of_a_producer(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    async def scenario() -> None:
        engine = ProducerEngine(ProducerSettings.parse(given), lock=nullcontext(), on_memory=lambda: None)
        assert limits(engine.metadata) == expected

    run_async(scenario())


@pytest.mark.parametrize(
    ("given", "expected"),
    [(SERVERS, (300_000, 300_000, 100, 1000)), (OWN, (300_000, 300_000, 7002, 7003))],
)
def test_the_metadata_of_an_admin_client(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    caller = AdminCaller(AdminSettings.parse(given))
    assert limits(caller.metadata) == expected
    assert caller.link.client_id == "ottla-admin"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {},
            {
                "batch_size": 720_000,
                "buffer_memory": 33_554_432,
                "delivery_timeout_ms": 120_000,
                "steady_ms": 5,
                "adaptive": True,
                "availability_timeout_ms": 0,
            },
        ),
        (
            {
                "batch.size": 1,
                "buffer.memory": 2,
                "delivery.timeout.ms": 40_000,
                "linger.ms": 10,
                "partitioner.adaptive.partitioning.enable": False,
                "partitioner.availability.timeout.ms": 4,
            },
            {
                "batch_size": 1,
                "buffer_memory": 2,
                "delivery_timeout_ms": 40_000,
                "steady_ms": 10,
                "adaptive": False,
                "availability_timeout_ms": 4,
            },
        ),
        ({"linger.ms": 11}, {"steady_ms": 0}),
    ],
)
def test_the_buffer_of_a_producer(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    made: list[dict[str, Any]] = []
    accumulator: Any = vars(engine_module)["Accumulator"]

    def make(**options: Any) -> Any:
        made.append(options)
        return accumulator(**options)

    async def scenario() -> None:
        monkeypatch.setattr(engine_module, "Accumulator", make)
        ProducerEngine(ProducerSettings.parse({**SERVERS, **given}), lock=nullcontext(), on_memory=lambda: None)

    run_async(scenario())
    (options,) = made
    assert {name: options[name] for name in expected} == expected
    assert 0 <= options["random_below"](3) < 3
