"""The part of kafka-configs that is about users, clients and addresses: quotas and SCRAM passwords, in its words."""

from __future__ import annotations

from argparse import Namespace

from ottla.base.errors import KafkaError
from ottla.cli.configs import DEFAULT, parse_settings
from ottla.cli.failures import UsageError
from ottla.cli.session import open_admin
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.access_types import (
    QUOTA_ANY,
    QUOTA_DEFAULT,
    QuotaEntity,
    QuotaName,
    QuotaScope,
    ScramChange,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)

_MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_LABELS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


async def run(options: Namespace) -> None:
    named = dict(options.entities)
    async with open_admin(options, "ottla-configs") as admin:
        if options.verb == "describe":
            await _describe(admin, named)
        else:
            await _alter(admin, named, options)


def _asked(named: dict[str, str | None], kind: str) -> str | QuotaScope | None:
    if kind not in named:
        return None
    name = named[kind]
    return QUOTA_ANY if name is None else QUOTA_DEFAULT if name == DEFAULT else name


async def _describe(admin: Admin, named: dict[str, str | None]) -> None:
    found = await admin.describe_client_quotas(
        user=_asked(named, "users"), client_id=_asked(named, "clients"), ip=_asked(named, "ips"), strict=True
    )
    for entity, quotas in found.items():
        who = ", ".join(
            f"{_LABELS.get(kind, kind)} '{name}'" if isinstance(name, str) else f"the default {_LABELS.get(kind, kind)}"
            for kind, name in entity.parts()
        )
        values = ", ".join(f"{name}={float(value)}" for name, value in sorted(quotas.items()))
        print(f"Quota configs for {who} are {values}")
    if set(named) == {"users"} and named["users"] != DEFAULT:
        asked = None if named["users"] is None else [named["users"]]
        try:
            credentials = (await admin.describe_user_scram_credentials(asked)).results
        except KafkaError:
            return  # a broker without passwords has none to show
        for user, kinds in sorted(credentials.items()):
            values = ", ".join(
                f"{kind.name.replace('_', '-')}=iterations={iterations}" for kind, iterations in sorted(kinds.items())
            )
            print(f"SCRAM credential configs for user-principal '{user}' are {values}")


async def _alter(admin: Admin, named: dict[str, str | None], options: Namespace) -> None:
    settings = parse_settings(options.add_config)
    removed = [name.strip() for text in options.delete_config for name in text.split(",") if name.strip()]
    scram = _scram_changes(named, settings, removed)
    if scram:
        (await admin.alter_user_scram_credentials(scram)).check()
    quotas: dict[str, float | None] = dict.fromkeys(name for name in removed if name not in _MECHANISMS)
    for name, value in settings.items():
        if name not in _MECHANISMS:
            try:
                quotas[name] = float(value)
            except ValueError:
                raise UsageError(f"{name} must be a number, but was {value!r}") from None
    if quotas:
        whose = QuotaEntity(_owner(named, "users"), _owner(named, "clients"), _owner(named, "ips"))
        (await admin.alter_client_quotas({whose: quotas})).check()
    kind, first = next(iter(named.items()))
    if first == DEFAULT:
        print(f"Completed updating default config for {kind} in the cluster.")
    else:
        print(f"Completed updating config for {kind.removesuffix('s')} {first}.")


def _owner(named: dict[str, str | None], kind: str) -> QuotaName | None:
    return QUOTA_DEFAULT if named.get(kind) == DEFAULT else named.get(kind)


def _scram_changes(named: dict[str, str | None], settings: dict[str, str], removed: list[str]) -> list[ScramChange]:
    user = named.get("users") or ""
    changes: list[ScramChange] = [
        ScramDeletion(user, mechanism) for name, mechanism in _MECHANISMS.items() if name in removed
    ]
    for name, mechanism in _MECHANISMS.items():
        if name in settings:
            parts = dict(part.partition("=")[::2] for part in settings[name].split(","))
            if "password" not in parts:
                raise UsageError(f"{name} needs a password: {name}=[iterations=8192,password=…]")
            iterations = int(parts.get("iterations", "8192"))
            changes.append(ScramUpsertion(user, mechanism, parts["password"], iterations))
    return changes
