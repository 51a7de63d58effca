"""What waits for replicas that are not there yet: produces, coordinators' decisions, and code that awaits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ids import Ids
from ottla.base.types import TopicPartition
from ottla.broker.background import BackgroundThreads
from ottla.broker.coordinators import runtime as runtime_module
from ottla.broker.coordinators.commit_wait import wait_committed
from ottla.broker.coordinators.pending_reply import PendingResult
from ottla.broker.coordinators.runtime import CoordinatorRuntime, Shard
from ottla.broker.parked import Parked
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.log.config import LogConfig
from ottla.log.log_dir import LogDirs
from ottla.machines.coordinator import CoordinatorRecord, Decision, ReplayContext, SetTimer, TimerKey, Token
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.message import StoredRecord
from ottla.wire.stored.transaction_state import TransactionLogKey
from tests.log_lines import messages_of
from tests.unit.broker.replica_world import change_isr
from tests.waiting import run_async

BROKER = 1
TOPIC = "states"


class Counter:
    """A machine whose durable state is the list of ids it has seen."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ended: list[tuple[int, bool]] = []
        self.tokens: list[Token] = []

    def add(self, name: str, token: Token) -> Decision:
        record = CoordinatorRecord(TransactionLogKey(transactional_id=name), 0, None)
        decision = Decision([record]).reply(token, name)
        decision.effects.append(("done", name))
        return decision

    def replay(self, key: StoredRecord, value: StoredRecord | None, context: ReplayContext) -> None:
        assert isinstance(key, TransactionLogKey)
        self.seen.append(key.transactional_id)

    def timer_fired(self, key: TimerKey, now_ms: int) -> Decision:
        return Decision(effects=[("timer", *key)])

    def loaded(self, now_ms: int) -> Decision:
        return Decision(effects=[("loaded", len(self.seen))])

    def unload(self) -> list[Token]:
        return self.tokens


def parse(key: bytes, value: bytes | None) -> tuple[StoredRecord, StoredRecord | None]:
    return TransactionLogKey.decode_versioned(key), None


@dataclass
class World:
    replicas: Replicas
    parked: Parked
    runtime: CoordinatorRuntime[Counter]
    performed: list[Any]
    epoch: int = 0
    partition_epoch: int = 0

    async def lead(self, *isr: int, epoch: int | None = None) -> Partition:
        """Makes this broker lead the partition, with these replicas in sync."""
        existing = self.replicas.find(TOPIC, 0)
        if existing is not None and existing.leader is not None and epoch in (None, self.epoch):
            change_isr(self.replicas, existing, *isr)
            return existing
        self.epoch = self.epoch if epoch is None else epoch
        self.partition_epoch += 1
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            leader=BROKER,
            leader_epoch=self.epoch,
            isr=list(isr),
            partition_epoch=self.partition_epoch,
            replicas=list(isr),
        )
        topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=Ids().uuid(), partition_states=[state])
        if existing is not None:
            topic.topic_id = existing.topic_id
        outcome = await self.replicas.apply_leader_and_isr(LeaderAndIsrRequest(topic_states=[topic]))
        assert outcome == {TopicPartition(TOPIC, 0): ErrorCode.NONE}
        partition = self.replicas.find(TOPIC, 0)
        assert partition is not None
        return partition

    def shard(self) -> Shard[Counter]:
        return self.runtime.shard_for("any")


def in_world(tmp_path: Path, scenario: Callable[[World], Awaitable[None]], *, waits_for_replicas: bool = True) -> None:
    async def run() -> None:
        clock = ManualClock()

        async def config(topic: str) -> LogConfig:
            return LogConfig(segment_index_bytes=4096)

        log_dirs = LogDirs.open(
            [tmp_path / "logs"],
            broker_id=BROKER,
            cluster_id=None,
            clock=clock,
            ids=Ids(),
            config_for=lambda _: LogConfig(),
        )
        parked = Parked(asyncio.get_running_loop())
        threads = BackgroundThreads(2)
        replicas = Replicas(BROKER, log_dirs, parked, clock, threads, read_config=config, on_all_failed=lambda: None)
        performed: list[Any] = []
        runtime: CoordinatorRuntime[Counter] = CoordinatorRuntime(
            TOPIC,
            replicas,
            parked,
            clock,
            make_machine=lambda epoch: Counter(),
            parse=parse,
            end_transaction=lambda machine, producer, commit: machine.ended.append((producer, commit)),
            perform=lambda shard, effect: performed.append(effect),
            client_code=lambda code: ErrorCode.COORDINATOR_NOT_AVAILABLE,
            partition_count=lambda: 1,
            commit_timeout_ms=50,
            notes=logging.getLogger("test"),
            waits_for_replicas=waits_for_replicas,
        )
        replicas.watch_topic(TOPIC, runtime)
        try:
            await scenario(World(replicas, parked, runtime, performed))
        finally:
            await runtime.stop()
            log_dirs.close()

    run_async(run())


