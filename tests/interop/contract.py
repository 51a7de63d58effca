"""What must hold for every client. A client's test module derives a class from `ClientContract` and names its peer."""

from __future__ import annotations

import time

import pytest

from ottla.base.errors import ErrorCode
from ottla.records.batch import iter_headers
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker_process import BrokerProcess
from tests.interop.dataset import (
    CODECS,
    MESSAGE_BYTES_LIMIT,
    SAMPLES,
    Sample,
    assert_same,
    numbered,
    offset_at_time,
    value_of_batch_size,
)
from tests.interop.peers import PEERS
from tests.interop.peers.confluent import ConfluentKafka, make_topic
from tests.interop.peers.peer import Peer, RefusedError
from tests.raw_client import RawClient


def stored_codecs(broker: BrokerProcess, topic: str) -> set[str]:
    """How the batches of partition 0 are compressed in its first segment."""
    data = (broker.data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
    return {header.codec.config_name for _, header in iter_headers(data)}


def served_apis(broker: BrokerProcess) -> set[int]:
    with RawClient(broker.port) as client:
        response = client.call(ApiVersionsRequest(), 0)
    assert isinstance(response, ApiVersionsResponse)
    return {api.api_key for api in response.api_keys}


class ClientContract:
    peer: Peer
    code_of_invalid_record = int(ErrorCode.INVALID_RECORD)

    def samples(self) -> list[Sample]:
        """All records this client can send, as it sends them."""
        own = [sample for sample in SAMPLES if self.peer.can_send(sample)]
        return own if self.peer.gives_timestamps else [sample._replace(timestamp_ms=None) for sample in own]

    @pytest.mark.parametrize("codec", CODECS)
    def test_every_client_reads_what_it_writes(self, broker: BrokerProcess, new_topic: str, codec: str) -> None:
        samples = self.samples()
        self.peer.create_topic(broker.bootstrap, new_topic)
        self.peer.write(broker.bootstrap, new_topic, samples, codec=codec)
        if codec != "lz4" or not self.peer.is_librdkafka or ApiKey.FIND_COORDINATOR in served_apis(broker):
            # librdkafka takes a broker without FindCoordinator for too old to read lz4, and sends uncompressed.
            assert codec in stored_codecs(broker, new_topic)
        for reader in PEERS:
            assert_same(reader.read(broker.bootstrap, new_topic, len(samples)), samples)

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_it_reads_from_any_offset(self, broker: BrokerProcess, new_topic: str, codec: str) -> None:
        samples = numbered(100)
        ConfluentKafka().write(broker.bootstrap, new_topic, samples, codec=codec)
        for offset in (0, 1, 50, 99):
            received = self.peer.read(broker.bootstrap, new_topic, 100 - offset, offset=offset)
            assert_same(received, samples[offset:], first_offset=offset)

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    def test_it_reads_from_any_time(self, broker: BrokerProcess, new_topic: str, codec: str) -> None:
        ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES, codec=codec)
        times = sorted({sample.timestamp_ms for sample in SAMPLES if sample.timestamp_ms is not None})
        for timestamp_ms in (1, times[0], times[1], times[1] + 1, times[len(times) // 2], times[-1]):
            offset = offset_at_time(SAMPLES, timestamp_ms)
            assert offset is not None
            received = self.peer.read_from_time(broker.bootstrap, new_topic, timestamp_ms, 1)
            assert_same(received, SAMPLES[offset : offset + 1], first_offset=offset)

    def test_a_batch_of_the_largest_size_is_taken_and_one_byte_more_refused(
        self, broker: BrokerProcess, new_topic: str
    ) -> None:
        self.peer.create_topic(broker.bootstrap, new_topic)
        largest = Sample(None, value_of_batch_size(MESSAGE_BYTES_LIMIT))
        self.peer.write(broker.bootstrap, new_topic, [largest])
        with pytest.raises(RefusedError) as refused:
            self.peer.write(broker.bootstrap, new_topic, [Sample(None, value_of_batch_size(MESSAGE_BYTES_LIMIT + 1))])
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        self.peer.write(broker.bootstrap, new_topic, [Sample(None, b"after")])
        assert_same(self.peer.read(broker.bootstrap, new_topic, 2), [largest, Sample(None, b"after")])

    @pytest.mark.parametrize("codec", ["none", "snappy"])
    def test_an_idempotent_producer_writes_each_record_once_and_in_order(
        self, broker: BrokerProcess, new_topic: str, codec: str
    ) -> None:
        samples = numbered(10_000)
        self.peer.create_topic(broker.bootstrap, new_topic)
        self.peer.write(broker.bootstrap, new_topic, samples, codec=codec, idempotent=True)
        self.peer.write(broker.bootstrap, new_topic, [Sample(b"last", b"one")], idempotent=True)
        assert_same(self.peer.read(broker.bootstrap, new_topic, 10_001), [*samples, Sample(b"last", b"one")])

    def test_a_reader_at_the_end_gets_the_record_that_comes_later(self, broker: BrokerProcess, new_topic: str) -> None:
        self.peer.create_topic(broker.bootstrap, new_topic)
        self.peer.write(broker.bootstrap, new_topic, numbered(2))

        def write_one() -> None:
            ConfluentKafka().write(broker.bootstrap, new_topic, [Sample(b"late", b"r")])

        received = self.peer.read_at_end(broker.bootstrap, new_topic, 2, write_one)
        assert_same(received, [Sample(b"late", b"r")], first_offset=2)

    def test_a_topic_is_created_by_writing_to_it(self, broker: BrokerProcess, new_topic: str) -> None:
        samples = numbered(3)
        self.peer.write(broker.bootstrap, new_topic, samples)
        assert_same(self.peer.read(broker.bootstrap, new_topic, 3), samples)

    def test_a_compacted_topic_refuses_a_record_without_key(self, broker: BrokerProcess, new_topic: str) -> None:
        make_topic(broker.bootstrap, new_topic, configs={"cleanup.policy": "compact"})
        with pytest.raises(RefusedError) as refused:
            self.peer.write(broker.bootstrap, new_topic, [Sample(None, b"keyless")])
        assert refused.value.code == self.code_of_invalid_record
        samples = [Sample(b"k", b"v"), Sample(b"k", None)]
        self.peer.write(broker.bootstrap, new_topic, samples, codec="gzip")
        assert_same(self.peer.read(broker.bootstrap, new_topic, 2), samples)

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_log_append_time_replaces_the_records_own(self, broker: BrokerProcess, new_topic: str, codec: str) -> None:
        make_topic(broker.bootstrap, new_topic, configs={"message.timestamp.type": "LogAppendTime"})
        samples = self.samples()
        before_ms = int(time.time() * 1000)
        self.peer.write(broker.bootstrap, new_topic, samples, codec=codec)
        after_ms = int(time.time() * 1000)
        received = self.peer.read(broker.bootstrap, new_topic, len(samples))
        assert all(before_ms <= record.timestamp_ms <= after_ms for record in received)
        assert_same(received, [sample._replace(timestamp_ms=None) for sample in samples])

    @pytest.mark.parametrize("topic_codec", ["zstd", "lz4", "snappy", "gzip", "uncompressed"])
    def test_a_topics_own_compression_replaces_the_producers(
        self, broker: BrokerProcess, new_topic: str, topic_codec: str
    ) -> None:
        make_topic(broker.bootstrap, new_topic, configs={"compression.type": topic_codec})
        samples = self.samples()
        self.peer.write(broker.bootstrap, new_topic, samples, codec="none" if topic_codec == "gzip" else "gzip")
        assert stored_codecs(broker, new_topic) == {topic_codec.replace("uncompressed", "none")}
        for reader in PEERS if topic_codec == "zstd" else [self.peer]:
            assert_same(reader.read(broker.bootstrap, new_topic, len(samples)), samples)
