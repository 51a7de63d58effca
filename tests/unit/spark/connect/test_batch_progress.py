"""Which batches are written, skipped, refused."""

from __future__ import annotations

import pytest

from ottla.spark.connect.batch_progress import BatchRefusedError, Progress, must_write

REMEMBERED = Progress("query-a", 4, ('{"t":{"0":40}}',))


def wanted(query_id: str, batch_id: int, offsets: str = '{"t":{"0":40}}', **kwargs: bool) -> bool:
    return must_write(REMEMBERED, Progress(query_id, batch_id, (offsets,)), sink="orders", **kwargs)


@pytest.mark.parametrize("batch_id", [0, 7])
def test_a_sink_that_remembers_nothing_takes_any_batch(batch_id: int) -> None:
    assert must_write(None, Progress("query-a", batch_id, ("{}",)), sink="orders")


def test_the_next_batch_is_written() -> None:
    assert wanted("query-a", 5, '{"t":{"0":50}}')


def test_the_same_batch_is_skipped() -> None:
    assert not wanted("query-a", 4)


@pytest.mark.parametrize(
    ("batch_id", "offsets", "words"),
    [
        (4, '{"t":{"0":41}}', "checkpoint was changed"),
        (3, '{"t":{"0":30}}', "checkpoint is an old copy"),
        (6, '{"t":{"0":60}}', "database is an old copy"),
    ],
)
def test_what_does_not_follow_is_refused(batch_id: int, offsets: str, words: str) -> None:
    with pytest.raises(BatchRefusedError, match=words):
        wanted("query-a", batch_id, offsets)


def test_another_checkpoint_is_refused_with_the_offsets_to_resume_from() -> None:
    with pytest.raises(BatchRefusedError, match=r'\{"t":\{"0":40\}\}.*on_new_checkpoint: accept'):
        wanted("query-b", 0)


def test_another_checkpoint_may_be_accepted() -> None:
    assert wanted("query-b", 0, accept_new_checkpoint=True)
