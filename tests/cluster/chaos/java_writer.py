"""A writer that is Kafka's own: its Java producer, in the tool that Kafka's system tests use."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

from tests.checker import Operation, Outcome, Send
from tests.interop.kafka_tools import KafkaTools
from tests.waiting import PATIENCE_S, join, repeat_until

_CLASS = "org.apache.kafka.tools.VerifiableProducer"
_SETTINGS = "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=600000\nrequest.timeout.ms=10000\n"
_PER_S = 200
TOO_LATE = "Cannot perform operation after producer has been closed"
"""A signal closes the producer beside the loop that sends: the record of its last round is refused, and never sent."""


class JavaWriter:
    """Sends numbers to all partitions of a topic until it is told to stop."""

    def __init__(self, tools: KafkaTools, servers: str, topic: str, directory: Path) -> None:
        self.operations: list[Operation] = []
        self.failures: list[str] = []
        self._topic = topic
        self._is_ending = False
        settings = directory / "java-producer.properties"
        settings.write_text(_SETTINGS)
        arguments = ["--bootstrap-server", servers, "--topic", topic, "--throughput", str(_PER_S)]
        arguments += ["--value-prefix", "7", "--producer.config", str(settings)]
        self._process = tools.start(_CLASS, *arguments)
        self._thread = threading.Thread(target=self._listen, name="java writer", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line) if line.startswith("{") else {"name": "said", "line": line.rstrip()}
            if event["name"] == "producer_send_success":
                send = Send(f"{self._topic}-{event['partition']}", event["value"], event["offset"])
                self.operations.append(Operation("java", Outcome.OK, [send]))
            elif event["name"] in ("producer_send_error", "said") and not (self._is_ending and TOO_LATE in line):
                self.failures.append(line.rstrip())

    def finish(self) -> None:
        """It still sends what it has begun."""
        # Its very first send waits for metadata; ended in the middle of that, it calls the record failed.
        repeat_until(lambda: bool(self.operations or self.failures))
        self._is_ending = True
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        join(self._thread)
        # It tells of records as they are acknowledged. One whose request has timed out is sent again, and acknowledged
        # after those that were sent behind it.
        self.operations.sort(key=_number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


def _number(operation: Operation) -> int:
    (send,) = operation.sends()
    return int(send.value.rpartition(".")[2])
