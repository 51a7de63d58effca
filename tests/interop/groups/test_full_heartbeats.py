"""Members of KIP-848 groups that say everything in every heartbeat: they rebalance as quickly as others.

Heartbeats and epochs are counted, not time: a member that is thrown out for not confirming what it gave up would need
more of both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import KIP_848
from tests.interop.groups.raw_member import RawConsumerMember
from tests.interop.groups.scene import CommitWatch, Scene, describe, write_records
from tests.interop.groups.test_members_come_and_go import PARTITIONS, all_of, ends, expected
from tests.interop.peers.confluent import make_topic

pytestmark = pytest.mark.interop

GO = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
FRANZ_GO_MEMBER = Path(__file__).parent / "franz_go"
BUILD_TIMEOUT_S = 300

of_franz_go = pytest.mark.xdist_group("franz-go")
"""One process compiles the member for all tests."""


def test_two_members_that_send_only_full_heartbeats_share_at_once(
    group_broker: BrokerProcess, new_topic: str, group: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    port = group_broker.port
    with RawConsumerMember(port, group, "a", new_topic) as a, RawConsumerMember(port, group, "b", new_topic) as b:
        a.beat()
        assert (a.epoch, len(a.owned)) == (1, PARTITIONS)
        b.beat()
        assert (b.epoch, len(b.owned)) == (2, 0)
        a.beat()
        assert (a.epoch, len(a.owned)) == (1, PARTITIONS // 2), "told what to give up"
        a.beat()
        assert a.epoch == 2, "confirmed"
        b.beat()
        assert len(b.owned) == PARTITIONS // 2 and not a.owned & b.owned
        assert describe(group_broker, group, is_kip_848=True) == ("Stable", ["a", "b"], 2)


def test_a_member_that_owns_nothing_yet_confirms_what_it_never_took_up(
    group_broker: BrokerProcess, new_topic: str, group: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    port = group_broker.port
    with RawConsumerMember(port, group, "a", new_topic) as a, RawConsumerMember(port, group, "b", new_topic) as b:
        a.beat()
        b.beat()
        a.beat(listing=frozenset())
        assert (a.epoch, len(a.owned)) == (1, PARTITIONS // 2)
        a.beat(listing=frozenset())
        assert a.epoch == 2
        b.beat()
        assert len(b.owned) == PARTITIONS // 2 and not a.owned & b.owned
        assert describe(group_broker, group, is_kip_848=True)[2] == 2


@pytest.fixture(scope="module")
def franz_go_member(tmp_path_factory: pytest.TempPathFactory) -> str:
    if GO is None:
        pytest.skip("franz-go members are compiled by these tests, and there is no Go here")
    program = tmp_path_factory.mktemp("franz-go") / "member"
    built = subprocess.run(
        [GO, "build", "-o", str(program), "."],
        cwd=FRANZ_GO_MEMBER,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return str(program)


@of_franz_go
def test_a_group_of_franz_go(group_broker: BrokerProcess, new_topic: str, franz_go_member: str) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50)
    group = f"{new_topic}-group"
    with Scene(group_broker, group, KIP_848) as scene, CommitWatch(group_broker, group) as commits:
        # All at once: what a member is told to give up, it has not always taken up before.
        members = [scene.join_in_process(name, [franz_go_member], topics=(new_topic,)) for name in "abc"]
        scene.settle({"a", "b", "c"}, all_of(new_topic))
        assert sorted(map(len, scene.ledger.shares().values())) == [2, 2, 2]
        assert scene.describe()[2] == 3, "one epoch for each that joined: nobody was thrown out"
        write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50, first=50)
        commits.wait_for(ends(new_topic, 100))
        scene.leave(members[0])
        scene.settle({"b", "c"}, all_of(new_topic))
        assert scene.describe()[2] == 4
    assert scene.ledger.consumed() == expected(new_topic, 100)


@of_franz_go
def test_franz_go_and_librdkafka_in_one_group(
    group_broker: BrokerProcess, new_topic: str, franz_go_member: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, 50)
    group = f"{new_topic}-group"
    with Scene(group_broker, group, KIP_848) as scene, CommitWatch(group_broker, group) as commits:
        scene.join("a", topics=(new_topic,))
        scene.settle({"a"}, all_of(new_topic))
        scene.join_in_process("b", [franz_go_member], topics=(new_topic,))
        scene.settle({"a", "b"}, all_of(new_topic))
        assert scene.describe()[2] == 2
        commits.wait_for(ends(new_topic, 50))
    assert scene.ledger.consumed() == expected(new_topic, 50)
