"""What groups have to say for the broker's log: each rebalance once, with its reason, and who timed out."""

from __future__ import annotations

from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.consumer.group import SESSION_TIMER
from ottla.machines.groups.notes import because, listed
from tests.unit.machines.groups.consumer.world import GROUP as NEW_GROUP
from tests.unit.machines.groups.consumer.world import Cluster, Member, World, settle_all
from tests.unit.machines.groups.migration.world import ClassicMember, ConsumerMember, settle
from tests.unit.machines.groups.runner import GROUP, REBALANCE_MS, SESSION_MS, Runner


def settled(runner: Runner, *tokens: object) -> list[str]:
    """Everybody's member id, once the leader has assigned."""
    ids: list[str] = [runner.reply(token).member_id for token in tokens]
    generation = runner.reply(tokens[0]).generation_id
    for member_id in ids:
        runner.sync(member_id, generation, dict.fromkeys(ids, b""))
    return ids


def taken(runner: Runner) -> list[str]:
    notes, runner.notes = runner.notes, []
    return notes


def test_a_classic_group_from_its_first_member_to_its_last() -> None:
    runner = Runner(GroupConfig(initial_rebalance_delay_ms=0))
    (first,) = settled(runner, runner.join(version=3))
    assert taken(runner) == [f"group {GROUP}: generation 1 with member {first}, because member {first} joined"]

    newcomer = runner.join(version=3)
    assert taken(runner) == [], "the rebalance is not over yet"
    first, second = settled(runner, runner.join(first, version=3), newcomer)
    reason = f"because member {second} joined"
    assert taken(runner) == [f"group {GROUP}: generation 2 with 2 members ({first}, {second}), {reason}"]

    runner.heartbeat(first, 2)
    runner.leave(second)
    settled(runner, runner.join(first, version=3))
    assert taken(runner) == [f"group {GROUP}: generation 3 with member {first}, because member {second} left"]

    runner.advance(SESSION_MS)
    assert taken(runner) == [
        f"group {GROUP}: member {first} timed out after {SESSION_MS} ms of silence",
        f"group {GROUP}: generation 4 has no members, because member {first} timed out",
    ]


def test_members_that_do_not_join_again_are_named() -> None:
    runner = Runner(GroupConfig(initial_rebalance_delay_ms=0))
    (first,) = settled(runner, runner.join(version=3, session_timeout_ms=10 * REBALANCE_MS))
    taken(runner)
    newcomer = runner.join(version=3, session_timeout_ms=10 * REBALANCE_MS)
    runner.advance(REBALANCE_MS)
    second = runner.reply(newcomer).member_id
    assert taken(runner) == [
        f"group {GROUP}: member {first} did not join again in time",
        f"group {GROUP}: generation 2 with member {second}, because member {second} joined",
    ]


def test_a_group_of_the_new_protocol() -> None:
    world = World(Cluster(t=4))
    first, second = Member(world, "a", "t"), Member(world, "b", "t")
    settle_all([first, second])
    assert world.notes == [
        f"group {NEW_GROUP}: epoch 1 with member a, because member a joined",
        f"group {NEW_GROUP}: epoch 2 with 2 members (a, b), because member b joined",
    ]
    world.notes.clear()
    world.cluster.put("t", 6)
    world.topics_changed()
    settle_all([first, second])
    world.fire(SESSION_TIMER, "a")
    second.leave()
    assert world.notes == [
        f"group {NEW_GROUP}: epoch 3 with 2 members (a, b), because topics changed",
        f"group {NEW_GROUP}: epoch 4 with member b, because member a timed out",
        f"group {NEW_GROUP}: epoch 5 with no members, because member b left",
    ]


def test_a_large_group_does_not_fill_the_log() -> None:
    assert listed([f"m{n}" for n in range(10)]) == "10 members (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9)"
    assert listed([f"m{n}" for n in range(11)]) == "11 members (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 …)"
    assert listed([f"m{n}" for n in range(12)]) == "12 members (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 …)"
    assert (because(None), because("new topics")) == ("", " (new topics)")
    assert because("x" * 256) == f" ({'x' * 255})"


def test_a_group_that_changes_its_protocol_and_back() -> None:
    runner = Runner(GroupConfig(initial_rebalance_delay_ms=0))
    old, new = ClassicMember(runner, "a"), ConsumerMember(runner, "c")
    settle(old)
    taken(runner)
    new.step()
    assert taken(runner) == [
        f"group {GROUP}: upgraded to the protocol of KIP-848 with member {old.member_id}",
        f"group {GROUP}: epoch 2 with 2 members ({old.member_id}, c), because member c joined",
    ]
    settle(old, new)
    assert taken(runner) == []
    runner.perform(runner.shard.timer_fired((SESSION_TIMER, GROUP, "c"), runner.now_ms))
    assert taken(runner) == [
        f"group {GROUP}: member c timed out",
        f"group {GROUP}: downgraded to the classic protocol with member {old.member_id}",
    ]
    settle(old)
    reason = "because it was downgraded from the protocol of KIP-848"
    assert taken(runner) == [f"group {GROUP}: generation 3 with member {old.member_id}, {reason}"]
