"""Over random messages of every declared class and version: the compiled codec equals the reference codec."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import DecodeError
from ottla.wire import reference
from ottla.wire.message import Message

from .random_messages import all_message_classes, random_message

CLASSES = all_message_classes()
MODERATELY = settings(max_examples=6, deadline=None, derandomize=True)


def is_flexible(cls: type[Message], version: int) -> bool:
    return version in cls.FLEXIBLE_VERSIONS


def decode_both(cls: type[Message], data: bytes, version: int) -> tuple[Any, Any]:
    """What each decoder makes of the bytes: the message and position, or the DecodeError's text."""
    outcomes: list[Any] = []
    for decode in (
        lambda: cls.decode(data, version),
        lambda: reference.decode(cls, data, version, 0, is_flexible(cls, version)),
    ):
        try:
            outcomes.append(decode())
        except DecodeError as e:
            outcomes.append(str(e))
    return outcomes[0], outcomes[1]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@MODERATELY
@given(seed=st.integers(0, 2**32))
def test_both_write_the_same_bytes_and_read_the_same_message(cls: type[Message], seed: int) -> None:
    rng = Random(seed)
    for version in cls.VERSIONS:
        message = random_message(rng, cls, version)
        data = message.encode(version)
        assert data == reference.encode(message, version, is_flexible(cls, version))
        trailing = data + b"\x07\x00\xff"  # bytes after a message are not its business
        compiled, slow = decode_both(cls, trailing, version)
        assert compiled == slow == (message, len(data))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_truncated_prefix_is_a_decode_error(cls: type[Message]) -> None:
    rng = Random(cls.__name__)
    for version in cls.VERSIONS:
        data = random_message(rng, cls, version).encode(version)
        cuts = range(len(data)) if len(data) < 64 else sorted(rng.sample(range(len(data)), 64))
        for cut in cuts:
            with pytest.raises(DecodeError):
                cls.decode(data[:cut], version)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@MODERATELY
@given(seed=st.integers(0, 2**32))
def test_both_judge_damaged_bytes_alike(cls: type[Message], seed: int) -> None:
    rng = Random(seed)
    for version in cls.VERSIONS:
        data = bytearray(random_message(rng, cls, version).encode(version))
        for _ in range(rng.randrange(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        compiled, slow = decode_both(cls, bytes(data), version)
        assert repr(compiled) == repr(slow)  # by repr, because a damaged float may be NaN
