"""FindCoordinator: which broker coordinates a group or a transactional id.

1 has the kind of key, 3 is flexible, 4 asks for many keys at once, 6 adds share groups without changing the layout.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class FindCoordinatorRequest(Request, api=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    key: str = string(versions="0-3")
    key_type: int = int8(versions="1+")
    coordinator_keys: list[str] = array(string, versions="4+")


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="4+")


class FindCoordinatorResponse(Response, api=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="0-3")
    error_message: str | None = string(versions="1-3", nullable="1-3", ignorable=True)
    node_id: int = int32(versions="0-3")
    host: str = string(versions="0-3")
    port: int = int32(versions="0-3")
    coordinators: list[Coordinator] = array(Coordinator, versions="4+")
