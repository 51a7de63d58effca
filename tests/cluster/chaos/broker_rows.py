"""F: brokers are killed, held, stopped and cut off from each other."""

from __future__ import annotations

import time

from tests.cluster.chaos.cluster import IDS, short_sleep
from tests.cluster.chaos.load import IN_TRANSACTIONS, PARTITIONS, PLAIN, Load
from tests.cluster.chaos.table import Scene, row
from tests.interop.groups.clients import Seat
from tests.interop.groups.ledger import Ledger
from tests.interop.groups.scene import ThreadMember
from tests.waiting import repeat_until

_SLOW_SESSION = {"zookeeper_session_timeout_ms": "30000"}
"""What happens is the leaders' work, not the metadata store's."""


@row("F01", "kill -9 of a leader, started again after 3 s, five times", gap_s_max=10)
def kill_leaders(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster, transactions=True) as load:
        for number in range(scene.times(5, 1)):
            victim = cluster.leader(PLAIN, number % PARTITIONS)
            cluster.kill(victim)
            time.sleep(scene.times(3, 0))
            cluster.start(victim)
            cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
            load.wait_for_more()


@row("F02", "each broker stopped and started in turn, three times, under writers and a group", gap_s_max=2)
def rolling_restarts(scene: Scene) -> None:
    cluster = scene.cluster()
    ledger = Ledger()
    with scene.load(cluster) as load:
        seats = [
            Seat(client="confluent-range", name=f"m{n}", bootstrap=cluster.servers, group="g", topics=(PLAIN,))
            for n in range(3)
        ]
        members = [ThreadMember(seat, ledger) for seat in seats]
        for _ in range(scene.times(3, 1)):
            for broker_id in IDS:
                cluster.stop(broker_id)
                cluster.start(broker_id)
                cluster.wait_until_well(PLAIN)
        load.wait_for_more()
        for writer in load.writers:
            writer.stop()
        for writer in load.writers:
            writer.thread.join()
        sent = {step.value for w in load.writers for op in w.operations for step in op.sends()}  # type: ignore[attr-defined]

        def has_read_all() -> bool:
            return {value.decode() for values in ledger.consumed().values() for value in values} >= sent

        repeat_until(has_read_all, short_sleep)
        for member in members:
            member.leave()
    assert load.figures.unknown == 0, f"{load.figures.unknown} sends failed although two brokers were always there"
    scene.note = f"the group read {len(ledger.read_again())} of {len(sent)} records again"


@row("F03", "kill -9 of all three at once, started again")
def kill_all(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster) as load:
        cluster.kill(*IDS)
        cluster.start(*IDS)
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()


@row("F04", "kill -9 of two: nothing is acknowledged until one is back, what is committed can be read")
def kill_two(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster) as load:
        survivor = cluster.leader(PLAIN)
        dead = [broker_id for broker_id in IDS if broker_id != survivor]
        cluster.kill(*dead)
        for index in range(PARTITIONS):
            cluster.wait_for_isr(PLAIN, index, {survivor}, ask=[survivor])
        before = load.acknowledged()
        time.sleep(3)
        assert load.acknowledged() == before, "a write was acknowledged that only one broker has"
        committed = cluster.describe(PLAIN, [survivor])
        assert {each.leader_id for each in committed} == {survivor}
        back_s = time.monotonic()
        cluster.start(dead[0])
        load.wait_for_more(1)
        scene.note = f"writes went on {time.monotonic() - back_s:.1f} s after one was started"
        cluster.start(dead[1])
        cluster.wait_until_well(PLAIN)


@row("F05", "a leader is held for twice its session, then goes on as if nothing had been", gap_s_max=10)
def hold_leader(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster, transactions=True) as load:
        zombie = cluster.leader(PLAIN)
        others = [broker_id for broker_id in IDS if broker_id != zombie]
        cluster.hold(zombie)
        time.sleep(8)
        repeat_until(lambda: all(each.leader_id != zombie for each in cluster.describe(PLAIN, others)), short_sleep)
        cluster.resume(zombie)
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        load.wait_for_more()


