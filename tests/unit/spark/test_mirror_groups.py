"""What becomes of a group on the target of a mirror, and which runs a copied batch adds to the offset map."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import numpy as np

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.producer.encoded_batch import SentRows
from ottla.client.errors import ClientError
from ottla.spark.mirror import group_offsets
from ottla.spark.mirror.group_offsets import GroupOffsets, Translation, Verdict, _verdict
from ottla.spark.mirror.group_sync import open_map
from ottla.spark.mirror.offset_map import Entry, OffsetMap, Run
from ottla.spark.mirror.settings import Mirror, TopicNames
from ottla.spark.mirror.writer import MirroredRows, _runs_of

HERE, THERE = TopicPartition("orders", 1), TopicPartition("west.orders", 1)
LEFT_OUT = TopicPartition("other", 0)


@pytest.mark.parametrize(
    ("current", "rewind", "verdict"),
    [
        (None, False, Verdict.MOVES),
        (5, False, Verdict.MOVES),
        (10, False, Verdict.IS_THERE),
        (10, True, Verdict.IS_THERE),
        (11, False, Verdict.IS_AHEAD),
        (11, True, Verdict.MOVES),
    ],
)
def test_a_group_is_never_moved_back_unless_asked_for(current: int | None, rewind: bool, verdict: Verdict) -> None:
    assert _verdict(current, 10, rewind=rewind) is verdict


class Cluster:
    """The calls of an admin client that a translation makes."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {"g": {}}
        self.states: dict[str, str | ErrorCode] = {"g": "Empty"}
        self.earliest = {THERE: 2}
        self.altered: list[tuple[str, dict[TopicPartition, OffsetAndMetadata]]] = []
        self.refused: set[str] = set()

    def list_groups(self) -> list[Any]:
        return [SimpleNamespace(group_id=group_id) for group_id in self.offsets]

    def list_group_offsets(self, group_ids: Any) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        return {group_id: self.offsets.get(group_id, {}) for group_id in group_ids}

    def describe_groups(self, group_ids: Any) -> Outcomes[str, Any]:
        found: dict[str, Any] = {}
        for group_id in group_ids:
            state = self.states.get(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
            found[group_id] = (
                ClientError("no", code=state) if isinstance(state, ErrorCode) else SimpleNamespace(state=state)
            )
        return Outcomes(found, what="describe_groups")

    def list_offsets(self, places: Any) -> Outcomes[TopicPartition, Any]:
        missing = ClientError("no", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found: dict[TopicPartition, Any] = {
            one: SimpleNamespace(offset=self.earliest[one]) if one in self.earliest else missing for one in places
        }
        return Outcomes(found, what="list_offsets")

    def alter_group_offsets(self, group_id: str, offsets: Any) -> Outcomes[TopicPartition, None]:
        self.altered.append((group_id, offsets))
        error = ClientError("busy", code=ErrorCode.UNKNOWN_MEMBER_ID)
        found: dict[TopicPartition, Any] = dict.fromkeys(offsets, error if group_id in self.refused else None)
        return Outcomes(found, what="alter_group_offsets")


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.target = Cluster(), Cluster()
        clusters = {"source": self.source, "target": self.target}
        monkeypatch.setattr(group_offsets, "admin_for", lambda client: clusters[client])
        names = SimpleNamespace(are_copied=lambda topic: topic == "orders")
        choice = SimpleNamespace(are_translated=lambda group_id: group_id != "private")
        self.mirror: Any = SimpleNamespace(source="source", target="target", names=names, groups=choice)
        self.map = OffsetMap()
        self.map.add(Entry(HERE, THERE, "first", (Run(100, 40, 10),)))
        self.map.add(Entry(LEFT_OUT, LEFT_OUT, "first", (Run(0, 0, 10),)))

    def translate(self, **options: bool) -> list[Translation]:
        return GroupOffsets(self.mirror).translate(self.map, ["g"], **options)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_offsets_are_translated_where_something_is_copied(world: World) -> None:
    world.source.offsets["g"] = {
        HERE: OffsetAndMetadata(105, "note"),
        LEFT_OUT: OffsetAndMetadata(5),
        TopicPartition("orders", 7): OffsetAndMetadata(5),
    }
    assert world.translate() == [Translation("g", HERE, 105, THERE, 45, None, Verdict.MOVES, "note")]
    world.target.offsets["g"] = {THERE: OffsetAndMetadata(50)}
    assert [(one.current_offset, one.verdict) for one in world.translate()] == [(50, Verdict.IS_AHEAD)]
    assert [one.verdict for one in world.translate(rewind=True)] == [Verdict.MOVES]
    world.source.offsets["g"] = {HERE: OffsetAndMetadata(7)}
    assert [one.target_offset for one in world.translate()] == [2], "before all that is known: where the copy begins"
    world.target.earliest = {}
    assert world.translate() == [], "there is no copy"
    assert GroupOffsets(world.mirror).translate(world.map, []) == []


@pytest.mark.parametrize(
    ("state", "verdict"), [("Empty", Verdict.MOVES), ("Dead", Verdict.MOVES), ("Stable", Verdict.IS_ACTIVE)]
)
def test_a_group_with_members_on_the_target_is_left_alone(world: World, state: str, verdict: Verdict) -> None:
    world.source.offsets["g"] = {HERE: OffsetAndMetadata(105)}
    world.target.states["g"] = state
    assert [one.verdict for one in world.translate()] == [verdict]


def test_a_group_that_is_not_on_the_target_yet_and_one_that_may_not_be_seen(world: World) -> None:
    world.source.offsets["g"] = {HERE: OffsetAndMetadata(105)}
    world.target.states = {}
    assert [one.verdict for one in world.translate()] == [Verdict.MOVES]
    world.target.states["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(ClientError) as refusal:
        world.translate()
    assert refusal.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_only_what_moves_is_moved_and_one_failure_keeps_no_other_from_it(world: World) -> None:
    moves = Translation("g", HERE, 105, THERE, 45, None, Verdict.MOVES, "note")
    others = [moves._replace(verdict=verdict) for verdict in Verdict if verdict is not Verdict.MOVES]
    second = moves._replace(group_id="h")
    assert GroupOffsets(world.mirror).commit([moves, *others, second]) == [moves, second]
    assert world.target.altered == [
        (group_id, {THERE: OffsetAndMetadata(45, metadata="note")}) for group_id in ("g", "h")
    ]
    world.target.refused = {"g"}
    with pytest.raises(ClientError) as refusal:
        GroupOffsets(world.mirror).commit([moves, second])
    assert refusal.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert [group_id for group_id, _ in world.target.altered[2:]] == ["g", "h"]


def test_which_groups_are_translated(world: World) -> None:
    world.source.offsets = {"g": {}, "private": {}}
    assert GroupOffsets(world.mirror).chosen_groups() == ["g"]
    world.mirror.groups = None
    assert GroupOffsets(world.mirror).chosen_groups() == []


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(0, 10), st.integers(0, 10))
def test_runs_say_where_every_copied_record_is(steps: list[int], first: int, target: int) -> None:
    offsets = np.cumsum([first, *steps])
    runs = list(_runs_of(offsets, target))
    placed = [(run.source_offset + index, run.target_offset + index) for run in runs for index in range(run.length)]
    assert placed == list(zip(offsets.tolist(), range(target, target + len(offsets)), strict=True))
    assert all(before.source_offset + before.length < after.source_offset for before, after in pairwise(runs))


@pytest.mark.parametrize(
    ("sent", "is_known"),
    [(SentRows(3, 10, 12), True), (SentRows(3, 10, 13), False), (SentRows(1, -1, -1), False)],
)
def test_rows_whose_place_nobody_knows_are_left_out_of_the_map(sent: SentRows, is_known: bool) -> None:
    rows = MirroredRows([], SimpleNamespace(), "map")  # type: ignore[arg-type]
    rows._stored(np.array([5, 6, 7][: sent.record_count]), {THERE: sent})
    assert rows._runs == ([Run(5, 10, 3)] if is_known else [])


def test_the_map_is_read_by_a_consumer_with_the_targets_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, str]] = []

    class Consumer:
        def __init__(self, settings: dict[str, str]) -> None:
            made.append(settings)
            self.assigned: list[TopicPartition] = []
            self.is_closed = False

        def assign(self, places: list[TopicPartition]) -> None:
            self.assigned += places

        def close(self) -> None:
            self.is_closed = True

    monkeypatch.setattr(group_offsets, "Consumer", Consumer)
    target = {"bootstrap.servers": "h:1", "fetch.max.bytes": "5", "linger.ms": "7", "enable.auto.commit": "true"}
    names = TopicNames.of(["a"], None, (), prefix="", target_prefix="")
    reader: Any = open_map(Mirror("dr", {"bootstrap.servers": "g:1"}, target, names, False))
    assert made == [
        {
            "bootstrap.fail.fast": "true",
            "bootstrap.servers": "h:1",
            "fetch.max.bytes": "5",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    ]
    assert reader._consumer.assigned == [TopicPartition("ottla.mirror.dr.offsets", 0)]
    reader.close()
    assert reader._consumer.is_closed


def test_all_partitions_of_all_groups_are_translated_in_order(world: World) -> None:
    other, copy = TopicPartition("orders", 0), TopicPartition("west.orders", 0)
    world.map.add(Entry(other, copy, "first", (Run(0, 0, 100),)))
    world.target.earliest[copy] = 0
    world.source.offsets = {
        "g": {HERE: OffsetAndMetadata(105), other: OffsetAndMetadata(7, "x")},
        "h": {other: OffsetAndMetadata(9)},
    }
    world.target.states = {"g": "Empty", "h": "Stable"}
    world.target.offsets = {"g": {HERE: OffsetAndMetadata(1), copy: OffsetAndMetadata(7)}, "h": {}}
    assert GroupOffsets(world.mirror).translate(world.map, ["h", "g"]) == [
        Translation("h", other, 9, copy, 9, None, Verdict.IS_ACTIVE, ""),
        Translation("g", other, 7, copy, 7, 7, Verdict.IS_THERE, "x"),
        Translation("g", HERE, 105, THERE, 45, None, Verdict.MOVES, ""),
    ]
