"""kafka-e2e-latency.sh: the time from a write until the record is read; five words, and perhaps a file."""

from __future__ import annotations

import sys
from argparse import Namespace

from ottla.cli.failures import FAILED, run_client

_USAGE = (
    "USAGE: java org.apache.kafka.tools.EndToEndLatency broker_list topic num_messages producer_acks "
    "message_size_bytes [optional] properties_file"
)
_TIMEOUT_MS = 60_000


def main(arguments: list[str], kafka: str) -> int:
    if len(arguments) not in (5, 6) or not all(arguments[place].isdecimal() for place in (2, 4)):
        print(_USAGE, file=sys.stderr)
        return FAILED
    server, topic, count, acks, size = arguments[:5]
    if acks not in ("1", "all"):
        print("Latency testing requires synchronous acknowledgement. Please use 1 or all", file=sys.stderr)
        return FAILED
    options = Namespace(
        bootstrap_server=server,
        command_config=arguments[5] if len(arguments) > 5 else None,
        topic=topic,
        num_records=max(int(count), 1),
        record_size=int(size),
        props={"acks": acks},
        transactional_id=None,
        timeout=_TIMEOUT_MS,
        reporting_interval=_TIMEOUT_MS,
        kafka=True,
        output="kafka",
    )
    run_client(_run(options))
    return 0


async def _run(options: Namespace) -> None:
    from ottla.cli.perf.measuring import latency
    from ottla.cli.session import open_admin
    from ottla.client.core.admin.types import NewTopic

    async with open_admin(options, "perf-latency-client") as admin:
        if options.topic not in await admin.list_topics():
            print(
                f'Topic "{options.topic}" does not exist. Will create topic with 1 partition(s) and replication '
                "factor = 1"
            )
            (await admin.create_topics([NewTopic(options.topic, 1, 1)])).check()
    await latency(options)
