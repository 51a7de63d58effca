"""Runs a broker as a process: logging, signals, what is printed at the start, the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys

import uvloop

from ottla.base.errors import StartError
from ottla.broker.config import BrokerConfig
from ottla.broker.node import Broker

log = logging.getLogger("ottla")


def run_broker(config: BrokerConfig) -> int:
    """Starts a broker, runs it until SIGINT or SIGTERM, stops it cleanly. Returns the exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    _allow_many_open_files()
    try:
        return uvloop.run(_run(config))
    except StartError as e:
        print(f"ottla: cannot start: {e}", file=sys.stderr)
        return 1


async def _run(config: BrokerConfig) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    for notice in config.notices():
        log.warning("%s", notice)
    broker = Broker(config)
    await broker.start()
    try:
        _announce(broker)
        _calm_the_collector()
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(broker.failed.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        log.info("stopping")
    finally:
        await broker.stop()
    if broker.failed.is_set():
        log.error("stopped, because no log directory can be used any more")
        return 1
    log.info("stopped; all logs are closed")
    return 0


def _announce(broker: Broker) -> None:
    for endpoint in broker.endpoints:
        print(f"ottla: broker {broker.broker_id} is listening on {endpoint.listener}://{endpoint.host}:{endpoint.port}")
    print(f"ottla: cluster {broker.cluster_id}, data in {', '.join(map(str, broker.config.log_dirs))}")
    sys.stdout.flush()


def _allow_many_open_files() -> None:
    """Every connection and every segment is an open file. The usual limit is meant for programs that have few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as e:
        log.warning("the limit of open files stays at %d: %s", soft, e)


def _calm_the_collector() -> None:
    """What exists at the start stays: the collector need not look at it again, nor look often for cycles we avoid."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
