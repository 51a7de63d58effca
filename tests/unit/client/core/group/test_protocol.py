"""The bytes that members of classic groups tell each other, those of all clients, and assignors of one's own."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.group.protocol import (
    BuiltInAssignor,
    GroupAssignor,
    choose_assignors,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)

T5, T6, U0 = TopicPartition("t", 5), TopicPartition("t", 6), TopicPartition("u", 0)
PARTITIONS = b"\0\0\0\2" + b"\0\1t" + b"\0\0\0\2\0\0\0\5\0\0\0\6" + b"\0\1u" + b"\0\0\0\1\0\0\0\0"


def test_an_assignment_is_of_version_1() -> None:
    data = encode_assignment([U0, T6, T5], b"data")
    assert data == b"\0\1" + PARTITIONS + b"\0\0\0\4data"
    assert decode_assignment(data) == ([T5, T6, U0], b"data")
    assert encode_assignment([]) == b"\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff"


def test_a_subscription_is_of_version_3() -> None:
    data = encode_subscription(["u", "t"], [U0, T6, T5], 9, user_data=b"data", rack="r")
    topics = b"\0\0\0\2\0\1t\0\1u"
    assert data == b"\0\3" + topics + b"\0\0\0\4data" + PARTITIONS + b"\0\0\0\x09" + b"\0\1r"
    found = decode_member("m", "i", data)
    assert (found.member_id, found.instance_id) == ("m", "i") and found.topics == {"t", "u"}
    assert found.owned == {T5, T6, U0} and (found.generation, found.user_data, found.rack) == (9, b"data", "r")
    bare = encode_subscription([], [], -1)
    assert bare == b"\0\3" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"\xff\xff"


@pytest.mark.parametrize(
    ("name", "fresh", "later"),
    [
        ("range", None, None),
        ("roundrobin", None, None),
        ("sticky", b"\0\0\0\0" + b"\xff\xff\xff\xff", PARTITIONS + b"\0\0\0\7"),
        ("cooperative-sticky", b"\xff\xff\xff\xff", b"\0\0\0\7"),
    ],
)
def test_what_members_remember_for_the_leader(name: str, fresh: bytes | None, later: bytes | None) -> None:
    (assignor,) = choose_assignors([name], [])
    assert isinstance(assignor, BuiltInAssignor) and assignor.name == name
    assert assignor.is_cooperative is (name == "cooperative-sticky")
    assert assignor.user_data(["t"]) == fresh
    assignor.on_assignment(iter([U0, T6, T5]), None, 7)  # type: ignore[arg-type]
    assert assignor.user_data(["t"]) == later
    assert assignor.user_data(["t"]) == later, "it is not used up"
    assert assignor.assignment_data("m") is None


def test_a_memory_of_an_older_generation_is_worth_less() -> None:
    (assignor,) = choose_assignors(["sticky"], [])

    def remembering(member_id: str, generation: int) -> Any:
        (own,) = choose_assignors(["sticky"], [])
        own.on_assignment([T5, T6], None, generation)
        return decode_member(member_id, None, encode_subscription(["t"], [], -1, user_data=own.user_data(["t"])))

    for newer in ("a", "b"):
        members = [remembering(member_id, 4 if member_id == newer else 3) for member_id in ("a", "b")]
        shares = assignor.assign(members, {"t": 7})
        assert {T5, T6} <= set(shares[newer])


@pytest.mark.parametrize("name", ["range", "roundrobin", "cooperative-sticky"])
def test_only_sticky_members_have_their_memory_in_their_data(name: str) -> None:
    memory = PARTITIONS + b"\0\0\0\7"
    (assignor,) = choose_assignors([name], [])
    members = [
        decode_member(
            member_id, None, encode_subscription(["t"], [], -1, user_data=memory if member_id == "b" else None)
        )
        for member_id in ("a", "b")
    ]
    plain = [decode_member(member_id, None, encode_subscription(["t"], [], -1)) for member_id in ("a", "b")]
    assert assignor.assign(members, {"t": 8}) == assignor.assign(plain, {"t": 8})


# Assignors of one's own


class Own(GroupAssignor):
    name = "range"


def test_an_assignor_of_ones_own_needs_a_rule_and_nothing_else() -> None:
    own = Own()
    assert not own.is_cooperative
    assert own.user_data(["t"]) is None and own.assignment_data("m") is None
    own.on_assignment([], None, 1)
    with pytest.raises(NotImplementedError):
        own.assign([], {})


def test_it_takes_the_place_of_one_with_the_same_name() -> None:
    own = Own()
    assert choose_assignors(["sticky", "range"], [own])[1] is own
    chosen = choose_assignors(["range", "sticky", "range"], [])
    assert [each.name for each in chosen] == ["range", "sticky"] and isinstance(chosen[0], BuiltInAssignor)


def test_assignors_that_cannot_be() -> None:
    with pytest.raises(InvalidConfigError, match="an assignor needs a name") as refusal:
        choose_assignors(["range"], [GroupAssignor()])
    assert refusal.value.key == "partition.assignment.strategy"
    known = "cooperative-sticky, mine, range, roundrobin, sticky"
    mine = Own()
    mine.name = "mine"
    with pytest.raises(InvalidConfigError, match=f"no assignor is called 'fair'; known: {known}$") as refusal:
        choose_assignors(["fair"], [mine])
    assert refusal.value.key == "partition.assignment.strategy"
