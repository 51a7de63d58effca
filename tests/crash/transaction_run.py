"""Kills brokers and clients in the middle of transactions and judges the rest. `make crash-transactions` runs it.

The first half writes transactions to eight partitions and kills the broker at seeded moments, some of which fall
between a decision and its last marker: every transaction must be there whole or not at all. The second half copies one
topic into another, exactly once, while broker and copier are killed in turns.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker_process import BrokerProcess
from tests.checker import Operation, Outcome, check
from tests.crash import wire_view
from tests.crash.transaction_load import CommittedReader, TransactionLoad
from tests.interop.transactions.raw_producer import fetch, until
from tests.raw_client import RawClient
from tests.waiting import PATIENCE_S

PARTITIONS = 8
COPY_PARTITIONS = 4
WRITERS = 3
PER_PARTITION = 10
SETTINGS = {
    "log.segment.bytes": "1000000",
    "log.index.size.max.bytes": "65536",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}
SOURCE, TARGET, GROUP = "source", "target", "copiers"
_LIFE_S = (0.3, 1.5)
_COPY_S = (0.05, 0.7)
_PATIENCE_S = 120


@dataclass
class Figures:
    broker_kills: int = 0
    client_kills: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    """Transactions whose client gave up before it knew."""
    records: int = 0
    read: int = 0
    copied: int = 0

    def __str__(self) -> str:
        shown = ((name.replace("_", " "), value) for name, value in asdict(self).items())
        return ", ".join(f"{value} {name}" for name, value in shown if value)


class AllOrNothingRun:
    """Broken rules raise AssertionError."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.broker = BrokerProcess(data_dir, dict(SETTINGS))
        self.figures = Figures()
        self._rng = random.Random(seed)
        self._seed = seed

    def run(self, kills: int, records: int) -> Figures:
        try:
            self.broker.start()
            with RawClient(self.broker.port) as client:
                wire_view.create_topic(client, "eightfold", PARTITIONS, {})
            bootstrap = self.broker.bootstrap
            writers = [
                TransactionLoad(f"w{n}", bootstrap, "eightfold", PARTITIONS, PER_PARTITION, self._seed + n)
                for n in range(WRITERS)
            ]
            reader = CommittedReader("along", bootstrap, "eightfold", PARTITIONS)
            reader.start()
            for writer in writers:
                writer.start()
            deadline_s = time.monotonic() + _PATIENCE_S + records / 1000
            while self.figures.broker_kills < kills or sum(writer.records for writer in writers) < records:
                assert time.monotonic() < deadline_s, f"only {[writer.records for writer in writers]} records came"
                time.sleep(self._rng.uniform(*_LIFE_S))
                if self.figures.broker_kills < kills:
                    self._kill_broker()
            for writer in writers:
                writer.ask_to_finish()
            for writer in writers:
                writer.finish()
            assert [failure for writer in writers for failure in writer.failures] == []
            self._kill_broker()
            _wait_until_all_have_ended(self.broker.port, "eightfold", PARTITIONS)
            final = CommittedReader("final", bootstrap, "eightfold", PARTITIONS)
            final.read_to_the_end()
            reader.finish()
            self._judge([op for writer in writers for op in writer.history], reader.history + final.history)
            assert self.broker.stop() == 0
        finally:
            self.broker.kill()
        return self.figures

    def _kill_broker(self) -> None:
        self.broker.kill()
        assert self.broker.tracebacks() == [], "\n".join(self.broker.log_lines)
        self.figures.broker_kills += 1
        self.broker.start()

    def _judge(self, written: list[Operation], read: list[Operation]) -> None:
        outcomes = Counter(operation.outcome for operation in written)
        figures = self.figures
        figures.committed, figures.aborted = outcomes[Outcome.OK], outcomes[Outcome.FAIL]
        figures.unknown = outcomes[Outcome.INFO]
        figures.records = sum(len(operation.steps) for operation in written)
        figures.read = sum(len(poll.records) for operation in read if operation.is_final for poll in operation.polls())
        anomalies = check(written + read)
        assert anomalies == [], f"{len(anomalies)} anomalies, first: {anomalies[:5]}"


