"""DeleteTopics. 4 is flexible, 5 has an error message, 6 deletes by name or by id."""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string, uuid
from ottla.wire.message import Request, Response, Struct


class DeleteTopicState(Struct):
    name: str | None = string(nullable="6+", default=None)
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(Request, api=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, versions="6+")
    topic_names: list[str] = array(string, versions="0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid(versions="6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
