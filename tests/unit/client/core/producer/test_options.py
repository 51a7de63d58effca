from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.settings import backoff_ms, merge_settings
from ottla.client.errors import ClientError, ProducerFencedError, RecordTooLargeError, client_error
from ottla.records.compression import Codec


def parse(**settings: object) -> ProducerSettings:
    return ProducerSettings.parse(merge_settings({"bootstrap.servers": ["a:1", "b:2"]}, settings))


def test_defaults_are_safe() -> None:
    settings = parse()
    assert settings.idempotent and settings.acks == -1 and settings.max_in_flight == 5
    assert settings.batch_size == 720_000
    assert settings.client.bootstrap_servers == ("a:1", "b:2")


def test_partitions_are_chosen_adaptively_by_default_and_none_is_avoided() -> None:
    settings = parse()
    assert settings.adaptive_partitioning and settings.availability_timeout_ms == 0
    settings = parse(partitioner_adaptive_partitioning_enable="false", partitioner_availability_timeout_ms=2**40)
    assert not settings.adaptive_partitioning and settings.availability_timeout_ms == 2**40


def test_values_of_natural_types() -> None:
    settings = parse(linger_ms=7, enable_idempotence=False, acks=1, compression_type="zstd", compression_zstd_level=5)
    assert (settings.linger_ms, settings.idempotent, settings.acks) == (7, False, 1)
    assert (settings.codec, settings.compression_level) == (Codec.ZSTD, 5)


@pytest.mark.parametrize("obstacle", [{"acks": "1"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}])
def test_idempotence_gives_way_unless_it_was_asked_for(obstacle: dict[str, object]) -> None:
    assert not parse(**obstacle).idempotent
    with pytest.raises(InvalidConfigError, match=r"enable\.idempotence needs"):
        parse(enable_idempotence=True, **obstacle)
    with pytest.raises(InvalidConfigError, match="transactions need"):
        parse(transactional_id="t", **obstacle)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delivery_timeout_ms": 10}, r"at least linger\.ms \+ request\.timeout\.ms, which is 30005"),
        ({"transactional_id": ""}, "must not be empty"),
        ({"acks": "2"}, "must be one of"),
        ({"compression_type": "lzma"}, "must be one of"),
        ({"linger_ms": -1}, "at least 0"),
        ({"partitioner_adaptive_partitioning_enable": "yes"}, "must be true or false"),
        ({"partitioner_availability_timeout_ms": -1}, "at least 0"),
        ({"partitioner_adaptive_enable": True}, r"did you mean partitioner\.adaptive\.partitioning\.enable\?"),
        ({"linger_ms": object()}, "cannot be a value of type object"),
        ({"security_protocol": "SSL"}, "must be one of PLAINTEXT"),
        ({"batch_sizes": 1}, r"did you mean batch\.size\?"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        parse(**settings)


def test_the_delivery_time_follows_the_others_if_not_given() -> None:
    assert parse(request_timeout_ms=300_000).delivery_timeout_ms == 300_005


def test_pauses_double_up_to_a_bound() -> None:
    assert [backoff_ms(attempt, 100, 1000) for attempt in range(7)] == [0, 100, 200, 400, 800, 1000, 1000]
    assert backoff_ms(10**6, 100, 1000) == 1000


def test_errors_say_what_to_do() -> None:
    assert client_error(ErrorCode.NOT_ENOUGH_REPLICAS).retriable
    assert isinstance(client_error(ErrorCode.PRODUCER_FENCED), ProducerFencedError)
    assert isinstance(client_error(ErrorCode.MESSAGE_TOO_LARGE, where="t-0"), RecordTooLargeError)
    abortable = client_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, requires_abort=True)
    assert abortable.requires_abort and not abortable.fatal
    fatal = client_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, requires_abort=True)
    assert fatal.fatal and not fatal.requires_abort
    assert "12345" in str(client_error(12345)) and isinstance(client_error(12345), ClientError)


def test_a_batch_is_no_larger_than_a_request() -> None:
    assert parse(max_request_size=20_000).batch_size == 20_000 - 64 - 24 - 249
    assert parse(max_request_size=20_000, client_id="c" * 50, transactional_id="tx").batch_size == 19_611
    assert parse(max_request_size=100).batch_size == 1
    assert parse(batch_size=0).batch_size == 0
