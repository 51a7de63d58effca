"""User code that reads records passes mypy --strict, with the types its deserializers give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USER_CODE = """
import json
import re
from collections.abc import Collection

import ottla
from ottla import ConsumerRecord, OffsetAndMetadata, RebalanceListener, TopicPartition


class Listener(RebalanceListener):
    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        print(partitions)


def as_text(data: bytes | None) -> str:
    return (data or b"").decode()


def raw() -> bytes | None:
    with ottla.Consumer({"bootstrap.servers": "h:1", "group.id": "g"}) as consumer:
        consumer.subscribe(["t"], listener=Listener())
        consumer.subscribe(re.compile("^t"))
        for record in consumer:
            consumer.commit({record.topic_partition: OffsetAndMetadata(record.offset + 1)})
            return record.value
    return None


def texts() -> list[str]:
    with ottla.Consumer(bootstrap_servers="h:1", key_deserializer=as_text, value_deserializer=as_text) as consumer:
        consumer.assign([("t", 0)])
        records: list[ConsumerRecord[str, str]] = consumer.poll(1.0)
        return [record.key + record.value for record in records]


async def later() -> int:
    async with ottla.aio.Consumer(bootstrap_servers="h:1", value_deserializer=as_text) as consumer:
        async for record in consumer:
            return len(record.value)
    return 0
"""

MISTAKE = """
import ottla

with ottla.Consumer(bootstrap_servers="h:1") as consumer:
    for record in consumer:
        print(record.value.decode())
"""


@pytest.mark.parametrize(("code", "is_right"), [(USER_CODE, True), (MISTAKE, False)])
def test_user_code_is_checked(tmp_path: Path, code: str, is_right: bool) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode == 0) == is_right, found.stdout
    if not is_right:
        assert 'has no attribute "decode"' in found.stdout
