"""`ottla produce`: lines of standard input become records."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import Annotated, NamedTuple

import typer

from ottla.base.errors import OttlaError
from ottla.cli.lines import LineParser, ParsedLine
from ottla.cli.terminal import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    UsageError,
    fail,
    parse_pairs,
    run_client,
    run_command,
    sentence,
)
from ottla.client.aio.producer.producer import Producer
from ottla.records.compression import Codec

_CHUNK_BYTES = 1 << 16
_DELIVERY_TIMEOUT_MS = 120_000
_MAX_REQUEST_BYTES = 1 << 25
"""As much as fits into the producer's memory: how large a record may be is for the topic to say."""

_ACKS = {"all": "all", "-1": "all", "0": "0", "1": "1"}


class Settings(NamedTuple):
    topic: str
    parser: LineParser
    codec: Codec
    acks: str
    sync: bool
    batch_size: int
    request_timeout_ms: int
    max_block_ms: int


def main(arguments: list[str]) -> int:
    # Kafka lets the codec be left out, which the parser of options cannot express.
    if "--compression-codec" in arguments:
        after = arguments.index("--compression-codec") + 1
        if after == len(arguments) or arguments[after].startswith("--"):
            arguments = [*arguments[:after], "gzip", *arguments[after:]]
    return run_command("produce", produce, arguments)


def produce(
    topic: Annotated[str, typer.Option(help="the topic to write to")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    sync: Annotated[bool, typer.Option("--sync", help="wait for each record before the next is sent")] = False,
    compression_codec: Annotated[str, typer.Option(help="none, gzip (also if left out), snappy, lz4 or zstd")] = "none",
    batch_size: Annotated[int, typer.Option(min=1, help="bytes of a batch, unless --sync")] = 16384,
    request_required_acks: Annotated[str, typer.Option(help="all (or -1), 1 or 0")] = "all",
    request_timeout_ms: Annotated[int, typer.Option(min=1, help="how long a reply may take")] = 30_000,
    max_block_ms: Annotated[int, typer.Option(min=1, help="how long a record may wait to be sent")] = 60_000,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            help="name=value, repeatable: parse.key, key.separator, parse.headers, headers.delimiter, "
            "headers.separator, headers.key.separator, null.marker, ignore.error",
        ),
    ] = None,
) -> None:
    """Write lines from standard input to a topic."""
    try:
        settings = Settings(
            topic,
            LineParser(parse_pairs("--property", property_ or [])),
            _codec(compression_codec),
            _acks(request_required_acks),
            sync,
            batch_size,
            request_timeout_ms,
            max_block_ms,
        )
    except OttlaError as e:
        fail(sentence(e))
    run_client(_run(bootstrap_server, settings))


def _codec(name: str) -> Codec:
    names = {codec.config_name: codec for codec in Codec}
    if name not in names:
        raise UsageError(f"--compression-codec {name!r} is not one of {', '.join(names)}")
    return names[name]


def _acks(text: str) -> str:
    if text not in _ACKS:
        raise UsageError(f"--request-required-acks {text!r} is not one of {', '.join(_ACKS)}")
    return _ACKS[text]


async def _run(bootstrap_server: str, settings: Settings) -> None:
    producer = Producer(
        {"acks": settings.acks, "compression.type": settings.codec.config_name},
        bootstrap_servers=bootstrap_server,
        bootstrap_fail_fast=True,
        client_id="console-producer",
        enable_idempotence=settings.acks == "all",
        batch_size=settings.batch_size,
        request_timeout_ms=settings.request_timeout_ms,
        max_block_ms=settings.max_block_ms,
        linger_ms=0,
        max_request_size=_MAX_REQUEST_BYTES,
        delivery_timeout_ms=max(_DELIVERY_TIMEOUT_MS, settings.request_timeout_ms),
    )
    await producer.start()
    try:
        await producer.partitions_for(settings.topic)
        count = 0
        async for lines in input_lines(sys.stdin.fileno(), prompt=sys.stdin.isatty()):
            records = [settings.parser.parse(line, number) for number, line in enumerate(lines, count + 1)]
            await _send(producer, settings, records)
            count += len(lines)
    finally:
        # What was read is stored by now; whoever interrupts a send does not want to wait for it.
        await producer.close(0)


async def _send(producer: Producer, settings: Settings, records: list[ParsedLine]) -> None:
    """Returns when all are stored: the next lines are not read before."""
    futures = []
    for record in records:
        future = await producer.send(settings.topic, record.value, record.key, record.headers)
        if settings.sync:
            await future
        futures.append(future)
    await producer.flush()
    for future in futures:
        await future


async def input_lines(fd: int, *, prompt: bool = False) -> AsyncIterator[list[bytes]]:
    """The lines of a file, pipe or terminal, as many at once as are there."""
    rest = b""
    while True:
        if prompt:
            print(">", end="", flush=True)
        chunk = await _read(fd)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


async def _read(fd: int) -> bytes:
    """Waits in the event loop, not in a thread, which would keep the process from ending on Ctrl-C."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(fd, _set_once, readable)
        except PermissionError:
            return os.read(fd, _CHUNK_BYTES)  # /dev/null and the like cannot be waited for, and need not be
        try:
            await readable
        finally:
            loop.remove_reader(fd)
    return os.read(fd, _CHUNK_BYTES)


def _set_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
