"""DescribeGroups: state and members of classic groups.

3 has authorised operations, 4 static members, 5 is flexible, 6 an error message per group (KIP-1043).
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, bytes_, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class DescribeGroupsRequest(Request, api=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(versions="3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(versions="4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(versions="6+", nullable="6+", default=None, ignorable=True)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(versions="3+", default=-0x80000000)


class DescribeGroupsResponse(Response, api=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
