"""Clients that outlive the calls they are made for: who gets which, and what a child process gets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ottla.client.sync import Consumer
from ottla.spark.connections import admin_for, consumer_for
from tests.broker_process import BrokerProcess


@pytest.fixture
def settings(spark_broker: BrokerProcess, new_topic: str) -> dict[str, str]:
    """Settings nobody else has, and so clients nobody else has."""
    return {"bootstrap.servers": spark_broker.bootstrap, "client.id": new_topic}


def test_the_next_task_gets_the_same_consumer(settings: dict[str, str]) -> None:
    with consumer_for(settings) as first:
        first.assign([("t", 0)])
    with consumer_for(settings) as second:
        assert second is first
        assert second.assignment == frozenset()
        with consumer_for(settings) as meanwhile:
            assert meanwhile is not first
    with consumer_for(settings) as third:
        assert third in (first, meanwhile)
    with consumer_for({**settings, "client.id": "another"}) as other:
        assert other is not third


def test_a_read_that_is_given_up_keeps_its_consumer_and_one_that_failed_does_not(settings: dict[str, str]) -> None:
    def read() -> Iterator[Consumer[bytes | None, bytes | None]]:
        with consumer_for(settings) as consumer:
            yield consumer
            yield consumer

    reading = read()
    first = next(reading)
    assert isinstance(reading, Iterator)
    reading.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="on purpose"), consumer_for(settings) as second:
        assert second is first
        raise RuntimeError("on purpose")
    with consumer_for(settings) as third:
        assert third is not first


def test_an_admin_client_is_shared_and_takes_no_settings_of_consumers(settings: dict[str, str]) -> None:
    admin = admin_for({**settings, "isolation.level": "read_committed"})
    assert admin_for(settings) is admin
    assert admin.list_topics() is not None


def test_a_child_process_has_clients_of_its_own(settings: dict[str, str]) -> None:
    with consumer_for(settings) as parents:
        pass
    admin = admin_for(settings)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run here, whatever happens.
        told = b"failed"
        try:
            with consumer_for(settings) as own:
                if own is not parents and admin_for(settings) is not admin:
                    own.list_topics(10)
                    told = b"own clients"
        finally:
            os.write(writer, told)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"own clients"
    os.waitpid(child, 0)
    with consumer_for(settings) as again:
        assert again is parents
