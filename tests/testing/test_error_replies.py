"""An error can be scripted for every API in every version: it is in the reply, and no other error is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ERRORS
from ottla.broker.handlers import client_handlers
from ottla.testing import ApiKey, EmbeddedBroker, ErrorCode
from ottla.wire.apis import request_class, response_class
from ottla.wire.apis.create_topics import CreateTopicsResponse
from ottla.wire.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.apis.produce import ProduceRequest
from ottla.wire.fields import Field
from ottla.wire.message import Request, Struct
from tests.raw_client import RawClient
from tests.testing.test_faults import error_codes

TOPIC = "t"
WANTED = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC)
        yield broker


def filled(kind: type[Struct], version: int) -> Any:
    """With one element in each list, and names wherever there is a place for one."""
    struct = kind()
    for field in struct.FIELDS:
        if version in field.versions:
            setattr(struct, field.name, filled_value(field, getattr(struct, field.name), version))
    return struct


def filled_value(field: Field, default: object, version: int) -> object:
    if field.kind == "array":
        return [filled_value(field.of, 0, version)]
    if field.kind == "struct":
        return filled(field.of, version)
    if field.kind == "string":
        return TOPIC
    return default


def request_of(api: ApiKey, version: int) -> Request:
    request: Request = filled(request_class(api), version)
    if isinstance(request, ProduceRequest):
        request.acks = 1
    return request


def served_versions(api: ApiKey) -> list[int]:
    handler = client_handlers()[api]
    return [
        version for version in response_class(api).VERSIONS if handler.min_version <= version <= handler.max_version
    ]


@pytest.mark.parametrize("applied", [False, True], ids=["left out", "applied"])
@pytest.mark.parametrize("api", [ApiKey(key) for key in sorted(client_handlers())], ids=lambda api: api.name)
def test_the_error_is_in_the_reply_of_every_version(broker: EmbeddedBroker, api: ApiKey, applied: bool) -> None:
    served = served_versions(api)
    assert served
    with RawClient(broker.port) as client, broker.faults.error(api, WANTED, times=None, applied=applied):
        found = {version: error_codes(client.call(request_of(api, version), version)) for version in served}
    assert {version: codes for version, codes in found.items() if set(codes) - {0} != {WANTED}} == {}


def test_where_a_reply_has_room_for_a_message_it_says_what_the_error_means(broker: EmbeddedBroker) -> None:
    meaning = ERRORS[WANTED].message
    assert meaning
    with RawClient(broker.port) as client, broker.faults.error(ApiKey.CREATE_TOPICS, WANTED, times=None):
        new = client.call(request_of(ApiKey.CREATE_TOPICS, 5), 5)
        old = client.call(request_of(ApiKey.CREATE_TOPICS, 2), 2)
    assert isinstance(new, CreateTopicsResponse) and isinstance(old, CreateTopicsResponse)
    assert [(topic.error_code, topic.error_message) for topic in (*new.topics, *old.topics)] == [(WANTED, meaning)] * 2


def test_an_answer_that_cannot_be_left_out_is_whole_beside_its_error(broker: EmbeddedBroker) -> None:
    """A client that is refused metadata must still learn which partitions there are, and of which directories."""
    topics = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    with RawClient(broker.port) as client:
        with broker.faults.error(ApiKey.METADATA, WANTED):
            metadata = client.call(topics, 12)
        assert isinstance(metadata, MetadataResponse)
        assert [partition.error_code for partition in metadata.topics[0].partitions] == [WANTED]
        with broker.faults.error(ApiKey.DESCRIBE_LOG_DIRS, WANTED):
            directories = client.call(DescribeLogDirsRequest(topics=None), 4)
        assert isinstance(directories, DescribeLogDirsResponse)
        assert [result.error_code for result in directories.results] == [WANTED]
