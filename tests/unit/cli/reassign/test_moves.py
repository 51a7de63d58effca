"""What a plan is measured against before it begins, and who copies what while it is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.cli.reassign.cluster_view import ClusterView, bytes_to_copy
from ottla.cli.reassign.directories import Place, verdict
from ottla.cli.reassign.moves import check_plan, sides_of
from ottla.cli.reassign.plan_file import PlanError, plan_json, read_plan
from ottla.client.core.admin.types import PartitionReassignment, TopicPartitionReplica

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DEAD = 9
VIEW = ClusterView({1: None, 2: None, 3: "rack"}, {T0: (1, 2), T1: (2, DEAD)}, {T0: 1, T1: 2})


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({T0: (2, 3), T1: (1, 3)}, None),
        ({T1: (1, DEAD)}, None),
        ({T0: (2, DEAD)}, f"Unknown broker id {DEAD}"),
        ({T0: (2, 3), T1: (3, 4)}, "Unknown broker id 4"),
        ({T0: (1,), TopicPartition("t", 2): (1,)}, "there is no partition t-2"),
    ],
)
def test_a_plan_names_partitions_that_exist_and_brokers_that_live_or_have_the_replica(
    tmp_path: Path, wanted: dict[TopicPartition, tuple[int, ...]], reason: str | None
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_json(wanted).replace('{"topic"', '\n{"topic"'))
    file, plan = read_plan(path)
    if reason is None:
        check_plan(file, plan, VIEW)
    else:
        with pytest.raises(PlanError, match=rf"line {len(wanted) + 1}: {reason}"):
            check_plan(file, plan, VIEW)


def test_who_sends_and_who_receives() -> None:
    assert sides_of(VIEW, {}, T0, (2, 3)) == ({1, 2}, {3})
    assert sides_of(VIEW, {}, T0, (2, 1)) == ({1, 2}, set())
    under_way = ClusterView(VIEW.racks, {T0: (1, 2, 3)}, VIEW.leaders)
    running = {T0: PartitionReassignment((1, 2, 3), (3,), (1,))}
    assert sides_of(under_way, running, T0, (2, 4)) == ({1, 2}, {3, 4})


def test_each_new_replica_costs_a_copy_of_the_leaders() -> None:
    sizes = {(1, T0): 100, (2, T0): 7, (2, T1): 1000}
    assert bytes_to_copy(VIEW, {T0: (1, 3, 4), T1: (2, DEAD)}, sizes) == 200
    assert bytes_to_copy(VIEW, {T0: (2,), T1: (1,)}, sizes) == 1000
    assert bytes_to_copy(VIEW, {TopicPartition("new", 0): (1,)}, sizes) == 0


REPLICA = TopicPartitionReplica("t", 0, 2)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (None, "Partition t-0 cannot be found in any live log directory on broker 2."),
        (
            Place(),
            "Partition t-0 is not found in any live log dir on broker 2. "
            "There is likely an offline log directory on the broker.",
        ),
        (Place("/a"), "Reassignment of replica t-0-2 completed successfully."),
        (Place("/b"), "Partition t-0 on broker 2 is not being moved from log dir /b to /a."),
        (Place("/b", "/a"), "Reassignment of replica t-0-2 is still in progress."),
        (Place("/b", "/c"), "Partition t-0 on broker 2 is being moved to log dir /c instead of /a."),
        (Place("/a", "/c"), "Partition t-0 on broker 2 is being moved to log dir /c instead of /a."),
    ],
)
def test_what_is_said_of_a_replica_that_is_wanted_in_a_directory(place: Place | None, said: str) -> None:
    assert verdict(REPLICA, "/a", place) == said
