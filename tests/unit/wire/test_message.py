from __future__ import annotations

import copy
import subprocess
import sys

import pytest

from ottla.base.errors import DecodeError, EncodeError, ProtocolError
from ottla.base.types import NIL_UUID, Uuid
from ottla.wire import reference
from ottla.wire.apis import API_TABLE, request_class, response_class
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.fields import (
    Field,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    parse_versions,
    show_versions,
    string,
    uint16,
    uint32,
    uuid,
)
from ottla.wire.message import Message, Struct, stored_version
from ottla.wire.stored.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from tests.waiting import PATIENCE_S

from .random_messages import all_message_classes


def all_structs() -> list[type[Struct]]:
    found: dict[type[Struct], None] = {}

    def visit(cls: type[Struct]) -> None:
        found[cls] = None
        for field in cls.FIELDS:
            element: Field = field.of if field.kind == "array" else field
            if element.kind == "struct":
                visit(element.of)

    for cls in all_message_classes():
        visit(cls)
    return list(found)


# --- declarations ---


@pytest.mark.parametrize("text", ["0+", "3+", "0-2", "4-4", "7", "none"])
def test_versions_are_read_and_shown(text: str) -> None:
    assert show_versions(parse_versions(text)) == ("4" if text == "4-4" else text)


def test_every_declaration_is_consistent() -> None:
    for cls in all_structs():
        tags = [field.tag for field in cls.FIELDS if field.tag is not None]
        assert len(tags) == len(set(tags)), cls
        for field in cls.FIELDS:
            assert bool(field.tagged) == (field.tag is not None), (cls, field)
            assert field.default is not None or field.nullable or field.kind == "records", (cls, field)


def test_the_table_names_each_api_once_and_both_its_messages() -> None:
    assert len({info.name for info in API_TABLE.values()}) == len(API_TABLE)
    for key, info in API_TABLE.items():
        request, response = request_class(key), response_class(key)
        assert (request.__name__, response.__name__) == (f"{info.name}Request", f"{info.name}Response")
        assert request.API_KEY == response.API_KEY == key
        assert request.VERSIONS == response.VERSIONS
        assert request.FLEXIBLE_VERSIONS == response.FLEXIBLE_VERSIONS


def test_an_unknown_api_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="999"):
        request_class(999)


def test_importing_the_table_imports_no_api() -> None:
    code = "import sys, ottla.wire.header; print([m for m in sys.modules if m.startswith('ottla.wire.apis.')])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        ).stdout
        == "[]\n"
    )


# --- objects ---


def test_defaults_are_kafkas_and_belong_to_one_object() -> None:
    first, second = FetchRequest(), FetchRequest()
    assert (first.max_bytes, first.session_epoch, first.cluster_id) == (0x7FFFFFFF, -1, None)
    assert first.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    first.topics.append(FetchTopic())
    first.replica_state.replica_id = 7
    assert second == FetchRequest()
    assert FetchTopic().topic_id == NIL_UUID


def test_the_constructor_takes_declared_keywords_only() -> None:
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataRequest([])  # type: ignore[misc]
    with pytest.raises(AttributeError):
        MetadataRequest().unheard_of = 1  # type: ignore[attr-defined]


def test_equality_is_by_type_and_value() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert GroupMetadataKey(group="a") != OffsetCommitKey(group="a")
    with pytest.raises(TypeError):
        hash(FetchPartition())


def test_objects_can_be_copied() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    twin = copy.deepcopy(request)
    assert twin == request
    assert twin.topics is not request.topics


def test_repr_cuts_long_bytes_and_hides_secrets() -> None:
    assert repr(MetadataRequestTopic(name="a")).startswith("MetadataRequestTopic(topic_id=b'")
    shown = repr(PartitionProduceData(index=3, records=b"r" * 1000))
    assert "index=3" in shown
    assert "1000 bytes" in shown
    assert len(shown) < 120
    assert repr(PartitionProduceData(records=memoryview(b"ab"))).endswith("records=b'ab')")
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"))


