"""`ottla api-versions`: which APIs, in which versions, each broker of a cluster speaks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser

if TYPE_CHECKING:
    from ottla.client.core.metadata import BrokerAddress


def parser(kafka: str = "") -> CommandParser:
    summary = "List the APIs each broker speaks, and the version this client would use."
    made = CommandParser("api-versions", summary, examples=("ottla api-versions -b 127.0.0.1:9093",), kafka=kafka)
    made.add_connection()
    made.add_help_option()
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    run_client(_run(parser(kafka).read(arguments)))
    return 0


async def _run(options: Namespace) -> None:
    from ottla.cli.session import open_admin

    async with open_admin(options, "ottla-api-versions") as admin:
        answers = await admin.api_versions()
        for broker in sorted(answers):
            answer = answers.errors[broker] if broker in answers.errors else answers[broker]
            for line in broker_lines(broker, answer):
                print(line)


def broker_lines(broker: BrokerAddress, answer: dict[int, range] | KafkaError) -> Iterator[str]:
    """Kafka's own form."""
    from ottla.wire.apis import API_TABLE

    start = f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'}) -> "
    if isinstance(answer, KafkaError):
        yield f"{start}ERROR: {answer.message}"
        return
    yield f"{start}("
    keys = sorted(set(answer) | set(API_TABLE))
    for key in keys:
        yield f"\t{_api_line(key, answer.get(key))}{'' if key == keys[-1] else ','}"
    yield ")"


def _api_line(key: int, theirs: range | None) -> str:
    from ottla.wire.apis import API_TABLE, request_class

    info = API_TABLE.get(key)
    label = f"{info.name if info is not None else 'Unknown'}({key})"
    if theirs is None:
        return f"{label}: UNSUPPORTED"
    newest = theirs.stop - 1
    spoken = str(newest) if theirs.start == newest else f"{theirs.start} to {newest}"
    if info is None:
        return f"{label}: {spoken} [usable: none]"
    ours = request_class(key).VERSIONS
    usable = min(ours.stop - 1, newest)
    return f"{label}: {spoken} [usable: {usable if usable >= max(ours.start, theirs.start) else 'none'}]"