def append(world: World, partition: Partition) -> int:
    batch = memoryview(bytearray(build_batch([NewRecord(b"k", b"v", (), 1)])))
    return world.replicas.append(partition, batch, requires_all_replicas=True, now_ms=1).last_offset


def append_name(world: World, partition: Partition, name: str) -> int:
    """A record that the coordinator has not decided, as markers are."""
    key = TransactionLogKey(transactional_id=name).encode_versioned(0)
    batch = memoryview(bytearray(build_batch([NewRecord(key, None, (), 1)])))
    return world.replicas.append(partition, batch, requires_all_replicas=True, now_ms=1).last_offset


def test_a_decision_alone_in_the_cluster_is_performed_at_once(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER)
        pending: PendingResult[str] = PendingResult()
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("a", pending))
        assert pending.future.result() == "a"
        assert world.performed == [("loaded", 0), ("done", "a")]
        assert shard.machine.seen == ["a"]

    in_world(tmp_path, scenario)


def test_a_decision_waits_until_its_records_are_committed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER, 2)
        pending: PendingResult[str] = PendingResult()
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("a", pending))
        assert shard.machine.seen == ["a"], "replayed at once, so that the next decision builds on it"
        assert not pending.future.done()
        await world.lead(BROKER)
        assert await asyncio.wait_for(pending.future, 5) == "a"
        assert ("done", "a") in world.performed

    in_world(tmp_path, scenario)


def test_a_coordinator_that_need_not_wait_for_replicas_does_not(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER, 2)
        assert partition.leader is not None
        partition.leader.set_min_insync_replicas(3)
        pending: PendingResult[str] = PendingResult()
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("a", pending))
        assert pending.future.result() == "a"
        assert world.runtime.is_committed(shard)

    in_world(tmp_path, scenario, waits_for_replicas=False)


def test_after_the_time_limit_the_client_is_refused_but_the_rest_still_happens(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER, 2)
        pending: PendingResult[str] = PendingResult()
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("a", pending))
        with pytest.raises(KafkaError) as refused:
            await asyncio.wait_for(pending.future, 5)
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert ("done", "a") not in world.performed
        await world.lead(BROKER)
        await asyncio.sleep(0)
        assert ("done", "a") in world.performed

    in_world(tmp_path, scenario)


def test_what_a_decision_has_to_say_is_said_once_it_is_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "test")

    async def scenario(world: World) -> None:
        await world.lead(BROKER, 2)
        pending: PendingResult[str] = PendingResult()
        shard = world.shard()
        decision = shard.machine.add("a", pending)
        decision.notes.append("a was added")
        world.runtime.run(shard, decision)
        with pytest.raises(KafkaError):
            await asyncio.wait_for(pending.future, 5)
        assert messages_of(caplog, "test") == []
        await world.lead(BROKER)
        await asyncio.sleep(0)
        assert messages_of(caplog, "test") == ["a was added"]

    in_world(tmp_path, scenario)


def test_losing_the_leadership_drops_the_shard_and_refuses_who_waits(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER, 2)
        pending: PendingResult[str] = PendingResult()
        joiner: PendingResult[str] = PendingResult()
        shard = world.shard()
        shard.machine.tokens.append(joiner)
        world.runtime.run(shard, shard.machine.add("a", pending))
        partition.leader = None
        world.runtime.partition_changed(partition)
        world.replicas.moved(partition)
        for waiting in (pending, joiner):
            with pytest.raises(KafkaError) as refused:
                await asyncio.wait_for(waiting.future, 5)
            assert refused.value.code == ErrorCode.NOT_COORDINATOR
        with pytest.raises(KafkaError) as gone:
            world.shard()
        assert gone.value.code == ErrorCode.NOT_COORDINATOR

    in_world(tmp_path, scenario)


def test_a_shard_is_loaded_again_under_a_new_epoch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER)
        for name in ("a", "b"):
            shard = world.shard()
            world.runtime.run(shard, shard.machine.add(name, object()))
        await world.lead(BROKER, epoch=5)
        with pytest.raises(KafkaError) as loading:
            world.shard()
        assert loading.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while world.runtime.is_loading:
            await asyncio.sleep(0.01)
        assert world.shard().machine.seen == ["a", "b"]
        assert world.performed[-1] == ("loaded", 2)

    in_world(tmp_path, scenario)


