"""`ottla produce` and `ottla consume` against our own broker: what goes through, and what is told in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.broker_process import BrokerProcess

LARGE = b"x" * 2_000_000


def ottla(command: str, broker: BrokerProcess, *options: str, text: bytes = b"") -> tuple[int, bytes, bytes]:
    arguments = [sys.executable, "-m", "ottla", command, "--bootstrap-server", broker.bootstrap, *options]
    done = subprocess.run(arguments, input=text, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_every_way_to_be_acknowledged(broker: BrokerProcess, new_topic: str) -> None:
    for acks in ("all", "1", "0"):
        produced = ottla(
            "produce", broker, "--topic", new_topic, "--request-required-acks", acks, text=acks.encode() + b"\n"
        )
        assert produced == (0, b"", b"")
    options = ("--topic", new_topic, "--from-beginning", "--max-messages", "3", "--isolation-level", "read_committed")
    code, output, _ = ottla("consume", broker, *options)
    assert (code, output) == (0, b"all\n1\n0\n")


def test_how_large_a_record_may_be_is_for_the_topic_to_say(broker: BrokerProcess, new_topic: str) -> None:
    create = ("--create", "--topic", f"{new_topic}-wide", "--config", "max.message.bytes=3000000")
    assert ottla("topics", broker, *create)[0] == 0
    assert ottla("produce", broker, "--topic", f"{new_topic}-wide", text=LARGE) == (0, b"", b"")
    code, _, error = ottla("produce", broker, "--topic", new_topic, text=LARGE)
    assert (code, error.count(b"\n")) == (1, 1)
    assert b"max.message.bytes is 1048588" in error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--topic", "nobody-has-this"), b"topic 'nobody-has-this' does not exist"),
        (("--topic", "bad/name"), b"topic bad/name: the topic name is not legal"),
        (("--include", "nobody.*"), b"no topic matches nobody.*"),
        (("--topic", "TOPIC", "--partition", "9"), b"topic TOPIC has no partition 9"),
        (("--topic", "TOPIC", "--partition", "0", "--offset", "99"), b"offset 99 is not in TOPIC-0, which has 0 to 0"),
    ],
)
def test_what_cannot_be_read(broker: BrokerProcess, new_topic: str, options: tuple[str, ...], words: bytes) -> None:
    assert ottla("produce", broker, "--topic", new_topic, text=b"x\n")[0] == 0
    given = [option.replace("TOPIC", new_topic) for option in options]
    code, output, error = ottla("consume", broker, *given, "--timeout-ms", "10000")
    assert (code, output, error.count(b"\n")) == (1, b"", 1)
    assert error.startswith(words.replace(b"TOPIC", new_topic.encode()))
