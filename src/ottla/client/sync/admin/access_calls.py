# Written by `make generate` from src/ottla/client/aio/admin/access_calls.py: change that instead.

"""Calls about who may do what, and how much of it: access rules, quotas and SCRAM credentials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.sync.admin.calls import AdminCalls


class AccessCalls(AdminCalls):
    # Access rules

    def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_ms: int | None = None
    ) -> Outcomes[AclBinding, None]:
        """Adds rules. One that is there already is no error."""
        return self._call(self._inner.create_acls(bindings, timeout_ms=timeout_ms))

    def describe_acls(self, filter: AclFilter = EVERY_ACL, *, timeout_ms: int | None = None) -> list[AclBinding]:
        """The rules that a filter matches, sorted; all there are without one."""
        return self._call(self._inner.describe_acls(filter, timeout_ms=timeout_ms))

    def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None
    ) -> Outcomes[AclFilter, list[AclBinding]]:
        """Deletes the rules that filters match, and gives them. A filter without any is no error.

        If a rule that a filter matches could not be deleted, that is the filter's error, which names the rule.
        """
        return self._call(self._inner.delete_acls(filters, timeout_ms=timeout_ms))

    # Quotas

    def describe_client_quotas(
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
        return self._call(
            self._inner.describe_client_quotas(
                user=user, client_id=client_id, ip=ip, strict=strict, timeout_ms=timeout_ms
            )
        )

    def alter_client_quotas(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[QuotaEntity, None]:
        """Sets the quotas that are named, and no others; None removes one."""
        return self._call(self._inner.alter_client_quotas(quotas, validate_only=validate_only, timeout_ms=timeout_ms))

    # SCRAM credentials

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Outcomes[str, dict[ScramMechanism, int]]:
        """The iterations of users' passwords by mechanism; of all users who have one if none are named."""
        return self._call(self._inner.describe_user_scram_credentials(users, timeout_ms=timeout_ms))

    def alter_user_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Sets or deletes passwords. The outcomes are by user; Kafka takes one change of each in a call."""
        return self._call(self._inner.alter_user_scram_credentials(changes, timeout_ms=timeout_ms))