def test_a_shard_is_used_once_all_that_was_replayed_is_committed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER)
        world.runtime.run(world.shard(), world.shard().machine.add("a", object()))
        await world.lead(BROKER, 2)
        world.runtime.run(world.shard(), world.shard().machine.add("b", object()))
        world.performed.clear()
        await world.lead(BROKER, 2, epoch=5)
        for _ in range(20):
            # Longer than the time limit of a decision: nothing but the replicas ends this.
            await asyncio.sleep(0.01)
            assert world.performed == []
            with pytest.raises(KafkaError) as loading:
                world.shard()
            assert loading.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # What is appended meanwhile is replayed, and waited for, too.
        last_offset = append_name(world, partition, "c")
        await world.lead(BROKER)
        assert partition.log.high_watermark > last_offset
        while world.runtime.is_loading:
            await asyncio.sleep(0.01)
        assert world.shard().machine.seen == ["a", "b", "c"]
        assert world.performed == [("loaded", 3)]

    in_world(tmp_path, scenario)


def test_a_shard_that_is_lost_while_it_waits_is_dropped(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER, 2)
        world.runtime.run(world.shard(), world.shard().machine.add("a", object()))
        await world.lead(BROKER, 2, epoch=5)
        await asyncio.sleep(0.1)
        partition.leader = None
        world.runtime.partition_changed(partition)
        world.replicas.moved(partition)
        await asyncio.sleep(0.1)
        with pytest.raises(KafkaError) as gone:
            world.shard()
        assert gone.value.code == ErrorCode.NOT_COORDINATOR
        assert not partition.waiters
        assert ("loaded", 1) not in world.performed

    in_world(tmp_path, scenario)


def test_an_answer_shows_only_what_is_committed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER)
        shard = world.shard()
        assert world.runtime.is_committed(shard)
        await world.lead(BROKER, 2)
        world.runtime.run(shard, shard.machine.add("a", object()))
        assert not world.runtime.is_committed(shard)
        answer = world.runtime.when_committed(shard, list(shard.machine.seen))
        await asyncio.sleep(0)
        assert not answer.done()
        await world.lead(BROKER)
        assert await asyncio.wait_for(answer, 5) == ["a"]
        assert world.runtime.is_committed(shard)

    in_world(tmp_path, scenario)


def test_an_answer_is_refused_at_once_when_the_shard_is_lost(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER, 2)
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("a", object()))
        answer = world.runtime.when_committed(shard, "shows a")
        world.runtime.drop(shard, KafkaError(code=ErrorCode.NOT_COORDINATOR))
        await asyncio.sleep(0)
        with pytest.raises(KafkaError) as refused:
            answer.result()
        assert refused.value.code == ErrorCode.NOT_COORDINATOR

    in_world(tmp_path, scenario)


def test_a_failed_append_reloads_the_shard_from_its_log(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER)
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("kept", object()))
        shard.machine.seen.append("never written")
        leader = partition.leader
        assert leader is not None
        leader._set_replicas({BROKER, BROKER + 1}, now_ms=0)
        leader.set_min_insync_replicas(2)
        pending: PendingResult[str] = PendingResult()
        world.runtime.run(shard, shard.machine.add("refused", pending))
        with pytest.raises(KafkaError) as refused:
            await pending.future
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        while world.runtime.is_loading:
            await asyncio.sleep(0.01)
        assert world.shard() is not shard
        assert world.shard().machine.seen == ["kept"]

    in_world(tmp_path, scenario)


def test_timers_fire_once_are_replaced_and_end_with_the_shard(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER)
        shard = world.shard()
        world.runtime.run(shard, Decision(timers=[SetTimer(("a",), 60_000), SetTimer(("a",), 1)]))
        world.runtime.run(shard, Decision(timers=[SetTimer(("b",), 60_000)]))
        while ("timer", "a") not in world.performed:
            await asyncio.sleep(0.005)
        assert list(shard.timers) == [("b",)]
        running = shard.timers["b",]
        world.runtime.partition_removed(0)
        assert running.cancelled()

    in_world(tmp_path, scenario)


def test_waiting_code_learns_of_commit_loss_and_time(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER, 2)
        last_offset = append(world, partition)
        with pytest.raises(KafkaError) as late:
            await wait_committed(world.parked, partition, last_offset, 20)
        assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.ensure_future(wait_committed(world.parked, partition, last_offset, 5000))
        await asyncio.sleep(0)
        await world.lead(BROKER)
        await asyncio.wait_for(waiting, 5)
        await world.lead(BROKER, 2)
        lost = asyncio.ensure_future(wait_committed(world.parked, partition, append(world, partition), 5000))
        await asyncio.sleep(0)
        await world.lead(BROKER, 2, epoch=9)
        await asyncio.sleep(0)
        assert not lost.done(), "the same broker leads, and has all it had"
        world.replicas.drop_roles()
        with pytest.raises(KafkaError) as gone:
            await asyncio.wait_for(lost, 5)
        assert gone.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not partition.waiters

    in_world(tmp_path, scenario)