@row("F06", "a follower is held for 6 s: it leaves the in-sync set and comes back", gap_s_max=15)
def hold_follower(scene: Scene) -> None:
    cluster = scene.cluster(**_SLOW_SESSION)
    with scene.load(cluster) as load:
        leader = cluster.leader(PLAIN)
        # Not the controller, or nobody could change the in-sync set before its session is over.
        follower = next(broker_id for broker_id in IDS if broker_id not in (leader, cluster.controller()))
        others = [broker_id for broker_id in IDS if broker_id != follower]
        cluster.hold(follower)
        held_s = time.monotonic()
        cluster.wait_for_isr(PLAIN, 0, set(others), ask=others)
        left_s = time.monotonic()
        # What the held one leads waits for it: nobody knows yet that it will not answer.
        cluster.resume(follower)
        cluster.wait_until_well(PLAIN)
        scene.note = f"out after {left_s - held_s:.1f} s, in again {time.monotonic() - left_s:.1f} s after it went on"
        load.wait_for_more()


@row("F07", "a follower that cannot reach a leader, but everybody else", gap_s_max=15, is_of_network=True)
def cut_follower(scene: Scene) -> None:
    cluster = scene.cluster(**_SLOW_SESSION)
    with scene.load(cluster) as load:
        before = cluster.describe(PLAIN)
        leader = before[0].leader_id
        # Not the controller, or the leader would hear nothing from it.
        follower = next(broker_id for broker_id in IDS if broker_id not in (leader, cluster.controller()))
        cluster.links.cut = {(follower, leader)}
        led = [each.partition_index for each in before if each.leader_id == leader]
        for index in led:
            cluster.wait_for_isr(PLAIN, index, set(IDS) - {follower}, ask=[leader])
        load.wait_for_more(20)
        for each in cluster.describe(PLAIN, [leader]):
            expected = set(IDS) - {follower} if each.partition_index in led else set(IDS)
            assert set(each.isr_nodes) == expected, f"{each.partition_index}: {each.isr_nodes}"
        cluster.links.cut = set()
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()
        after = cluster.describe(PLAIN)
        assert [each.leader_epoch for each in after] == [each.leader_epoch for each in before], "somebody was elected"


@row("F08", "a leader that is cut off from both followers acknowledges nothing", is_of_network=True)
def cut_leader(scene: Scene) -> None:
    cluster = scene.cluster(**_SLOW_SESSION)
    with scene.load(cluster) as load:
        leader = cluster.leader(PLAIN)
        followers = [broker_id for broker_id in IDS if broker_id != leader]
        led = [each.partition_index for each in cluster.describe(PLAIN) if each.leader_id == leader]
        cluster.links.cut = {pair for follower in followers for pair in ((follower, leader), (leader, follower))}
        # Replies that were on their way are there by now.
        time.sleep(1)
        before = [load.acknowledged(index) for index in led]
        time.sleep(6)
        assert [load.acknowledged(index) for index in led] == before, "acknowledged, and no follower has it"
        cluster.links.cut = set()
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()


@row("F19", "leaders move again and again, 20 elections at least", gap_s_max=10)
def many_elections(scene: Scene) -> None:
    cluster = scene.cluster()
    with scene.load(cluster, transactions=True) as load:
        began = _epochs(load)
        while _epochs(load) - began < scene.times(20, 3):
            mover = cluster.leader(PLAIN, scene.rng.randrange(PARTITIONS))
            cluster.stop(mover)
            cluster.start(mover)
            cluster.wait_until_well(PLAIN)
        scene.note = f"{_epochs(load) - began} elections"
        load.wait_for_more()


def _epochs(load: Load) -> int:
    return sum(each.leader_epoch for each in load.cluster.describe(PLAIN))
