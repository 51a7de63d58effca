"""Access rules: what is asked of brokers, and what their answers say. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType
from ottla.base.errors import ErrorCode
from ottla.client.core.admin.access_types import AclBinding, AclFilter
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Call, admin_error, known, outcome
from ottla.client.errors import ClientError
from ottla.wire.apis.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.wire.apis.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse

R = TypeVar("R", AclBinding, AclFilter)

_FIRST_PATTERNS = 1
_FIRST_USERS = 3
_VAGUE = ("UNKNOWN", "ANY", "MATCH")

# Arguments


def bindings_to_create(given: Iterable[AclBinding]) -> list[AclBinding]:
    bindings = as_list(given, "bindings")
    for binding in bindings:
        if not isinstance(binding, AclBinding):
            raise ValueError(f"rules are created from AclBinding, but one was {binding!r}")
        for field in ("resource_type", "operation", "permission", "pattern"):
            value = getattr(binding, field)
            if isinstance(value, AclResourceType | AclOperation | AclPermission | AclPattern) and value.name in _VAGUE:
                raise ValueError(f"a rule has to name its {field}, but {value.name} was given; only filters take that")
        _check_principal(binding.principal)
    return bindings


def filters_to_ask(given: Iterable[AclFilter]) -> list[AclFilter]:
    filters = as_list(given, "filters")
    for entry in filters:
        if not isinstance(entry, AclFilter):
            raise ValueError(
                f"rules are found by AclFilter (AclFilter.exactly finds one AclBinding), but one was {entry!r}"
            )
        if 0 in (entry.resource_type, entry.operation, entry.permission, entry.pattern):
            raise ValueError(f"a filter cannot ask for what is UNKNOWN, but was {entry!r}")
        _check_principal(entry.principal)
    return filters


def _check_principal(principal: str | None) -> None:
    # A broker would refuse such a rule, and find none by such a filter.
    if isinstance(principal, str) and not all(principal.partition(":")):
        raise ValueError(f"a principal has a type and a name, such as User:alice, but was {principal!r}")


# Creating


def create_acls_call() -> Call[AclBinding, None]:
    def build(bindings: Sequence[AclBinding], version: int) -> CreateAclsRequest:
        return CreateAclsRequest(creations=[_creation(_spoken(binding, version)) for binding in bindings])

    def read(response: CreateAclsResponse) -> list[ClientError | None]:
        return [outcome(result.error_code, None, result.error_message) for result in response.results]

    return Call("create_acls", CreateAclsRequest, CreateAclsResponse, build, read)


def _creation(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=binding.resource_type,
        resource_name=binding.name,
        resource_pattern_type=binding.pattern,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _spoken(rule: R, version: int) -> R:
    """A rule or a filter as a version can say it."""
    if version < _FIRST_USERS and rule.resource_type == AclResourceType.USER:
        raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for rules about users as resources")
    if version >= _FIRST_PATTERNS or rule.pattern == AclPattern.LITERAL:
        return rule
    if rule.pattern != AclPattern.ANY:
        raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for rules that are not literal")
    # There are no others.
    return rule._replace(pattern=AclPattern.LITERAL)


# Describing


def describe_acls_call() -> Call[AclFilter, list[AclBinding]]:
    def build(filters: Sequence[AclFilter], version: int) -> DescribeAclsRequest:
        (entry,) = filters
        spoken = _spoken(entry, version)
        return DescribeAclsRequest(
            resource_type_filter=spoken.resource_type,
            resource_name_filter=spoken.name,
            pattern_type_filter=spoken.pattern,
            principal_filter=spoken.principal,
            host_filter=spoken.host,
            operation=spoken.operation,
            permission_type=spoken.permission,
        )

    def read(response: DescribeAclsResponse) -> list[list[AclBinding] | ClientError]:
        found = sorted(
            AclBinding(
                known(AclResourceType, resource.resource_type),
                resource.resource_name,
                rule.principal,
                known(AclOperation, rule.operation),
                known(AclPermission, rule.permission_type),
                rule.host,
                known(AclPattern, resource.pattern_type),
            )
            for resource in response.resources
            for rule in resource.acls
        )
        return [outcome(response.error_code, found, response.error_message)]

    return Call("describe_acls", DescribeAclsRequest, DescribeAclsResponse, build, read)


# Deleting


def delete_acls_call() -> Call[AclFilter, list[AclBinding]]:
    def build(filters: Sequence[AclFilter], version: int) -> DeleteAclsRequest:
        return DeleteAclsRequest(filters=[_wire_filter(_spoken(entry, version)) for entry in filters])

    def read(response: DeleteAclsResponse) -> list[list[AclBinding] | ClientError]:
        return [_deleted(result) for result in response.filter_results]

    return Call("delete_acls", DeleteAclsRequest, DeleteAclsResponse, build, read)


def _wire_filter(entry: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=entry.resource_type,
        resource_name_filter=entry.name,
        pattern_type_filter=entry.pattern,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | ClientError:
    """The rules that are gone. One that could not be deleted makes the whole filter fail, which then names it."""
    if result.error_code:
        return admin_error(result.error_code, result.error_message)
    kept = [match for match in result.matching_acls if match.error_code]
    if not kept:
        return sorted(map(_matching, result.matching_acls))
    errors = [admin_error(match.error_code, match.error_message) for match in kept]
    told = "; ".join(f"{_matching(match)} ({error})" for match, error in zip(kept, errors, strict=True))
    text = f"of {len(result.matching_acls)} rules that match, {len(kept)} could not be deleted: {told}"
    return admin_error(errors[0].code, text)


def _matching(match: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        known(AclResourceType, match.resource_type),
        match.resource_name,
        match.principal,
        known(AclOperation, match.operation),
        known(AclPermission, match.permission_type),
        match.host,
        known(AclPattern, match.pattern_type),
    )