def test_records_are_views_of_the_buffer_and_bytes_are_not() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"abc")])
    data = bytearray(ProduceRequest(acks=1, topic_data=[topic]).encode(9))
    records = ProduceRequest.decode(data, 9)[0].topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert not records.readonly
    sasl = SaslAuthenticateRequest(auth_bytes=b"abc").encode(0)
    assert type(SaslAuthenticateRequest.decode(memoryview(sasl), 0)[0].auth_bytes) is bytes


def test_pieces_are_appended_not_copied() -> None:
    records = bytes(100_000)
    out: list[bytes] = [b"before"]
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    ProduceRequest(topic_data=[topic]).encode_into(out, 9)
    assert any(piece is records for piece in out)
    assert out[0] == b"before"


# --- versions ---


def test_a_value_the_version_cannot_carry_is_refused_by_name_unless_it_is_ignorable() -> None:
    request = FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=4)])])
    with pytest.raises(
        EncodeError, match=r"topics\[0\].partitions\[0\].last_fetched_epoch exists in versions 12\+, not 11"
    ):
        request.encode(11)
    ignored = FetchRequest(rack_id="r")
    assert FetchRequest.decode(ignored.encode(4), 4)[0].rack_id == ""


def test_versions_outside_the_range_are_refused() -> None:
    with pytest.raises(EncodeError, match="MetadataRequest has versions 0-13, not 14"):
        MetadataRequest().encode(14)
    with pytest.raises(DecodeError, match="0-13, not -1"):
        MetadataRequest.decode(b"", -1)


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    everything = MetadataRequest(topics=None)
    assert MetadataRequest.decode(everything.encode(1), 1)[0].topics is None
    with pytest.raises(EncodeError, match="topics may not be null in version 0"):
        everything.encode(0)
    with pytest.raises(DecodeError, match="topics at byte 0: may not be null"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    with pytest.raises(EncodeError, match=r"topics\[0\].name may not be null"):
        CreateTopicsRequest(topics=[CreatableTopic(name=None)]).encode(2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "version", "reason"),
    [
        (FetchRequest(max_wait_ms=1 << 40), 4, "max_wait_ms"),
        (FetchRequest(topics=[FetchTopic(topic="x" * 40_000)]), 12, r"topics\[0\].topic: a string of 40000 bytes"),
        (FetchRequest(topics=[FetchTopic(topic_id=b"short")]), 13, "uuid has 16 bytes"),  # type: ignore[arg-type]
        (FetchRequest(topics=[FetchTopic(topic=7)]), 12, r"topics\[0\].topic"),  # type: ignore[arg-type]
        (FetchRequest(topics=5), 12, "topics"),  # type: ignore[arg-type]
        (SaslAuthenticateRequest(auth_bytes="text"), 2, "auth_bytes"),  # type: ignore[arg-type]
    ],
)
def test_values_that_do_not_fit_are_encode_errors_that_name_the_field(
    message: Message, version: int, reason: str
) -> None:
    with pytest.raises(EncodeError, match=reason):
        message.encode(version)


def test_a_failed_encode_leaves_the_output_as_it_was() -> None:
    out = [b"kept"]
    with pytest.raises(EncodeError):
        FetchRequest(max_wait_ms=1, min_bytes=1 << 40).encode_into(out, 12)
    assert out == [b"kept"]


class Numbers(Message, versions="0-1", flexible="1+"):
    truth: bool = boolean()
    octet: int = int8()
    short: int = int16()
    port: int = uint16()
    number: int = int32()
    count: int = uint32()
    long: int = int64()
    real: float = float64()
    id: Uuid = uuid()
    ports: list[int] = array(uint16)
    counts: list[int] = array(uint32)


