"""Ids: the same seed gives the same ones, and all have the shape clients expect."""

from __future__ import annotations

import random
import string
import uuid

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Ids
from ottla.base.types import uuid_to_text


def _some(ids: Ids) -> list[object]:
    return [ids.uuid(), ids.member_id(), ids.fetch_session_id(), ids.below(1000), ids.hexadecimal(), ids.uuid()]


@given(st.integers())
def test_a_seed_decides_every_id(seed: int) -> None:
    assert _some(Ids(random.Random(seed))) == _some(Ids(random.Random(seed)))


def test_without_a_seed_nobody_can_tell_the_next_one() -> None:
    assert _some(Ids()) != _some(Ids())


@given(st.randoms(use_true_random=False))
def test_shapes(source: random.Random) -> None:
    ids = Ids(source)
    for _ in range(50):
        assert not uuid_to_text(ids.uuid()).startswith("-"), "a command line would take it for an option"
        assert uuid.UUID(bytes=ids.uuid()).version == 4
        assert uuid.UUID(ids.member_id()).version == 4
        assert 1 <= ids.fetch_session_id() < 2**31 - 1
        assert 0 <= ids.below(3) < 3
        assert uuid.UUID(hex=ids.hexadecimal()).version == 4


def test_session_ids_are_all_positive_numbers_but_the_highest() -> None:
    asked: list[tuple[int, ...]] = []

    class Source(random.Random):
        def randrange(self, *bounds: int) -> int:  # type: ignore[override]
            asked.append(bounds)
            return bounds[0]

    ids = Ids(Source())
    assert (ids.fetch_session_id(), ids.below(9)) == (1, 9)
    assert asked == [(1, 2**31 - 1), (9,)]


def test_only_texts_that_begin_with_a_dash_are_left_out() -> None:
    ids = Ids(random.Random(1))
    first = {uuid_to_text(ids.uuid())[0] for _ in range(5000)}
    assert first == set(string.ascii_letters + string.digits + "_")
