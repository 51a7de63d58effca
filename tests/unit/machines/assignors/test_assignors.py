"""Published examples of each assignor, and the laws they all keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.machines.assignors import CLIENT_ASSIGNORS, SERVER_ASSIGNORS
from ottla.machines.assignors.balance import claimed_owners
from ottla.machines.assignors.types import Assignment, Assignor, AssignorMember

EVERY_ASSIGNOR = [*CLIENT_ASSIGNORS.values(), SERVER_ASSIGNORS["uniform"]]
BALANCED = [CLIENT_ASSIGNORS["sticky"], SERVER_ASSIGNORS["uniform"]]
RANGE = CLIENT_ASSIGNORS["range"]
ROUND_ROBIN = CLIENT_ASSIGNORS["roundrobin"]
STICKY = CLIENT_ASSIGNORS["sticky"]
COOPERATIVE = CLIENT_ASSIGNORS["cooperative-sticky"]


def parts(text: str) -> list[TopicPartition]:
    """`t0p0 t1p3` as partitions."""
    return [TopicPartition(topic, int(index)) for topic, index in (word.rsplit("p", 1) for word in text.split())]


def member(
    name: str, topics: str, owned: str = "", generation: int = -1, instance: str | None = None
) -> AssignorMember:
    return AssignorMember(name, frozenset(topics.split()), frozenset(parts(owned)), generation, None, instance)


def after(assignment: Assignment, members: list[AssignorMember], generation: int = 1) -> list[AssignorMember]:
    """The members as they come back to the next round, holding what they were given."""
    return [
        AssignorMember(m.member_id, m.topics, frozenset(assignment.get(m.member_id, ())), generation) for m in members
    ]


def sizes(assignment: Assignment) -> list[int]:
    return [len(partitions) for _, partitions in sorted(assignment.items())]


def test_the_names_are_those_clients_and_configurations_use() -> None:
    assert set(CLIENT_ASSIGNORS) == {"range", "roundrobin", "sticky", "cooperative-sticky"}
    assert set(SERVER_ASSIGNORS) == {"uniform", "range"}


class TestRange:
    def test_seven_partitions_over_three_members_are_cut_3_2_2(self) -> None:
        assert RANGE.assign([member(c, "t") for c in "abc"], {"t": 7}) == {
            "a": parts("tp0 tp1 tp2"),
            "b": parts("tp3 tp4"),
            "c": parts("tp5 tp6"),
        }

    def test_eight_partitions_over_three_members_are_cut_3_3_2(self) -> None:
        assert sizes(RANGE.assign([member(c, "t") for c in "abc"], {"t": 8})) == [3, 3, 2]

    def test_the_first_members_take_the_remainder_of_every_topic(self) -> None:
        assert RANGE.assign([member("c0", "t0 t1"), member("c1", "t0 t1")], {"t0": 3, "t1": 3}) == {
            "c0": parts("t0p0 t0p1 t1p0 t1p1"),
            "c1": parts("t0p2 t1p2"),
        }

    def test_each_topic_is_cut_among_its_own_subscribers(self) -> None:
        members = [member("c0", "t0"), member("c1", "t0 t1"), member("c2", "t0 t1 t2")]
        assert RANGE.assign(members, {"t0": 1, "t1": 2, "t2": 3}) == {
            "c0": parts("t0p0"),
            "c1": parts("t1p0"),
            "c2": parts("t1p1 t2p0 t2p1 t2p2"),
        }

    def test_static_members_come_first_by_instance_id_so_a_restart_changes_nothing(self) -> None:
        before = [member("zz", "t", instance="i1"), member("yy", "t", instance="i2"), member("aa", "t")]
        restarted = [member("a-new-id", "t", instance="i2"), before[0], before[2]]
        first, second = RANGE.assign(before, {"t": 3}), RANGE.assign(restarted, {"t": 3})
        assert first == {"zz": parts("tp0"), "yy": parts("tp1"), "aa": parts("tp2")}
        assert second["a-new-id"] == first["yy"]

    def test_more_members_than_partitions_leaves_the_last_without(self) -> None:
        assert sizes(RANGE.assign([member(c, "t") for c in "abc"], {"t": 2})) == [1, 1, 0]


class TestRoundRobin:
    def test_partitions_are_dealt_in_a_circle_across_topics(self) -> None:
        assert ROUND_ROBIN.assign([member("c0", "t0 t1"), member("c1", "t0 t1")], {"t0": 3, "t1": 3}) == {
            "c0": parts("t0p0 t0p2 t1p1"),
            "c1": parts("t0p1 t1p0 t1p2"),
        }

    def test_non_subscribers_are_skipped(self) -> None:
        members = [member("c0", "t0"), member("c1", "t0 t1"), member("c2", "t0 t1 t2")]
        assert ROUND_ROBIN.assign(members, {"t0": 1, "t1": 2, "t2": 3}) == {
            "c0": parts("t0p0"),
            "c1": parts("t1p0"),
            "c2": parts("t1p1 t2p0 t2p1 t2p2"),
        }

    def test_the_circle_goes_on_behind_a_non_subscriber(self) -> None:
        members = [member("a", "t"), member("b", "u"), member("c", "t")]
        assert ROUND_ROBIN.assign(members, {"t": 4, "u": 1}) == {
            "a": parts("tp0 tp2"),
            "b": parts("up0"),
            "c": parts("tp1 tp3"),
        }

    def test_eight_partitions_over_three_members(self) -> None:
        assert sizes(ROUND_ROBIN.assign([member(c, "t") for c in "abc"], {"t": 8})) == [3, 3, 2]


@pytest.mark.parametrize("assignor", BALANCED, ids=lambda assignor: assignor.name)
class TestSticky:
    """The examples of KIP-54."""

    def test_a_member_that_leaves_moves_only_its_own_partitions(self, assignor: Assignor) -> None:
        members = [member(c, "t0 t1 t2 t3") for c in ("c0", "c1", "c2")]
        counts = dict.fromkeys(("t0", "t1", "t2", "t3"), 2)
        first = assignor.assign(members, counts)
        assert first == {
            "c0": parts("t0p0 t1p1 t3p0"),
            "c1": parts("t0p1 t2p0 t3p1"),
            "c2": parts("t1p0 t2p1"),
        }
        second = assignor.assign(after(first, [members[0], members[2]]), counts)
        assert second == {"c0": parts("t0p0 t1p1 t2p0 t3p0"), "c2": parts("t0p1 t1p0 t2p1 t3p1")}

    def test_uneven_subscriptions(self, assignor: Assignor) -> None:
        members = [member("c0", "t0"), member("c1", "t0 t1"), member("c2", "t0 t1 t2")]
        counts = {"t0": 1, "t1": 2, "t2": 3}
        first = assignor.assign(members, counts)
        assert first == {"c0": parts("t0p0"), "c1": parts("t1p0 t1p1"), "c2": parts("t2p0 t2p1 t2p2")}
        second = assignor.assign(after(first, members[1:]), counts)
        assert second == {"c1": parts("t0p0 t1p0 t1p1"), "c2": parts("t2p0 t2p1 t2p2")}

    def test_a_new_member_takes_its_share_and_nothing_else_moves(self, assignor: Assignor) -> None:
        members = [member("c0", "t"), member("c1", "t")]
        first = assignor.assign(members, {"t": 6})
        second = assignor.assign([*after(first, members), member("c2", "t")], {"t": 6})
        assert sizes(second) == [2, 2, 2]
        assert set(second["c0"]) < set(first["c0"])
        assert set(second["c1"]) < set(first["c1"])

    def test_members_of_an_older_generation_do_not_win(self, assignor: Assignor) -> None:
        members = [member("c0", "t", "tp0 tp1", generation=4), member("c1", "t", "tp1 tp2", generation=5)]
        assert assignor.assign(members, {"t": 4}) == {"c0": parts("tp0 tp3"), "c1": parts("tp1 tp2")}

    def test_two_claims_of_one_generation_are_both_void(self, assignor: Assignor) -> None:
        members = [member("c0", "t", "tp0 tp1", generation=5), member("c1", "t", "tp1", generation=5)]
        assert assignor.assign(members, {"t": 2}) == {"c0": parts("tp0"), "c1": parts("tp1")}

    def test_partitions_that_are_gone_or_unwanted_are_not_kept(self, assignor: Assignor) -> None:
        members = [member("c0", "u", "tp0 up7 up0", generation=1), member("c1", "t u", "tp1 xp0", generation=1)]
        assert assignor.assign(members, {"t": 2, "u": 2}) == {"c0": parts("up0 up1"), "c1": parts("tp0 tp1")}

    def test_the_odd_partitions_go_to_those_who_hold_most(self, assignor: Assignor) -> None:
        members = [member("c0", "t"), member("c1", "t", "tp0", generation=1)]
        assert assignor.assign(members, {"t": 3}) == {"c0": parts("tp1"), "c1": parts("tp0 tp2")}

    def test_what_members_hold_counts_before_anything_is_dealt(self, assignor: Assignor) -> None:
        members = [member("c0", "t u", "up0 up1", generation=1), member("c1", "t"), member("c2", "u")]
        assert assignor.assign(members, {"t": 2, "u": 2}) == {
            "c0": parts("up0"),
            "c1": parts("tp0 tp1"),
            "c2": parts("up1"),
        }


def test_only_claims_that_can_be_true_count() -> None:
    members = [
        member("a", "t", "tp0 tp1 tp2", generation=5),
        member("b", "t", "tp1 tp3 xp0", generation=5),
        member("c", "t", "tp0 tp2", generation=6),
        member("d", "u", "tp4", generation=9),
        member("e", "t", "tp1", generation=4),
    ]
    beyond = AssignorMember("f", frozenset({"t"}), frozenset({TopicPartition("t", -1), TopicPartition("t", 5)}), 5)
    owners = claimed_owners([*members, beyond], {"t": 5, "u": 1})
    assert owners == dict(zip(parts("tp0 tp2 tp3"), ("c", "c", "b"), strict=True))


class TestCooperativeSticky:
    """The examples of KIP-429: a partition that moves is given to nobody in the first round."""

    def test_a_moving_partition_is_first_only_revoked(self) -> None:
        members = [member("c0", "t", "tp0 tp1", 1), member("c1", "t", "tp2 tp3", 1), member("c2", "t")]
        first = COOPERATIVE.assign(members, {"t": 4})
        assert first == {"c0": parts("tp0 tp1"), "c1": parts("tp2"), "c2": []}
        second = COOPERATIVE.assign(after(first, members, 2), {"t": 4})
        assert second == {"c0": parts("tp0 tp1"), "c1": parts("tp2"), "c2": parts("tp3")}

    def test_the_partitions_of_a_member_that_left_are_given_at_once(self) -> None:
        members = [member("c0", "t", "tp0 tp1", 1)]
        assert COOPERATIVE.assign(members, {"t": 4}) == {"c0": parts("tp0 tp1 tp2 tp3")}

    def test_even_an_old_claim_withholds(self) -> None:
        members = [member("c0", "t", "tp0", 1), member("c1", "t", "tp0 tp1 tp2", 2), member("c2", "t", "", 2)]
        assignment = COOPERATIVE.assign(members, {"t": 3})
        assert sum(len(given) for given in assignment.values()) == 1, "two partitions must change hands first"
        assert assignment["c1"]


def test_sticky_is_what_cooperative_sticky_ends_at() -> None:
    members = [member("c0", "t", "tp0 tp1 tp2 tp3 tp4", 1), member("c1", "t"), member("c2", "t")]
    withheld = COOPERATIVE.assign(members, {"t": 5})
    assert COOPERATIVE.assign(after(withheld, members, 2), {"t": 5}) == STICKY.assign(members, {"t": 5})


TOPICS = ["t0", "t1", "t2", "t3"]
topic_counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
partitions_of_topics = st.frozensets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)), max_size=12)
random_members = st.lists(
    st.tuples(
        st.frozensets(st.sampled_from([*TOPICS, "missing"])),
        partitions_of_topics,
        st.integers(-1, 2),
        st.none() | st.just("x"),
    ),
    min_size=1,
    max_size=6,
).map(
    lambda rows: [
        AssignorMember(f"m{i}", topics, owned, generation, None, static and f"i{9 - i}")
        for i, (topics, owned, generation, static) in enumerate(rows)
    ]
)


@pytest.mark.parametrize("assignor", EVERY_ASSIGNOR, ids=lambda assignor: assignor.name)
@given(members=random_members, counts=topic_counts)
def test_every_partition_somebody_wants_goes_to_one_subscriber(
    assignor: Assignor, members: list[AssignorMember], counts: dict[str, int]
) -> None:
    assignment = assignor.assign(members, counts)
    assert set(assignment) == {m.member_id for m in members}
    wanted = {
        TopicPartition(topic, index)
        for topic in TOPICS
        if any(topic in m.topics for m in members)
        for index in range(counts[topic])
    }
    given_out = [partition for partitions in assignment.values() for partition in partitions]
    assert len(given_out) == len(set(given_out))
    if assignor is COOPERATIVE:
        held = {p for m in members for p in m.owned}
        assert wanted - held <= set(given_out) <= wanted
    else:
        assert set(given_out) == wanted
    for m in members:
        assert all(partition.topic in m.topics for partition in assignment[m.member_id])
        assert assignment[m.member_id] == sorted(assignment[m.member_id])
    assert assignor.assign(members[::-1], counts) == assignment, "the order of the members must not matter"


@given(members=random_members, counts=topic_counts)
def test_balanced_unless_the_poorer_member_can_take_nothing(
    members: list[AssignorMember], counts: dict[str, int]
) -> None:
    assignment = STICKY.assign(members, counts)
    for rich in members:
        for poor in members:
            if len(assignment[rich.member_id]) >= len(assignment[poor.member_id]) + 2:
                assert not any(p.topic in poor.topics for p in assignment[rich.member_id])


@given(members=random_members, counts=topic_counts)
def test_an_assignment_that_was_given_out_stays(members: list[AssignorMember], counts: dict[str, int]) -> None:
    first = STICKY.assign(members, counts)
    assert STICKY.assign(after(first, members), counts) == first


@given(
    owned_by=st.lists(st.integers(-1, 5), max_size=24),
    member_count=st.integers(1, 6),
)
def test_members_with_equal_subscriptions_keep_as_much_as_balance_allows(
    owned_by: list[int], member_count: int
) -> None:
    """The bound: everybody at most the larger share, and only as many the larger share as there are odd partitions."""
    members = [
        AssignorMember(
            f"m{rank}",
            frozenset({"t"}),
            frozenset(TopicPartition("t", p) for p, owner in enumerate(owned_by) if owner == rank),
            1,
        )
        for rank in range(member_count)
    ]
    assignment = STICKY.assign(members, {"t": len(owned_by)})
    kept = sum(len(m.owned & set(assignment[m.member_id])) for m in members)
    share, odd = divmod(len(owned_by), member_count)
    at_most = sum(min(len(m.owned), share) for m in members) + min(odd, sum(len(m.owned) > share for m in members))
    assert kept == at_most


@given(members=random_members, counts=topic_counts)
def test_a_cooperative_round_never_gives_a_held_partition_to_another(
    members: list[AssignorMember], counts: dict[str, int]
) -> None:
    assignment = COOPERATIVE.assign(members, counts)
    for m in members:
        for partition in set(assignment[m.member_id]) - m.owned:
            assert not any(partition in other.owned for other in members)


@pytest.mark.parametrize("assignor", EVERY_ASSIGNOR, ids=lambda assignor: assignor.name)
@pytest.mark.parametrize("uneven", [False, True])
def test_a_hundred_members_and_a_thousand_partitions(assignor: Assignor, uneven: bool) -> None:
    counts = {f"t{n}": 100 for n in range(10)}
    members = [
        AssignorMember(f"m{n:03}", frozenset(t for t in counts if not (uneven and n % 10 == int(t[1:]))))
        for n in range(100)
    ]
    first = assignor.assign(members, counts)
    second = assignor.assign(after(first, members[:-1]), counts)
    assert sum(sizes(second)) == 1000
    if assignor.name not in ("range", "roundrobin"):
        assert max(sizes(first)) == min(sizes(first)) == 10
        moved = sum(len(set(second[m.member_id]) - set(first[m.member_id])) for m in members[:-1])
        assert moved == 10
