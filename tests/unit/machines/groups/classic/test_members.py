"""The members of a classic group: their order, their instance ids, and the protocols they share."""

from __future__ import annotations

import pytest

from ottla.machines.groups.classic.members import Member, Members


def member(member_id: str, *protocols: str, instance_id: str | None = None, rebalance_ms: int = 100) -> Member:
    return Member(
        member_id, instance_id, "client", "/host", 10, rebalance_ms, tuple((name, name.encode()) for name in protocols)
    )


def group(*members: Member) -> Members:
    made = Members()
    for each in members:
        made.add(each)
    return made


def order(members: Members) -> list[str]:
    return [each.member_id for each in members]


def test_members_stand_in_the_order_they_came() -> None:
    a, b = member("b"), member("a")
    members = group(a, b)
    assert (order(members), len(members)) == (["b", "a"], 2)
    assert members["a"] is members.get("a") is b
    assert ("a" in members, "c" in members, members.get("c")) == (True, False, None)


def test_those_that_are_kept_stand_in_the_order_they_are_named() -> None:
    members = group(member("a", "x"), member("b", "x", "y", instance_id="i"), member("c", "x", "y"), member("d", "y"))
    members.retain(["c", "nobody", "a"])
    assert order(members) == ["c", "a"]
    assert members.id_of_instance("i") is None
    assert (members.have_in_common((("x", b""),)), members.have_in_common((("y", b""),))) == (True, False)
    members.retain([])
    assert (order(members), len(members)) == ([], 0)


def test_a_renamed_member_keeps_its_place_and_its_instance() -> None:
    members = group(member("a", "x"), member("b", "x", instance_id="i"), member("c", "x"))
    renamed = members.rename("b", "new")
    assert (order(members), renamed.member_id) == (["a", "new", "c"], "new")
    assert members["new"] is renamed and "b" not in members
    assert members.id_of_instance("i") == "new"
    assert members.rename("c", "z").instance_id is None
    assert members.remove("new") is renamed
    assert members.id_of_instance("i") is None


def test_an_instance_belongs_to_whoever_came_with_it_last() -> None:
    members = group(member("a", instance_id="i"), member("b", instance_id="i"))
    assert members.id_of_instance("i") == "b"
    members.remove("a")
    assert members.id_of_instance("i") == "b"
    members.remove("b")
    assert members.id_of_instance("i") is None


@pytest.mark.parametrize(
    ("members", "offered", "in_common", "chosen"),
    [
        ([("x",)], ("x",), True, "x"),
        ([("x", "y"), ("y",)], ("x",), False, "y"),
        ([("x", "y"), ("y",)], ("x", "y"), True, "y"),
        ([("x", "y"), ("y", "x"), ("y", "x")], ("x",), True, "y"),
        ([("x", "y"), ("y", "x")], ("y",), True, "x"),
        ([("x",), ("y",)], ("x", "y"), False, None),
        ([("x", "x"), ("x",)], ("x",), True, "x"),
        ([("x",)], (), False, "x"),
    ],
)
def test_a_protocol_is_shared_if_all_know_it_and_chosen_if_most_prefer_it(
    members: list[tuple[str, ...]], offered: tuple[str, ...], in_common: bool, chosen: str | None
) -> None:
    made = group(*(member(str(number), *protocols) for number, protocols in enumerate(members)))
    assert made.have_in_common(tuple((name, b"") for name in offered)) is in_common
    assert made.vote() == chosen


def test_what_members_support_follows_what_they_say_and_who_is_there() -> None:
    members = group(member("a", "x"), member("b", "x", "y"))
    members.set_protocols(members["a"], (("y", b"new"), ("y", b"again")))
    assert [members.have_in_common(((name, b""),)) for name in "xy"] == [False, True]
    assert (members["a"].metadata("y"), members["a"].metadata("x"), members["a"].metadata(None)) == (b"new", b"", b"")
    members.remove("a")
    assert [members.have_in_common(((name, b""),)) for name in "xy"] == [True, True]
    members.remove("b")
    assert members.vote() is None


def test_a_rebalance_takes_as_long_as_its_slowest_member() -> None:
    assert group().rebalance_timeout_ms_max() == 0
    assert group(member("a", rebalance_ms=7), member("b", rebalance_ms=9)).rebalance_timeout_ms_max() == 9
