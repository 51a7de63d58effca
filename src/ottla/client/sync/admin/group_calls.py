# Written by `make generate` from src/ottla/client/aio/admin/group_calls.py: change that instead.

"""Calls about groups and their offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    GroupDescription,
    GroupListing,
)
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.metadata import BrokerAddress
from ottla.client.sync.admin.calls import AdminCalls


class GroupCalls(AdminCalls):
    # Groups

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """All groups, or those in some states (`Stable`, `Empty`, …) or of some types (`classic`, `consumer`)."""
        return self._call(self._inner.list_groups(states=states, types=types, timeout_ms=timeout_ms))

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State and members of groups of both protocols."""
        return self._call(self._inner.describe_groups(group_ids, timeout_ms=timeout_ms))

    def find_group_coordinators(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, BrokerAddress]:
        """The brokers that look after these groups."""
        return self._call(self._inner.find_group_coordinators(group_ids, timeout_ms=timeout_ms))

    def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Outcomes[str, None]:
        """Deletes groups without members, and their offsets."""
        return self._call(self._inner.delete_groups(group_ids, timeout_ms=timeout_ms))

    def remove_members(
        self,
        group_id: str,
        member_ids: Iterable[str] | None = None,
        *,
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Takes members out of a classic group, by member id or by `group.instance.id`; all if none are named."""
        return self._call(
            self._inner.remove_members(
                group_id, member_ids, instance_ids=instance_ids, reason=reason, timeout_ms=timeout_ms
            )
        )

    # Offsets of groups

    def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of groups: all, or those of the partitions that are named for a group.

        With `require_stable` offsets that an open transaction may still change are waited for.
        """
        return self._call(self._inner.list_group_offsets(groups, require_stable=require_stable, timeout_ms=timeout_ms))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Sets where a group without members goes on reading."""
        return self._call(self._inner.alter_group_offsets(group_id, offsets, timeout_ms=timeout_ms))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Forgets where a group was in topics it does not read now."""
        return self._call(self._inner.delete_group_offsets(group_id, partitions, timeout_ms=timeout_ms))
