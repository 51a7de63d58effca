"""Runs a broker as a process: logging, signals, what is printed at the start, the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import time

import uvloop

from ottla import __version__
from ottla.base.errors import StartError
from ottla.broker.admission import AccessRules
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.lasting import why_not_lasting
from ottla.broker.logs import start_logging
from ottla.broker.node import Broker
from ottla.broker.startup import Surroundings, start_broker

log = logging.getLogger("ottla")


def run_broker(config: BrokerConfig, access: AccessRules | None = None) -> int:
    """Starts a broker, runs it until SIGINT or SIGTERM, stops it cleanly. Returns the exit code.

    `access` says who may do what, and how fast; without it everybody may do everything.
    """
    start_logging(config.items_of("ottla.log.level"))
    _allow_many_open_files()
    try:
        return uvloop.run(_run(config, access))
    except StartError as e:
        print(f"ottla: cannot start: {e}", file=sys.stderr)
        return 1


async def _run(config: BrokerConfig, access: AccessRules | None) -> int:
    began = time.monotonic()
    log.info("Ottla %s starts as process %d", __version__, os.getpid())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_by, number, stop)
    for notice in config.notices():
        log.warning("%s", notice)
    for reason in filter(None, map(why_not_lasting, config.log_dirs)):
        log.warning("%s", reason)
    broker = await start_broker(config, Surroundings(access=access or AccessRules()))
    try:
        _announce(broker, _ms_since(began))
        _calm_the_collector()
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, broker.failed, broker.orphaned)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    finally:
        if broker.orphaned.is_set():
            log.error("stopping, because the process that started this broker's cluster is gone")
        began = time.monotonic()
        await broker.stop()
    if broker.failed.is_set():
        log.error("broker %d stopped, because no log directory can be used any more", broker.broker_id)
        return 1
    log.info("broker %d stopped in %d ms; all logs are closed", broker.broker_id, _ms_since(began))
    return 0


def _stop_by(number: signal.Signals, stop: asyncio.Event) -> None:
    log.info("stopping, because %s came", number.name)
    stop.set()


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)


def _announce(broker: Broker, took_ms: int) -> None:
    addresses = [f"{endpoint.listener}://{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints]
    topics = broker.image.topics.values()
    log.info(
        "broker %d of cluster %s started in %d ms on %s, with %d topics and %d partitions",
        broker.broker_id,
        broker.cluster_id,
        took_ms,
        ", ".join(addresses),
        len(topics),
        sum(len(topic.partitions) for topic in topics),
    )
    for address in addresses:
        print(f"ottla: broker {broker.broker_id} is listening on {address}")
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
