"""The stored form of a transaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.transactions.record_types import parse_record
from ottla.machines.transactions.states import State
from ottla.machines.transactions.transaction import Producer, Transaction, from_record
from tests.unit.machines.transactions.driver import P0, P1, Coordinator, granted_to

INT64 = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text(min_size=1, max_size=20), st.integers(0, 2**31 - 1)))
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.text(min_size=1, max_size=60),
    producer=st.builds(Producer, INT64, st.integers(0, 2**15 - 1)),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in State if state is not State.EMPTY]),
    partitions=PARTITIONS,
    started_ms=INT64,
    updated_ms=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    client_version=st.sampled_from([0, 2]),
)


@given(TRANSACTIONS)
def test_a_record_holds_all_of_the_transaction_within_the_size_foretold(transaction: Transaction) -> None:
    key, value = transaction.record().encode()
    parsed = parse_record(key, value)
    assert parsed is not None
    assert parsed[1] is not None
    assert from_record(parsed[0], parsed[1]) == transaction
    assert len(key) + len(value or b"") <= transaction.stored_bytes_max


def test_the_bytes_are_those_every_broker_writes_when_there_is_nothing_new_to_say() -> None:
    ongoing = Transaction("t", Producer(1001, 3), 60_000, State.ONGOING, frozenset({P1, P0}), 10, 20)
    key, value = ongoing.record().encode()
    assert key.hex(" ") == "00 00 00 01 74"
    assert value is not None
    expected = (
        "00 00  00 00 00 00 00 00 03 e9  00 03  00 00 ea 60  01"
        "00 00 00 01  00 06 6f 72 64 65 72 73  00 00 00 02 00 00 00 00 00 00 00 01"
        "00 00 00 00 00 00 00 14  00 00 00 00 00 00 00 0a"
    )
    assert value.hex() == expected.replace(" ", "")


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    _, value = Transaction("t", Producer(1001, 0), 60_000, State.EMPTY).record().encode()
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"


def test_what_only_newer_brokers_know_needs_the_newer_form() -> None:
    plain = Transaction("t", Producer(1, 0), 1, State.COMPLETE_COMMIT)
    assert plain.record().value_version == 0
    assert Transaction("t", Producer(1, 0), 1, State.EMPTY, previous_producer_id=9).record().value_version == 1
    assert Transaction("t", Producer(1, 0), 1, State.PREPARE_ABORT, next_producer_id=9).record().value_version == 1
    assert Transaction("t", Producer(1, 0), 1, State.PREPARE_ABORT, client_version=2).record().value_version == 1


@pytest.mark.parametrize(("version", "client_version"), [(0, 0), (3, 0), (4, 2), (5, 2)])
def test_a_transaction_knows_whether_its_client_raises_epochs(version: int, client_version: int) -> None:
    """From version 4 on it is brokers that add partitions, for clients of the second part of KIP-890."""
    c = Coordinator()
    assert c.add(granted_to(c.init()), P0, version=version).error_code is ErrorCode.NONE
    assert c.transaction().client_version == client_version


def test_the_size_foretold_grows_with_each_name() -> None:
    names = Transaction("four", Producer(1, 0), 1, State.ONGOING, frozenset({P0, P1}))
    assert names.stored_bytes_max == 128 + 4 * 4 + 2 * (16 + 4 * len("orders"))


def test_states_have_kafkas_numbers() -> None:
    assert {state.text: state.value for state in State} == {
        "Empty": 0,
        "Ongoing": 1,
        "PrepareCommit": 2,
        "PrepareAbort": 3,
        "CompleteCommit": 4,
        "CompleteAbort": 5,
        "Dead": 6,
        "PrepareEpochFence": 7,
    }


def test_offsets_that_begin_a_transaction_say_nothing_of_the_clients_version() -> None:
    """AddOffsetsToTxn is what older clients send (KIP-890): nothing of the record's newer form is needed."""
    c = Coordinator()
    assert c.add_offsets(granted_to(c.init())).error_code is ErrorCode.NONE
    assert c.transaction().client_version == 0
