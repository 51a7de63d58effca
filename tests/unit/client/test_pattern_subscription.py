"""Which topics a pattern stands for, as metadata come, and who is told."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.aio.group.runner import GroupRunner
from ottla.client.core.consumer.subscription import Subscription


def topic(name: str, *, is_internal: bool = False, error_code: int = 0, partitions: int = 1) -> Any:
    return SimpleNamespace(
        name=name, is_internal=is_internal, error_code=error_code, partitions=dict.fromkeys(range(partitions))
    )


@pytest.mark.parametrize(("excludes_internal", "matched"), [(True, {"a1"}), (False, {"a1", "a2"})])
def test_topics_that_can_be_read_are_matched_and_the_group_is_told(excludes_internal: bool, matched: set[str]) -> None:
    told: list[str] = []
    runner: Any = object.__new__(GroupRunner)
    found = [
        topic("a1"),
        topic("a2", is_internal=True),
        topic("a3", error_code=29),
        topic("a4", partitions=0),
        topic("b"),
    ]
    topics = {each.name: each for each in found}
    runner.engine = SimpleNamespace(metadata=SimpleNamespace(topics=topics), subscription=Subscription())
    runner.engine.subscription.subscribe_pattern(re.compile("a."))
    runner.settings = SimpleNamespace(exclude_internal_topics=excludes_internal)
    runner._protocol = None
    runner._metadata_changed()
    assert runner.engine.subscription.topics == matched
    runner._protocol = SimpleNamespace(
        subscription_changed=lambda: told.append("subscription"), metadata_changed=lambda: told.append("metadata")
    )
    runner._metadata_changed()
    assert told == ["metadata"], "the topics are the same"
    topics["a9"] = topic("a9")
    runner._metadata_changed()
    assert told == ["metadata", "subscription", "metadata"]
    assert runner.engine.subscription.topics == {*matched, "a9"}
