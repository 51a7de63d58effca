"""Calls about groups and their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio.admin.caller import unanswered
from ottla.client.aio.admin.calls import AdminCalls
from ottla.client.aio.cluster_link import GROUP
from ottla.client.core.admin import groups as admin_groups
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Call, Outcomes
from ottla.client.core.admin.types import (
    GroupDescription,
    GroupListing,
)
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import offsets_to_commit
from ottla.client.core.metadata import BrokerAddress
from ottla.client.errors import ClientError


class GroupCalls(AdminCalls):
    # Groups

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """All groups, or those in some states (`Stable`, `Empty`, …) or of some types (`classic`, `consumer`)."""
        wanted = as_list(states, "states"), as_list(types, "types")
        outcomes = await self._caller.brokers(
            lambda node: admin_groups.list_groups_call(node, *wanted), None, timeout_ms
        )
        return sorted({group for groups in outcomes.check().values() for group in groups})

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State and members of groups of both protocols."""
        wanted = as_list(group_ids, "group_ids")

        async def describe(group_id: str) -> GroupDescription | ClientError:
            answer = await self._ask_group(group_id, admin_groups.describe_consumer_groups_call())
            if isinstance(answer, ClientError) and answer.code in admin_groups.NOT_A_CONSUMER_GROUP:
                answer = await self._ask_group(group_id, admin_groups.describe_classic_groups_call())
            return answer

        async def ask(pending: list[str]) -> dict[str, GroupDescription | ClientError]:
            return dict(zip(pending, await asyncio.gather(*map(describe, pending)), strict=True))

        return await self._caller.settle(wanted, ask, "describe_groups", timeout_ms)

    async def _ask_group(self, group_id: str, call: Call[str, GroupDescription]) -> GroupDescription | ClientError:
        answers = await self._caller.ask_coordinator(GROUP, group_id, call, [group_id])
        return answers.get(group_id, unanswered(group_id))

    async def find_group_coordinators(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, BrokerAddress]:
        """The brokers that look after these groups."""
        return await self._caller.find_coordinators(GROUP, as_list(group_ids, "group_ids"), timeout_ms)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Outcomes[str, None]:
        """Deletes groups without members, and their offsets."""
        call = admin_groups.delete_groups_call()
        return await self._caller.coordinators(GROUP, lambda _: call, as_list(group_ids, "group_ids"), timeout_ms)

    async def remove_members(
        self,
        group_id: str,
        member_ids: Iterable[str] | None = None,
        *,
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Takes members out of a classic group, by member id or by `group.instance.id`; all if none are named."""
        instances = set(as_list(instance_ids, "instance_ids"))
        members = set(as_list(member_ids or (), "member_ids"))
        if member_ids is None and not instances:
            described = (await self.describe_groups([group_id], timeout_ms=timeout_ms))[group_id]
            instances = {member.instance_id for member in described.members if member.instance_id is not None}
            members = {member.member_id for member in described.members if member.instance_id is None}
        call = admin_groups.remove_members_call(group_id, instances, reason)
        wanted = [*sorted(members), *sorted(instances)]
        outcomes = await self._caller.coordinator(GROUP, group_id, call, wanted, timeout_ms)
        if not any(error.code is ErrorCode.UNKNOWN_MEMBER_ID for error in outcomes.errors.values()):
            return outcomes
        groups = await self.describe_groups([group_id], timeout_ms=timeout_ms)
        return admin_groups.explain_strangers(outcomes, groups.results.get(group_id))

    # Offsets of groups

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of groups: all, or those of the partitions that are named for a group.

        With `require_stable` offsets that an open transaction may still change are waited for.
        """
        named = groups if isinstance(groups, Mapping) else dict.fromkeys(as_list(groups, "groups"))
        wanted = {
            group: None if chosen is None else as_list(chosen, "the partitions of a group")
            for group, chosen in named.items()
        }
        return await self._caller.coordinators(
            GROUP,
            lambda group: admin_groups.list_group_offsets_call(group, wanted.get(group), require_stable=require_stable),
            wanted,
            timeout_ms,
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Sets where a group without members goes on reading."""
        commits = offsets_to_commit(offsets)
        call = admin_groups.alter_group_offsets_call(group_id, commits)
        return await self._caller.coordinator(GROUP, group_id, call, commits, timeout_ms)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Forgets where a group was in topics it does not read now."""
        call = admin_groups.delete_group_offsets_call(group_id)
        wanted = [TopicPartition(*partition) for partition in as_list(partitions, "partitions")]
        return await self._caller.coordinator(GROUP, group_id, call, wanted, timeout_ms)
