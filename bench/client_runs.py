"""Our producers and consumers beside those of other libraries: sides in turn, round after round, one broker for all."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bench import cases, client_consume, client_produce, peers
from bench.cases import ClientCase
from bench.frames import create_topic, delete_topic, produce_reply_bytes
from bench.peers import Peer
from bench.programs import Programs, run_program
from bench.row import Row
from bench.warm_pages import warm

LIMIT_TOPIC = "client-limit"
LIMIT_FRAME_BYTES = 1_000_000


@dataclass
class ClientRuns:
    programs: Programs
    broker: Peer
    place: Path
    rounds: int
    is_quick: bool
    say: Callable[[str], None]

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        for value_bytes in cases.CLIENT_MESSAGES:
            for direction, module in (("produce", client_produce), ("consume", client_consume)):
                names = {case: f"client-{direction}-{case.name}-{value_bytes}" for case in module.CASES}
                chosen = {case: name for case, name in names.items() if wanted(name)}
                if chosen:
                    yield from self._direction(direction, module, chosen, value_bytes)

    def _direction(
        self, direction: str, module: ModuleType, chosen: dict[ClientCase, str], value_bytes: int
    ) -> Iterator[Row]:
        libraries = sorted({library for case in chosen for library in (case.ours, case.theirs)})
        topic = f"client-{value_bytes}"
        if direction == "consume":
            create_topic(self.broker.port, topic)
            most = max(self._messages(library, value_bytes) for library in libraries)
            fill = ["produce", str(self.broker.port), topic, "1", str(most), str(value_bytes)]
            run_program([sys.executable, "-m", "bench.end_to_end", *fill])
        results: dict[str, list[dict[str, float]]] = {library: [] for library in libraries}
        with self._limit(libraries) as limit:
            for round_number in range(self.rounds):
                self.say(f"{direction}, {value_bytes} bytes, {len(libraries)} clients, round {round_number + 1}")
                for library in libraries:
                    messages = self._messages(library, value_bytes)
                    if limit is not None and library == limit.name:
                        results[library].append(self._send_only(limit, messages, value_bytes))
                        continue
                    if direction == "consume":
                        results[library].append(self._run("client_consume", library, topic, messages))
                        continue
                    own_topic = f"client-{value_bytes}-{library}-{round_number}"
                    create_topic(self.broker.port, own_topic)
                    warm(self.place, messages * (value_bytes + 10))
                    results[library].append(self._run("client_produce", library, own_topic, messages, value_bytes))
                    # What is not there any more is not written to the disk while the next side is measured.
                    delete_topic(self.broker.port, own_topic)
        for case, name in chosen.items():
            yield _row(case, name, value_bytes, results)

    @contextmanager
    def _limit(self, libraries: list[str]) -> Iterator[Peer | None]:
        """What answers every request with as many bytes as a broker, if one of the sides is measured against it."""
        if cases.CLIENT_SEND_LIMIT in libraries:
            directory = self.place / "client-sink"
            directory.mkdir(exist_ok=True)
            with peers.sink(self.programs, directory, produce_reply_bytes(LIMIT_TOPIC)) as sink:
                yield sink
        else:
            yield None

    def _send_only(self, sink: Peer, messages: int, value_bytes: int) -> dict[str, float]:
        """The same frames again and again, a megabyte each: what it takes to fill them is not part of it."""
        records = LIMIT_FRAME_BYTES // (value_bytes + 10)
        shape = (1, 1, 5, records, value_bytes, max(10, messages // records))
        warm(self.place, messages * (value_bytes + 10))
        result = run_program([*self.programs.load, "produce", str(sink.port), LIMIT_TOPIC, *map(str, shape)])
        return {"messages_per_s": result["requests_per_s"] * records}

    def _messages(self, library: str, value_bytes: int) -> int:
        messages = (cases.QUICK_CLIENT_MESSAGES if self.is_quick else cases.CLIENT_MESSAGES)[value_bytes]
        whole_chunks = int(messages * cases.CLIENT_SHARES.get(library, 1.0)) // client_produce.CHUNK
        return max(1, whole_chunks) * client_produce.CHUNK

    def _run(self, program: str, library: str, topic: str, *shape: int) -> dict[str, float]:
        return run_program(
            [sys.executable, "-m", f"bench.{program}", library, str(self.broker.port), topic, *map(str, shape)]
        )


def _row(case: ClientCase, name: str, value_bytes: int, results: dict[str, list[dict[str, float]]]) -> Row:
    rates = {side: [result["messages_per_s"] for result in results[side]] for side in (case.ours, case.theirs)}
    value, other = statistics.median(rates[case.ours]), statistics.median(rates[case.theirs])
    row = Row(name, f"{case.title}, {value_bytes} B", "messages/s", value, case.theirs, other, value / other)
    row.rounds = rates
    target = case.targets[list(cases.CLIENT_MESSAGES).index(value_bytes)]
    if target is not None:
        row.floor, row.goal = target.floor, target.goal
    if case.theirs in (cases.CLIENT_LIMIT, cases.CLIENT_SEND_LIMIT):
        megabytes = value * value_bytes / 1e6, other * value_bytes / 1e6
        row.notes = "{:,.0f} of {:,.0f} MB/s, which is what can be had if nobody looks at a record".format(*megabytes)
        return row
    cpu_us = {side: statistics.median(result["cpu_us"] for result in results[side]) for side in rates}
    row.notes = "processor time per message: " + ", ".join(f"{side} {spent:.2f} µs" for side, spent in cpu_us.items())
    return row
