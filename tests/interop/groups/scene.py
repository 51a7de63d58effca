"""One group on stage: members that come and go, and what the broker itself says about the group."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import KIP_848, Seat, run
from tests.interop.groups.ledger import Event, Ledger, Partition
from tests.interop.peers.confluent import producer
from tests.interop.peers.peer import PATIENCE_S
from tests.raw_client import RawClient

LOOK_EVERY_S = 0.05
OUR_MEMBER_PROCESS = (sys.executable, "-m", "tests.interop.groups.member_process")
NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def wait_until(is_so: Callable[[], bool], what: Callable[[], str], patience_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, what()
        time.sleep(LOOK_EVERY_S)


def write_records(bootstrap: str, topic: str, partitions: int, count: int, first: int = 0) -> None:
    """To each partition `count` records that say where they are: b"partition:sequence"."""
    writer = producer(bootstrap)
    for partition in range(partitions):
        for number in range(first, first + count):
            writer.produce(topic, b"%d:%d" % (partition, number), partition=partition)
    assert writer.flush(PATIENCE_S) == 0


class ThreadMember:
    """A member in a thread of this process. It can leave, and nothing else."""

    def __init__(self, seat: Seat, ledger: Ledger) -> None:
        self.seat = seat
        self._ledger = ledger
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name=seat.name, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        try:
            run(self.seat, self._ledger.sink(self.seat.name), self._stop)
        except BaseException as e:
            self._failure = e

    def asked_to_leave(self) -> None:
        self._stop.set()

    def check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"{self.seat.name} failed") from self._failure

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.seat.name} does not end"
        self.check()
        self._ledger.gone(self.seat.name)


class ProcessMember:
    """A member in a process of its own, which can be stopped and killed."""

    def __init__(self, seat: Seat, ledger: Ledger, program: Sequence[str] = OUR_MEMBER_PROCESS) -> None:
        self.seat = seat
        self._ledger = ledger
        command = [*program, json.dumps(dataclasses.asdict(seat))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at_s, kind, content = json.loads(line)
            match kind:
                case "consumed":
                    (topic, index), offset, value = content
                    self._ledger.add_record((topic, index), offset, value.encode())
                case "failed":
                    self._ledger.errors.append(f"{self.seat.name}: {content}")
                case _:
                    partitions = frozenset((topic, index) for topic, index in content)
                    self._ledger.add(Event(at_s, self.seat.name, kind, partitions))

    def freeze(self) -> float:
        """Stops the process; from the group's view it is gone. Returns the time."""
        self._process.send_signal(signal.SIGSTOP)
        self._ledger.gone(self.seat.name)
        return time.monotonic()

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0, f"{self.seat.name} did not end well"
        self._reader.join(PATIENCE_S)
        self._ledger.gone(self.seat.name)

    def kill(self) -> float:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._ledger.gone(self.seat.name)
        return time.monotonic()


class Scene:
    """`client` is what its members use where a call does not say otherwise."""

    def __init__(self, broker: BrokerProcess, group: str, client: str) -> None:
        self.broker = broker
        self.group = group
        self.client = client
        self.ledger = Ledger()
        self._members: list[ThreadMember | ProcessMember] = []

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        for member in self._members:
            if isinstance(member, ThreadMember):
                member.asked_to_leave()
        for member in self._members:
            if isinstance(member, ProcessMember):
                member.kill()
            elif not failed:
                member.leave()
        self.ledger.owners()

    def seat(self, name: str, **settings: Any) -> Seat:
        given = {"client": self.client, "name": name, "bootstrap": self.broker.bootstrap, "group": self.group}
        return Seat(**given | settings)

    def join(self, name: str, **settings: Any) -> ThreadMember:
        member = ThreadMember(self.seat(name, **settings), self.ledger)
        self._members.append(member)
        return member

    def join_in_process(self, name: str, program: Sequence[str] = OUR_MEMBER_PROCESS, **settings: Any) -> ProcessMember:
        member = ProcessMember(self.seat(name, **settings), self.ledger, program)
        self._members.append(member)
        return member

    def leave(self, member: ThreadMember | ProcessMember) -> None:
        self._members.remove(member)
        member.leave()

    def settle(self, members: set[str], partitions: set[Partition], *, patience_s: float = PATIENCE_S) -> None:
        """Waits until the rebalance has ended: these members, and nobody else, own all these partitions."""
        wait_until(
            lambda: self._is_settled(members, partitions),
            lambda: f"wanted {members}, owners {self.ledger.shares()}, {self.describe()}, {self.ledger.errors[-5:]}",
            patience_s,
        )

    def _is_settled(self, members: set[str], partitions: set[Partition]) -> bool:
        for member in self._members:
            if isinstance(member, ThreadMember):
                member.check()
        owners = self.ledger.owners()
        if owners.keys() != partitions or set(owners.values()) != members:
            return False
        state, names, _ = self.describe()
        return state == "Stable" and names == sorted(members)

    def describe(self) -> tuple[str, list[str], int]:
        """State, client ids of the members, and the generation or epoch (which classic groups do not show: 0)."""
        return describe(self.broker, self.group, is_kip_848=self.client == KIP_848)


def describe(broker: BrokerProcess, group: str, *, is_kip_848: bool = False) -> tuple[str, list[str], int]:
    with RawClient(broker.port) as client:
        if is_kip_848:
            answer = client.call(ConsumerGroupDescribeRequest(group_ids=[group]), 0)
            assert isinstance(answer, ConsumerGroupDescribeResponse)
            (found,) = answer.groups
            return found.group_state, sorted(member.client_id for member in found.members), found.group_epoch
        response = client.call(DescribeGroupsRequest(groups=[group]), 5)
        assert isinstance(response, DescribeGroupsResponse)
        (classic,) = response.groups
        return classic.group_state, sorted(member.client_id for member in classic.members), 0


def committed_offsets(client: RawClient, group: str) -> dict[Partition, int]:
    """Nothing while there is no coordinator yet."""
    response = client.call(OffsetFetchRequest(group_id=group, topics=None), 7)
    assert isinstance(response, OffsetFetchResponse)
    assert response.error_code in (ErrorCode.NONE, *NOT_YET), response
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in response.topics
        for partition in topic.partitions
    }


class CommitWatch:
    """Looks at the group's offsets all the time; what is committed must never go back or away."""

    def __init__(self, broker: BrokerProcess, group: str) -> None:
        self._client = RawClient(broker.port)
        self._group = group
        self._done = threading.Event()
        self._steps_back: list[str] = []
        self.offsets: dict[Partition, int] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CommitWatch:
        self._thread.start()
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._done.set()
        self._thread.join(PATIENCE_S)
        self._client.__exit__()
        if not failed:
            assert self._steps_back == []

    def _watch(self) -> None:
        while not self._done.wait(LOOK_EVERY_S / 2):
            found = committed_offsets(self._client, self._group)
            for partition, before in self.offsets.items():
                if found.get(partition, -1) < before:
                    self._steps_back.append(f"{partition} from {before} to {found.get(partition)}")
            self.offsets = found

    def wait_for(self, end_offsets: dict[Partition, int], *, patience_s: float = PATIENCE_S) -> None:
        wait_until(lambda: self.offsets == end_offsets, lambda: f"{self.offsets} instead of {end_offsets}", patience_s)
