"""Random clients and accidents against a shard: what must hold whatever happens, and after any reload."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.shard import GroupShard
from tests.unit.machines.groups.runner import GROUP, REBALANCE_MS, SESSION_MS, Runner, subscription

PARTITIONS = [("orders", index) for index in range(4)]
PROTOCOLS = [
    (("range", subscription("orders")),),
    (("range", subscription("orders")), ("sticky", b"\0\0")),
    (("sticky", b"\0\0"), ("range", subscription("orders", "clicks"))),
]
PRODUCERS = [11, 12]


class Client:
    """One consumer, which follows the protocol but may fall silent at any point."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.joining: object | None = None
        self.syncing: object | None = None
        self.joined: Any = None
        self.owned: frozenset[int] = frozenset()

    def starts_over(self) -> None:
        instance_id = self.instance_id
        self.__init__(instance_id)  # type: ignore[misc]


def durable_state(shard: GroupShard) -> Any:
    """What a log can bring back: offsets, and of each group at rest its last record's content."""
    groups = {}
    for group in shard._groups:
        assert isinstance(group, ClassicGroup)
        at_rest = group.state in (GroupState.EMPTY, GroupState.STABLE)
        members = [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.metadata(group.protocol),
                member.assignment,
            )
            for member in group.members
        ]
        if group.is_stored:
            content = (group.generation, group.protocol, group.leader, group.protocol_type, members)
            groups[group.group_id] = (group.state_timestamp_ms, content if at_rest else None)
        elif shard._offsets.has_any(group.group_id):
            groups[group.group_id] = (-1, None)
    return groups, vars(shard._offsets)


