"""Codes that each version of a client knows."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.transactions.answers import Answer, append_failure_code, known_code, verification_code
from ottla.wire.api_keys import ApiKey

E = ErrorCode


def test_an_answer_says_by_itself_that_nothing_went_wrong() -> None:
    assert Answer() == (0, None, -1, -1)


@pytest.mark.parametrize(
    ("code", "api", "version", "sent"),
    [
        (E.PRODUCER_FENCED, ApiKey.INIT_PRODUCER_ID, 3, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, ApiKey.INIT_PRODUCER_ID, 4, E.PRODUCER_FENCED),
        (E.PRODUCER_FENCED, ApiKey.END_TXN, 1, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, ApiKey.END_TXN, 2, E.PRODUCER_FENCED),
        (E.PRODUCER_FENCED, ApiKey.ADD_OFFSETS_TO_TXN, 1, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, ApiKey.ADD_PARTITIONS_TO_TXN, 1, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, ApiKey.ADD_PARTITIONS_TO_TXN, 4, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, ApiKey.ADD_PARTITIONS_TO_TXN, 5, E.TRANSACTION_ABORTABLE),
        (E.CONCURRENT_TRANSACTIONS, ApiKey.END_TXN, 0, E.CONCURRENT_TRANSACTIONS),
        (E.PRODUCER_FENCED, ApiKey.WRITE_TXN_MARKERS, 0, E.PRODUCER_FENCED),
        (E.TRANSACTION_ABORTABLE, ApiKey.WRITE_TXN_MARKERS, 0, E.TRANSACTION_ABORTABLE),
    ],
)
def test_codes_for_callers_of_the_coordinator(code: E, api: ApiKey, version: int, sent: E) -> None:
    assert known_code(code, api, version) is sent


@pytest.mark.parametrize(
    ("code", "first_versions", "before"),
    [
        (
            E.PRODUCER_FENCED,
            {
                ApiKey.INIT_PRODUCER_ID: 4,
                ApiKey.ADD_PARTITIONS_TO_TXN: 2,
                ApiKey.ADD_OFFSETS_TO_TXN: 2,
                ApiKey.END_TXN: 2,
            },
            E.INVALID_PRODUCER_EPOCH,
        ),
        (
            E.TRANSACTION_ABORTABLE,
            {
                ApiKey.INIT_PRODUCER_ID: 5,
                ApiKey.ADD_PARTITIONS_TO_TXN: 5,
                ApiKey.ADD_OFFSETS_TO_TXN: 4,
                ApiKey.END_TXN: 4,
                ApiKey.TXN_OFFSET_COMMIT: 4,
            },
            E.INVALID_TXN_STATE,
        ),
    ],
)
def test_the_first_version_that_knows_a_code(code: E, first_versions: dict[ApiKey, int], before: E) -> None:
    """PRODUCER_FENCED came with KIP-588, TRANSACTION_ABORTABLE with KIP-890."""
    for api, first in first_versions.items():
        assert [known_code(code, api, version) for version in (first - 1, first)] == [before, code], api


@pytest.mark.parametrize(
    "code",
    [
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.NETWORK_EXCEPTION,
        E.REQUEST_TIMED_OUT,
    ],
)
def test_a_coordinator_that_is_away_makes_clients_try_again(code: E) -> None:
    assert verification_code(code, ApiKey.PRODUCE, 12) is E.NOT_ENOUGH_REPLICAS
    assert verification_code(code, ApiKey.TXN_OFFSET_COMMIT, 5) is E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("code", "api", "version", "sent"),
    [
        (E.TRANSACTION_ABORTABLE, ApiKey.PRODUCE, 10, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, ApiKey.PRODUCE, 11, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, ApiKey.TXN_OFFSET_COMMIT, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, ApiKey.TXN_OFFSET_COMMIT, 4, E.TRANSACTION_ABORTABLE),
        (E.PRODUCER_FENCED, ApiKey.PRODUCE, 12, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, ApiKey.TXN_OFFSET_COMMIT, 5, E.PRODUCER_FENCED),
        (E.CONCURRENT_TRANSACTIONS, ApiKey.PRODUCE, 11, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, ApiKey.PRODUCE, 12, E.CONCURRENT_TRANSACTIONS),
        (E.CONCURRENT_TRANSACTIONS, ApiKey.TXN_OFFSET_COMMIT, 4, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.CONCURRENT_TRANSACTIONS, ApiKey.TXN_OFFSET_COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, ApiKey.PRODUCE, 12, E.NOT_ENOUGH_REPLICAS),
        (E.NETWORK_EXCEPTION, ApiKey.PRODUCE, 9, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_NOT_AVAILABLE, ApiKey.TXN_OFFSET_COMMIT, 3, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.INVALID_PRODUCER_ID_MAPPING, ApiKey.PRODUCE, 12, E.INVALID_PRODUCER_ID_MAPPING),
        (E.NONE, ApiKey.PRODUCE, 3, E.NONE),
    ],
)
def test_codes_for_clients_whose_batch_was_verified(code: E, api: ApiKey, version: int, sent: E) -> None:
    assert verification_code(code, api, version) is sent


def test_failures_of_the_coordinators_own_log_are_told_in_the_coordinators_terms() -> None:
    assert append_failure_code(E.NOT_ENOUGH_REPLICAS) is E.COORDINATOR_NOT_AVAILABLE
    assert append_failure_code(E.REQUEST_TIMED_OUT) is E.COORDINATOR_NOT_AVAILABLE
    assert append_failure_code(E.UNKNOWN_TOPIC_OR_PARTITION) is E.COORDINATOR_NOT_AVAILABLE
    assert append_failure_code(E.NOT_LEADER_OR_FOLLOWER) is E.NOT_COORDINATOR
    assert append_failure_code(E.KAFKA_STORAGE_ERROR) is E.NOT_COORDINATOR
    assert append_failure_code(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND) is E.COORDINATOR_NOT_AVAILABLE
    assert append_failure_code(E.MESSAGE_TOO_LARGE) is E.UNKNOWN_SERVER_ERROR
    assert append_failure_code(E.RECORD_LIST_TOO_LARGE) is E.UNKNOWN_SERVER_ERROR
    assert append_failure_code(E.INVALID_PRODUCER_EPOCH) is E.INVALID_PRODUCER_EPOCH
