"""DeleteGroups: removes empty groups and their offsets. 2 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class DeleteGroupsRequest(Request, api=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, api=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
