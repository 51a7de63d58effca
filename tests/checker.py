"""Judges a history of sends and polls: what clients did, what they were told, and what they read.

The rules follow those by which Jepsen judges Kafka. A key is a partition, and every value is sent to its key once, so
that a value says which operation wrote it. Readers are taken to read committed records only. Gaps between offsets are
legal, for markers take offsets too; "rank" below means the place of an offset among those known to hold a record.

What Kafka does not promise is not judged: that transactions do not interleave, or appear everywhere at one moment.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Key = str
Value = str | int


class Outcome(Enum):
    OK = "ok"
    """It happened: everything was acknowledged."""
    FAIL = "fail"
    """It did not happen, and will not: the broker has confirmed that it was aborted."""
    INFO = "info"
    """Nobody knows: the answer was lost."""


class Send(NamedTuple):
    key: Key
    value: Value
    offset: int | None = None
    """None if the answer did not come, or did not say."""


class Poll(NamedTuple):
    key: Key
    records: tuple[tuple[int, Value], ...]
    """Offset and value, in the order in which they came."""


@dataclass(frozen=True)
class Operation:
    """One transaction, or one send or poll outside of any. Operations of a process follow each other.

    A process whose operation did not end well takes part under a new name from then on, as a restarted client would.
    """

    process: str
    outcome: Outcome
    steps: Sequence[Send | Poll]
    new_assignment: bool = False
    """Before this operation the process was given keys, or another place to read from: it may jump."""
    is_final: bool = False
    """Part of the last reading, from the beginning of every key, after all writers have ended."""

    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    def polls(self) -> Iterator[Poll]:
        return (step for step in self.steps if isinstance(step, Poll))


class Anomaly(NamedTuple):
    rule: str
    text: str


@dataclass
class _Facts:
    """What a history says about its keys."""

    writers: dict[tuple[Key, Value], Operation] = field(default_factory=dict)
    read_values: set[tuple[Key, Value]] = field(default_factory=set)
    final_values: set[tuple[Key, Value]] = field(default_factory=set)
    read_at: dict[Key, dict[int, set[Value]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    offsets_of: dict[tuple[Key, Value], set[int]] = field(default_factory=lambda: defaultdict(set))
    committed: set[int] = field(default_factory=set)
    """Identities of operations that must have happened."""
    has_final: bool = False
    ranks: dict[Key, dict[int, int]] = field(default_factory=dict)


def check(history: Sequence[Operation]) -> list[Anomaly]:
    """Everything in the history that must never happen. Rules about the end apply if a final reading is part of it."""
    facts = _gather(history)
    return [
        *_inconsistent_offsets(facts),
        *_duplicates(facts),
        *_reads_of_nothing(history, facts),
        *_missing(history, facts),
        *_poll_order(history, facts),
        *_send_order(history, facts),
        *_circular_reads(history, facts),
    ]


def _gather(history: Sequence[Operation]) -> _Facts:
    facts = _Facts()
    for operation in history:
        facts.has_final |= operation.is_final
        for send in operation.sends():
            identity = (send.key, send.value)
            if identity in facts.writers:
                raise ValueError(f"{send.value!r} is sent to {send.key} twice: the history cannot be judged")
            facts.writers[identity] = operation
        for poll in operation.polls():
            for offset, value in poll.records:
                identity = (poll.key, value)
                facts.read_values.add(identity)
                facts.read_at[poll.key][offset].add(value)
                facts.offsets_of[identity].add(offset)
                if operation.is_final:
                    facts.final_values.add(identity)
    for operation in history:
        if _must_have_happened(operation, facts):
            facts.committed.add(id(operation))
            for send in operation.sends():
                if send.offset is not None:
                    facts.offsets_of[send.key, send.value].add(send.offset)
    known: dict[Key, set[int]] = {key: set(by_offset) for key, by_offset in facts.read_at.items()}
    for send in _committed_sends(history, facts):
        if send.offset is not None:
            known.setdefault(send.key, set()).add(send.offset)
    facts.ranks = {key: {offset: rank for rank, offset in enumerate(sorted(found))} for key, found in known.items()}
    return facts


def _must_have_happened(operation: Operation, facts: _Facts) -> bool:
    """Known to be committed, or seen by somebody in part: then all of it has to be there."""
    if operation.outcome is Outcome.INFO:
        return any((send.key, send.value) in facts.read_values for send in operation.sends())
    return operation.outcome is Outcome.OK


def _committed_sends(history: Iterable[Operation], facts: _Facts) -> Iterator[Send]:
    for operation in history:
        if id(operation) in facts.committed:
            yield from operation.sends()


# --- what is there ----------------------------------------------------------------------------------------------------


def _inconsistent_offsets(facts: _Facts) -> Iterator[Anomaly]:
    at: dict[tuple[Key, int], set[Value]] = defaultdict(set)
    for (key, value), offsets in facts.offsets_of.items():
        for offset in offsets:
            at[key, offset].add(value)
    for (key, offset), values in sorted(at.items()):
        if len(values) > 1:
            yield Anomaly("inconsistent-offsets", f"{key} at {offset} holds {sorted(map(str, values))}")


def _duplicates(facts: _Facts) -> Iterator[Anomaly]:
    for (key, value), offsets in facts.offsets_of.items():
        if len(offsets) > 1:
            yield Anomaly("duplicate", f"{key} holds {value!r} at {sorted(offsets)}")


def _reads_of_nothing(history: Sequence[Operation], facts: _Facts) -> Iterator[Anomaly]:
    for identity in sorted(facts.read_values, key=str):
        writer = facts.writers.get(identity)
        key, value = identity
        if writer is None:
            yield Anomaly("phantom", f"{value!r} was read from {key}, and nobody sent it")
        elif writer.outcome is Outcome.FAIL:
            yield Anomaly("G1a", f"{value!r} was read from {key}, and {writer.process} has aborted it")
    for operation in history:
        own = {(send.key, send.value) for send in operation.sends()}
        for poll in operation.polls():
            for offset, value in poll.records:
                if (poll.key, value) in own:
                    yield Anomaly("precommitted-read", f"{operation.process} read its own {value!r} at {offset}")


def _missing(history: Sequence[Operation], facts: _Facts) -> Iterator[Anomaly]:
    highest_read = {key: max(by_offset) for key, by_offset in facts.read_at.items()}
    for send in _committed_sends(history, facts):
        identity = (send.key, send.value)
        was_read = identity in facts.read_values
        if not was_read and send.offset is not None and send.offset <= highest_read.get(send.key, -1):
            yield Anomaly("lost-write", f"{send.value!r} at {send.key} {send.offset} was passed by and read by nobody")
        if facts.has_final and not was_read:
            yield Anomaly("unseen", f"{send.value!r} was written to {send.key} and never read")
        if facts.has_final and identity not in facts.final_values:
            yield Anomaly("final-missing", f"{send.value!r} is not in {send.key} when it is read from the beginning")


# --- in which order ---------------------------------------------------------------------------------------------------


def _poll_order(history: Sequence[Operation], facts: _Facts) -> Iterator[Anomaly]:
    last_of: dict[str, dict[Key, int]] = defaultdict(dict)
    for operation in history:
        before = {} if operation.new_assignment else dict(last_of[operation.process])
        begun: set[Key] = set()
        for poll in operation.polls():
            rank_of = facts.ranks[poll.key] if poll.records else {}
            for offset, _ in poll.records:
                rank = rank_of[offset]
                step = rank - before.get(poll.key, rank - 1)
                inside = "int-" if poll.key in begun else ""
                where = f"{operation.process} in {poll.key} at {offset}"
                if step > 1:
                    yield Anomaly(f"{inside}poll-skip", f"{where}: {step - 1} records were left out")
                elif step < 1:
                    yield Anomaly(f"{inside}nonmonotonic-poll", f"{where}: {1 - step} records back")
                before[poll.key] = rank
                begun.add(poll.key)
        if operation.outcome is Outcome.OK:
            last_of[operation.process] = before


def _send_order(history: Sequence[Operation], facts: _Facts) -> Iterator[Anomaly]:
    last_of: dict[tuple[str, Key], int] = {}
    for operation in history:
        if id(operation) not in facts.committed:
            continue
        begun: set[Key] = set()
        for send in operation.sends():
            if send.offset is None:
                continue
            last = last_of.get((operation.process, send.key), -1)
            if send.offset <= last:
                rule = f"{'int-' if send.key in begun else ''}nonmonotonic-send"
                yield Anomaly(rule, f"{operation.process} in {send.key}: {send.offset} after {last}")
            last_of[operation.process, send.key] = send.offset
            begun.add(send.key)


def _circular_reads(history: Sequence[Operation], facts: _Facts) -> Iterator[Anomaly]:
    """G1c: operations that have read from each other. No order of them explains that."""
    readers: dict[int, set[int]] = defaultdict(set)
    writers: dict[int, set[int]] = defaultdict(set)
    for operation in history:
        for poll in operation.polls():
            for _, value in poll.records:
                writer = facts.writers.get((poll.key, value))
                if writer is not None and writer is not operation:
                    readers[id(writer)].add(id(operation))
                    writers[id(operation)].add(id(writer))
    # Whoever reads from nobody that is left, or is read by nobody that is left, is part of no circle.
    left = set(readers) & set(writers)
    while True:
        kept = {node for node in left if readers[node] & left and writers[node] & left}
        if kept == left:
            break
        left = kept
    if left:
        names = sorted({operation.process for operation in history if id(operation) in left})
        yield Anomaly("G1c", f"operations of {names} have read from each other")


# --- stored histories -------------------------------------------------------------------------------------------------


def read_history(lines: Iterable[str]) -> list[Operation]:
    """From JSON, one object a line: p, type (invoke, ok, fail, info), f, v and perhaps reb and final.

    In `v` a send is ["send", key, [offset or null, value]] and a poll is ["poll", {key: [[offset, value], …]}]. An
    invocation without an end is one whose outcome is unknown.
    """
    history: list[Operation] = []
    begun: dict[str, list[Send | Poll]] = {}
    jumps: set[str] = set()
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            process, kind = str(entry["p"]), entry["type"]
            steps = [_step(step) for step in entry.get("v") or []]
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"line {number} is not an entry of a history: {e!r}") from e
        if kind == "invoke":
            begun[process] = [step for step in steps if isinstance(step, Send)]
            continue
        begun.pop(process, None)
        if entry["f"] in ("assign", "subscribe"):
            jumps.add(process)
            continue
        jumped = process in jumps or bool(entry.get("reb"))
        jumps.discard(process)
        history.append(Operation(process, Outcome(kind), steps, jumped, bool(entry.get("final"))))
    history += [Operation(process, Outcome.INFO, steps) for process, steps in begun.items() if steps]
    return history


def _step(step: list[object]) -> Send | Poll:
    match step:
        case ["send", str(key), [None | int() as offset, str() | int() as value]]:
            return Send(key, value, offset)
        case ["poll", dict() as polled] if len(polled) == 1:
            ((key, records),) = polled.items()
            return Poll(key, tuple((int(offset), value) for offset, value in records))
    raise ValueError(f"{step!r} is neither a send nor a poll of one key")
