"""Fetchers when something is in the way: what is told of it and how often, who waits, and what comes too late."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.net.limits import OS_DEFAULT
from ottla.wire.apis.fetch import EpochEndOffset
from tests.log_lines import lines_of, messages_of
from tests.unit.broker import test_fetchers
from tests.unit.broker.test_fetchers import Follower, Leader, answer, data, following
from tests.waiting import until

LOG = "ottla.broker.replication.fetchers"
E = ErrorCode


def cannot(name: str) -> str:
    return f"t-0 cannot be fetched from broker 2 for now: {name}"


def test_what_comes_after_the_end_is_not_stored(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        await follower.fetchers.stop()
        assert not leader.is_writable
        leader.answer(answer(0, data(0), high_watermark=1))
        assert follower.partition().log.log_end_offset == 0 and len(leader.requests) == 1

    following(tmp_path, scenario)


def test_a_leader_may_have_the_id_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_fetchers, "LEADER", 0)

    async def scenario(follower: Follower) -> None:
        await follower.follow(0, leader=0)
        assert (await follower.leader()).asked() == {0: 0}

    following(tmp_path, scenario)


@pytest.mark.parametrize("count", ["0", "-1", "1"])
def test_there_is_one_connection_at_the_least_and_one_if_one_is_wanted(tmp_path: Path, count: str) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(*range(4))
        assert (await follower.leader()).asked() == dict.fromkeys(range(4), 0)
        follower.fetchers.reconfigured()
        assert [name for name, _ in follower.connections] == ["fetch-0"]

    following(tmp_path, scenario, settings={"num.replica.fetchers": count})


@pytest.mark.parametrize(
    ("settings", "wanted"), [({}, OS_DEFAULT), ({"replica.socket.receive.buffer.bytes": "5000"}, 5000)]
)
def test_the_system_chooses_the_buffer_unless_somebody_has(
    tmp_path: Path, settings: dict[str, str], wanted: int
) -> None:
    async def scenario(follower: Follower) -> None:
        sizes: list[int] = []
        connection = follower._connection

        async def noted(source: int, work: str, *, receive_buffer_bytes: int) -> Leader:
            sizes.append(receive_buffer_bytes)
            return await connection(source, work, receive_buffer_bytes=receive_buffer_bytes)

        follower.fetchers.peers.connection = noted  # type: ignore
        await follower.follow(0)
        await follower.leader()
        assert sizes == [wanted]

    following(tmp_path, scenario, settings=settings)


# What is told


@pytest.mark.parametrize("first", [E.UNKNOWN_SERVER_ERROR, E.NETWORK_EXCEPTION, E.INVALID_REQUEST])
def test_an_error_is_told_once_until_it_is_another_one_or_all_was_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: ErrorCode
) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        for code in (first, first, E.CORRUPT_MESSAGE, E.NONE, E.CORRUPT_MESSAGE):
            leader.answer(answer(0, error_code=code))
            if code:
                follower.world.clock.advance(40)
                leader.answer()

    with caplog.at_level(logging.INFO):
        following(tmp_path, scenario)
    assert messages_of(caplog, LOG) == [cannot(each) for each in (first.name, "CORRUPT_MESSAGE", "CORRUPT_MESSAGE")]


def test_what_most_often_passes_by_itself_is_told_if_it_lasts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        for told in (0, 1, 1):
            leader.answer(answer(0, error_code=E.NOT_LEADER_OR_FOLLOWER))
            assert len(messages_of(caplog, LOG)) == told
            follower.world.clock.advance(40)
            leader.answer()

    with caplog.at_level(logging.INFO):
        following(tmp_path, scenario)
    assert messages_of(caplog, LOG) == [cannot("NOT_LEADER_OR_FOLLOWER")]


def test_that_a_leader_is_away_is_told_once_until_it_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(follower: Follower) -> None:
        follower.config = BrokerConfig({"replica.fetch.backoff.ms": "1"})
        await follower.follow(0)
        for number in (1, 2, 3):
            leader = await follower.leader(connections=number)
            if number == 3:
                leader.answer()
            leader.is_writable = False
            leader.receive(KafkaError("gone", code=E.NETWORK_EXCEPTION))
            await asyncio.sleep(0)
        await follower.leader(connections=4)

    with caplog.at_level(logging.INFO):
        following(tmp_path, scenario)
    assert [line.partition(":")[0] for line in messages_of(caplog, LOG)] == [
        "replicas cannot be fetched from broker 2 for now"
    ] * 2


@pytest.mark.parametrize(
    ("high_watermark", "level", "words"),
    [
        (0, logging.INFO, ""),
        (2, logging.INFO, ""),
        (3, logging.ERROR, "; 1 records were committed and are gone, for the leader has lost them"),
        (5, logging.ERROR, "; 3 records were committed and are gone, for the leader has lost them"),
    ],
)
def test_a_cut_that_loses_what_was_committed_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, high_watermark: int, level: int, words: str
) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        batches = b"".join(data(offset, epoch=2) for offset in range(5))
        leader.answer(answer(0, batches, high_watermark=high_watermark))
        leader.answer(answer(0, diverging_epoch=EpochEndOffset(epoch=2, end_offset=2)))
        assert leader.asked() == {0: 2}

    with caplog.at_level(logging.INFO):
        following(tmp_path, scenario)
    assert [(line.levelno, line.getMessage()) for line in lines_of(caplog, LOG)] == [
        (level, f"t-0: cut from 5 to 2, where the leader goes on{words}")
    ]


# Mistakes on the way


def test_an_answer_that_makes_no_sense_is_logged_and_everything_asked_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0), answer(1))
        leader.receive(memoryview(b"\0\0\0\1"))
        await follower.leader(requests=3)
        assert leader.requests[-1].session_epoch == 0 and leader.asked() == {0: 0, 1: 0}

    following(tmp_path, scenario)
    assert messages_of(caplog, LOG) == ["replicas of broker 2 could not be fetched"]


def test_records_that_cannot_be_stored_make_their_partition_wait(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        damaged = bytearray(data(0))
        damaged[-1] ^= 1
        leader.answer(answer(0, bytes(damaged)), answer(1, data(0)))
        assert leader.forgotten() == [0] and leader.asked() == {1: 1}
        follower.world.clock.advance(20)
        leader.answer()
        assert leader.asked() == {0: 0}

    following(tmp_path, scenario)


def test_a_directory_that_fails_is_not_fetched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        with monkeypatch.context() as patched:
            for name in ("write", "pwrite", "pwritev", "writev"):
                patched.setattr(os, name, no_space)
            leader.answer(answer(0, data(0)))
        lost, kept = follower.partition(0), follower.partition(1)
        assert lost.is_offline and (kept.is_offline == (kept.log.directory.parent == lost.log.directory.parent))
        if not kept.is_offline:
            assert leader.forgotten() == [0]

    following(tmp_path, scenario)


def test_where_the_leader_cannot_say_where_it_begins_it_is_asked_again_later(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        asked = asyncio.Event()

        async def fails(*_: object, **__: object) -> Any:
            asked.set()
            raise KafkaError(code=E.REQUEST_TIMED_OUT)

        request = follower.fetchers.peers.request
        follower.fetchers.peers.request = fails  # type: ignore
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0, error_code=E.OFFSET_OUT_OF_RANGE))
        await asked.wait()
        await follower.leader(requests=2)
        assert leader.forgotten() == [0]
        follower.fetchers.peers.request = request  # type: ignore
        follower.offsets = {-2: 40, -1: 50}
        follower.world.clock.advance(20)
        leader.answer()
        assert leader.asked() == {0: 0}
        leader.answer(answer(0, error_code=E.OFFSET_OUT_OF_RANGE))
        await follower.leader(requests=4)
        assert leader.asked() == {0: 40}

    following(tmp_path, scenario)


def test_what_the_leader_says_of_an_earlier_role_changes_nothing(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        follower.offsets = {-2: 40, -1: 50}
        go_on = asyncio.Event()
        request = follower.fetchers.peers.request

        async def slow(*arguments: Any, **options: Any) -> Any:
            await go_on.wait()
            return await request(*arguments, **options)

        follower.fetchers.peers.request = slow  # type: ignore
        await follower.follow(0)
        leader = await follower.leader()
        leader.answer(answer(0, error_code=E.OFFSET_OUT_OF_RANGE))
        await asyncio.sleep(0)
        await follower.follow(0, epoch=4)
        go_on.set()
        await follower.leader(requests=2)
        assert leader.asked() == {0: 0} and follower.partition().log.log_start_offset == 0

    following(tmp_path, scenario)


def test_each_partition_that_is_out_of_range_is_asked_about_once(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        follower.offsets = {-2: 40, -1: 50}
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(*(answer(index, error_code=E.OFFSET_OUT_OF_RANGE) for index in (0, 1)))
        await follower.leader(requests=2)
        assert leader.asked() == {0: 40, 1: 40} and len(follower.asked_offsets) == 4
        leader.answer()
        await until(lambda: len(leader.requests) >= 3)
        assert len(follower.asked_offsets) == 4

    following(tmp_path, scenario)


def test_partitions_that_are_forgotten_leave_nothing_to_fetch_for_the_others(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        follower.fetchers.forget(TopicPartition("t", 9))
        follower.fetchers.forget(TopicPartition("t", 1))
        follower.fetchers.forget(TopicPartition("t", 1))
        leader.answer(answer(0, data(0)), answer(1, data(0)))
        assert leader.asked() == {0: 1} and leader.forgotten() == [1]
        assert follower.partition(1).log.log_end_offset == 0

    following(tmp_path, scenario)
