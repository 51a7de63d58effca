"""`ottla produce`: lines of standard input become records; Kafka's kafka-console-producer."""

from __future__ import annotations

import os
import stat
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.failures import UsageError, fail, parse_pairs, run_client, sentence
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    import asyncio

    from ottla.cli.lines import LineError, LineParser, ParsedLine
    from ottla.client.aio.producer.producer import Producer

_CHUNK_BYTES = 1 << 16
_DELIVERY_TIMEOUT_MS = 120_000
_MAX_REQUEST_BYTES = 1 << 25
"""As much as fits into the producer's memory: how large a record may be is for the topic to say."""

_ACKS = {"all": "all", "-1": "all", "0": "0", "1": "1"}
_LINE_READERS = ("org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")
"""Names of what reads lines here, too."""
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException: "
_PROPERTIES = (
    "name=value, repeatable: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
    "headers.key.separator, null.marker, ignore.error"
)
_EXAMPLES = (
    "echo hello | ottla produce greetings",
    "ottla produce orders --property parse.key=true --property key.separator=: < f",
    "ottla produce orders --compression-codec zstd --producer-property linger.ms=50",
)


class Settings(NamedTuple):
    topic: str
    parser: LineParser
    sync: bool
    config: dict[str, str]


def parser(kafka: str = "") -> CommandParser:
    made = CommandParser(
        "produce", "Write lines from standard input to a topic.", words="[TOPIC]", examples=_EXAMPLES, kafka=kafka
    )
    made.add_argument("--topic", metavar="NAME", help="the same as TOPIC")
    made.add_flag("--sync", "wait for each record before the next is sent")
    # In Kafka the codec can be left out, which means gzip.
    made.add_argument(
        "--compression-codec", nargs="?", const="gzip", default="none", metavar="NAME", help=", ".join(_CODECS)
    )
    made.add_argument("--batch-size", type=number, default=16384, metavar="BYTES", help="of a batch; 16384")
    made.add_argument("--request-required-acks", default="all", metavar="ACKS", help="all (or -1), 1 or 0")
    made.add_argument("--request-timeout-ms", type=number, default=30_000, metavar="MS", help="for a reply; 30000")
    made.add_argument("--max-block-ms", type=number, default=60_000, metavar="MS", help="until it is sent; 60000")
    made.add_argument("--timeout", type=number, default=0, metavar="MS", help="how long to wait for a fuller batch; 0")
    made.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help=_PROPERTIES)
    made.add_argument("--reader-config", metavar="FILE", help="a file with properties for --property")
    made.add_argument("--producer-property", action="append", default=[], metavar="NAME=VALUE", help="a client setting")
    made.add_argument("--producer.config", metavar="FILE", dest="producer_config", help="a file with client settings")
    for ignored in (
        *("--message-send-max-retries", "--retry-backoff-ms", "--metadata-expiry-ms", "--max-memory-bytes"),
        *("--max-partition-memory-bytes", "--socket-buffer-size"),
    ):
        made.add_argument(ignored, help=SUPPRESS)
    made.add_argument("--line-reader", default=_LINE_READERS[0], help=SUPPRESS)
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    made.take_topic(options)
    if options.topic is None:
        made.error('Missing required argument "[topic]"' if kafka else "which topic is not said")
    try:
        settings = _settings(options)
    except UsageError as e:
        made.error(str(e))
    except OSError as e:
        made.error(f"{e.filename}: {(e.strerror or str(e)).lower()}")
    run_client(_told_as_kafka(_run(settings)) if kafka else _run(settings))
    return 0


async def _told_as_kafka(work: Coroutine[Any, Any, None]) -> None:
    from ottla.cli.lines import LineError

    try:
        await work
    except LineError as e:
        fail(f"{_KAFKA_EXCEPTION}{e.kafka_text}")


def _settings(options: Namespace) -> Settings:
    from ottla.base.errors import OttlaError
    from ottla.cli.lines import LINE_OPTIONS, LineError, LineParser
    from ottla.cli.session import read_config

    if options.compression_codec not in _CODECS:
        raise UsageError(f"--compression-codec {options.compression_codec!r} is not one of {', '.join(_CODECS)}")
    if options.request_required_acks not in _ACKS:
        raise UsageError(f"--request-required-acks {options.request_required_acks!r} is not one of {', '.join(_ACKS)}")
    if options.line_reader not in _LINE_READERS:
        raise UsageError(f"--line-reader {options.line_reader!r}: lines are read as --property says, in no other way")
    properties = {**read_config(options.reader_config), **parse_pairs("--property", options.property)}
    if options.kafka:
        properties = {name: value for name, value in properties.items() if name in LINE_OPTIONS}
    try:
        return Settings(options.topic, LineParser(properties), options.sync, _config(options))
    except LineError as e:
        raise UsageError(f"{_KAFKA_EXCEPTION}{e}" if options.kafka else str(e)) from None
    except OttlaError as e:
        raise UsageError(sentence(e)) from None


def _config(options: Namespace) -> dict[str, str]:
    from ottla.cli.session import client_config, read_config

    given = {
        **read_config(options.command_config),
        **read_config(options.producer_config),
        **parse_pairs("--producer-property", options.producer_property),
    }
    acks = _ACKS[options.request_required_acks]
    own = {
        "acks": acks,
        "compression.type": options.compression_codec,
        "enable.idempotence": str(given.get("acks", acks) in ("all", "-1")).lower(),
        "batch.size": str(options.batch_size),
        "request.timeout.ms": str(options.request_timeout_ms),
        "max.block.ms": str(options.max_block_ms),
        "linger.ms": str(options.timeout),
        "max.request.size": str(_MAX_REQUEST_BYTES),
        "delivery.timeout.ms": str(max(_DELIVERY_TIMEOUT_MS, options.request_timeout_ms)),
    }
    return client_config(None, options.bootstrap_server, "console-producer", **{**own, **given})


async def _run(settings: Settings) -> None:
    from ottla.client.aio.producer.producer import Producer

    producer: Producer[bytes, bytes] = Producer(settings.config)
    await producer.start()
    try:
        await producer.partitions_for(settings.topic)
        count = 0
        async for lines in input_lines(sys.stdin.fileno(), prompt=sys.stdin.isatty()):
            records, error = _parsed(settings.parser, lines, count + 1)
            await _send(producer, settings, records)
            if error is not None:
                raise error
            count += len(lines)
    finally:
        # What was read is stored by now; whoever interrupts a send does not want to wait for it.
        await producer.close(0)


def _parsed(parser: LineParser, lines: list[bytes], number: int) -> tuple[list[ParsedLine], LineError | None]:
    """Up to the first line that does not fit, which takes nothing back of those before it."""
    from ottla.cli.lines import LineError

    records = []
    for position, line in enumerate(lines, number):
        try:
            records.append(parser.parse(line, position))
        except LineError as e:
            return records, e
    return records, None


async def _send(producer: Producer[bytes, bytes], settings: Settings, records: list[ParsedLine]) -> None:
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
    import asyncio

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
