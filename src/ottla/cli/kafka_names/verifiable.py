"""What Kafka's verifiable producer and consumer share: events as JSON, one per line, which test suites read."""

from __future__ import annotations

import asyncio
import json
import signal
import time

from ottla.cli.parsing import CommandParser


def tell(name: str, **fields: object) -> None:
    event = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    print(json.dumps(event, separators=(",", ":"), ensure_ascii=False), flush=True)


def stopped_by_signals() -> asyncio.Event:
    """Set when somebody wants an end: what is under way is brought to one, and told."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def require(made: CommandParser, **options: str | None) -> None:
    for name, value in options.items():
        if value is None:
            made.error(f"argument --{name.replace('_', '-')} is required")
