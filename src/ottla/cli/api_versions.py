"""`ottla api-versions`: which APIs, in which versions, each broker of a cluster speaks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser

if TYPE_CHECKING:
    from ottla.cli.rows import Cell
    from ottla.client.core.metadata import BrokerAddress


_EXAMPLES = ("ottla api-versions -b 127.0.0.1:9093", "ottla api-versions -o json")


def parser(kafka: str = "") -> CommandParser:
    summary = "List the APIs each broker speaks, and the version this client would use."
    return CommandParser("api-versions", summary, examples=_EXAMPLES, kafka=kafka, prints_rows=True)


def main(arguments: list[str], kafka: str = "") -> int:
    run_client(_run(parser(kafka).read(arguments)))
    return 0


async def _run(options: Namespace) -> None:
    from ottla.cli.session import open_admin

    async with open_admin(options, "ottla-api-versions") as admin:
        answers = await admin.api_versions()
    if options.output in ("json", "tsv"):
        from ottla.cli.rows import show_rows

        rows = [row for broker in sorted(answers.results) for row in broker_rows(broker, answers[broker])]
        show_rows(options.output, ["broker", "address", "api", "key", "min_version", "max_version", "usable"], rows)
        for broker, error in answers.errors.items():
            raise KafkaError(f"broker {broker.node_id}: {error.message}", code=error.code)
        return
    for broker in sorted(answers):
        answer = answers.errors[broker] if broker in answers.errors else answers[broker]
        for line in broker_lines(broker, answer):
            print(line)


def broker_rows(broker: BrokerAddress, answer: dict[int, range]) -> Iterator[Sequence[Cell]]:
    from ottla.wire.apis import API_TABLE

    for key, theirs in sorted(answer.items()):
        name = API_TABLE[key].name if key in API_TABLE else None
        address = f"{broker.host}:{broker.port}"
        yield broker.node_id, address, name, key, theirs.start, theirs.stop - 1, _usable(key, theirs)


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
    from ottla.wire.apis import API_TABLE

    info = API_TABLE.get(key)
    label = f"{info.name if info is not None else 'Unknown'}({key})"
    if theirs is None:
        return f"{label}: UNSUPPORTED"
    newest = theirs.stop - 1
    spoken = str(newest) if theirs.start == newest else f"{theirs.start} to {newest}"
    usable = _usable(key, theirs)
    return f"{label}: {spoken} [usable: {'none' if usable is None else usable}]"


def _usable(key: int, theirs: range) -> int | None:
    """The version this client would use, if there is one that both speak."""
    from ottla.wire.apis import API_TABLE, request_class

    if key not in API_TABLE:
        return None
    ours = request_class(key).VERSIONS
    newest = min(ours.stop, theirs.stop) - 1
    return newest if newest >= max(ours.start, theirs.start) else None