class CopyRun:
    """The input, and nothing else, is in the output once."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.broker = BrokerProcess(data_dir, dict(SETTINGS))
        self.figures = Figures()
        self._rng = random.Random(seed)
        self._copier: subprocess.Popen[bytes] | None = None

    def run(self, broker_kills: int, client_kills: int, records: int) -> Figures:
        try:
            self.broker.start()
            with RawClient(self.broker.port) as client:
                for topic in (SOURCE, TARGET):
                    wire_view.create_topic(client, topic, COPY_PARTITIONS, {})
            left = ["broker"] * broker_kills + ["client"] * client_kills
            self._rng.shuffle(left)
            self._start_copier()
            # Each kill finds work that is not done yet.
            portion = records // (len(left) + 1)
            for number, victim in enumerate(left):
                self._fill(range(number * portion, (number + 1) * portion))
                time.sleep(self._rng.uniform(*_COPY_S))
                self._kill(victim)
            self._fill(range(len(left) * portion, records))
            deadline_s = time.monotonic() + _PATIENCE_S + records / 500
            while not self._is_copied(records):
                assert time.monotonic() < deadline_s, "the copy does not end"
                time.sleep(0.1)
                self._revive_copier()
            self._judge(records)
        finally:
            self._stop_copier()
            self.broker.kill()
        return self.figures

    def _fill(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        for number in numbers:
            producer.produce(SOURCE, str(number), partition=number % COPY_PARTITIONS)
        assert producer.flush(60) == 0

    def _revive_copier(self) -> None:
        """A copier whose producer cannot go on ends, and is started again as a supervised service would be."""
        assert self._copier is not None
        if self._copier.poll() is not None:
            self._start_copier()

    def _start_copier(self) -> None:
        command = [sys.executable, "-m", "tests.crash.copier", self.broker.bootstrap, SOURCE, TARGET, GROUP]
        self._copier = subprocess.Popen(command)

    def _stop_copier(self) -> None:
        if self._copier is not None:
            self._copier.kill()
            self._copier.wait(PATIENCE_S)

    def _kill(self, victim: str) -> None:
        self._revive_copier()
        if victim == "broker":
            self.broker.kill()
            assert self.broker.tracebacks() == [], "\n".join(self.broker.log_lines)
            self.figures.broker_kills += 1
            self.broker.start()
        else:
            self._stop_copier()
            self.figures.client_kills += 1
            self._start_copier()

    def _is_copied(self, records: int) -> bool:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        asked = ConsumerGroupTopicPartitions(
            GROUP, [TopicPartition(SOURCE, partition) for partition in range(COPY_PARTITIONS)]
        )
        try:
            found = admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=5)[GROUP].result(5)
        except KafkaException:
            # While a transaction is open, or the coordinator loads, there is no answer yet.
            return False
        return bool(sum(max(place.offset, 0) for place in found.topic_partitions) == records)

    def _judge(self, records: int) -> None:
        self._stop_copier()
        _wait_until_all_have_ended(self.broker.port, TARGET, COPY_PARTITIONS)
        final = CommittedReader("final", self.broker.bootstrap, TARGET, COPY_PARTITIONS)
        final.read_to_the_end()
        seen = [poll for operation in final.history for poll in operation.polls()]
        for partition in range(COPY_PARTITIONS):
            numbers = [int(value) for poll in seen if poll.key == f"{TARGET}-{partition}" for _, value in poll.records]
            wanted = list(range(partition, records, COPY_PARTITIONS))
            doubles = [number for number, count in Counter(numbers).items() if count > 1]
            assert not doubles, f"{TARGET}-{partition} has {doubles[:5]} twice"
            missing = sorted(set(wanted) - set(numbers))
            assert not missing, f"{TARGET}-{partition} lacks {missing[:5]} and more, {len(missing)} in all"
            assert numbers == wanted, f"{TARGET}-{partition} has the records in another order, or others"
            self.figures.copied += len(numbers)


def _wait_until_all_have_ended(port: int, topic: str, partitions: int) -> None:
    """A commit is confirmed before its markers are written; readers are shown the records after that."""
    with RawClient(port) as client:
        for number in range(partitions):
            until(
                lambda partition=number: fetch(client, topic, partition=partition),  # type: ignore[misc]
                lambda part: part.last_stable_offset == part.high_watermark,
            )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make crash-transactions", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of the broker while transactions are written")
    parser.add_argument("--copy-kills", type=int, default=5, help="of the broker, and of the copier, during the copy")
    parser.add_argument("--records", type=int, default=100_000, help="at least as many, in both halves")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="ottla-crash-") as directory:
        try:
            began = time.monotonic()
            written = AllOrNothingRun(Path(directory) / "written", seed).run(options.kills, options.records)
            print(f"{time.monotonic() - began:.0f} s, nothing torn, lost, doubled or aborted and read: {written}")
            began = time.monotonic()
            copy = CopyRun(Path(directory) / "copied", seed)
            copied = copy.run(options.copy_kills, options.copy_kills, options.records)
            print(f"{time.monotonic() - began:.0f} s, copied exactly once: {copied}")
        except AssertionError as e:
            print(f"BROKEN with seed {seed}: {e}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
