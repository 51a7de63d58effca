"""The verdict on a batch from its header, and what the client is told."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError, KafkaError
from ottla.log.append_rules import AppendRules, Verdict
from ottla.log.config import LOG_APPEND_TIME, LogConfig
from ottla.records.batch import BatchHeader
from tests.unit.log.samples import NOW_MS

SIZE = 100
PLAIN = BatchHeader(
    base_offset=0,
    batch_length=SIZE - 12,
    partition_leader_epoch=-1,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=1,
    base_timestamp=NOW_MS,
    max_timestamp=NOW_MS,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    record_count=2,
)

FAULTS: list[tuple[Verdict, dict[str, int], type[KafkaError], ErrorCode]] = [
    (Verdict.FOREIGN_FORMAT, {"magic": 1}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.CUT_SHORT, {"batch_length": SIZE - 11}, CorruptBatchError, ErrorCode.CORRUPT_MESSAGE),
    (Verdict.CUT_SHORT, {"batch_length": 48}, CorruptBatchError, ErrorCode.CORRUPT_MESSAGE),
    (Verdict.NOT_ALONE, {"batch_length": 49}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.HAS_OFFSET, {"base_offset": 1}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.TOO_LARGE, {}, KafkaError, ErrorCode.MESSAGE_TOO_LARGE),
    (Verdict.UNKNOWN_CODEC, {"attributes": 5}, CorruptBatchError, ErrorCode.CORRUPT_MESSAGE),
    (Verdict.MISCOUNTED, {"record_count": 1}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.MISCOUNTED, {"record_count": 0, "last_offset_delta": -1}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.NO_SEQUENCE, {"producer_id": 0}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.CONTROL, {"attributes": 0x20}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.NO_PRODUCER, {"attributes": 0x10}, InvalidRecordError, ErrorCode.INVALID_RECORD),
    (Verdict.APPEND_TIME, {"attributes": 0x08}, InvalidRecordError, ErrorCode.INVALID_TIMESTAMP),
]


def judge(fields: dict[str, int], **settings: Any) -> Verdict:
    return AppendRules(LogConfig(**settings)).judge_header(PLAIN._replace(**fields), SIZE, NOW_MS)


@pytest.mark.parametrize("fields", [{}, {"attributes": 4}, {"producer_id": 7, "base_sequence": 0}], ids=str)
def test_most_batches_are_plain(fields: dict[str, int]) -> None:
    assert judge(fields, max_message_bytes=SIZE, message_timestamp_after_max_ms=0) is Verdict.PLAIN


@pytest.mark.parametrize(("verdict", "fields", "kind", "code"), FAULTS)
def test_each_fault(verdict: Verdict, fields: dict[str, int], kind: type[KafkaError], code: ErrorCode) -> None:
    rules = AppendRules(LogConfig(max_message_bytes=SIZE - 1 if verdict is Verdict.TOO_LARGE else SIZE))
    header = PLAIN._replace(**fields)
    assert rules.judge_header(header, SIZE, NOW_MS) is verdict
    refusal = rules.refusal(verdict, header, SIZE)
    assert (type(refusal), refusal.code) == (kind, code)


def test_the_first_fault_is_the_one_that_is_reported() -> None:
    """Where two rules answer with the same code their order is nobody's business; here it is as listed."""
    wrong: dict[str, int] = {}
    limit = SIZE
    found = []
    for verdict, fields, _, _ in reversed([fault for fault in FAULTS if fault[0] is not Verdict.CUT_SHORT]):
        # A batch has one length and one set of flags: a later fault takes the place of an earlier one there.
        wrong = {**wrong, **fields}
        limit = SIZE - 1 if verdict is Verdict.TOO_LARGE else limit
        found.append((judge(wrong, max_message_bytes=limit), verdict))
    assert all(judged is verdict for judged, verdict in found), found


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup_policy": frozenset({"compact"})},
        {"compression_type": "zstd"},
        {"message_timestamp_type": LOG_APPEND_TIME},
        {"message_timestamp_before_max_ms": 1000},
        {"message_timestamp_after_max_ms": -1},
    ],
    ids=str,
)
def test_topics_whose_batches_need_a_closer_look(settings: dict[str, Any]) -> None:
    assert judge({}, **settings) is Verdict.SPECIAL


def test_batches_that_need_a_closer_look() -> None:
    assert judge({"attributes": 0x10, "producer_id": 7, "base_sequence": 0}) is Verdict.SPECIAL
    assert judge({"attributes": 0x40}) is Verdict.SPECIAL
    assert judge({"attributes": -0x8000}) is Verdict.SPECIAL


def test_nothing_is_refused_that_has_no_fault() -> None:
    for verdict in (Verdict.PLAIN, Verdict.SPECIAL):
        with pytest.raises(ValueError, match=verdict.name):
            AppendRules(LogConfig()).refusal(verdict, PLAIN, SIZE)


def test_what_is_reported_even_of_a_batch_with_a_wrong_checksum() -> None:
    assert {verdict for verdict in Verdict if verdict.precedes_checksum} == {
        Verdict.FOREIGN_FORMAT,
        Verdict.CUT_SHORT,
        Verdict.NOT_ALONE,
        Verdict.HAS_OFFSET,
        Verdict.TOO_LARGE,
    }


@pytest.mark.parametrize(("timestamp", "verdict"), [(NOW_MS + 50, Verdict.PLAIN), (NOW_MS + 51, Verdict.SPECIAL)])
def test_a_batch_from_too_far_in_the_future_needs_a_closer_look(timestamp: int, verdict: Verdict) -> None:
    assert judge({"max_timestamp": timestamp}, message_timestamp_after_max_ms=50) is verdict


def test_whatever_length_a_batch_claims_it_is_cut_or_not_alone() -> None:
    for length in (-1, 0, 48, SIZE - 11, SIZE):
        assert judge({"batch_length": length}) is Verdict.CUT_SHORT
    for length in (49, SIZE - 13):
        assert judge({"batch_length": length}) is Verdict.NOT_ALONE
