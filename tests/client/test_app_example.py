"""The worked example, served by uvicorn in a process of its own, asked over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ottla
from ottla.testing import EmbeddedBroker
from tests.ports import free_port

PATIENCE_S = 30.0
ROOT = Path(__file__).parents[2]


def eventually(ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    answer: Any = None
    while time.monotonic() < deadline_s:
        try:
            answer = ask()
            if is_right(answer):
                return answer
        except httpx.TransportError as e:
            answer = e
        time.sleep(0.05)
    raise AssertionError(f"it did not happen in time; the last answer was {answer!r}")


class Served:
    def __init__(self, bootstrap: str, topic: str, log: Path) -> None:
        self.topic = topic
        self.log = log
        port = free_port()
        environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": bootstrap, "TOPIC": topic, "GROUP_ID": f"group-{topic}"}
        command = [sys.executable, "-m", "uvicorn", "examples.web_app.main:web", "--host", "127.0.0.1"]
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*command, "--port", str(port)], cwd=ROOT, env=environment, stdout=output, stderr=output
            )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def stop(self) -> int:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def served(ottla_broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Served]:
    found = Served(ottla_broker.bootstrap_servers, ottla_broker.new_topic("web"), tmp_path / "web.log")
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait(PATIENCE_S)


def test_sending_and_listening(served: Served, ottla_broker: EmbeddedBroker) -> None:
    assert eventually(lambda: served.get("/health"), lambda answer: answer == {}) == {}
    assert served.get("/send/sync/hello") == {"topic": served.topic, "partition": 0, "offset": 0}
    answer = served.client.get("/send/async/world")
    assert (answer.status_code, answer.json()) == (202, {"topic": served.topic})
    eventually(lambda: served.get("/heard"), lambda heard: sorted(heard) == ["hello", "world"])
    with ottla.Producer(bootstrap_servers=ottla_broker.bootstrap_servers) as producer:
        producer.send(served.topic, b'{"text": "short", "length": "5"}').result(PATIENCE_S)
    with ottla.Consumer(bootstrap_servers=ottla_broker.bootstrap_servers) as consumer:
        dead = f"{served.topic}.dlt"
        eventually(lambda: consumer.partitions_for(dead), bool)
        consumer.assign([(dead, 0)])
        consumer.seek_to_beginning()
        (letter,) = consumer.poll(PATIENCE_S)
        assert letter.value == b'{"text": "short", "length": "5"}'
        assert b"length should be a valid integer, but is text" in (
            dict(letter.headers)["ottla.dead-letter.message"] or b""
        )
    assert served.get("/send/sync/again")["offset"] == 3
    eventually(lambda: served.get("/heard"), lambda heard: "again" in heard)
    assert served.stop() in (0, -signal.SIGTERM), served.log.read_text()
    assert "Application shutdown complete" in served.log.read_text()
    with ottla.Admin(bootstrap_servers=ottla_broker.bootstrap_servers) as admin:
        committed = admin.list_group_offsets([f"group-{served.topic}"])[f"group-{served.topic}"]
    assert committed[ottla.TopicPartition(served.topic, 0)].offset == 4


def test_without_a_broker_it_says_so_and_waits(tmp_path: Path) -> None:
    served = Served("127.0.0.1:1", "messages", tmp_path / "web.log")
    try:
        eventually(lambda: served.get("/heard"), lambda heard: heard == [])
        assert "ottla-app cannot reach 127.0.0.1:1: nothing listens there" in served.log.read_text()
    finally:
        served.process.kill()
        served.process.wait(PATIENCE_S)
