"""kafka-verifiable-producer.sh: numbers as records, and an event for each that was stored or was not."""

from __future__ import annotations

from argparse import Namespace

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser, number

_UNLIMITED = -1


def main(arguments: list[str], kafka: str) -> int:
    made = parser(kafka)
    options = made.read(arguments)
    from ottla.cli.kafka_names.verifiable import require

    require(made, topic=options.topic)
    run_client(_run(options))
    return 0


def parser(kafka: str) -> CommandParser:
    summary = "Write increasing numbers to a topic, and print an event as JSON for each that was stored."
    made = CommandParser("", summary, kafka=kafka)
    made.add_argument("--topic", metavar="NAME", help="where to; must be given")
    made.add_argument("--max-messages", type=number, default=_UNLIMITED, metavar="N", help="-1, the default, is no end")
    made.add_argument("--throughput", type=number, default=_UNLIMITED, metavar="N", help="records per second; -1")
    made.add_argument("--acks", type=int, choices=(0, 1, -1), default=-1, metavar="ACKS", help="0, 1 or -1; -1")
    made.add_argument(
        "--producer.config", dest="producer_config", metavar="FILE", help="a properties file with client settings"
    )
    made.add_argument(
        "--message-create-time", type=number, default=-1, metavar="MS", help="of the first record; -1 is now"
    )
    made.add_argument("--value-prefix", type=number, metavar="N", help="put before values, with a dot")
    made.add_argument("--repeating-keys", type=number, metavar="N", help="keys 0 to N - 1, again and again")
    return made


async def _run(options: Namespace) -> None:
    import asyncio
    import time

    from ottla.cli.kafka_names.verifiable import stopped_by_signals, tell
    from ottla.cli.session import client_config, read_config
    from ottla.client.aio.producer.producer import Producer
    from ottla.client.core.producer.batch import RecordMetadata
    from ottla.client.errors import ClientError

    given = {**read_config(options.command_config), **read_config(options.producer_config)}
    own = {"acks": str(options.acks), "retries": "0", "enable.idempotence": "false"}
    config = client_config(None, options.bootstrap_server, "verifiable-producer", **{**own, **given})
    acknowledged = sent = 0
    started = time.perf_counter()
    async with Producer[bytes, bytes](config) as producer:
        stopped = stopped_by_signals()
        tell("startup_complete")
        while not stopped.is_set() and (options.max_messages < 0 or sent < options.max_messages):
            value = f"{sent}" if options.value_prefix is None else f"{options.value_prefix}.{sent}"
            key = None if not options.repeating_keys else str(sent % options.repeating_keys)

            def note(
                stored: RecordMetadata | None, error: ClientError | None, key: str | None = key, value: str = value
            ) -> None:
                nonlocal acknowledged
                if stored is not None:
                    acknowledged += 1
                    place = {"offset": stored.offset, "topic": stored.topic, "partition": stored.partition}
                    tell("producer_send_success", key=key, value=value, **place)
                elif error is not None:
                    kind = {"exception": type(error).__name__, "message": error.message}
                    tell("producer_send_error", key=key, value=value, topic=options.topic, **kind)

            time_ms = None if options.message_create_time < 0 else options.message_create_time + sent
            await producer.send(
                options.topic,
                value.encode(),
                None if key is None else key.encode(),
                timestamp_ms=time_ms,
                on_delivery=note,
            )
            sent += 1
            if options.throughput > 0:
                ahead_s = sent / options.throughput - (time.perf_counter() - started)
                await asyncio.sleep(max(0.0, ahead_s))
        await producer.flush()
    tell("shutdown_complete")
    rate = acknowledged / (time.perf_counter() - started)
    tell("tool_data", sent=sent, acked=acknowledged, target_throughput=options.throughput, avg_throughput=rate)