def test_a_decision_too_large_for_a_batch_takes_several(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER)
        shard = world.shard()
        names = [f"{number:05d}" + "x" * 1000 for number in range(3000)]
        decision = Decision([CoordinatorRecord(TransactionLogKey(transactional_id=name), 0, None) for name in names])
        world.runtime.run(shard, decision)
        assert shard.machine.seen == names
        assert partition.log.log_end_offset == 3000
        await world.lead(BROKER, epoch=2)
        while world.runtime.is_loading:
            await asyncio.sleep(0.01)
        assert world.shard().machine.seen == names

    in_world(tmp_path, scenario)


def test_a_decision_without_records_waits_for_those_before_it(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.lead(BROKER, 2)
        shard = world.shard()
        world.runtime.run(shard, shard.machine.add("a", object()))
        pending: PendingResult[str] = PendingResult()
        world.runtime.run(shard, Decision().reply(pending, "built on a"))
        assert not pending.future.done()
        await world.lead(BROKER)
        assert await asyncio.wait_for(pending.future, 5) == "built on a"

    in_world(tmp_path, scenario)


def test_a_shard_that_was_dropped_refuses_everything_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER)
        shard, runtime = world.shard(), world.runtime
        end_offset = partition.log.log_end_offset
        runtime.partition_removed(1)
        assert world.shard() is shard, "another one was removed"
        runtime.partition_removed(0)
        world.performed.clear()
        answers: list[PendingResult[str]] = [PendingResult() for _ in range(3)]
        runtime.run(shard, shard.machine.add("a", answers[0]))
        decision = shard.machine.add("b", answers[1])
        decision.timers.append(SetTimer(TimerKey(("t",)), 1))
        runtime.run(shard, decision)
        runtime.committed(shard, shard.machine.add("c", answers[2]))
        for answer in answers:
            error = answer.future.exception()
            assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(KafkaError) as refused:
            runtime.append(shard, [b"r"], 0)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert (shard.machine.seen, world.performed, shard.timers) == ([], [], {})
        assert partition.log.log_end_offset == end_offset
        with pytest.raises(KafkaError) as refused:
            runtime.shard_for("any")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert runtime.find_shard("any") is runtime.active_shard(0) is None
        assert runtime.active_shards() == [] and not runtime.is_loading
        assert not runtime.commits_alone(shard)

    in_world(tmp_path, scenario)


def test_which_shards_are_ready(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER)
        shard, runtime = world.shard(), world.runtime
        assert runtime.active_shards() == [shard] and runtime.active_shard(0) is shard
        assert runtime.active_shard(1) is None
        assert [runtime.is_loading, runtime.commits_alone(shard)] == [False, True]
        shard.is_loaded = False
        with pytest.raises(KafkaError) as refused:
            runtime.shard_for("any")
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert runtime.active_shards() == [] and runtime.active_shard(0) is None
        assert [runtime.is_loading, runtime.commits_alone(shard)] == [True, False]
        assert runtime.find_shard("any") is shard
        shard.is_loaded = True
        await world.lead(BROKER, 2)
        assert not runtime.commits_alone(shard)
        partition.resign()
        assert not runtime.commits_alone(shard)

    in_world(tmp_path, scenario)


def test_a_log_that_cannot_be_replayed_is_no_coordinator_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError("damaged")

    async def scenario(world: World) -> None:
        partition = await world.lead(BROKER)
        append_name(world, partition, "a")
        monkeypatch.setattr(Counter, "replay", fails)
        await world.lead(BROKER, epoch=1)
        while world.runtime.is_loading:
            await asyncio.sleep(0.001)
        with pytest.raises(KafkaError) as refused:
            world.shard()
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    in_world(tmp_path, scenario)
    assert messages_of(caplog, "ottla.broker.coordinators.runtime") == [
        "states-0: the coordinator's state cannot be loaded"
    ]


@pytest.mark.parametrize(
    ("code", "is_dropped"), [(ErrorCode.REQUEST_TIMED_OUT, False), (ErrorCode.NOT_LEADER_OR_FOLLOWER, True)]
)
def test_who_loads_waits_for_replicas_for_as_long_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, is_dropped: bool
) -> None:
    async def fails(*_: object) -> None:
        raise KafkaError(code=code)

    async def scenario(world: World) -> None:
        await world.lead(BROKER)
        shard = world.shard()
        monkeypatch.setattr(runtime_module, "wait_committed", fails)
        await world.runtime._wait_until_committed(shard)
        assert shard.is_dropped is is_dropped
        assert (world.runtime.find_shard("any") is None) is is_dropped

    in_world(tmp_path, scenario)
