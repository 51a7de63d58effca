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


def test_what_holds_if_nothing_is_said() -> None:
    found = {name: value for name, value in parse()._asdict().items() if name != "client"}
    assert found == {
        "acks": -1,
        "batch_size": 720_000,
        "linger_ms": 5,
        "buffer_memory": 33_554_432,
        "max_block_ms": 60_000,
        "codec": Codec.NONE,
        "compression_level": None,
        "delivery_timeout_ms": 120_000,
        "idempotent": True,
        "max_in_flight": 5,
        "max_request_size": 1_048_576,
        "metadata_max_idle_ms": 300_000,
        "retries": 2**31 - 1,
        "transaction_timeout_ms": 60_000,
        "transactional_id": None,
        "ignore_keys": False,
        "adaptive_partitioning": True,
        "availability_timeout_ms": 0,
    }


@pytest.mark.parametrize(("acks", "number"), [("all", -1), ("-1", -1), (-1, -1), ("0", 0), (0, 0), ("1", 1), (1, 1)])
def test_who_has_to_have_a_record(acks: object, number: int) -> None:
    found = parse(acks=acks)
    assert (found.acks, found.idempotent) == (number, number == -1)


@pytest.mark.parametrize(
    ("settings", "codec", "level"),
    [
        ({"compression_type": "none", "compression_gzip_level": 5}, Codec.NONE, None),
        ({"compression_type": "gzip"}, Codec.GZIP, -1),
        ({"compression_type": "gzip", "compression_gzip_level": 1}, Codec.GZIP, 1),
        ({"compression_type": "gzip", "compression_gzip_level": 9}, Codec.GZIP, 9),
        ({"compression_type": "snappy"}, Codec.SNAPPY, None),
        ({"compression_type": "lz4"}, Codec.LZ4, 9),
        ({"compression_type": "lz4", "compression_lz4_level": 1}, Codec.LZ4, 1),
        ({"compression_type": "lz4", "compression_lz4_level": 17}, Codec.LZ4, 17),
        ({"compression_type": "zstd"}, Codec.ZSTD, 3),
        ({"compression_type": "zstd", "compression_zstd_level": -131_072}, Codec.ZSTD, -131_072),
        ({"compression_type": "zstd", "compression_zstd_level": 22}, Codec.ZSTD, 22),
    ],
)
def test_each_codec_has_a_level_of_its_own(settings: dict[str, object], codec: Codec, level: int | None) -> None:
    found = parse(**settings)
    assert (found.codec, found.compression_level) == (codec, level)


@pytest.mark.parametrize(
    "wrong",
    [
        {"compression_gzip_level": 0},
        {"compression_gzip_level": 10},
        {"compression_lz4_level": 0},
        {"compression_lz4_level": 18},
        {"compression_zstd_level": -131_073},
        {"compression_zstd_level": 23},
        {"batch_size": -1},
        {"buffer_memory": 0},
        {"max_block_ms": -1},
        {"delivery_timeout_ms": -1},
        {"max_in_flight_requests_per_connection": 0},
        {"max_request_size": 0},
        {"metadata_max_idle_ms": 4999},
        {"retries": -1},
        {"retries": 2**31},
        {"transaction_timeout_ms": 0},
    ],
)
def test_settings_have_bounds(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidConfigError) as refusal:
        parse(**wrong)
    assert refusal.value.key == name.replace("_", ".")


def test_the_smallest_values_are_taken() -> None:
    found = parse(
        buffer_memory=1,
        max_block_ms=0,
        max_in_flight_requests_per_connection=1,
        max_request_size=1,
        metadata_max_idle_ms=5000,
        retries=1,
        transaction_timeout_ms=1,
        linger_ms=0,
    )
    assert (found.buffer_memory, found.max_block_ms, found.max_in_flight, found.max_request_size) == (1, 0, 1, 1)
    assert (found.metadata_max_idle_ms, found.retries, found.transaction_timeout_ms) == (5000, 1, 1)
    assert found.idempotent and found.linger_ms == 0


def test_as_long_as_it_takes_is_a_hundred_years() -> None:
    assert parse(max_block_ms=2**63 - 1).max_block_ms == 3_153_600_000_000
    assert parse(max_block_ms=3_153_599_999_999).max_block_ms == 3_153_599_999_999


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ({"enable_idempotence": False}, "enable.idempotence=true"),
        ({"acks": 1}, "acks=all"),
        ({"retries": 0}, "retries above 0"),
        (
            {"max_in_flight_requests_per_connection": 6},
            "max.in.flight.requests.per.connection of at most 5",
        ),
    ],
)
def test_transactions_say_what_they_need(settings: dict[str, object], needs: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        parse(transactional_id="t", **settings)
    assert refusal.value.message.endswith(f"transactions need {needs}")
    assert parse(transactional_id="t").idempotent
    if "enable_idempotence" not in settings:
        with pytest.raises(InvalidConfigError) as refusal:
            parse(enable_idempotence=True, **settings)
        assert refusal.value.message.endswith(f"enable.idempotence needs {needs}")


@pytest.mark.parametrize(("delivery_timeout_ms", "is_fine"), [(30_005, True), (30_004, False)])
def test_there_is_time_for_one_request_at_least(delivery_timeout_ms: int, is_fine: bool) -> None:
    if is_fine:
        assert parse(delivery_timeout_ms=delivery_timeout_ms).delivery_timeout_ms == delivery_timeout_ms
    else:
        with pytest.raises(InvalidConfigError, match="which is 30005"):
            parse(delivery_timeout_ms=delivery_timeout_ms)
