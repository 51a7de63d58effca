"""Three brokers in the state that the recording began with, and its commands run there through our scripts."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import ottla
from ottla.cli.kafka_names.aliases import write_scripts
from ottla.testing import EmbeddedCluster
from tests.interop.terminal.forked_commands import ForkedCommands
from tests.interop.terminal.recording import Recorded
from tests.interop.terminal.transcript import Said
from tests.ports import free_port
from tests.waiting import PATIENCE_S

_LIMIT_S = 30
_QUIET_MS = "1000"
"""How long the console consumer waits for more, in place of the recording's several seconds."""
_SETTINGS = {
    "num.partitions": "1",
    "default.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
_MOVING = "is still in progress"


class RecordedCluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        racks = {broker_id: {"broker.rack": f"r{broker_id}"} for broker_id in (1, 2, 3)}
        self.cluster = EmbeddedCluster(3, config=_SETTINGS, broker_config=racks)
        self._dead_port = free_port()
        self._members: list[subprocess.Popen[str]] = []
        self._prepared: set[str] = set()
        self._open: list[ottla.Producer[bytes, bytes]] = []

    def start(self) -> RecordedCluster:
        self.cluster.start()
        write_scripts(self.directory / "bin")
        self._commands = ForkedCommands(self.directory)
        self.names = {
            **{f"127.0.0.1:<PORT{number}>": self.cluster[number].bootstrap_servers for number in self.cluster.ids},
            **{f"<PORT{number}>": str(self.cluster[number].port) for number in self.cluster.ids},
            "<DEAD>": str(self._dead_port),
            "<CWD>": str(self.directory),
            **{f"<LOGDIR{number}>": str(self.cluster[number].data_dir) for number in self.cluster.ids},
        }
        return self

    def stop(self) -> None:
        self.dismiss()
        self._commands.close()
        for producer in self._open:
            producer.close()
        self.cluster.stop()

    @property
    def bootstrap(self) -> str:
        return self.cluster[1].bootstrap_servers

    def prepare(self, part: str) -> None:
        if part not in self._prepared:
            self._prepared.add(part)
            _PREPARATIONS.get(part, lambda _: None)(self)

    def run(self, recorded: Recorded) -> Said:
        self.prepare(recorded.part)
        for name, content in recorded.files.items():
            (self.directory / name).write_text(self.real(content))
        command = self.real(recorded.command.replace("<B>", "--bootstrap-server 127.0.0.1:<PORT1>"))
        command = re.sub(r"(?<=--timeout-ms )\d+", _QUIET_MS, command)
        interrupt = 3 if "stopped with Ctrl-C" in recorded.remark or "again with SIGTERM" in recorded.remark else None
        # What was done when it was recorded may take longer here.
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            said = self._commands.run(shlex.split(command), recorded.text, _LIMIT_S, interrupt)
            if _MOVING not in said.output or _MOVING in recorded.theirs.output or time.monotonic() > deadline_s:
                break
        return said._replace(output=self.named(said.output), error=self.named(said.error))

    def real(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(name, value)
        text = re.sub(r"<(\d+) TIMES x>", lambda found: "x" * int(found[1]), text)
        return text

    def named(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(value, name)
        return re.sub(r"x{200,}", lambda found: f"<{len(found[0])} TIMES x>", text)

    # States

    def topics(self, *names: str, partitions: int = 1, **configs: str) -> None:
        """With two replicas of each partition, always in the same places."""
        self.assigned({name: [[1, 2], [2, 3], [3, 1]][:partitions] for name in names}, **configs)

    def assigned(self, replicas: dict[str, list[list[int]]], **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = [ottla.NewTopic(name, assignments=lists, configs=settings) for name, lists in replicas.items()]
        with ottla.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics(new).check()

    def write(self, counts: dict[tuple[str, int], int]) -> None:
        with ottla.Producer(bootstrap_servers=self.bootstrap) as producer:
            for (topic, partition), count in counts.items():
                for number in range(count):
                    producer.send(topic, f"{topic}-{number}".encode(), partition=partition)

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        with ottla.Admin(bootstrap_servers=self.bootstrap) as admin:
            places = {ottla.TopicPartition(topic, index): offset for index, offset in enumerate(offsets)}
            admin.alter_group_offsets(group, places).check()

    def transact(self, transactional_id: str, topic: str, *values: bytes, ends: str) -> None:
        producer = ottla.Producer(bootstrap_servers=self.bootstrap, transactional_id=transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value).result()
        if ends == "open":
            self._open.append(producer)
            return
        producer.commit_transaction() if ends == "commit" else producer.abort_transaction()
        producer.close()

    def join(self, group: str, topics: str, *properties: str) -> None:
        words = [str(self.directory / "bin" / "kafka-console-consumer.sh"), "--bootstrap-server", self.bootstrap]
        words += ["--include", topics, "--group", group, "--from-beginning"]
        for one in properties:
            words += ["--consumer-property", one]
        self._members.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True))

    def wait_for_members(self, group: str, count: int) -> None:
        """Until they share partitions, and have committed that they have read everything."""
        deadline_s = time.monotonic() + PATIENCE_S
        table = ["kafka-consumer-groups.sh", "--bootstrap-server", self.bootstrap, "--describe", "--group", group]
        while True:
            rows = [line.split() for line in self._commands.run(table, "", _LIMIT_S).output.splitlines()[2:]]
            if rows and len({row[6] for row in rows} - {"-"}) == count and all(row[5] == "0" for row in rows):
                return
            assert time.monotonic() < deadline_s, rows
            time.sleep(0.2)

    def dismiss(self) -> None:
        for process in self._members:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
        self._members.clear()


def _prepare_producing(at: RecordedCluster) -> None:
    at.topics("chat", "keyed", "hdr", "nulls", "codec", "txn", "ship", "cfg")
    at.topics("lat", message_timestamp_type="LogAppendTime")
    at.topics("multi", "pay", partitions=3)


def _prepare_reading(at: RecordedCluster) -> None:
    at.write({("multi", 0): 3, ("multi", 1): 4, ("multi", 2): 2, ("lat", 0): 1})
    at.transact("tx-a", "txn", b"commit-0", b"commit-1", ends="commit")
    at.transact("tx-b", "txn", b"abort-0", b"abort-1", ends="abort")
    at.transact("tx-a", "txn", b"commit-0", ends="commit")


def _prepare_groups(at: RecordedCluster) -> None:
    at.write({("pay", 0): 12, ("pay", 1): 13, ("pay", 2): 11, ("ship", 0): 5})
    at.commit("g-empty", "pay", 0, 0, 10)
    at.commit("g-ship", "ship", 5)
    for group in ("g-console", "g-file", "g-sig", "g-txn"):
        at.commit(group, "chat", 3)
    at.join("g-active", "pay", "client.id=c-one", "session.timeout.ms=6000")
    at.join("g-active", "pay", "client.id=c-two", "group.instance.id=static-2", "session.timeout.ms=6000")
    at.wait_for_members("g-active", 2)


def _prepare_wide_groups(at: RecordedCluster) -> None:
    at.dismiss()
    at.join("g-multi", "multi|lat")
    at.wait_for_members("g-multi", 1)


def _prepare_moves(at: RecordedCluster) -> None:
    at.dismiss()
    at.assigned({"mv": [[1, 2], [2, 3]], "big": [[1], [1]]})
    with ottla.Producer(bootstrap_servers=at.bootstrap) as producer:
        for number in range(400):
            producer.send("big", bytes(100_000), partition=number % 2)


def _prepare_offsets(at: RecordedCluster) -> None:
    at.topics("idx")
    at.write({("idx", 0): 20})


def _prepare_transactions(at: RecordedCluster) -> None:
    at.topics("perf", "ledger")
    at.transact("tx-open", "ledger", b"one", b"two", ends="open")


def _prepare_broker_down(at: RecordedCluster) -> None:
    at.assigned({"un": [[3, 2]], "dm": [[1, 3], [3, 1]], "solo": [[3]]})
    at.cluster.kill(3)
    with ottla.Admin(bootstrap_servers=at.bootstrap) as admin:
        deadline_s = time.monotonic() + PATIENCE_S
        while 3 in admin.describe_cluster().brokers:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)


_PREPARATIONS: dict[str, Callable[[RecordedCluster], None]] = {
    "kafka-console-producer.sh": _prepare_producing,
    "kafka-console-consumer.sh": _prepare_reading,
    "kafka-consumer-groups.sh: list, describe": _prepare_groups,
    "kafka-consumer-groups.sh: widths, several topics": _prepare_wide_groups,
    "kafka-reassign-partitions.sh": _prepare_moves,
    "kafka-get-offsets.sh": _prepare_offsets,
    "kafka-transactions.sh": _prepare_transactions,
    "One broker (3) down": _prepare_broker_down,
}
