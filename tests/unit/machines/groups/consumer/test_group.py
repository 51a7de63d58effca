"""What a KIP-848 group does as a whole: topics that change, votes, descriptions, offset checks, its end."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid
from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.consumer import records as consumer_records
from ottla.machines.groups.consumer.group import REBALANCE_TIMER, SESSION_TIMER, ConsumerGroup
from ottla.machines.groups.consumer.member import ConsumerMember, CurrentAssignment, MemberState, Subscription
from ottla.machines.groups.consumer.records import read_current
from ottla.machines.groups.consumer.state import ConsumerGroupPhase, ConsumerGroupState
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request
from ottla.wire.stored import consumer_offsets as stored
from tests.unit.machines.groups.consumer.world import GROUP, Cluster, Member, World, assigned, settle_all


@pytest.fixture
def world() -> World:
    return World(Cluster(t=4, u=2))


class TestTopics:
    def test_added_partitions_are_given_out(self, world: World) -> None:
        members = [Member(world, name, "t") for name in "ab"]
        settle_all(members)
        world.cluster.put("t", 6)
        world.topics_changed()
        assert world.group.state is ConsumerGroupPhase.ASSIGNING
        settle_all(members)
        assert [len(member.owned) for member in members] == [3, 3]

    def test_a_topic_that_goes_is_taken_away_and_comes_back_as_another(self, world: World) -> None:
        member = Member(world, "a", "t u")
        settle_all([member])
        old = world.cluster.partitions("u")
        world.cluster.delete("u")
        world.topics_changed()
        settle_all([member])
        assert member.owned == world.cluster.partitions("t")
        world.cluster.put("u", 2)
        world.topics_changed()
        settle_all([member])
        assert member.owned == world.cluster.partitions("t", "u")
        assert not member.owned & old

    def test_changes_of_other_topics_are_not_noticed(self, world: World) -> None:
        member = Member(world, "a", "t")
        settle_all([member])
        world.cluster.put("other", 5)
        assert world.group.topics_changed(0).records == []

    def test_a_pattern_takes_in_new_topics_but_never_internal_ones(self, world: World) -> None:
        world.cluster.put("__consumer_offsets", 50)
        member = Member(world, "a", regex="t.*|__.*")
        settle_all([member])
        assert member.owned == world.cluster.partitions("t")
        world.cluster.put("t2", 3)
        world.topics_changed()
        settle_all([member])
        assert member.owned == world.cluster.partitions("t", "t2")
        assert world.group.is_subscribed_to("t-anything")
        assert not world.group.is_subscribed_to("__consumer_offsets")

    def test_names_and_patterns_add_up(self, world: World) -> None:
        member = Member(world, "a", "u", regex="t")
        settle_all([member])
        assert member.owned == world.cluster.partitions("t", "u")
        member.regex = ""
        member.beat(full=True)
        settle_all([member])
        assert member.owned == world.cluster.partitions("u")

    def test_a_stored_pattern_that_cannot_be_read_subscribes_to_nothing(self, world: World) -> None:
        Member(world, "a", "u").settle()
        subscription = stored.ConsumerGroupMemberMetadataValue(
            subscribed_topic_names=[], subscribed_topic_regex=r"\p{Greek}+", rebalance_timeout_ms=1000
        )
        key = stored.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="b")
        world.append(key.encode_versioned(5), subscription.encode_versioned(0))
        world.perform(world.group.loaded(0))
        assert not world.group.is_subscribed_to("t")
        assert world.send(Request(group_id=GROUP, member_id="a", member_epoch=1)).error_code == 0


class TestAssignors:
    def split(self, world: World, *votes: str | None) -> list[list[int]]:
        members = [Member(world, f"m{rank}", "t", assignor=vote) for rank, vote in enumerate(votes)]
        settle_all(members)
        return [sorted(index for _, index in member.owned) for member in members]

    def test_most_votes_win(self, world: World) -> None:
        assert self.split(world, "range", "range", "uniform") == [[0, 1], [2], [3]]
        assert world.group.describe().assignor_name == "range"

    def test_without_votes_the_first_configured_is_used(self, world: World) -> None:
        self.split(world, None, None)
        assert world.group.describe().assignor_name == "uniform"

    def test_a_tie_goes_to_the_one_configured_first(self) -> None:
        world = World(Cluster(t=4), GroupConfig(consumer_assignors=("range", "uniform")))
        self.split(world, "uniform", "range")
        assert world.group.describe().assignor_name == "range"

    def test_a_vote_that_changes_the_winner_makes_a_new_target(self, world: World) -> None:
        member = Member(world, "a", "t")
        settle_all([member])
        member.assignor = "range"
        member.beat(full=True)
        assert member.epoch == 2

    def test_an_assignor_that_is_not_configured_any_more_is_not_used(self, world: World) -> None:
        self.split(world, "range")
        world.group.config = GroupConfig(consumer_assignors=("uniform",))
        assert world.group.describe().assignor_name == "uniform"


def test_the_states_of_a_group(world: World) -> None:
    seen = [world.group.state.value]
    first, second = Member(world, "a", "t"), Member(world, "b", "t")
    first.settle()
    seen.append(world.group.state.value)
    second.settle()
    seen.append(world.group.state.value)
    settle_all([first, second])
    seen.append(world.group.state.value)
    first.leave()
    seen.append(world.group.state.value)
    second.leave()
    seen.append(world.group.state.value)
    for record in world.group.tombstones():
        world.append(*record.encode())
    seen.append(world.group.state.value)
    assert seen == ["Dead", "Stable", "Reconciling", "Stable", "Assigning", "Empty", "Dead"]


class TestOffsets:
    def test_a_member_commits_and_reads_in_its_own_epoch_only(self, world: World) -> None:
        Member(world, "a", "t").settle()
        world.group.check_commit("a", 1)
        world.group.check_fetch("a", 1)
        for check in (world.group.check_commit, world.group.check_fetch):
            for member_id, epoch, code in [
                ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
                ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
                ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
                ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
                ("", 0, ErrorCode.UNKNOWN_MEMBER_ID),
                ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ]:
                with pytest.raises(KafkaError) as raised:
                    check(member_id, epoch)
                assert raised.value.code == code

    def test_outsiders_may_always_read_but_commit_only_to_an_empty_group(self, world: World) -> None:
        member = Member(world, "a", "t")
        member.settle()
        world.group.check_fetch(None, -1)
        world.group.check_fetch("", -1)
        with pytest.raises(KafkaError) as raised:
            world.group.check_commit("", -1)
        assert raised.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        member.leave()
        world.group.check_commit("", -1)
        for member_id, epoch in (("a", 1), ("", 0), ("", 1)):
            with pytest.raises(KafkaError):
                world.group.check_commit(member_id, epoch)


def test_the_description_shows_both_assignments(world: World) -> None:
    first = Member(world, "a", "t", instance_id="i", assignor="range")
    first.settle()
    Member(world, "b", regex="t").settle()
    described = world.group.describe()
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Reconciling", "range")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    a, b = described.members
    assert (a.member_id, a.instance_id, a.member_epoch, a.client_id, a.client_host) == (
        "a", "i", 1, "client", "/127.0.0.1"
    )  # fmt: skip
    assert [(t.topic_name, t.partitions) for t in a.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert [(t.topic_name, t.partitions) for t in a.target_assignment.topic_partitions] == [("t", [0, 1])]
    assert (b.subscribed_topic_names, b.subscribed_topic_regex, b.member_epoch, b.member_type) == ([], "t", 2, 1)
    assert b.assignment.topic_partitions == []
    world.cluster.delete("t")
    assert world.group.describe().members[0].assignment.topic_partitions == []


class TestLoading:
    def test_everybody_gets_a_full_session_and_time_to_revoke(self, world: World) -> None:
        first, second = Member(world, "a", "t"), Member(world, "b", "t")
        first.settle()
        second.settle()
        first.beat()
        group = ConsumerGroup(GROUP, world.config, world.cluster)
        group.durable = world.reloaded()
        world.timers.clear()
        world.perform(group.loaded(0))
        assert world.timers == {
            (SESSION_TIMER, GROUP, "a"): 45_000,
            (REBALANCE_TIMER, GROUP, "a"): 1000,
            (SESSION_TIMER, GROUP, "b"): 45_000,
        }

    def test_topics_that_changed_meanwhile_are_noticed(self, world: World) -> None:
        Member(world, "a", "t").settle()
        world.cluster.put("t", 9)
        assert world.group.loaded(0).records != []

    def test_a_member_state_of_a_newer_version_does_not_stick(self) -> None:
        value = stored.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, state=99)
        assert read_current(value).state is MemberState.UNRELEASED


class TestDeletion:
    def test_a_group_with_members_cannot_go(self, world: World) -> None:
        Member(world, "a", "t").settle()
        with pytest.raises(KafkaError) as raised:
            world.group.tombstones()
        assert raised.value.code == ErrorCode.NON_EMPTY_GROUP

    def test_the_tombstones_leave_nothing_behind(self, world: World) -> None:
        member = Member(world, "a", "t")
        member.settle()
        member.leave()
        for record in world.group.tombstones():
            world.append(*record.encode())
        assert not world.group.exists
        assert set(dict(world.log).values()) == {None}, "every key's last word is a tombstone"
        assert world.group.durable == ConsumerGroup(GROUP, world.config, world.cluster).durable


def test_a_newer_holder_keeps_its_partition_when_an_older_one_lets_go_of_it_late() -> None:
    """In a log that is compacted in part, the record that gave a partition up may stand behind the one that took it."""
    state = ConsumerGroupState()
    partition = (Uuid(bytes(16)), 0)
    holding = CurrentAssignment(epoch=1, assigned=frozenset({partition}))
    for member_id, current in (("a", holding), ("b", holding), ("a", CurrentAssignment(epoch=2))):
        record = consumer_records.current_assignment(GROUP, member_id, current)
        state.replay(record.key, record.value)
    assert state.is_held_by_another(partition, "a")
    assert not state.is_held_by_another(partition, "b")


def test_an_instance_belongs_to_nobody_once_its_member_has_another() -> None:
    state = ConsumerGroupState()
    for subscription in (Subscription(instance_id="i"), Subscription(instance_id="j")):
        record = consumer_records.member_subscription(GROUP, "a", subscription)
        state.replay(record.key, record.value)
    assert state.static_member("i") is None
    assert state.static_member("j") == ConsumerMember("a", Subscription(instance_id="j"))


def test_an_instance_that_went_over_to_another_member_stays_there_when_the_first_goes() -> None:
    state = ConsumerGroupState()
    subscription = Subscription(instance_id="i")
    for member_id, value in (("a", subscription), ("b", subscription), ("a", None)):
        record = consumer_records.member_subscription(GROUP, member_id, value)
        state.replay(record.key, record.value)
    assert state.static_member("i") == ConsumerMember("b", subscription)


def test_a_foreign_record_is_refused(world: World) -> None:
    with pytest.raises(TypeError, match="GroupMetadataKey"):
        world.group.replay(stored.GroupMetadataKey(group="g"), None)


def test_records_survive_their_bytes(world: World) -> None:
    first, second = Member(world, "a", "t u", assignor="range"), Member(world, "b", "t", instance_id="i")
    settle_all([first, second])
    second.leave(-2)
    first.topics = ["t"]
    first.beat(full=True)
    assert world.reloaded() == world.reloaded(compacted=True) == world.group.durable
    assert consumer_records.by_topic(frozenset({(Uuid(bytes(16)), 2), (Uuid(bytes(16)), 1)})) == [(bytes(16), [1, 2])]


def test_a_hundred_members_over_a_thousand_partitions_settle() -> None:
    world = World(Cluster(**{f"t{n}": 100 for n in range(10)}))
    members = [Member(world, f"m{n:03}", " ".join(world.cluster.names())) for n in range(100)]
    for member in members:
        member.beat()
    settle_all(members, rounds=3)
    assert world.group.state is ConsumerGroupPhase.STABLE
    assert {len(member.owned) for member in members} == {10}
    assert assigned(members[0].beat(full=True)) == members[0].owned


def test_a_member_that_missed_what_to_give_up_is_not_taken_at_its_word() -> None:
    world = World(Cluster(t0=4), GroupConfig())
    first = Member(world, "first", "t0")
    first.beat()
    second = Member(world, "second", "t0")
    second.beat()
    first.beat(lose_reply=True)
    # It has not taken up its partitions yet, so it lists none; but it still believes that they are its own.
    first.beat(lose_reply=True)
    second.settle()
    assert not first.held & second.held
    settle_all([first, second])
    assert len(first.owned) == len(second.owned) == 2
    assert not first.owned & second.owned
