"""Where records go that were given up, and what is done if they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.options import MAX_LONG
from ottla.base.types import TopicPartition
from ottla.client.aio.processing import dead_letters
from ottla.client.aio.processing.dead_letters import DeadLetters, LetterProducer
from ottla.client.aio.producer.lasting_producer import LastingProducer
from ottla.client.core.consumer.record import make_record_class
from ottla.client.core.processing.dead_letters import PREFIX, check_template, dead_letter, dead_letter_topics
from ottla.client.core.processing.parallel import RawRecord
from ottla.client.errors import ClientError, ProcessingError, RecordTooLargeError
from ottla.records.batch import TimestampType
from tests.log_lines import lines_of, messages_of
from tests.waiting import run_async

PLACE = TopicPartition("t", 2)


def record(timestamp: int = 1000) -> RawRecord:
    made = make_record_class(*PLACE, TimestampType.CREATE_TIME, 7)
    return made(41, timestamp, b"k", b"v", (("own", b"1"), (PREFIX + "topic", b"an older one")))


class StubProducer:
    """Refuses as often as it is told, one error after the other."""

    def __init__(self, *errors: ClientError) -> None:
        self._has_failed = False
        self.errors = list(errors)
        self.sent: list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]] = []
        self.closed_with: list[float | None] = []

    async def start(self) -> StubProducer:
        return self

    async def close(self, timeout: float | None = None) -> None:
        self.closed_with.append(timeout)

    async def send_and_wait(
        self, topic: str, value: bytes | None, key: bytes | None, *, headers: Any, timestamp_ms: int | None
    ) -> None:
        self.sent.append((topic, value, key, headers, timestamp_ms))
        if self.errors:
            error = self.errors.pop(0)
            self._has_failed = error.fatal
            raise error


def letters(*producers: StubProducer, template: str | None = "{topic}.dlt") -> DeadLetters:
    """They are used one after the other, as each fails for good."""
    left = list(producers)
    lasting = LastingProducer(lambda: left.pop(0))  # type: ignore[arg-type, return-value]
    return DeadLetters(template, "group", {}, lasting)


async def take(dead: DeadLetters) -> str | None:
    return await dead.take(record(), ValueError("broken"), attempts=4)


def test_a_record_goes_unchanged_with_headers_that_tell_its_origin() -> None:
    producer = StubProducer()
    assert run_async(take(letters(producer))) == "t.dlt"
    ((topic, value, key, headers, timestamp_ms),) = producer.sent
    assert (topic, value, key, timestamp_ms) == ("t.dlt", b"v", b"k", 1000)
    assert headers == [
        ("own", b"1"),
        (PREFIX + "topic", b"t"),
        (PREFIX + "partition", b"2"),
        (PREFIX + "offset", b"41"),
        (PREFIX + "timestamp", b"1000"),
        (PREFIX + "group", b"group"),
        (PREFIX + "exception", b"builtins.ValueError"),
        (PREFIX + "message", b"broken"),
        (PREFIX + "attempts", b"4"),
    ]


@pytest.mark.parametrize(("timestamp", "expected"), [(-1, None), (0, 0), (5, 5)])
def test_a_record_without_a_time_gets_none(timestamp: int, expected: int | None) -> None:
    letter = dead_letter(record(timestamp), "dead", error=ValueError(), attempts=1, group_id="g")
    assert letter.topic == "dead" and letter.timestamp_ms == expected


@pytest.mark.parametrize(("length", "kept"), [(1999, 1999), (2000, 2000), (2001, 2000)])
def test_long_messages_are_cut(length: int, kept: int) -> None:
    letter = dead_letter(record(), "dead", error=ValueError("x" * length), attempts=1, group_id="g")
    assert dict(letter.headers)[PREFIX + "message"] == b"x" * kept


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_our_own_headers_must_not_make_a_record_too_large(count: int, caplog: pytest.LogCaptureFixture) -> None:
    producer = StubProducer(*(RecordTooLargeError("too large") for _ in range(count)))
    if count < 3:
        assert run_async(take(letters(producer))) == "t.dlt"
        assert len(producer.sent) == 1 + count
    else:
        with pytest.raises(ProcessingError, match=r"offset 41 could not be sent.*max\.message\.bytes") as refused:
            run_async(take(letters(producer)))
        assert refused.value.topic_partition == PLACE and refused.value.offset == 41
        assert isinstance(refused.value.__cause__, RecordTooLargeError)
    names = [[name.removeprefix(PREFIX) for name, _ in sent[3]] for sent in producer.sent]
    assert len(names[0]) == 9
    assert names[1:] == [["own", "topic", "partition", "offset"], ["own"]][:count]
    told = [r.getMessage() for r in lines_of(caplog, dead_letters.__name__) if r.levelname == "WARNING"]
    assert [line.partition(":")[0] for line in told] == ["t-2@41 goes to t.dlt with fewer headers of its origin"] * min(
        count, 2
    )


def test_what_may_pass_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    producer = StubProducer(ClientError("away", code=ErrorCode.NETWORK_EXCEPTION))
    assert run_async(take(letters(producer))) is None
    assert messages_of(caplog, dead_letters.__name__) == [
        "t.dlt cannot be written to, and will be tried again: NETWORK_EXCEPTION: away"
    ]


def test_what_does_not_pass_ends_the_processing() -> None:
    producer = StubProducer(ClientError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ProcessingError, match=r"could not be sent to its dead-letter topic t\.dlt") as refused:
        run_async(take(letters(producer)))
    assert "max.message.bytes" not in str(refused.value)


def test_a_producer_that_has_failed_for_good_has_a_successor() -> None:
    failed = StubProducer(ClientError("fenced", fatal=True))
    successor = StubProducer()
    assert run_async(take(letters(failed, successor))) == "t.dlt"
    assert len(failed.sent) == len(successor.sent) == 1


def test_without_a_topic_there_is_nowhere_to_go() -> None:
    dead = letters(template=None)
    assert dead.topics is None
    with pytest.raises(
        ProcessingError, match=r"failed 4 times for offset 41 \(ValueError: broken\).*no dead-letter"
    ) as e:
        run_async(take(dead))
    assert (e.value.topic_partition, e.value.offset) == (PLACE, 41)
    assert repr(e.value.__cause__) == "ValueError('broken')"


def test_a_producer_that_was_given_is_not_closed_and_ones_own_waits_for_nothing() -> None:
    async def scenario() -> None:
        given = StubProducer()
        dead = letters(given)
        await take(dead)
        own = StubProducer()
        dead._own_producer = LastingProducer(lambda: own)  # type: ignore[arg-type, return-value]
        dead._given_producer = None
        await take(dead)
        assert len(given.sent) == len(own.sent) == 1
        await dead.close()
        assert (given.closed_with, own.closed_with) == ([], [0])

    run_async(scenario())


def test_ones_own_producer_has_the_settings_that_every_client_has() -> None:
    settings = {"bootstrap.servers": "x:1", "client.id": "mine", "group.id": "g", "max.poll.records": 5}

    async def made() -> LetterProducer:
        dead = DeadLetters("dead", "g", settings, None)
        producer = dead._own_producer._make()
        assert isinstance(producer, LetterProducer)
        return producer

    producer = run_async(made())
    assert producer._settings.client.client_id == "mine"
    assert producer._settings.buffer_memory == MAX_LONG


# Names of topics


@pytest.mark.parametrize("template", ["dead", "{topic}.dlt", "a-{topic}-{topic}", "{{topic}}"])
def test_topics_for_dead_letters(template: str) -> None:
    check_template(template)


@pytest.mark.parametrize("template", ["", "{topic}", "{", "{}", "{other}", "{topic.x}", "{0}"])
def test_what_is_no_name_for_dead_letters(template: str) -> None:
    with pytest.raises(ValueError, match="the dead-letter topic"):
        check_template(template)
    with pytest.raises(ValueError, match="the dead-letter topic"):
        DeadLetters(template, "g", {}, None)


@pytest.mark.parametrize(
    ("template", "matching", "others"),
    [
        ("dead", ["dead"], ["dead2", "xdead"]),
        ("{topic}.dlt", ["a.dlt", "a.b.dlt"], [".dlt", "axdlt", "a.dlt2"]),
        ("dead-{topic}", ["dead-a"], ["dead-", "xdead-a"]),
    ],
)
def test_topics_of_dead_letters_are_known_by_their_names(template: str, matching: list[str], others: list[str]) -> None:
    pattern = dead_letter_topics(template)
    assert all(pattern.fullmatch(name) for name in matching)
    assert not any(pattern.fullmatch(name) for name in others)
    assert DeadLetters(template, "g", {}, None).topics == pattern
