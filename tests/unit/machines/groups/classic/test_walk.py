"""Every event meets a classic group in every state: what the caller is told, and where the group goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.errors import ErrorCode as E
from ottla.machines.groups.classic.states import MOVES, GroupState
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.machines.groups.runner import DELAY_MS, GROUP, REBALANCE_MS, Runner, subscription

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
PARKED = None

OTHER_PROTOCOLS = (("range", subscription("orders", "clicks")),)
ORDERS_0 = ("orders", 0)


class Scene:
    """A group with a leader, a dynamic follower and a static follower, brought into one state."""

    def __init__(self, state: GroupState) -> None:
        self.runner = runner = Runner()
        tokens = [runner.join(version=3), runner.join(version=3), runner.join(instance_id="i")]
        runner.advance(4 * DELAY_MS)
        self.leader, self.follower, self.static = (str(runner.reply(token).member_id) for token in tokens)
        assert runner.group.leader == self.leader
        if state in (PREPARING, STABLE, DEAD):
            for member_id in self.members:
                runner.sync(member_id, 1, {key: key.encode() for key in self.members})
        if state is PREPARING:
            runner.join(self.leader)
        if state is EMPTY:
            runner.leave(*self.members)
        if state is DEAD:
            assert runner.shard.unload() == []
        self.group = runner.group
        self.generation = self.group.generation
        assert self.group.state is state

    @property
    def members(self) -> list[str]:
        return [self.leader, self.follower, self.static]

    def error_of(self, token: object) -> E | None:
        reply = self.runner.reply(token)
        return PARKED if reply is None else E(reply.error_code)

    def join_new_old_client(self) -> E | None:
        return self.error_of(self.runner.join(version=3))

    def join_new(self) -> E | None:
        return self.error_of(self.runner.join())

    def join_new_static(self) -> E | None:
        return self.error_of(self.runner.join(instance_id="j"))

    def join_known_static(self) -> E | None:
        return self.error_of(self.runner.join(instance_id="i"))

    def join_static_with_wrong_id(self) -> E | None:
        return self.error_of(self.runner.join("somebody", instance_id="i"))

    def join_unknown_id(self) -> E | None:
        return self.error_of(self.runner.join("somebody"))

    def join_other_protocol(self) -> E | None:
        return self.error_of(self.runner.join(protocols=(("sticky", b""),)))

    def join_leader_again(self) -> E | None:
        return self.error_of(self.runner.join(self.leader))

    def join_follower_again(self) -> E | None:
        return self.error_of(self.runner.join(self.follower))

    def join_follower_changed(self) -> E | None:
        return self.error_of(self.runner.join(self.follower, protocols=OTHER_PROTOCOLS))

    def sync_leader(self) -> E | None:
        return self.error_of(self.runner.sync(self.leader, self.generation, {self.leader: b"all"}))

    def sync_follower(self) -> E | None:
        return self.error_of(self.runner.sync(self.follower, self.generation))

    def sync_old_generation(self) -> E | None:
        return self.error_of(self.runner.sync(self.follower, self.generation - 1))

    def sync_other_protocol(self) -> E | None:
        return self.error_of(self.runner.sync(self.follower, self.generation, protocol_name="sticky"))

    def heartbeat(self) -> E | None:
        return E(self.runner.heartbeat(self.follower, self.generation))

    def heartbeat_old_generation(self) -> E | None:
        return E(self.runner.heartbeat(self.follower, self.generation - 1))

    def heartbeat_fenced(self) -> E | None:
        return E(self.runner.heartbeat("somebody", self.generation, instance_id="i"))

    def leave(self) -> E | None:
        response = self.runner.leave(self.follower)
        return E(response.error_code or response.members[0].error_code)

    def leave_old_client(self) -> E | None:
        return E(self.runner.leave(self.follower, version=2).error_code)

    def leave_by_instance(self) -> E | None:
        response = self.runner.leave(("", "i"))
        return E(response.error_code or response.members[0].error_code)

    def commit(self) -> E | None:
        return E(self.runner.commit({ORDERS_0: 5}, self.follower, self.generation)[ORDERS_0])

    def commit_old_generation(self) -> E | None:
        return E(self.runner.commit({ORDERS_0: 5}, self.follower, self.generation - 1)[ORDERS_0])

    def commit_fenced(self) -> E | None:
        return E(self.runner.commit({ORDERS_0: 5}, "somebody", self.generation, instance_id="i")[ORDERS_0])

    def commit_without_member(self) -> E | None:
        return E(self.runner.commit({ORDERS_0: 5})[ORDERS_0])

    def commit_in_transaction(self) -> E | None:
        return E(self.runner.commit_in_transaction({ORDERS_0: 5}, 7, self.follower, self.generation)[ORDERS_0])

    def commit_in_transaction_without_member(self) -> E | None:
        return E(self.runner.commit_in_transaction({ORDERS_0: 5}, 7)[ORDERS_0])

    def delete_group(self) -> E | None:
        token = self.runner.token()
        self.runner.perform(self.runner.shard.delete_group(GROUP, token, now_ms=self.runner.now_ms))
        return E(self.runner.reply(token))

    def delete_offsets(self) -> E | None:
        token = self.runner.token()
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="orders", partitions=partitions)]
        )
        self.runner.perform(self.runner.shard.delete_offsets(request, token, now_ms=self.runner.now_ms))
        reply = self.runner.reply(token)
        return E(reply.error_code or reply.topics[0].partitions[0].error_code)

    def _fire(self, *key: str) -> None:
        self.runner.perform(self.runner.shard.timer_fired(key, self.runner.now_ms))

    def session_timer(self) -> E | None:
        self._fire("session", GROUP, self.follower)
        return E.NONE

    def session_timer_of_unknown(self) -> E | None:
        self._fire("session", GROUP, "somebody")
        return E.NONE

    def pending_timer(self) -> E | None:
        self._fire("pending", GROUP, "somebody")
        return E.NONE

    def join_timer(self) -> E | None:
        self._fire("join", GROUP)
        return E.NONE

    def sync_timer(self) -> E | None:
        self._fire("sync", GROUP)
        return E.NONE


OK = E.NONE
GONE = E.COORDINATOR_NOT_AVAILABLE
UNKNOWN = E.UNKNOWN_MEMBER_ID
AGAIN = E.REBALANCE_IN_PROGRESS
OLD = E.ILLEGAL_GENERATION
FENCED = E.FENCED_INSTANCE_ID
PROTOCOL = E.INCONSISTENT_GROUP_PROTOCOL
NEEDS_ID = E.MEMBER_ID_REQUIRED
IN_USE = E.NON_EMPTY_GROUP
READ = E.GROUP_SUBSCRIBED_TO_TOPIC
NO_GROUP = E.GROUP_ID_NOT_FOUND
EM, PR, CO, ST, DE = GroupState

Expected = tuple[E | None, GroupState]
WALK: dict[Callable[[Scene], E | None], tuple[Expected, Expected, Expected, Expected, Expected]] = {
    # from the states Empty, PreparingRebalance, CompletingRebalance, Stable, Dead:
    Scene.join_new_old_client: ((PARKED, PR), (PARKED, PR), (PARKED, PR), (PARKED, PR), (GONE, DE)),
    Scene.join_new: ((NEEDS_ID, EM), (NEEDS_ID, PR), (NEEDS_ID, CO), (NEEDS_ID, ST), (GONE, DE)),
    Scene.join_new_static: ((PARKED, PR), (PARKED, PR), (PARKED, PR), (PARKED, PR), (GONE, DE)),
    Scene.join_known_static: ((PARKED, PR), (PARKED, PR), (PARKED, PR), (OK, ST), (GONE, DE)),
    Scene.join_static_with_wrong_id: ((UNKNOWN, EM), (FENCED, PR), (FENCED, CO), (FENCED, ST), (GONE, DE)),
    Scene.join_unknown_id: ((UNKNOWN, EM), (UNKNOWN, PR), (UNKNOWN, CO), (UNKNOWN, ST), (GONE, DE)),
    Scene.join_other_protocol: ((NEEDS_ID, EM), (PROTOCOL, PR), (PROTOCOL, CO), (PROTOCOL, ST), (GONE, DE)),
    Scene.join_leader_again: ((UNKNOWN, EM), (PARKED, PR), (OK, CO), (PARKED, PR), (GONE, DE)),
    Scene.join_follower_again: ((UNKNOWN, EM), (PARKED, PR), (OK, CO), (OK, ST), (GONE, DE)),
    Scene.join_follower_changed: ((UNKNOWN, EM), (PARKED, PR), (PARKED, PR), (PARKED, PR), (GONE, DE)),
    Scene.sync_leader: ((UNKNOWN, EM), (AGAIN, PR), (OK, ST), (OK, ST), (GONE, DE)),
    Scene.sync_follower: ((UNKNOWN, EM), (AGAIN, PR), (PARKED, CO), (OK, ST), (GONE, DE)),
    Scene.sync_old_generation: ((UNKNOWN, EM), (OLD, PR), (OLD, CO), (OLD, ST), (GONE, DE)),
    Scene.sync_other_protocol: ((UNKNOWN, EM), (PROTOCOL, PR), (PROTOCOL, CO), (PROTOCOL, ST), (GONE, DE)),
    Scene.heartbeat: ((UNKNOWN, EM), (AGAIN, PR), (OK, CO), (OK, ST), (GONE, DE)),
    Scene.heartbeat_old_generation: ((UNKNOWN, EM), (OLD, PR), (OLD, CO), (OLD, ST), (GONE, DE)),
    Scene.heartbeat_fenced: ((UNKNOWN, EM), (FENCED, PR), (FENCED, CO), (FENCED, ST), (GONE, DE)),
    Scene.leave: ((UNKNOWN, EM), (OK, PR), (OK, PR), (OK, PR), (GONE, DE)),
    Scene.leave_old_client: ((UNKNOWN, EM), (OK, PR), (OK, PR), (OK, PR), (GONE, DE)),
    Scene.leave_by_instance: ((UNKNOWN, EM), (OK, PR), (OK, PR), (OK, PR), (GONE, DE)),
    Scene.commit: ((UNKNOWN, EM), (OK, PR), (AGAIN, CO), (OK, ST), (GONE, DE)),
    Scene.commit_old_generation: ((UNKNOWN, EM), (OLD, PR), (OLD, CO), (OLD, ST), (GONE, DE)),
    Scene.commit_fenced: ((UNKNOWN, EM), (FENCED, PR), (FENCED, CO), (FENCED, ST), (GONE, DE)),
    Scene.commit_without_member: ((OK, EM), (UNKNOWN, PR), (UNKNOWN, CO), (UNKNOWN, ST), (GONE, DE)),
    Scene.commit_in_transaction: ((UNKNOWN, EM), (OK, PR), (OK, CO), (OK, ST), (GONE, DE)),
    Scene.commit_in_transaction_without_member: ((OK, EM), (OK, PR), (OK, CO), (OK, ST), (GONE, DE)),
    Scene.delete_group: ((OK, DE), (IN_USE, PR), (IN_USE, CO), (IN_USE, ST), (NO_GROUP, DE)),
    Scene.delete_offsets: ((OK, EM), (READ, PR), (READ, CO), (READ, ST), (NO_GROUP, DE)),
    Scene.session_timer: ((OK, EM), (OK, PR), (OK, PR), (OK, PR), (OK, DE)),
    Scene.session_timer_of_unknown: ((OK, EM), (OK, PR), (OK, CO), (OK, ST), (OK, DE)),
    Scene.pending_timer: ((OK, EM), (OK, PR), (OK, CO), (OK, ST), (OK, DE)),
    Scene.join_timer: ((OK, EM), (OK, CO), (OK, CO), (OK, ST), (OK, DE)),
    Scene.sync_timer: ((OK, EM), (OK, PR), (OK, EM), (OK, ST), (OK, DE)),
}  # fmt: skip


@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.value)
@pytest.mark.parametrize("event", list(WALK), ids=lambda event: event.__name__)
def test_event_in_state(state: GroupState, event: Callable[[Scene], E | None]) -> None:
    scene = Scene(state)
    error, next_state = WALK[event][list(GroupState).index(state)]
    assert event(scene) == error
    assert scene.group.state is next_state


@pytest.mark.parametrize("state", [state for state in GroupState if state is not DEAD], ids=lambda state: state.value)
@pytest.mark.parametrize("event", list(WALK), ids=lambda event: event.__name__)
def test_no_event_leaves_anybody_waiting_for_ever(state: GroupState, event: Callable[[Scene], E | None]) -> None:
    scene = Scene(state)
    event(scene)
    scene.runner.advance(10 * REBALANCE_MS)
    assert set(scene.runner.replies) == set(scene.runner.asked)
    assert not scene.runner.timers


def test_every_event_of_the_walk_is_tried() -> None:
    events = {
        name
        for name, item in vars(Scene).items()
        if callable(item) and not name.startswith("_") and name not in ("error_of",)
    }
    assert events == {event.__name__ for event in WALK}


@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.value)
def test_an_illegal_move_is_our_bug(state: GroupState) -> None:
    for target in GroupState:
        group = Scene(state).group
        if target in MOVES[state]:
            group.move_to(target)
            assert group.state is target
        else:
            with pytest.raises(RuntimeError, match="cannot move"):
                group.move_to(target)
