"""Which names topics may have, and which look alike."""

from __future__ import annotations

from ottla.machines.cluster.topic_names import INTERNAL_TOPICS, colliding_name, why_illegal


def test_topic_names() -> None:
    assert why_illegal("a.B_c-9") is None
    assert why_illegal("x" * 249) is None
    for bad in ("", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\0", "../../x", "a\n"):
        assert why_illegal(bad) is not None, bad
    assert colliding_name("a.b", ["x", "a_b"]) == "a_b"
    assert colliding_name("a.b", ["a.b", "ab"]) is None
    assert colliding_name("ab", ["a.b"]) is None


def test_topics_of_the_coordinators_are_internal() -> None:
    assert sorted(INTERNAL_TOPICS) == ["__consumer_offsets", "__transaction_state"]
