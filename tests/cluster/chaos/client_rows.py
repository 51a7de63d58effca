"""T: transactions, producers and groups while clients and their coordinators fail."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

import confluent_kafka

from ottla.base.errors import ErrorCode
from tests.checker import check
from tests.cluster.chaos.cluster import IDS, Cluster, short_sleep
from tests.cluster.chaos.load import Figures, same_batches, wait_until_all_have_ended
from tests.cluster.chaos.routed_client import RoutedClient
from tests.cluster.chaos.table import Scene, row
from tests.crash.transaction_load import CommittedReader, TransactionLoad
from tests.interop.groups.clients import Seat
from tests.interop.groups.ledger import Ledger
from tests.interop.groups.scene import ProcessMember, ThreadMember, write_records
from tests.interop.transactions.raw_producer import (
    END_NEW,
    END_OLD,
    PRODUCE_NEW,
    PRODUCE_OLD,
    RawProducer,
    last_stable_offset,
    until,
)
from tests.interop.transactions.readers import read_all
from tests.waiting import PATIENCE_S, repeat_until

TOPIC, GROUP = "t", "g"
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
NOT_IN_IT = {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, *FENCED}
_GROUP_KEY, _TRANSACTION_KEY = 0, 1


def _values(cluster: Cluster, topic: str = TOPIC, partitions: int = 1) -> list[str]:
    found = read_all(cluster.servers, topic, range(partitions))
    return [value.decode() for records in found.values() for _, value in records]


@row("T01", "a second producer of the same transactional id shuts the first one out")
def zombie_producer(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 1)
    first, second = (
        confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "transactional.id": "x", "log_level": 0})
        for _ in range(2)
    )
    first.init_transactions(PATIENCE_S)
    first.begin_transaction()
    first.produce(TOPIC, b"zombie")
    first.flush(PATIENCE_S)
    second.init_transactions(PATIENCE_S)
    second.begin_transaction()
    second.produce(TOPIC, b"kept")
    try:
        first.commit_transaction(PATIENCE_S)
    except confluent_kafka.KafkaException as e:
        assert e.args[0].fatal(), e
        scene.note = e.args[0].name()
    else:
        raise AssertionError("the first producer could commit")
    second.commit_transaction(PATIENCE_S)
    wait_until_all_have_ended(cluster, TOPIC, 1)
    assert _values(cluster) == ["kept"]


@row("T02", "a producer is killed in its transaction: readers wait no longer than its timeout")
def killed_producer(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 1)
    program = [sys.executable, "-m", "tests.interop.transactions.open_and_wait"]
    with subprocess.Popen(
        [*program, "confluent-kafka", cluster.servers, "x", "5000", TOPIC], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "open\n"
        finally:
            process.kill()
    killed_s = time.monotonic()
    wait_until_all_have_ended(cluster, TOPIC, 1)
    took_s = time.monotonic() - killed_s
    assert _values(cluster) == []
    assert took_s < 5 + 10, f"readers waited {took_s:.1f} s"
    scene.note = f"readers went on after {took_s:.1f} s"


@row("T03", "kill -9 of the transaction coordinator, again and again: all or nothing on 8 partitions")
def killed_coordinator(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 8)
    loads = [TransactionLoad(f"t{n}", cluster.servers, TOPIC, 8, 2, scene.seed + n) for n in range(2)]
    along = CommittedReader("along", cluster.servers, TOPIC, 8)
    along.start()
    for load in loads:
        load.start()
    for number in range(scene.times(6, 2)):
        records = loads[0].records
        repeat_until(lambda before=records: loads[0].records > before + 100, short_sleep)  # type: ignore[misc]
        time.sleep(scene.rng.uniform(0, 0.5))
        with RoutedClient(cluster) as client:
            victim = client.coordinator(f"t{number % 2}", _TRANSACTION_KEY)
        cluster.kill(victim)
        cluster.start(victim)
        cluster.wait_until_well(TOPIC)
    for load in loads:
        load.ask_to_finish()
    for load in loads:
        load.finish()
        assert load.failures == []
    wait_until_all_have_ended(cluster, TOPIC, 8)
    final = CommittedReader("final", cluster.servers, TOPIC, 8)
    final.read_to_the_end()
    along.finish()
    cluster.wait_until_well(TOPIC)
    cluster.end()
    history = [operation for load in loads for operation in load.history]
    anomalies = check([*history, *along.history, *final.history])
    assert not anomalies, "; ".join(f"{one.rule}: {one.text}" for one in anomalies[:5])
    outcomes = Counter(operation.outcome.value for operation in history)
    scene.figures = Figures(
        sum(len(operation.steps) for operation in history),
        batches=sum(same_batches(cluster, TOPIC, index) for index in range(8)),
    )
    scene.note = f"transactions: {dict(outcomes)}"


@row("T04", "a batch of an aborted transaction arrives in the next one")
def delayed_batch(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 1)
    with RoutedClient(cluster) as client:
        producer = RawProducer(client, "x").init()
        assert producer.add(TOPIC) == [0]
        assert producer.produce(TOPIC, b"aborted").error_code == 0
        late = producer.batch(TOPIC, 0, b"late")
        producer.end(commit=False)
        producer.has_ended(commit=False)
        codes = [producer.send_batch(TOPIC, 0, late, version=PRODUCE_OLD).error_code]
        producer.init(current=producer.identity)
        assert producer.add(TOPIC) == [0]
        codes.append(producer.send_batch(TOPIC, 0, late, version=PRODUCE_OLD).error_code)
        assert producer.produce(TOPIC, b"kept").error_code == 0
        codes.append(producer.send_batch(TOPIC, 0, late, version=PRODUCE_OLD).error_code)
        producer.end(commit=True)
        producer.has_ended(commit=True)
    wait_until_all_have_ended(cluster, TOPIC, 1)
    assert set(codes) <= NOT_IN_IT, codes
    assert _values(cluster) == ["kept"]
    scene.note = ", ".join(ErrorCode(code).name for code in codes)


@row("T05", "an EndTxn arrives twice, the second time in the next transaction")
def delayed_end(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 1)
    with RoutedClient(cluster) as client:
        producer = RawProducer(client, "x").init()
        producer.produce(TOPIC, b"first", version=PRODUCE_NEW)
        old_epoch = producer.epoch
        producer.end(commit=True, version=END_NEW)
        assert producer.produce(TOPIC, b"second", version=PRODUCE_NEW).error_code == 0
        late = until(
            lambda: producer.ask_end(commit=False, version=END_NEW, as_epoch=old_epoch),
            lambda got: got.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        assert late.error_code in NOT_IN_IT, late
        assert producer.produce(TOPIC, b"third", version=PRODUCE_NEW).error_code == 0
        producer.end(commit=True, version=END_NEW)
        again = RawProducer(client, "y").init()
        again.add(TOPIC)
        again.produce(TOPIC, b"fourth")
        for _ in range(3):
            answer = until(
                lambda: again.ask_end(commit=True, version=END_OLD),
                lambda got: got.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
            )
            assert answer.error_code == 0
    wait_until_all_have_ended(cluster, TOPIC, 1)
    assert _values(cluster) == ["first", "second", "third", "fourth"]
    scene.note = ErrorCode(late.error_code).name


@row("T06", "a transactional batch for a partition that is not in the transaction")
def hanging_transaction(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 1)
    with RoutedClient(cluster) as client:
        producer = RawProducer(client, "x").init()
        codes = [
            producer.send_batch(TOPIC, 0, producer.batch(TOPIC, 0, b"never"), version=version).error_code
            for version in (9, PRODUCE_OLD)
        ]
        assert set(codes) <= NOT_IN_IT, codes
        assert last_stable_offset(client, TOPIC) == 0
    _produce(cluster, TOPIC, ["after"])
    assert _values(cluster) == ["after"], "readers are not held up"
    scene.note = ", ".join(ErrorCode(code).name for code in codes)


def _produce(cluster: Cluster, topic: str, values: list[str], partitions: int = 1) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "acks": "all", "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


@row("T07", "a topic is copied in transactions while brokers and the copier are killed in turn: each record once")
def exactly_once_copy(scene: Scene) -> None:
    cluster = scene.cluster()
    for topic in ("source", "target"):
        cluster.create(topic, 4)
    program = [sys.executable, "-m", "tests.crash.copier", cluster.servers, "source", "target", "copiers"]
    copier = subprocess.Popen(program)
    records, portion = 0, scene.times(4000, 500)
    try:
        for number in range(scene.times(8, 2)):
            _produce(cluster, "source", [str(records + place) for place in range(portion)], 4)
            records += portion
            time.sleep(scene.rng.uniform(0.1, 1))
            if number % 2:
                copier.kill()
                copier.wait(PATIENCE_S)
            else:
                victim = IDS[number // 2 % len(IDS)]
                cluster.kill(victim)
                cluster.start(victim)
                cluster.wait_until_well("source", "target")
            if copier.poll() is not None:
                copier = subprocess.Popen(program)

        def is_copied() -> bool:
            nonlocal copier
            if copier.poll() is not None:
                copier = subprocess.Popen(program)
            return len(_values(cluster, "target", 4)) >= records

        repeat_until(is_copied, short_sleep)
    finally:
        copier.kill()
        copier.wait(PATIENCE_S)
    wait_until_all_have_ended(cluster, "target", 4)
    found = read_all(cluster.servers, "target", range(4))
    for index, copied in found.items():
        numbers = [int(value) for _, value in copied]
        assert numbers == list(range(index, records, 4)), f"target-{index}: {len(numbers)} records"
    cluster.wait_until_well("source", "target")
    cluster.end()
    scene.figures = Figures(records, batches=sum(same_batches(cluster, "target", index) for index in range(4)))


def _seat(cluster: Cluster, name: str, **settings: object) -> Seat:
    given = {
        "client": "confluent-range",
        "name": name,
        "bootstrap": cluster.servers,
        "group": GROUP,
        "topics": (TOPIC,),
    }
    return Seat(**given | settings)  # type: ignore[arg-type]


def _settled(ledger: Ledger, members: set[str], partitions: int) -> None:
    def is_settled() -> bool:
        owners = ledger.owners()
        return len(owners) == partitions and set(owners.values()) == members

    repeat_until(is_settled, short_sleep)


def _committed(cluster: Cluster, partitions: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.servers, "group.id": GROUP, "log_level": 0})
    try:
        asked = [confluent_kafka.TopicPartition(TOPIC, index) for index in range(partitions)]
        return [place.offset for place in consumer.committed(asked, timeout=PATIENCE_S)]
    finally:
        consumer.close()


@row("T08", "kill -9 of the group coordinator while members join: one owner each, no commit goes back")
def killed_group_coordinator(scene: Scene) -> None:
    cluster, ledger = scene.cluster(zookeeper=scene.zookeeper()), Ledger()
    cluster.create(TOPIC, 6)
    write_records(cluster.servers, TOPIC, 6, 200)
    members = [ThreadMember(_seat(cluster, f"m{number}"), ledger) for number in range(2)]
    _settled(ledger, {"m0", "m1"}, 6)
    longest_s = 0.0
    for number in range(2, 2 + scene.times(3, 1)):
        before = _committed(cluster, 6)
        members.append(ThreadMember(_seat(cluster, f"m{number}"), ledger))
        with RoutedClient(cluster) as client:
            victim = client.coordinator(GROUP, _GROUP_KEY)
        time.sleep(scene.rng.uniform(0, 0.3))
        began_s = time.monotonic()
        cluster.kill(victim)
        cluster.start(victim)
        _settled(ledger, {member.seat.name for member in members}, 6)
        longest_s = max(longest_s, time.monotonic() - began_s)
        after = _committed(cluster, 6)
        assert all(now >= then for now, then in zip(after, before, strict=True)), f"{before} became {after}"
    repeat_until(lambda: _committed(cluster, 6) == [200] * 6, short_sleep)
    for member in members:
        member.leave()
    assert all(len(values) == 200 for values in ledger.consumed().values())
    scene.figures = Figures(1200)
    scene.took("settled, at most, after", longest_s, 30)
    scene.note += f", {len(ledger.read_again())} records read again"


@row("T09", "the group coordinator and a static member are restarted: nobody else notices")
def restarted_with_static_members(scene: Scene) -> None:
    cluster, ledger = scene.cluster(zookeeper=scene.zookeeper()), Ledger()
    cluster.create(TOPIC, 4)
    write_records(cluster.servers, TOPIC, 4, 50)
    stays = ThreadMember(_seat(cluster, "stays", instance_id="one", session_timeout_ms=30_000), ledger)
    returns = ProcessMember(_seat(cluster, "returns", instance_id="two", session_timeout_ms=30_000), ledger)
    _settled(ledger, {"stays", "returns"}, 4)
    events = len(ledger.events("stays"))
    with RoutedClient(cluster) as client:
        coordinator = client.coordinator(GROUP, _GROUP_KEY)
    cluster.stop(coordinator)
    cluster.start(coordinator)
    returns.kill()
    returns = ProcessMember(_seat(cluster, "returns", instance_id="two", session_timeout_ms=30_000), ledger)
    _settled(ledger, {"stays", "returns"}, 4)
    write_records(cluster.servers, TOPIC, 4, 50, first=50)
    repeat_until(lambda: _committed(cluster, 4) == [100] * 4, short_sleep)
    assert len(ledger.events("stays")) == events, "a rebalance reached the member that stayed"
    returns.kill()
    stays.leave()
    scene.figures = Figures(400)


@row("T10", "a member that stands still is taken out after its session, and what it commits later is refused")
def silent_member(scene: Scene) -> None:
    cluster, ledger = scene.cluster(), Ledger()
    cluster.create(TOPIC, 4)
    lives = ThreadMember(_seat(cluster, "lives", session_timeout_ms=6000), ledger)
    frozen = ProcessMember(_seat(cluster, "frozen", session_timeout_ms=6000), ledger)
    _settled(ledger, {"lives", "frozen"}, 4)
    at_s = frozen.freeze()
    _settled(ledger, {"lives"}, 4)
    took_s = time.monotonic() - at_s
    # The client beats five times a second, so its session began when it was frozen, or a moment before.
    assert took_s >= 5.5, f"taken out after {took_s:.1f} s"
    write_records(cluster.servers, TOPIC, 4, 50)
    repeat_until(lambda: _committed(cluster, 4) == [50] * 4, short_sleep)
    frozen.thaw()
    _settled(ledger, {"lives", "frozen"}, 4)
    assert _committed(cluster, 4) == [50] * 4
    frozen.kill()
    lives.leave()
    scene.figures = Figures(200)
    scene.note = f"its partitions had another owner after {took_s:.1f} s, its session is 6 s"


@row("T11", "batches twice, with a gap, out of order; also after the leader has changed or was restarted")
def sequences(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.create(TOPIC, 1)
    with RoutedClient(cluster) as client:
        producer = RawProducer(client, "x").init()
        producer.transactional_id = "x"
        batches = [producer.batch(TOPIC, 0, b"%d" % number, transactional=False) for number in range(8)]

    def send(batch: bytes) -> tuple[int, int]:
        with RoutedClient(cluster) as fresh:
            producer.client = fresh
            answer = producer.send_batch(TOPIC, 0, batch, version=9)
            return answer.error_code, answer.base_offset

    assert [send(batch) for batch in batches[:5]] == [(0, offset) for offset in range(5)]
    rounds = 0
    for change in (None, cluster.kill, cluster.stop):
        if change is not None:
            leader = cluster.leader(TOPIC)
            change(leader)
            repeat_until(lambda gone=leader: cluster.leader(TOPIC) != gone, short_sleep)  # type: ignore[misc]
            cluster.start(leader)
            cluster.wait_until_well(TOPIC)
        assert [send(batch) for batch in batches[:5]] == [(0, offset) for offset in range(5)], "the same offsets"
        assert send(batches[6])[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        rounds += 1
    assert [send(batches[5]), send(batches[6])] == [(0, 5), (0, 6)]
    assert send(batches[0])[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "older than the five that are kept"
    assert _values(cluster) == [str(number) for number in range(7)]
    cluster.wait_until_well(TOPIC)
    cluster.end()
    scene.figures = Figures(7, batches=same_batches(cluster, TOPIC, 0))
    scene.note = f"{rounds} rounds"
