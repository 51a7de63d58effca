"""Client quotas: what is asked of brokers, and what their answers say (KIP-546). Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.core.admin.access_types import QUOTA_ANY, QUOTA_DEFAULT, QuotaEntity, QuotaName, QuotaScope
from ottla.client.core.admin.outcomes import Call, outcome
from ottla.client.errors import ClientError
from ottla.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaOperation,
)
from ottla.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    QuotaFilter,
)

QUOTAS = "client quotas"

_EXACT, _DEFAULT, _ANY = 0, 1, 2

# Describing


def describe_client_quotas_call(
    user: str | QuotaScope | None, client_id: str | QuotaScope | None, ip: str | QuotaScope | None, *, strict: bool
) -> Call[str, dict[QuotaEntity, dict[str, float]]]:
    def build(_: Sequence[str], version: int) -> DescribeClientQuotasRequest:
        named = (("user", user), ("client-id", client_id), ("ip", ip))
        return DescribeClientQuotasRequest(
            components=[_component(kind, name) for kind, name in named if name is not None], strict=strict
        )

    def read(
        response: DescribeClientQuotasResponse,
    ) -> dict[str, dict[QuotaEntity, dict[str, float]] | ClientError]:
        found = {
            _entity(entry.entity): {
                value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)
            }
            for entry in response.entries or ()
        }
        by_name = dict(sorted(found.items(), key=lambda item: str(item[0])))
        return {QUOTAS: outcome(response.error_code, by_name, response.error_message)}

    return Call("describe_client_quotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse, build, read)


def _component(kind: str, name: str | QuotaScope) -> QuotaFilter:
    if name is QUOTA_DEFAULT:
        return QuotaFilter(entity_type=kind, match_type=_DEFAULT, match=None)
    if name is QUOTA_ANY:
        return QuotaFilter(entity_type=kind, match_type=_ANY, match=None)
    return QuotaFilter(entity_type=kind, match_type=_EXACT, match=name)


def _entity(parts: Iterable[DescribedEntity | AlteredEntity]) -> QuotaEntity:
    names: dict[str, QuotaName] = {
        part.entity_type: QUOTA_DEFAULT if part.entity_name is None else part.entity_name for part in parts
    }
    user, client_id, ip = (names.pop(kind, None) for kind in ("user", "client-id", "ip"))
    return QuotaEntity(user, client_id, ip, tuple(sorted(names.items(), key=lambda item: item[0])))


# Altering


def quotas_to_alter(
    given: Mapping[QuotaEntity, Mapping[str, float | None]],
) -> dict[QuotaEntity, dict[str, float | None]]:
    if not isinstance(given, Mapping):
        raise ValueError(
            f"quotas are given by entity, such as {{QuotaEntity(user='alice'): {{…}}}}, but were {given!r}"
        )
    return {_checked_entity(entity): _checked_quotas(entity, quotas) for entity, quotas in given.items()}


def _checked_entity(entity: QuotaEntity) -> QuotaEntity:
    if not isinstance(entity, QuotaEntity):
        raise ValueError(f"a quota is for an entity, such as QuotaEntity(user='alice'), but was for {entity!r}")
    if not entity.parts():
        raise ValueError("a QuotaEntity has to name a user, a client_id or an ip; QUOTA_DEFAULT stands for all others")
    if QUOTA_ANY in entity:
        raise ValueError("QUOTA_ANY finds quotas, and cannot have one; QUOTA_DEFAULT stands for all others")
    return entity


def _checked_quotas(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> dict[str, float | None]:
    if not isinstance(quotas, Mapping):
        raise ValueError(
            f"the quotas of {entity} have names, such as {{'producer_byte_rate': 1000}}, but were {quotas!r}"
        )
    return {key: _checked_value(entity, key, value) for key, value in quotas.items()}


def _checked_value(entity: QuotaEntity, key: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} of {entity} must be a number, or None to remove it, but was {value!r}")
    try:
        return float(value)
    except OverflowError as e:
        raise ValueError(f"{key} of {entity} is too large") from e


def alter_client_quotas_call(
    quotas: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> Call[QuotaEntity, None]:
    # The parts of an entity may come back in another order.
    entities = {frozenset(entity.parts()): entity for entity in quotas}

    def build(asked: Sequence[QuotaEntity], version: int) -> AlterClientQuotasRequest:
        return AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntry(
                    entity=[
                        AlteredEntity(entity_type=kind, entity_name=None if name is QUOTA_DEFAULT else name)
                        for kind, name in entity.parts()
                    ],
                    ops=[
                        QuotaOperation(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in quotas[entity].items()
                    ],
                )
                for entity in asked
            ],
            validate_only=validate_only,
        )

    def read(response: AlterClientQuotasResponse) -> dict[QuotaEntity, ClientError | None]:
        answers: dict[QuotaEntity, ClientError | None] = {}
        for entry in response.entries:
            answered = _entity(entry.entity)
            entity = entities.get(frozenset(answered.parts()), answered)
            answers[entity] = outcome(entry.error_code, None, entry.error_message, where=entity)
        return answers

    return Call("alter_client_quotas", AlterClientQuotasRequest, AlterClientQuotasResponse, build, read)
