"""What others than our brokers write into ZooKeeper for the controller to do.

Old tools write reassignments, preferred elections, deletions, and topics; Apache Kafka's brokers, in the same cluster,
write the topics their coordinators need, and those before 2.7 write in-sync sets. A node that asks for something is
removed when it is done, as by Kafka's controller. Nobody but brokers reaches the other stores: they have no triggers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.broker.controller import stored_state
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind, Event
from ottla.machines.cluster.reassignment import ReassignmentAsked
from ottla.machines.cluster.state import ClusterState
from ottla.machines.cluster.topics import DeletionWanted, TopicFound
from ottla.metadata import paths
from ottla.metadata.store import Check, Delete, MetadataStore, NoNodeError, Operation, Set, StoreError

log = logging.getLogger(__name__)


class TriggerRules(NamedTuple):
    topic_id: Callable[[str], Uuid]
    """The id this broker knows a topic by, or else a new one."""
    deletion_allowed: Callable[[], bool]


class Touched(NamedTuple):
    """Somebody has written at the path: look what."""

    path: str


class Triggers:
    """Of one controller, for as long as it is one. `guard` refuses what it writes afterwards."""

    def __init__(
        self,
        store: MetadataStore,
        guard: Check,
        rules: TriggerRules,
        *,
        state: Callable[[], ClusterState],
        carry_out: Callable[[Event], Awaitable[Any]],
    ) -> None:
        self._store = store
        self._guard = guard
        self._rules = rules
        self._state = state
        self._carry_out = carry_out
        self._moves: dict[TopicPartition, tuple[int, ...]] = {}
        """Those of the node for reassignments that are under way."""
        self._ids: dict[str, Uuid] = {}
        """For topics without an id."""

    def watch(self, happened: Callable[[Touched], None]) -> list[Callable[[], None]]:
        """The results end it."""

        def touched(path: str) -> None:
            happened(Touched(path))

        # Of a topic only its own node: its partitions are the controller's.
        watched = [(paths.TOPICS, 1), (paths.DELETE_TOPICS, 1), (paths.ISR_CHANGES, 1)]
        single = [(paths.REASSIGNMENTS, 0), (paths.PREFERRED_ELECTION, 0)]
        return [self._store.watch(path, touched, depth=depth) for path, depth in (*watched, *single)]

    def left_behind(self) -> list[Touched]:
        """What may have been written while there was no controller. To be asked before brokers are told of anything:
        whoever has written a topic anew may have dropped the id that they have it by."""
        without_id = [name for name, topic in self._state().topics.items() if topic.topic_id == NIL_UUID]
        self._ids = {name: self._rules.topic_id(name) for name in without_id}
        nodes = (paths.ISR_CHANGES, paths.REASSIGNMENTS, paths.PREFERRED_ELECTION)
        return [Touched(path) for path in (*map(paths.topic, without_id), *nodes)]

    async def look(self, path: str) -> None:
        if path == paths.REASSIGNMENTS:
            await self._reassign()
        elif path == paths.PREFERRED_ELECTION:
            await self._elect()
        elif path.startswith(paths.DELETE_TOPICS):
            await self._delete_topics()
        elif path.startswith(paths.ISR_CHANGES):
            await self._take_isr_changes()
        elif (name := stored_state.topic_of(path)) is not None:
            await self._look_at_topic(name)
        else:
            for name in set(await self._store.children(paths.TOPICS)) - self._state().topics.keys():
                await self._look_at_topic(name)

    # Topics

    async def _look_at_topic(self, name: str) -> None:
        node = await self._store.get(paths.topic(name))
        if node is None or name in self._state().pending_deletions:
            return
        known = self._state().topics.get(name)
        if known is None or known.node_version != node.version or known.is_unfinished:
            await self._take_topic(name)

    async def _take_topic(self, name: str) -> None:
        try:
            stored = await stored_state.load_topic(self._store, name)
        except paths.MalformedNodeError as e:
            log.error("topic %r is set aside until its node is mended: %s", name, e)
            return
        if stored is not None:
            await self._carry_out(TopicFound(name, stored, self._id_of(name)))

    def _id_of(self, name: str) -> Uuid:
        known = self._state().topics.get(name)
        if known is not None and known.topic_id != NIL_UUID:
            return known.topic_id
        return self._ids.pop(name, None) or self._rules.topic_id(name)

    async def _delete_topics(self) -> None:
        for name in await self._store.children(paths.DELETE_TOPICS):
            if name in self._state().pending_deletions:
                continue
            await self._look_at_topic(name)
            if name in self._state().topics and self._rules.deletion_allowed():
                log.info("topic %s is deleted: somebody has asked for it in ZooKeeper", name)
                await self._carry_out(DeletionWanted(name, is_marked=True))
            else:
                log.warning("topic %r is not deleted: there is none, or delete.topic.enable=false", name)
                await self._write(Delete(f"{paths.DELETE_TOPICS}/{name}"))

    async def _take_isr_changes(self) -> None:
        nodes = await self._store.tree(paths.ISR_CHANGES)
        nodes.pop(paths.ISR_CHANGES, None)
        changed: set[str] = set()
        for path, node in nodes.items():
            try:
                changed.update(tp.topic for tp in paths.decode_partitions(node.data))
            except paths.MalformedNodeError as e:
                log.error("%s says nothing that could be understood: %s", path, e)
        for name in sorted(changed - self._state().pending_deletions):
            await self._take_topic(name)
        for path in nodes:
            await self._write(Delete(path))

    # Partitions

    async def _elect(self) -> None:
        node = await self._store.get(paths.PREFERRED_ELECTION)
        if node is None:
            return
        try:
            partitions = paths.decode_partitions(node.data)
        except paths.MalformedNodeError as e:
            log.error("%s is removed, for nobody can understand it: %s", paths.PREFERRED_ELECTION, e)
        else:
            codes: Mapping[TopicPartition, ErrorCode] = await self._carry_out(
                ElectionAsked(tuple(partitions), ElectionKind.PREFERRED)
            )
            for tp, code in codes.items():
                if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    log.warning("%s is not led by its preferred replica: %s", tp, code.name)
        await self._write(Delete(paths.PREFERRED_ELECTION))

    async def _reassign(self) -> None:
        node = await self._store.get(paths.REASSIGNMENTS)
        if node is None:
            self._moves = {}
            return
        try:
            wanted = paths.decode_reassignments(node.data)
        except paths.MalformedNodeError as e:
            log.error("%s is removed, for nobody can understand it: %s", paths.REASSIGNMENTS, e)
            await self._write(Delete(paths.REASSIGNMENTS))
            return
        news = {tp: replicas for tp, replicas in wanted.items() if self._moves.get(tp) != replicas}
        if news:
            outcome: Mapping[TopicPartition, KafkaError | None] = await self._carry_out(ReassignmentAsked(news))
            for tp, error in outcome.items():
                if error is not None:
                    log.warning("%s is not moved to %s: %s", tp, list(news[tp]), error)
        self._moves = wanted
        await self.note_progress()

    async def note_progress(self) -> None:
        """What has ended leaves the node, and with the last of it the node goes: that is how old tools see it."""
        left = {tp: replicas for tp, replicas in self._moves.items() if self._is_under_way(tp, replicas)}
        if left == self._moves:
            return
        self._moves = left
        await self._write(
            Set(paths.REASSIGNMENTS, paths.encode_reassignments(left)) if left else Delete(paths.REASSIGNMENTS)
        )

    def _is_under_way(self, tp: TopicPartition, replicas: Iterable[int]) -> bool:
        partition = self._state().known(tp)
        return partition is not None and partition.is_being_reassigned and partition.target == replicas

    async def _write(self, operation: Operation) -> None:
        try:
            await self._store.commit([self._guard, operation])
        except NoNodeError:
            pass  # Whoever has written it has taken it back.
        except StoreError as e:
            raise KafkaError(str(e), code=ErrorCode.NOT_CONTROLLER) from e
