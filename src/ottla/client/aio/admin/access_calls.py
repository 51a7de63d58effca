"""Calls about who may do what, and how much of it: access rules, quotas and SCRAM credentials."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping

from ottla.client.aio.admin.calls import AdminCalls
from ottla.client.core.admin import acls as admin_acls
from ottla.client.core.admin import quotas as admin_quotas
from ottla.client.core.admin import scram as admin_scram
from ottla.client.core.admin.access_types import (
    EVERY_ACL,
    AclBinding,
    AclFilter,
    QuotaEntity,
    QuotaScope,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Outcomes


class AccessCalls(AdminCalls):
    # Access rules

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_ms: int | None = None
    ) -> Outcomes[AclBinding, None]:
        """Adds rules. One that is there already is no error."""
        wanted = admin_acls.bindings_to_create(bindings)
        return await self._caller.any_broker(admin_acls.create_acls_call(), wanted, timeout_ms)

    async def describe_acls(self, filter: AclFilter = EVERY_ACL, *, timeout_ms: int | None = None) -> list[AclBinding]:
        """The rules that a filter matches, sorted; all there are without one."""
        (wanted,) = admin_acls.filters_to_ask([filter])
        return (await self._caller.any_broker(admin_acls.describe_acls_call(), [wanted], timeout_ms))[wanted]

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None
    ) -> Outcomes[AclFilter, list[AclBinding]]:
        """Deletes the rules that filters match, and gives them. A filter without any is no error.

        If a rule that a filter matches could not be deleted, that is the filter's error, which names the rule.
        """
        wanted = admin_acls.filters_to_ask(filters)
        return await self._caller.any_broker(admin_acls.delete_acls_call(), wanted, timeout_ms)

    # Quotas

    async def describe_client_quotas(
        self,
        *,
        user: str | QuotaScope | None = None,
        client_id: str | QuotaScope | None = None,
        ip: str | QuotaScope | None = None,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of entities that have all the parts given: by name, `QUOTA_DEFAULT`, or `QUOTA_ANY` for any name.

        With `strict` they have no other parts.
        """
        call = admin_quotas.describe_client_quotas_call(user, client_id, ip, strict=strict)
        return (await self._caller.any_broker(call, [admin_quotas.QUOTAS], timeout_ms))[admin_quotas.QUOTAS]

    async def alter_client_quotas(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[QuotaEntity, None]:
        """Sets the quotas that are named, and no others; None removes one."""
        wanted = admin_quotas.quotas_to_alter(quotas)
        call = admin_quotas.alter_client_quotas_call(wanted, validate_only=validate_only)
        return await self._caller.any_broker(call, wanted, timeout_ms)

    # SCRAM credentials

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Outcomes[str, dict[ScramMechanism, int]]:
        """The iterations of users' passwords by mechanism; of all users who have one if none are named."""
        if users is not None:
            call = admin_scram.describe_user_scram_credentials_call()
            return await self._caller.any_broker(call, as_list(users, "users"), timeout_ms)
        everybody = admin_scram.describe_all_scram_credentials_call()
        outcomes = await self._caller.any_broker(everybody, [admin_scram.ALL_USERS], timeout_ms)
        return Outcomes(outcomes[admin_scram.ALL_USERS], what=everybody.name)

    async def alter_user_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Sets or deletes passwords. The outcomes are by user; Kafka takes one change of each in a call."""
        wanted = admin_scram.scram_changes(changes)
        salts = [os.urandom(admin_scram.SALT_BYTES) for _ in wanted]
        # Hashing is slow on purpose, and the loop has other things to do.
        by_user = await asyncio.to_thread(admin_scram.salted, wanted, salts)
        call = admin_scram.alter_user_scram_credentials_call(by_user)
        return await self._caller.controller(call, by_user, timeout_ms)