@pytest.mark.parametrize("version", [0, 1])
def test_fields_of_every_fixed_size(version: int) -> None:
    message = Numbers(
        truth=True,
        octet=-2,
        short=-3,
        port=0xFFFE,
        number=-5,
        count=0xFFFF_FFFA,
        long=-7,
        real=-0.5,
        id=Uuid(bytes(range(16))),
        ports=[0, 0xFFFF],
        counts=[1],
    )
    fixed = "01 fe fffd fffe fffffffb fffffffa fffffffffffffff9 bfe0000000000000 000102030405060708090a0b0c0d0e0f"
    lists = "00000002 0000ffff 00000001 00000001" if version == 0 else "03 0000ffff 02 00000001 00"
    data = bytes.fromhex(fixed + lists)
    assert message.encode(version) == data
    assert Numbers.decode(data, version) == (message, len(data))
    assert reference.encode(message, version, version == 1) == data
    assert reference.decode(Numbers, data, version, 0, version == 1) == (message, len(data))


# --- tagged fields and nullable structs ---


class Tagged(Message, versions="0-1", flexible="0+"):
    first: int = int32()
    label: str = string(tag=1, tagged="0+")
    numbers: list[int] | None = array(int32, tag=4, tagged="1+", nullable="1+", default=None)


def test_tagged_fields_are_written_only_when_they_differ_and_in_order() -> None:
    assert Tagged(first=1).encode(1) == bytes.fromhex("00000001 00")
    assert Tagged(first=1, label="a", numbers=[]).encode(1) == bytes.fromhex("00000001 02 01 02 02 61 04 01 01")


def test_unknown_tags_are_skipped_and_known_ones_read_in_any_order() -> None:
    data = bytes.fromhex("00000001 03 04 05 02 00000007 09 03 ffffff 01 02 02 61")
    assert Tagged.decode(data, 1) == (Tagged(first=1, label="a", numbers=[7]), len(data))
    assert Tagged.decode(data, 0) == (Tagged(first=1, label="a"), len(data))


def test_more_tags_than_one_byte_can_count_are_read() -> None:
    unknown = b"".join(bytes([number, 0]) for number in range(9, 128)) + b"".join(
        bytes([number, 1, 0]) for number in range(128, 170)
    )
    data = bytes.fromhex("00000001 a201 01020261") + unknown
    assert Tagged.decode(data, 1) == (Tagged(first=1, label="a"), len(data))


@pytest.mark.parametrize(
    ("tags", "path"),
    [
        ("01 01 03 02 61 00", "label"),  # the tag is longer than its string
        ("01 01 01 02 61", "label"),  # and shorter
        ("01 09 7f 00", "tagged fields"),  # the tag ends beyond the message
        ("01 01 80808080808001", "tagged fields"),
        ("ffffffff0f", "tagged fields"),
    ],
)
def test_lying_tags_are_decode_errors(tags: str, path: str) -> None:
    with pytest.raises(DecodeError, match=path):
        Tagged.decode(bytes.fromhex("00000001" + tags), 1)


def test_nullable_structs_are_marked() -> None:
    request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=3))
    data = request.encode(0)
    assert DescribeTopicPartitionsRequest.decode(data, 0) == (request, len(data))
    none = DescribeTopicPartitionsRequest().encode(0)
    assert none[-2:] == b"\xff\x00"
    with pytest.raises(DecodeError, match="cursor at byte 5: 7 marks neither null nor a struct"):
        DescribeTopicPartitionsRequest.decode(none[:-2] + b"\x07\x00", 0)
    assert ConsumerGroupHeartbeatResponse.decode(ConsumerGroupHeartbeatResponse().encode(0), 0)[0].assignment is None
    assert ConsumerGroupHeartbeatRequest().topic_partitions is None


# --- decode errors ---


