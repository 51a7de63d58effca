"""The short names of the client library: typed, and free of cost for whoever does not use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ottla

USER_CODE = """
import asyncio
import ottla
import ottla.aio
from ottla import aio
from ottla.errors import CommitFailedError, ProducerFencedError


def told(metadata: ottla.RecordMetadata | None, error: ottla.errors.ClientError | None) -> None:
    print(metadata, error)


def send(servers: str) -> int:
    with ottla.Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        future = producer.send("topic", b"value", key=b"key", on_delivery=told)
        with producer.transaction():
            producer.send_offsets({}, "group")
        return future.result(timeout=10).offset


async def send_async(servers: str) -> int:
    async with aio.Producer({"bootstrap.servers": servers}, value_serializer=str.encode) as producer:
        future = await producer.send("topic", "value")
        async with producer.transaction():
            await producer.send_offsets({}, "group")
        return (await future).offset


def look(servers: str) -> int:
    with ottla.Admin(bootstrap_servers=servers) as admin:
        created = admin.create_topics([ottla.NewTopic("topic", 3), "other"])
        for name, error in created.errors.items():
            print(name, error.retriable)
        partition = ottla.TopicPartition("topic", 0)
        ends = admin.list_offsets({partition: ottla.OffsetSpec.LATEST}).check()
        return created["topic"].partitions + ends[partition].offset


async def look_async(servers: str) -> str | None:
    async with aio.Admin({"bootstrap.servers": servers}) as admin:
        resource = ottla.ConfigResource.topic("topic")
        return (await admin.describe_configs([resource]))[resource]["retention.ms"].value


asyncio.run(send_async("x"))
"""

STATEMENTS = """
import ottla.aio
import ottla.aio as short
import ottla.client.aio as real
from ottla.aio import Consumer
from ottla.errors import CommitFailedError
assert ottla.aio is short is real
assert Consumer is real.Consumer
import ottla.errors
assert issubclass(CommitFailedError, ottla.errors.ClientError)
try:
    ottla.aio.Prodcer
except AttributeError as e:
    print(e)
"""


def test_names() -> None:
    from ottla.client import aio, sync

    assert ottla.Producer is sync.Producer
    assert ottla.aio is aio
    assert {"Producer", "aio"} <= set(dir(ottla))
    with pytest.raises(AttributeError):
        ottla.Prodcer  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_alone_loads_no_client() -> None:
    code = "import sys, ottla; print(any(name.startswith('ottla.client') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("home", ["ottla", "ottla.aio"])
def test_whoever_produces_loads_no_other_client(home: str) -> None:
    listing = "print([name for name in sys.modules if name.endswith(('.admin', '.consumer'))])"
    code = f"import sys, {home}; {home}.Producer; {listing}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_short_names_of_modules_can_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", STATEMENTS], capture_output=True, text=True, check=True)
    assert "'ottla.client.aio' has no attribute 'Prodcer'" in done.stdout


def test_user_code_passes_strict_type_checks(tmp_path: Path) -> None:
    file = tmp_path / "user_code.py"
    file.write_text(USER_CODE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
