"""`ottla quotas`: how much users, clients and addresses may do."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.failures import UsageError, parse_pairs, run_client
from ottla.cli.parsing import CommandParser

if TYPE_CHECKING:
    from ottla.client.core.admin.access_types import QuotaEntity, QuotaName

DEFAULT = "<default>"
_EXAMPLES = (
    "ottla quotas list",
    "ottla quotas set --user ann producer_byte_rate=1048576",
    "ottla quotas set --user ann --client '<default>' request_percentage=50",
    "ottla quotas delete --user ann producer_byte_rate",
)


def parser() -> CommandParser:
    summary = (
        "List, set and delete quotas: producer_byte_rate, consumer_byte_rate, request_percentage, "
        f"controller_mutation_rate, and connection_creation_rate of addresses. The name {DEFAULT} stands for all who "
        "have no quota of their own."
    )
    made = CommandParser(
        "quotas",
        summary,
        words="VERB [QUOTA]...",
        verbs=("list", "set", "delete"),
        examples=_EXAMPLES,
        prints_rows=True,
    )
    made.add_argument("--user", metavar="NAME", help="a user")
    made.add_argument("--client", metavar="ID", help="a client id")
    made.add_argument("--ip", metavar="ADDRESS", help="an address")
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.read(arguments)
    if options.verb != "list" and not (options.user or options.client or options.ip):
        made.error("whom the quota is for is not said: --user, --client or --ip")
    if options.verb != "list" and not options.words:
        made.error("which quota is not said, such as producer_byte_rate=1048576")
    run_client(_run(options))
    return 0


def entity(options: Namespace) -> QuotaEntity:
    from ottla.client.core.admin.access_types import QUOTA_DEFAULT, QuotaEntity

    def named(name: str | None) -> QuotaName | None:
        return QUOTA_DEFAULT if name == DEFAULT else name

    return QuotaEntity(named(options.user), named(options.client), named(options.ip))


async def _run(options: Namespace) -> None:
    from ottla.cli.rows import show_rows
    from ottla.cli.session import open_admin

    whose = entity(options)
    async with open_admin(options, "ottla-quotas") as admin:
        if options.verb == "list":
            found = await admin.describe_client_quotas(user=whose.user, client_id=whose.client_id, ip=whose.ip)
            rows = [
                (str(owner), name, value) for owner, quotas in found.items() for name, value in sorted(quotas.items())
            ]
            show_rows(options.output, ["entity", "quota", "value"], sorted(rows), right=["value"])
            return
        if options.verb == "set":
            try:
                changes: dict[str, float | None] = {
                    name: float(value) for name, value in parse_pairs("quota", options.words).items()
                }
            except ValueError as e:
                raise UsageError(f"a quota is a number: {e}") from None
        else:
            changes = dict.fromkeys(options.words)
        (await admin.alter_client_quotas({whose: changes})).check()
        print(f"Changed the quotas of {whose}.")