def test_a_decode_error_says_which_field_where_and_shows_the_bytes() -> None:
    partitions = [FetchPartition(partition=i) for i in range(2)]
    data = FetchRequest(topics=[FetchTopic(topic="a", partitions=partitions)] * 3).encode(11)
    with pytest.raises(DecodeError) as caught:
        FetchRequest.decode(data[:-24], 11)
    error = caught.value
    assert error.path == "topics[2].partitions[1].fetch_offset"
    assert error.position == len(data) - 26
    assert error.reason == "needs 8 more bytes, 2 are left"
    dump, caret = error.excerpt.splitlines()
    assert dump[caret.index("^") :].startswith(data[error.position : error.position + 2].hex(" "))
    assert error.path in str(error)


def test_positions_count_from_the_start_of_the_buffer() -> None:
    with pytest.raises(DecodeError) as caught:
        MetadataRequest.decode(b"\0" * 10 + b"\x00\x00\x00\x05", 0, 10)
    assert caught.value.position == 10
    assert "5 elements in 0 bytes" in caught.value.reason


def test_stored_versions() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=2)
    assert OffsetCommitKey.decode_versioned(key.encode_versioned(1)) == key
    assert stored_version(GroupMetadataKey(group="g").encode_versioned(2)) == 2
    with pytest.raises(DecodeError, match="negative"):
        stored_version(b"\xff\xff")
    with pytest.raises(DecodeError, match="0-1, not 2"):
        OffsetCommitKey.decode_versioned(b"\x00\x02\x00\x01g")


def test_tags_are_written_in_their_order_however_they_are_declared() -> None:
    class OutOfOrder(Message, versions="0", flexible="0+"):
        third: int = int32(tag=3, tagged="0+")
        first: int = int32(tag=1, tagged="0+")
        second: int = int32(tag=2, tagged="0+")

    message = OutOfOrder(first=1, second=2, third=3)
    data = message.encode(0)
    assert data == bytes.fromhex("03 01 04 00000001 02 04 00000002 03 04 00000003")
    assert data == reference.encode(message, 0, True)
    assert OutOfOrder.decode(data, 0) == (message, len(data))


@pytest.mark.parametrize("size", [32_767, 32_768])
@pytest.mark.parametrize("version", [0, 1])
def test_a_string_may_be_so_long_and_no_longer(size: int, version: int) -> None:
    class Text(Message, versions="0-1", flexible="1+"):
        text: str | None = string(nullable="0+")
        texts: list[str] = array(string)

    for message in (Text(text="x" * size), Text(texts=["", "x" * size])):
        if size == 32_767:
            data = message.encode(version)
            assert Text.decode(data, version) == (message, len(data))
            continue
        with pytest.raises(EncodeError, match="32768 bytes is over 32767"):
            message.encode(version)
    if version == 1:
        coded = b"\x81\x80\x02" + b"x" * size if size == 32_768 else b"\x80\x80\x02" + b"x" * size
        if size == 32_767:
            assert Text.decode(coded + b"\x01\x00", 1)[0].text == "x" * size
            return
        for data in (coded + b"\x01\x00", b"\x00\x02" + coded + b"\x00"):
            with pytest.raises(DecodeError, match="32768 bytes is over 32767"):
                Text.decode(data, 1)


def test_that_the_codecs_disagree_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the quick one refuses and the slow one does not is neither passed over nor taken for good."""
    monkeypatch.setattr(reference, "encode", lambda *_: b"")
    monkeypatch.setattr(reference, "decode", lambda *_: (MetadataRequest(), 0))
    with pytest.raises(EncodeError, match="the two codecs of FetchRequest version 4 disagree"):
        FetchRequest(max_wait_ms=1 << 40).encode(4)
    with pytest.raises(DecodeError, match="the two codecs of MetadataRequest version 0 disagree"):
        MetadataRequest.decode(b"\0", 0)
    with pytest.raises(TypeError):
        SaslAuthenticateRequest(auth_bytes="text").encode(2)  # type: ignore[arg-type]
