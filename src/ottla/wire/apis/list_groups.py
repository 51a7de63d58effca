"""ListGroups: the groups a broker coordinates. 3 is flexible, 4 filters by state, 5 by type."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class ListGroupsRequest(Request, api=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, versions="4+")
    types_filter: list[str] = array(string, versions="5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(versions="4+", ignorable=True)
    group_type: str = string(versions="5+", ignorable=True)


class ListGroupsResponse(Response, api=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