class GroupAtWork(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = Runner()
        self.clients = [Client(None), Client(None), Client(None), Client("i1"), Client("i2")]
        self.generation_max = 0
        self.distributed: dict[int, set[bytes]] = {}
        """By generation: the shares that the leader gave out."""
        self.accepted: dict[tuple[str, int], set[int]] = {partition: {-1} for partition in PARTITIONS}
        self.expected: dict[tuple[str, int], int] = {}
        """Plain commits only, of partitions no transaction has touched."""
        self.in_transactions: set[tuple[str, int]] = set()
        self.states: list[Any] = [durable_state_copy(self.runner.shard)]

    @initialize(delay_ms=st.sampled_from([0, 1_500]), max_size=st.sampled_from([3, 1000]))
    def configure(self, delay_ms: int, max_size: int) -> None:
        self.runner = Runner(GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=max_size))

    def remember(self) -> None:
        """One snapshot for each length the log has had after a whole decision."""
        if len(self.states) <= len(self.runner.log):
            self.states += [None] * (len(self.runner.log) - len(self.states))
            self.states.append(durable_state_copy(self.runner.shard))

    clients_of = st.integers(0, 4)

    @rule(index=clients_of, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([3, 8, 9]))
    def join(self, index: int, protocols: Any, version: int) -> None:
        client = self.clients[index]
        client.owned = frozenset()
        client.joining = self.runner.join(
            client.member_id,
            instance_id=client.instance_id,
            protocols=protocols,
            version=version,
            session_timeout_ms=SESSION_MS + version,
            client_id=f"client{index}",
        )
        self.read_replies()

    @rule(index=clients_of)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        joined = client.joined
        if joined is None:
            return
        client.joined = None
        assignments: dict[str, bytes] = {}
        if joined.leader == client.member_id and not joined.skip_assignment:
            ids = [member.member_id for member in joined.members]
            shares: dict[str, list[int]] = {member_id: [] for member_id in ids}
            for partition in range(4):
                shares[ids[partition % len(ids)]].append(partition)
            assignments = {member_id: bytes(share) for member_id, share in shares.items()}
        group = self.group()
        assigns = assignments and group is not None and group.state is GroupState.COMPLETING_REBALANCE
        client.syncing = self.runner.sync(
            client.member_id, client.generation, assignments, instance_id=client.instance_id
        )
        if assigns and self.runner.reply(client.syncing).error_code == 0:
            self.distributed[client.generation] = set(assignments.values())
        self.read_replies()

    @rule(index=clients_of)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        if self.runner.heartbeat(client.member_id, client.generation, instance_id=client.instance_id) in (22, 25, 82):
            client.owned = frozenset()
        self.read_replies()

    @rule(who=st.lists(clients_of, min_size=1, unique=True))
    def go_on(self, who: list[int]) -> None:
        """These clients do what the protocol asks of them next, often enough that groups become stable."""
        for index in who:
            client = self.clients[index]
            if client.joined is not None:
                self.sync(index)
            elif client.joining is None and client.syncing is None:
                self.heartbeat(index)
                if not client.owned:
                    self.join(index, PROTOCOLS[1], 9)
                    if client.generation < 0:
                        self.join(index, PROTOCOLS[1], 9)

    @rule(rounds=st.integers(1, 6), order=st.permutations(range(5)))
    def all_work(self, rounds: int, order: list[int]) -> None:
        for _ in range(rounds):
            self.go_on(order)
            self.time_passes(1_000)

    @rule(index=clients_of, politely=st.booleans())
    def stop(self, index: int, politely: bool) -> None:
        client = self.clients[index]
        if politely:
            self.runner.leave(client.member_id)
        client.starts_over()
        self.read_replies()

    @rule(index=clients_of, partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 1000))
    def commit(self, index: int, partition: tuple[str, int], offset: int) -> None:
        client = self.clients[index]
        errors = self.runner.commit(
            {partition: offset}, client.member_id, client.generation, instance_id=client.instance_id
        )
        if errors[partition] == 0:
            if client.generation >= 0:
                assert client.member_id in self.members()
                assert client.generation == self.runner.group.generation
            self.accepted[partition].add(offset)
            self.expected[partition] = offset

    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 1000), producer=st.sampled_from(PRODUCERS))
    def commit_in_transaction(self, partition: tuple[str, int], offset: int, producer: int) -> None:
        assert self.runner.commit_in_transaction({partition: offset}, producer) == {partition: 0}
        self.accepted[partition].add(offset)
        self.in_transactions.add(partition)
        assert self.runner.fetch(partition, require_stable=True) == {partition: (-1, 88)}

    @rule(producer=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        self.runner.marker(producer, committed=committed)

    @rule(ms=st.sampled_from([1, 1_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.runner.advance(ms)
        self.read_replies()

    @rule()
    def expire(self) -> None:
        self.runner.perform(self.runner.shard.expire_offsets(self.runner.now_ms))

    @precondition(lambda self: self.runner.log)
    @rule()
    def coordinator_moves(self) -> None:
        """The parked requests fail, and everybody goes on with the state that the log has."""
        old = self.runner
        waiting = old.shard.unload()
        assert {str(token) for token in waiting} == {str(token) for token in old.asked if token not in old.replies}
        new = old.reloaded()
        new.now_ms = old.now_ms
        new.timers = {key: due + old.now_ms - new.now_ms for key, due in new.timers.items()}
        new.perform(new.shard.loaded(new.now_ms))
        self.runner = new
        self.generation_max = 0
        for client in self.clients:
            client.joining = client.syncing = None

    def read_replies(self) -> None:
        for client in self.clients:
            joined = self.runner.reply(client.joining) if client.joining is not None else None
            if joined is not None:
                client.joining = None
                self.take_join_reply(client, joined)
            synced = self.runner.reply(client.syncing) if client.syncing is not None else None
            if synced is not None:
                client.syncing = None
                if synced.error_code == 0:
                    assert synced.assignment in self.distributed[client.generation]
                    client.owned = frozenset(synced.assignment)

    def take_join_reply(self, client: Client, reply: Any) -> None:
        if reply.error_code == 79:
            client.member_id = reply.member_id
        elif reply.error_code == 0:
            client.member_id = reply.member_id
            client.generation = reply.generation_id
            client.joined = reply
        elif reply.error_code in (25, 82):
            client.starts_over()

    @invariant()
    def one_owner_for_each_partition_of_a_generation(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for client in self.clients:
            if client.member_id not in self.members():
                continue
            for partition in client.owned:
                other = owners.setdefault((client.generation, partition), client.member_id)
                assert other == client.member_id

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.group()
        if group is not None:
            assert group.generation >= self.generation_max
            self.generation_max = group.generation
        else:
            self.generation_max = 0

    @invariant()
    def every_member_and_every_rebalance_has_a_timer(self) -> None:
        group = self.group()
        if group is None:
            return
        timers = self.runner.timers
        assert all(("session", GROUP, member.member_id) in timers for member in group.members)
        assert all(("pending", GROUP, member_id) in timers for member_id in group.issued_ids)
        assert (("join", GROUP) in timers) == (group.state is GroupState.PREPARING_REBALANCE)
        if group.awaited_syncs:
            assert ("sync", GROUP) in timers
        assert group.joining.keys() <= {member.member_id for member in group.members}
        assert group.syncing.keys() <= {member.member_id for member in group.members}
        assert not group.joining or group.state is GroupState.PREPARING_REBALANCE
        assert not group.syncing or group.state is GroupState.COMPLETING_REBALANCE

    @invariant()
    def a_generation_is_never_larger_than_allowed(self) -> None:
        group = self.group()
        if group is not None and group.state is not GroupState.PREPARING_REBALANCE:
            assert len(group.members) <= group.config.max_size

    @invariant()
    def offsets_are_those_that_were_accepted(self) -> None:
        for partition, (offset, error) in self.runner.fetch(*PARTITIONS).items():
            assert error == 0
            assert offset in self.accepted[partition]
            if partition not in self.in_transactions:
                assert offset == self.expected.get(partition, -1)

    @invariant()
    def remembers(self) -> None:
        self.remember()

    def group(self) -> ClassicGroup | None:
        return self.runner.group if self.runner.has_group() else None

    def members(self) -> set[str]:
        group = self.group()
        return set() if group is None else {member.member_id for member in group.members}

    def teardown(self) -> None:
        for entries, expected in enumerate(self.states):
            if expected is not None:
                groups, offsets = durable_state_copy(self.runner.reloaded(entries).shard)
                expected_groups, expected_offsets = expected
                assert offsets == expected_offsets
                assert groups.keys() == expected_groups.keys()
                for group_id, (timestamp_ms, content) in expected_groups.items():
                    assert groups[group_id][0] == timestamp_ms
                    assert content is None or groups[group_id][1] == content
        self.runner.advance(100 * REBALANCE_MS)
        assert set(self.runner.replies) == set(self.runner.asked), "somebody waits for ever"
        assert not self.runner.timers
        assert self.members() == set()


def durable_state_copy(shard: GroupShard) -> Any:
    """Independent of what happens to the shard afterwards."""
    groups, offsets = durable_state(shard)
    copied = {}
    for name, table in offsets.items():
        copied[name] = {
            key: {inner: dict(value) if isinstance(value, dict) else value for inner, value in entry.items()}
            if isinstance(entry, dict)
            else set(entry)
            for key, entry in table.items()
        }
    return groups, copied


TestGroupAtWork = GroupAtWork.TestCase
TestGroupAtWork.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
