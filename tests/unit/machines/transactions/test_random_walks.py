"""Random producers, zombies, markers, deadlines and restarts against one shard; the laws hold after every step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.transactions.answers import Answer, SendMarkers
from ottla.machines.transactions.states import NEXT_STATES, PREPARED, RESTING, State
from ottla.machines.transactions.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH, Producer, Transaction
from tests.unit.machines.transactions.driver import NEW_END, OLD_END, TIMEOUT_MS, Coordinator, reloaded, replay

NAMES = st.sampled_from(["a", "a", "a", "b"])
PARTITION = st.builds(TopicPartition, st.sampled_from(["x", "y"]), st.integers(0, 1))
PARTITIONS = st.lists(PARTITION, min_size=1, max_size=3)
# Mostly the newest client and the newest producer it was; the others are zombies and late duplicates.
WHO = st.sampled_from([0, 0, 0, 0, 1, 2, 3])
WHEN = st.sampled_from([0, 0, 0, 0, 0, 1, 2])
NONE = ErrorCode.NONE
SHUT_OUT = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclass(eq=False)
class Client:
    name: str
    memories: list[Producer] = field(default_factory=list)
    """Every producer it has been."""
    is_out: bool = False
    """The coordinator has shut it out, for the sake of another client or because it took too long."""


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.c = Coordinator()
        self.clients: list[Client] = []
        self.owners: dict[tuple[str, Producer], Client] = {}
        self.added: dict[str, set[TopicPartition]] = {}
        self.reported: list[SendMarkers] = []
        self.used: dict[str, set[int]] = {"a": set(), "b": set()}
        self.shadow = reloaded([])
        """Is given the log and nothing else, record by record."""
        self.history: list[dict[str, Transaction]] = [{}]
        """The shard's transactions at each length of the log."""
        self.step_start = 1

    # -- what clients do -----------------------------------------------------------------------------------------

    @rule(name=NAMES)
    def init(self, name: str) -> None:
        before = self._look(name)
        answer = self.c.init(name)
        self._check_step(name, before)
        if before is not None and before.state in PREPARED:
            self._check_nothing_happened(name, before)
            return
        self._shut_out(name)
        if before is not None and before.state is State.ONGOING:
            assert answer.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
            self._check_order(name, commit=False, raised_from=before.producer)
            return
        self._grant(self._new_client(name), answer)

    @precondition(lambda self: self.clients)
    @rule(who=WHO, when=WHEN)
    def recover(self, who: int, when: int) -> None:
        client, producer = self._pick(who, when)
        name = client.name
        before = self._look(name)
        answer = self.c.init(name, producer)
        self._check_step(name, before)
        if before is None:
            # Nobody is known any more, so this client is as good as a new one.
            self._shut_out(name)
            self._grant(self._new_client(name), answer)
            return
        self._check_not_shut_out(client, answer, producer == before.producer)
        if producer != before.producer:
            assert self.c.last_decision.records == [] or before.producer.producer_epoch == MAX_EPOCH
        elif before.state is State.ONGOING:
            assert answer.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
            self._check_order(name, commit=False, raised_from=before.producer)
        if answer.error_code is NONE:
            self._grant(client, answer)

    @precondition(lambda self: self.clients)
    @rule(who=WHO, when=WHEN, partitions=PARTITIONS, version=st.sampled_from([3, 5]))
    def add(self, who: int, when: int, partitions: list[TopicPartition], version: int) -> None:
        client, producer = self._pick(who, when)
        name = client.name
        before = self._look(name)
        answer = self.c.add(producer, *partitions, name=name, version=version)
        self._check_step(name, before)
        if answer.error_code is not NONE:
            self._check_nothing_happened(name, before)
        if before is None:
            return
        self._check_not_shut_out(client, answer, producer == before.producer)
        if answer.error_code is NONE:
            assert producer == before.producer
            if before.state in RESTING:
                self.added[name] = set()
            self.added[name] |= set(partitions)

    @precondition(lambda self: self.clients)
    @rule(who=WHO, when=WHEN, commit=st.booleans(), version=st.sampled_from([OLD_END, NEW_END]))
    def end(self, who: int, when: int, commit: bool, version: int) -> None:
        client, producer = self._pick(who, when)
        name = client.name
        before = self._look(name)
        answer = self.c.end(producer, commit=commit, name=name, version=version)
        self._check_step(name, before)
        if before is None or answer.error_code is not NONE:
            self._check_nothing_happened(name, before)
        if before is None:
            return
        self._check_not_shut_out(client, answer, producer == before.producer)
        if answer.error_code is not NONE:
            return
        if producer != before.producer:
            self._check_nothing_happened(name, before)
        elif before.state is State.ONGOING:
            self._check_order(name, commit=commit, raised_from=before.producer if version == NEW_END else None)
        if version == NEW_END:
            self._grant(client, answer)

    @precondition(lambda self: self.clients)
    @rule(partitions=PARTITIONS, commit=st.booleans(), version=st.sampled_from([OLD_END, NEW_END]))
    def transact(self, partitions: list[TopicPartition], commit: bool, version: int) -> None:
        """A whole transaction, if nothing stands in its way."""
        self.add(0, 0, partitions, 3)
        self._end_step()
        self.end(0, 0, commit, version)
        self._end_step()
        if self.c.orders:
            self.write_markers(-1)

    @precondition(lambda self: self.clients)
    @rule(partitions=PARTITIONS)
    def recover_and_begin(self, partitions: list[TopicPartition]) -> None:
        self.recover(0, 0)
        self._end_step()
        if self.c.orders:
            self.write_markers(-1)
            self._end_step()
            self.recover(0, 0)
            self._end_step()
        self.add(0, 0, partitions, 3)

    @precondition(lambda self: self.clients)
    @rule(partitions=PARTITIONS, commit=st.booleans(), version=st.sampled_from([OLD_END, NEW_END]))
    def everything_late_arrives(self, partitions: list[TopicPartition], commit: bool, version: int) -> None:
        """Requests under every producer that ever was, except the one that is now: none of them leaves a trace."""
        before = dict(self.c.shard.transactions)
        orders = list(self.c.orders)
        for who, client in enumerate(reversed(self.clients[-4:])):
            current = self._look(client.name)
            known = len(client.memories)
            for when, producer in enumerate(reversed(client.memories[-4:])):
                if current is None or producer == current.next_client_producer:
                    continue
                self.add(who, when, partitions, 3)
                self.end(who, when, commit, version)
                if len(client.memories) == known and current.producer.producer_epoch < MAX_EPOCH:
                    self.recover(who, when)
                if len(client.memories) > known:
                    break
        for order in self.reported[-3:]:
            self.c.report(order)
        assert self.c.shard.transactions == before
        assert self.c.orders == orders

    # -- what the broker does ------------------------------------------------------------------------------------

    @precondition(lambda self: self.c.orders)
    @rule(which=st.integers(0, 3))
    def write_markers(self, which: int) -> None:
        order = self.c.orders.pop(which % len(self.c.orders))
        name = order.transactional_id
        before = self._look(name)
        self.c.report(order)
        self.reported.append(order)
        self._check_step(name, before)
        assert self._now(name).state is (State.COMPLETE_COMMIT if order.commit else State.COMPLETE_ABORT)

    @precondition(lambda self: self.reported)
    @rule(which=st.sampled_from([-1, -1, -2, -3]))
    def report_old_markers_again(self, which: int) -> None:
        order = self.reported[max(which, -len(self.reported))]
        before = self._look(order.transactional_id)
        self.c.report(order)
        self._check_nothing_happened(order.transactional_id, before)

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def deadlines_pass(self, ms: int) -> None:
        self.c.pass_time(ms)
        before = dict(self.c.shard.transactions)
        self.c.run(self.c.shard.abort_timed_out(self.c.now_ms))
        for name, transaction in before.items():
            self._check_step(name, transaction)
            if transaction.has_timed_out(self.c.now_ms):
                self._check_order(name, commit=False, raised_from=transaction.producer)
                self._shut_out(name)
            else:
                assert self._now(name) == transaction

    @precondition(lambda self: len(self.c.log) > 8)
    @rule()
    def ids_expire(self) -> None:
        self.c.pass_time(self.c.shard.config.transactional_id_expiration_ms)
        before = dict(self.c.shard.transactions)
        self.c.run(self.c.shard.expire_ids(self.c.now_ms))
        assert self.c.shard.transactions == {n: t for n, t in before.items() if t.state not in RESTING}
        self._remember()

    @precondition(lambda self: self.clients)
    @rule(left=st.integers(0, 1))
    def epochs_run_low(self, left: int) -> None:
        client, producer = self._pick(0, 0)
        idle = self._look(client.name)
        lowest = Producer(producer.producer_id, LAST_CLIENT_EPOCH - left)
        if idle is not None and idle.state in RESTING and idle.producer == producer < lowest:
            self.c.put(replace(idle, producer=lowest, client_version=0))
            client.memories.append(lowest)
            self.owners[client.name, lowest] = client
            self._remember()

    @rule()
    def restart(self) -> None:
        before = dict(self.c.shard.transactions)
        self.c.shard = reloaded(self.c.log)
        assert self.c.shard.transactions == before
        self.c.orders.clear()
        self.reported.clear()
        self.c.run(self.c.shard.loaded(self.c.now_ms))
        for name, transaction in before.items():
            if transaction.state in PREPARED:
                self._check_order(name, commit=transaction.commits)
        self._remember()

    # -- laws ----------------------------------------------------------------------------------------------------

    @invariant()
    def the_log_alone_gives_the_same_transactions(self) -> None:
        self._end_step()
        assert self.shadow.transactions == self.c.shard.transactions

    @invariant()
    def only_what_is_open_or_ending_holds_partitions(self) -> None:
        for transaction in self.c.shard.transactions.values():
            assert bool(transaction.partitions) == (transaction.state not in RESTING)

    @invariant()
    def every_prepared_transaction_has_one_order(self) -> None:
        current = {
            (order.transactional_id, order.producer_id, order.producer_epoch)
            for order in self.c.orders
            if order.order == self.c.shard._orders[order.transactional_id].order
        }
        prepared = {
            (name, *transaction.producer)
            for name, transaction in self.c.shard.transactions.items()
            if transaction.state in PREPARED
        }
        assert current == prepared
        assert len(self.c.orders) == len(prepared)

    def teardown(self) -> None:
        shard = reloaded([])
        for length, expected in enumerate(self.history):
            if length:
                replay(shard, self.c.log[length - 1])
            assert shard.transactions == expected
            orders = {effect.transactional_id: effect for effect in shard.loaded(self.c.now_ms).effects}
            assert {name: set(order.partitions) for name, order in orders.items()} == {
                name: set(transaction.partitions)
                for name, transaction in expected.items()
                if transaction.state in PREPARED and transaction.partitions
            }

    # -- parts ---------------------------------------------------------------------------------------------------

    def _look(self, name: str) -> Transaction | None:
        return self.c.shard.transactions.get(name)

    def _now(self, name: str) -> Transaction:
        return self.c.transaction(name)

    def _pick(self, who: int, when: int) -> tuple[Client, Producer]:
        client = self.clients[max(-1 - who, -len(self.clients))]
        return client, client.memories[max(-1 - when, -len(client.memories))]

    def _new_client(self, name: str) -> Client:
        client = Client(name)
        self.clients.append(client)
        return client

    def _shut_out(self, name: str) -> None:
        for client in self.clients:
            client.is_out |= client.name == name

    def _grant(self, client: Client, answer: Answer) -> None:
        """No two clients are ever told to be the same producer."""
        assert answer.error_code is NONE
        producer = Producer(answer.producer_id, answer.producer_epoch)
        assert producer == self._now(client.name).next_client_producer
        assert 0 <= producer.producer_epoch <= LAST_CLIENT_EPOCH
        assert self.owners.setdefault((client.name, producer), client) is client
        if client.memories[-1:] != [producer]:
            client.memories.append(producer)

    def _check_not_shut_out(self, client: Client, answer: Answer, is_current: bool) -> None:
        """A client that was shut out stays out; one that is current is not shut out."""
        if client.is_out:
            assert answer.error_code in SHUT_OUT
        elif is_current:
            assert answer.error_code not in SHUT_OUT

    def _remember(self) -> None:
        """Notes the states that the records of the last decision led through."""
        for record in self.c.log[len(self.history) - 1 :]:
            replay(self.shadow, record)
            self.history.append(dict(self.shadow.transactions))
        assert self.history[-1] == self.c.shard.transactions

    def _end_step(self) -> None:
        self._remember()
        self.step_start = len(self.history)

    def _check_nothing_happened(self, name: str, before: Transaction | None) -> None:
        assert self._look(name) == before
        assert self.c.last_decision.records == []
        assert not any(isinstance(effect, SendMarkers) for effect in self.c.last_decision.effects)

    def _check_step(self, name: str, before: Transaction | None) -> None:
        """Legal transitions only, and epochs that never go back, over each record that was written."""
        self._remember()
        current = before
        for snapshot in self.history[self.step_start :]:
            following = snapshot.get(name)
            if following is None or following == current:
                continue
            if current is None:
                assert following.state is State.EMPTY
                assert following.producer.producer_id not in self.used[name]
                assert following.producer.producer_epoch == 0
            else:
                self._check_transition(name, current, following)
            self.used[name].add(following.producer.producer_id)
            current = following

    def _check_transition(self, name: str, current: Transaction, following: Transaction) -> None:
        assert following.state in NEXT_STATES[current.state]
        old, new = current.producer, following.producer
        if old.producer_id == new.producer_id:
            assert old.producer_epoch <= new.producer_epoch
        else:
            assert new.producer_id not in self.used[name]
            assert new.producer_epoch == 0
            assert old.producer_epoch >= LAST_CLIENT_EPOCH
        assert following.next_client_producer.producer_epoch <= MAX_EPOCH

    def _check_order(self, name: str, *, commit: bool, raised_from: Producer | None = None) -> None:
        """The markers ordered last are for exactly the partitions that were added, and under the right epoch."""
        order = [order for order in self.c.orders if order.transactional_id == name][-1]
        assert order.commit is commit
        assert set(order.partitions) == self.added[name]
        assert len(order.partitions) == len(self.added[name])
        assert (order.producer_id, order.producer_epoch) == self._now(name).producer
        if raised_from is not None:
            assert self._now(name).producer == (raised_from.producer_id, raised_from.producer_epoch + 1)


Walk.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestWalk = Walk.TestCase
