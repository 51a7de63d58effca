"""`ottla api-versions`: which APIs, in which versions, each broker of a cluster speaks."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.base.errors import KafkaError
from ottla.cli.terminal import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, run_client, run_command
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.metadata import BrokerAddress
from ottla.wire.apis import API_TABLE, request_class


def main(arguments: list[str]) -> int:
    return run_command("api-versions", api_versions, arguments)


def api_versions(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """List the APIs each broker speaks, and the version this client would use."""
    run_client(_run(bootstrap_server))


async def _run(bootstrap_server: str) -> None:
    async with Admin(
        bootstrap_servers=bootstrap_server, bootstrap_fail_fast=True, client_id="ottla-api-versions"
    ) as admin:
        answers = await admin.api_versions()
        for broker in sorted(answers):
            answer = answers.errors[broker] if broker in answers.errors else answers[broker]
            for line in broker_lines(broker, answer):
                print(line)


def broker_lines(broker: BrokerAddress, answer: dict[int, range] | KafkaError) -> Iterator[str]:
    """Kafka's own form."""
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
