"""kafka-cluster.sh: which cluster this is, and taking a broker out of its list."""

from __future__ import annotations

import sys

from ottla.cli.failures import FAILED, run_client
from ottla.cli.parsing import CommandParser, number

_VERBS = ("cluster-id", "unregister")


def main(arguments: list[str], kafka: str) -> int:
    made = parser(kafka)
    if arguments[:1] in (["-h"], ["--help"]):
        print(made.format_help(), end="")
        return 0
    if (wrong := _wrong(arguments)) is not None:
        print(f"kafka-cluster: error: {wrong}", file=sys.stderr)
        return FAILED
    verb, *rest = arguments
    options = made.read(rest)
    if verb == "unregister":
        # Brokers come and go with their sessions here, as with ZooKeeper, of which Kafka's tool says the same.
        print("The target cluster does not support the broker unregistration API.")
        return 0
    run_client(_show(options.command_config, options.bootstrap_server))
    return 0


def parser(kafka: str) -> CommandParser:
    made = CommandParser("", f"{_VERBS[0]}: show the id of a cluster. {_VERBS[1]}: not here.", kafka=kafka)
    made.add_argument("--config", dest="command_config", metavar="FILE", help="the same as --command-config")
    made.add_argument("--id", type=number, metavar="N", help="the broker to unregister")
    return made


def _wrong(arguments: list[str]) -> str | None:
    """What Kafka's tool says if no verb comes first."""
    if not arguments:
        return "too few arguments"
    if arguments[0].startswith("-"):
        return f"unrecognized arguments: '{arguments[0]}'"
    if arguments[0] not in _VERBS:
        return f"invalid choice: '{arguments[0]}' (choose from {', '.join(map(repr, _VERBS))})"
    return None


async def _show(config: str | None, server: str) -> None:
    from ottla.cli.session import client_config
    from ottla.client.aio.admin.admin import Admin

    async with Admin(client_config(config, server, "ottla-cluster")) as admin:
        found = (await admin.describe_cluster()).cluster_id
        print(f"Cluster ID: {found}" if found else "No cluster ID found. The Kafka version is probably too old.")
