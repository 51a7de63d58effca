"""The part of kafka-configs about users, clients and addresses: what a broker is asked, what is printed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable

import pytest

from ottla.cli.access.kafka_configs import _alter, _describe
from ottla.cli.configs import DEFAULT
from ottla.cli.failures import UsageError
from ottla.client.aio import Admin
from ottla.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntry,
    AlteredEntity,
)
from ottla.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    DescribedQuota,
    QuotaValue,
)
from ottla.wire.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.wire.apis.metadata import MetadataRequest
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.waiting import run_async

Named = dict[str, str | None]


def asked(work: Callable[[Admin], Awaitable[None]]) -> ScriptedBroker:
    """A broker that grants everything, after `work`."""

    async def run() -> ScriptedBroker:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            broker.on(AlterClientQuotasRequest, lambda request: granted(request))
            broker.on(
                AlterUserScramCredentialsRequest,
                lambda request: AlterUserScramCredentialsResponse(
                    results=[
                        AlterUserScramCredentialsResult(user=name)
                        for name in {change.name for change in (*request.deletions, *request.upsertions)}
                    ]
                ),
            )
            broker.on(DescribeClientQuotasRequest, lambda _: DescribeClientQuotasResponse(entries=quotas()))
            broker.on(DescribeUserScramCredentialsRequest, lambda _: passwords())
            async with Admin(bootstrap_servers=broker.address) as admin:
                await work(admin)
            return broker

    return run_async(run())


def granted(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntry(
                entity=[
                    AlteredEntity(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                ]
            )
            for entry in request.entries
        ]
    )


def quotas() -> list[DescribedQuota]:
    return [
        DescribedQuota(
            entity=[
                DescribedEntity(entity_type="user", entity_name="a"),
                DescribedEntity(entity_type="client-id", entity_name=None),
            ],
            values=[QuotaValue(key="producer_byte_rate", value=2.0), QuotaValue(key="consumer_byte_rate", value=1.5)],
        )
    ]


def passwords() -> DescribeUserScramCredentialsResponse:
    infos = [CredentialInfo(mechanism=2, iterations=4096), CredentialInfo(mechanism=1, iterations=8192)]
    return DescribeUserScramCredentialsResponse(
        results=[DescribeUserScramCredentialsResult(user="a", credential_infos=infos)]
    )


def altered(named: Named, *, add: str = "", delete: str = "") -> ScriptedBroker:
    options = Namespace(add_config=[add] if add else [], delete_config=[delete] if delete else [])
    return asked(lambda admin: _alter(admin, named, options))


SHOWN_QUOTAS = (
    "Quota configs for user-principal 'a', the default client-id are consumer_byte_rate=1.5, producer_byte_rate=2.0\n"
)
SHOWN_PASSWORDS = (
    "SCRAM credential configs for user-principal 'a' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
)


@pytest.mark.parametrize(
    ("named", "parts", "users"),
    [
        ({"users": "a"}, [("user", 0, "a")], ["a"]),
        ({"users": None}, [("user", 2, None)], None),
        ({"users": DEFAULT}, [("user", 1, None)], []),
        ({"users": "a", "clients": "c"}, [("user", 0, "a"), ("client-id", 0, "c")], []),
        ({"clients": DEFAULT}, [("client-id", 1, None)], []),
        ({"ips": "127.0.0.1"}, [("ip", 0, "127.0.0.1")], []),
    ],
)
def test_what_is_described(
    capsys: pytest.CaptureFixture[str],
    named: Named,
    parts: list[tuple[str, int, str | None]],
    users: list[str] | None,
) -> None:
    broker = asked(lambda admin: _describe(admin, named))
    (request,) = broker.asked(DescribeClientQuotasRequest)
    assert request.strict
    assert [(part.entity_type, part.match_type, part.match) for part in request.components] == parts
    shows_passwords = users != []
    assert [
        users and [user.name for user in request.users] for request in broker.asked(DescribeUserScramCredentialsRequest)
    ] == ([users] if shows_passwords else [])
    assert capsys.readouterr().out == SHOWN_QUOTAS + (SHOWN_PASSWORDS if shows_passwords else "")


@pytest.mark.parametrize(
    ("named", "entity", "done"),
    [
        ({"users": "a"}, {"user": "a"}, "Completed updating config for user a.\n"),
        ({"users": "a", "clients": "c"}, {"user": "a", "client-id": "c"}, "Completed updating config for user a.\n"),
        ({"clients": DEFAULT}, {"client-id": None}, "Completed updating default config for clients in the cluster.\n"),
        ({"ips": "127.0.0.1"}, {"ip": "127.0.0.1"}, "Completed updating config for ip 127.0.0.1.\n"),
    ],
)
def test_quotas_are_set_and_removed(
    capsys: pytest.CaptureFixture[str], named: Named, entity: dict[str, str | None], done: str
) -> None:
    broker = altered(named, add="request_percentage=12.5", delete="producer_byte_rate, consumer_byte_rate,")
    (request,) = broker.asked(AlterClientQuotasRequest)
    (entry,) = request.entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == entity
    assert {op.key: None if op.remove else op.value for op in entry.ops} == {
        "request_percentage": 12.5,
        "producer_byte_rate": None,
        "consumer_byte_rate": None,
    }
    assert broker.asked(AlterUserScramCredentialsRequest) == []
    assert capsys.readouterr().out == done


def test_passwords_are_set_and_removed() -> None:
    broker = altered({"users": "a"}, add="SCRAM-SHA-256=[iterations=4096,password=p]", delete="SCRAM-SHA-512")
    (request,) = broker.asked(AlterUserScramCredentialsRequest)
    assert [(each.name, each.mechanism) for each in request.deletions] == [("a", 2)]
    assert [(each.name, each.mechanism, each.iterations) for each in request.upsertions] == [("a", 1, 4096)]
    assert broker.asked(AlterClientQuotasRequest) == []
    (request,) = altered({"users": "a"}, add="SCRAM-SHA-512=[password=p]").asked(AlterUserScramCredentialsRequest)
    assert [(each.mechanism, each.iterations) for each in request.upsertions] == [(2, 8192)]


@pytest.mark.parametrize(
    ("add", "says"),
    [("request_percentage=x", "must be a number"), ("SCRAM-SHA-256=[iterations=1]", "needs a password")],
)
def test_what_makes_no_sense(add: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        altered({"users": "a"}, add=add)
