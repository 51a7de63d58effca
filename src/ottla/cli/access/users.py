"""`ottla users`: passwords of users (SCRAM), which are never sent nor shown."""

from __future__ import annotations

from argparse import Namespace

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser, number

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_EXAMPLES = (
    "ottla users list",
    "ottla users set ann --password-file ann.txt",
    "ottla users delete ann --mechanism SCRAM-SHA-256",
)


def parser() -> CommandParser:
    summary = "List users with passwords, set their passwords, and delete them. A password is asked for at a terminal."
    made = CommandParser(
        "users", summary, words="VERB [USER]...", verbs=("list", "set", "delete"), examples=_EXAMPLES, prints_rows=True
    )
    made.add_argument("--mechanism", choices=MECHANISMS, default="SCRAM-SHA-512", help=" or ".join(MECHANISMS))
    made.add_argument("--iterations", type=number, default=8192, metavar="N", help="4096 to 16384; 8192")
    made.add_argument("--password-file", metavar="FILE", help="the password is its first line; - is standard input")
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.read(arguments)
    if options.verb == "set" and len(options.words) != 1:
        made.error("name one user whose password is to be set")
    if options.verb == "delete" and not options.words:
        made.error("which user is not said")
    run_client(_run(options))
    return 0


def _password(options: Namespace) -> str:
    import sys
    from getpass import getpass

    from ottla.cli.failures import UsageError
    from ottla.cli.session import read_text

    if options.password_file == "-":
        return sys.stdin.readline().rstrip("\n")
    if options.password_file is not None:
        lines = read_text(options.password_file).splitlines()
        if not lines:
            raise UsageError(f"{options.password_file} is empty")
        return lines[0]
    if not sys.stdin.isatty():
        raise UsageError("give the password with --password-file (- is standard input)")
    return getpass(f"Password of {options.words[0]}: ")


async def _run(options: Namespace) -> None:
    from ottla.cli.rows import show_rows
    from ottla.cli.session import open_admin
    from ottla.client.core.admin.access_types import ScramDeletion, ScramMechanism, ScramUpsertion

    mechanism = ScramMechanism[options.mechanism.replace("-", "_")]
    async with open_admin(options, "ottla-users") as admin:
        match options.verb:
            case "list":
                found = (await admin.describe_user_scram_credentials(options.words or None)).check()
                rows = [
                    (user, kind.name.replace("_", "-"), iterations)
                    for user, kinds in sorted(found.items())
                    for kind, iterations in sorted(kinds.items())
                ]
                show_rows(options.output, ["user", "mechanism", "iterations"], rows, right=["iterations"])
            case "set":
                change = ScramUpsertion(options.words[0], mechanism, _password(options), options.iterations)
                (await admin.alter_user_scram_credentials([change])).check()
                print(f"Set the password of user '{options.words[0]}' ({options.mechanism}).")
            case _:
                changes = [ScramDeletion(user, mechanism) for user in options.words]
                (await admin.alter_user_scram_credentials(changes)).check()
                for user in options.words:
                    print(f"Deleted the password of user '{user}' ({options.mechanism}).")
