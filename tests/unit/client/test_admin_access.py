"""Rules, quotas and credentials without a broker: what is sent in each version, and what replies say."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

import ottla
from ottla.base.errors import ErrorCode
from ottla.client.core.admin import acls as admin_acls
from ottla.client.core.admin import quotas as admin_quotas
from ottla.client.core.admin import scram as admin_scram
from ottla.client.core.admin.access_types import (
    EVERY_ACL,
    QUOTA_ANY,
    QUOTA_DEFAULT,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResourceType,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from ottla.client.core.admin.arguments import sort_out
from ottla.client.core.admin.outcomes import Call
from ottla.client.errors import ClientError
from ottla.wire.apis import alter_client_quotas, describe_client_quotas, describe_user_scram_credentials
from ottla.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from ottla.wire.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.wire.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.wire.message import Request, Response

TOPIC, READ, ALLOW = AclResourceType.TOPIC, AclOperation.READ, AclPermission.ALLOW
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ORDERS = AclBinding(TOPIC, "orders", "User:alice", READ)
REFUSED = int(ErrorCode.INVALID_REQUEST)


def sent(call: Call[Any, Any], keys: list[Any], version: int) -> Any:
    """The request as a broker reads it."""
    request: Request = call.build(keys, version)
    return call.request.decode(request.encode(version), version)[0]


def heard(call: Call[Any, Any], keys: list[Any], response: Response, version: int) -> dict[Any, Any]:
    """What the client makes of a response that came over the wire."""
    return call.answers(keys, call.response.decode(response.encode(version), version)[0])


def unsupported(build: Callable[[], object]) -> bool:
    with pytest.raises(ClientError, match="too old") as caught:
        build()
    return caught.value.code is ErrorCode.UNSUPPORTED_VERSION


# Rules


@pytest.mark.parametrize("version", CreateAclsRequest.VERSIONS)
def test_rules_to_create_in_every_version(version: int) -> None:
    call = admin_acls.create_acls_call()
    denied = ORDERS._replace(permission=AclPermission.DENY, host="10.0.0.1")
    first, second = sent(call, [ORDERS, denied], version).creations
    assert (first.resource_type, first.resource_name, first.resource_pattern_type) == (2, "orders", 3)
    assert (first.principal, first.host, first.operation, first.permission_type) == ("User:alice", "*", 3, 3)
    assert (second.host, second.permission_type) == ("10.0.0.1", 2)
    prefixed, about_user = (
        ORDERS._replace(pattern=AclPattern.PREFIXED),
        ORDERS._replace(resource_type=AclResourceType.USER),
    )
    if version >= 1:
        assert sent(call, [prefixed], version).creations[0].resource_pattern_type == 4
    else:
        assert unsupported(lambda: call.build([prefixed], version))
    if version >= 3:
        assert sent(call, [about_user], version).creations[0].resource_type == 7
    else:
        assert unsupported(lambda: call.build([about_user], version))


@pytest.mark.parametrize("version", DescribeAclsRequest.VERSIONS)
def test_filters_in_every_version(version: int) -> None:
    describe, delete = admin_acls.describe_acls_call(), admin_acls.delete_acls_call()
    for request in (sent(describe, [EVERY_ACL], version), sent(delete, [EVERY_ACL], version).filters[0]):
        assert (request.resource_type_filter, request.operation, request.permission_type) == (1, 1, 1)
        assert request.resource_name_filter is request.principal_filter is request.host_filter is None
        # Brokers that do not know patterns have literal rules only.
        assert request.pattern_type_filter == (1 if version else 3)
    exactly = sent(describe, [AclFilter.exactly(ORDERS)], version)
    assert (exactly.resource_name_filter, exactly.principal_filter, exactly.host_filter) == (
        "orders",
        "User:alice",
        "*",
    )
    assert (exactly.resource_type_filter, exactly.pattern_type_filter, exactly.operation) == (2, 3, 3)
    for pattern in (AclPattern.MATCH, AclPattern.PREFIXED):
        entry = AclFilter(pattern=pattern)
        if version:
            assert sent(delete, [entry], version).filters[0].pattern_type_filter == pattern
        else:
            assert unsupported(lambda entry=entry: delete.build([entry], version))
            assert unsupported(lambda entry=entry: describe.build([entry], version))


def test_answers_about_rules_are_matched_by_their_order() -> None:
    call = admin_acls.create_acls_call()
    rules = [ORDERS._replace(name=name) for name in ("a", "b", "c")]
    results = [AclCreationResult(), AclCreationResult(error_code=REFUSED, error_message="no"), AclCreationResult()]
    for version in CreateAclsRequest.VERSIONS:
        answers = heard(call, rules, CreateAclsResponse(results=results), version)
        assert [answers[rule] for rule in (rules[0], rules[2])] == [None, None]
        assert answers[rules[1]].code is ErrorCode.INVALID_REQUEST
        assert answers[rules[1]].message == "allow User:alice from * to read topic b: no"
    # Which of three are meant by two cannot be known.
    short = call.answers(rules, CreateAclsResponse(results=results[:2]))
    assert {answer.message for answer in short.values() if answer is not None} == {
        "the broker was asked about 3 things and answered about 2"
    }
    assert len(short) == 3


def test_what_cannot_be_sent_does_not_shift_the_answers() -> None:
    bad = ORDERS._replace(name=5)  # type: ignore[arg-type]
    good = [ORDERS._replace(name=name) for name in ("a", "b")]
    sendable, refused = sort_out(admin_acls.create_acls_call(), [good[0], bad, good[1]])
    assert sendable == good
    assert refused[bad].code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", DescribeAclsRequest.VERSIONS)
def test_rules_that_are_described(version: int) -> None:
    def rule(principal: str, operation: int = 3, permission: int = 3) -> AclDescription:
        return AclDescription(principal=principal, host="*", operation=operation, permission_type=permission)

    pattern = 4 if version else 3
    resources = [
        DescribeAclsResource(resource_type=3, resource_name="g", pattern_type=pattern, acls=[rule("User:z")]),
        DescribeAclsResource(resource_type=2, resource_name="t", acls=[rule("User:b"), rule("User:a", 99, 98)]),
        DescribeAclsResource(resource_type=97, resource_name="u", acls=[rule("User:a")]),
    ]
    call = admin_acls.describe_acls_call()
    found = heard(call, [EVERY_ACL], DescribeAclsResponse(resources=resources), version)[EVERY_ACL]
    assert found == [
        AclBinding(AclResourceType.UNKNOWN, "u", "User:a", READ),
        AclBinding(TOPIC, "t", "User:a", AclOperation.UNKNOWN, AclPermission.UNKNOWN),
        AclBinding(TOPIC, "t", "User:b", READ),
        AclBinding(AclResourceType.GROUP, "g", "User:z", READ, pattern=AclPattern(pattern)),
    ]
    failed = DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No authorizer")
    error = heard(call, [EVERY_ACL], failed, version)[EVERY_ACL]
    assert (error.code, error.message) == (ErrorCode.SECURITY_DISABLED, "all rules: No authorizer")


@pytest.mark.parametrize("version", DeleteAclsRequest.VERSIONS)
def test_a_rule_that_is_not_deleted_is_not_lost(version: int) -> None:
    def match(name: str, code: int = 0, **fields: Any) -> DeleteAclsMatchingAcl:
        given = {"principal": "User:a", "host": "*", "resource_type": 2, "operation": 3, "permission_type": 3, **fields}
        return DeleteAclsMatchingAcl(resource_name=name, error_code=code, **given)

    filters = [AclFilter(name=name) for name in ("all", "some", "none", "odd")]
    results = [
        DeleteAclsFilterResult(matching_acls=[match("t2"), match("t1")]),
        DeleteAclsFilterResult(matching_acls=[match("t3"), match("t4", 31_999), match("t5", REFUSED)]),
        DeleteAclsFilterResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        DeleteAclsFilterResult(matching_acls=[match("t6", resource_type=77, operation=88, permission_type=99)]),
    ]
    answers = heard(admin_acls.delete_acls_call(), filters, DeleteAclsResponse(filter_results=results), version)
    everything, some, nothing, odd = (answers[key] for key in filters)
    assert everything == [AclBinding(TOPIC, name, "User:a", READ) for name in ("t1", "t2")]
    assert some.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "of 3 rules that match, 2 could not be deleted" in some.message
    for words in ("rules with name=some", "topic t4", "31999", "topic t5 (INVALID_REQUEST"):
        assert words in some.message
    assert nothing.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert odd == [AclBinding(AclResourceType.UNKNOWN, "t6", "User:a", AclOperation.UNKNOWN, AclPermission.UNKNOWN)]


def test_a_pattern_of_a_newer_kafka() -> None:
    resource = DescribeAclsResource(resource_type=2, pattern_type=9, acls=[AclDescription()])
    (found,) = admin_acls.describe_acls_call().answers([EVERY_ACL], DescribeAclsResponse(resources=[resource])).values()
    assert not isinstance(found, ClientError)
    assert found[0].pattern is AclPattern.UNKNOWN


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (ORDERS._replace(resource_type=AclResourceType.ANY), "name its resource_type, but ANY was given"),
        (ORDERS._replace(operation=AclOperation.UNKNOWN), "name its operation, but UNKNOWN was given"),
        (ORDERS._replace(pattern=AclPattern.MATCH), "name its pattern, but MATCH was given"),
        (ORDERS._replace(permission=AclPermission.ANY), "name its permission, but ANY was given"),
        (ORDERS._replace(principal="alice"), "such as User:alice, but was 'alice'"),
        (ORDERS._replace(principal="User:"), "such as User:alice, but was 'User:'"),
        (AclFilter(), "rules are created from AclBinding, but one was AclFilter"),
    ],
)
def test_slips_in_rules(given: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        admin_acls.bindings_to_create([ORDERS, given])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (AclFilter(operation=AclOperation.UNKNOWN), "cannot ask for what is UNKNOWN"),
        (AclFilter(resource_type=AclResourceType.UNKNOWN), "cannot ask for what is UNKNOWN"),
        (AclFilter(permission=AclPermission.UNKNOWN), "cannot ask for what is UNKNOWN"),
        (AclFilter(pattern=AclPattern.UNKNOWN), "cannot ask for what is UNKNOWN"),
        (AclFilter(principal="alice"), "such as User:alice, but was 'alice'"),
        (ORDERS, "AclFilter.exactly finds one AclBinding"),
    ],
)
def test_slips_in_filters(given: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        admin_acls.filters_to_ask([given])


def test_filters_read_well() -> None:
    assert str(EVERY_ACL) == "all rules"
    assert str(AclFilter(TOPIC, "t")) == "rules with resource_type=topic, name=t"
    assert str(ORDERS._replace(pattern=AclPattern.PREFIXED)).endswith("to read topic prefixed orders")


# Quotas


def test_entities_read_well() -> None:
    entity = QuotaEntity("alice", QUOTA_DEFAULT)
    assert repr(entity) == "QuotaEntity(user='alice', client_id=QUOTA_DEFAULT)"
    assert str(entity) == "user alice, client-id (default)"
    assert {entity: 1}[QuotaEntity(client_id=ottla.QUOTA_DEFAULT, user="alice")] == 1


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_asked_for_by_parts(version: int) -> None:
    call = admin_quotas.describe_client_quotas_call("alice", QUOTA_DEFAULT, QUOTA_ANY, strict=True)
    request = sent(call, [admin_quotas.QUOTAS], version)
    assert request.strict
    assert [(part.entity_type, part.match_type, part.match) for part in request.components] == [
        ("user", 0, "alice"),
        ("client-id", 1, None),
        ("ip", 2, None),
    ]
    everything = admin_quotas.describe_client_quotas_call(None, None, None, strict=False)
    assert sent(everything, [admin_quotas.QUOTAS], version).components == []


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_that_are_described(version: int) -> None:
    wire = describe_client_quotas

    def quota(value: float, **parts: str | None) -> describe_client_quotas.DescribedQuota:
        entity = [
            wire.DescribedEntity(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in parts.items()
        ]
        return wire.DescribedQuota(entity=entity, values=[wire.QuotaValue(key="rate", value=value)])

    call = admin_quotas.describe_client_quotas_call(None, None, None, strict=False)
    entries = [quota(1, client_id="c", user=None), quota(2, ip="127.0.0.1"), quota(3, user="a", zone="z", area=None)]
    response = wire.DescribeClientQuotasResponse(entries=entries)
    found = heard(call, [admin_quotas.QUOTAS], response, version)[admin_quotas.QUOTAS]
    assert found == {
        QuotaEntity(QUOTA_DEFAULT, "c"): {"rate": 1.0},
        QuotaEntity(ip="127.0.0.1"): {"rate": 2.0},
        QuotaEntity("a", others=(("area", QUOTA_DEFAULT), ("zone", "z"))): {"rate": 3.0},
    }
    failed = wire.DescribeClientQuotasResponse(error_code=REFUSED, error_message="no", entries=None)
    assert heard(call, [admin_quotas.QUOTAS], failed, version)[admin_quotas.QUOTAS].message == "no"


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_altered(version: int) -> None:
    wire = alter_client_quotas
    both, other = QuotaEntity("alice", QUOTA_DEFAULT), QuotaEntity(others=(("zone", "z"), ("area", "a")))
    quotas = admin_quotas.quotas_to_alter({both: {"kept": 5, "gone": None}, other: {}})
    call = admin_quotas.alter_client_quotas_call(quotas, validate_only=True)
    request = sent(call, [both, other], version)
    assert request.validate_only
    assert [(part.entity_type, part.entity_name) for part in request.entries[0].entity] == [
        ("user", "alice"),
        ("client-id", None),
    ]
    assert [(op.key, op.value, op.remove) for op in request.entries[0].ops] == [
        ("kept", 5.0, False),
        ("gone", 0.0, True),
    ]
    # The answers come in another order, as do the parts of an entity.
    entries = [
        wire.AlterClientQuotasResponseEntry(error_code=code, entity=list(reversed(entry.entity)))
        for code, entry in zip((0, REFUSED), reversed(request.entries), strict=True)
    ]
    answers = heard(call, [both, other], wire.AlterClientQuotasResponse(entries=entries), version)
    assert answers[other] is None
    assert answers[both].message.startswith("user alice, client-id (default): ")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([QuotaEntity("a")], "given by entity"),
        ({"alice": {"rate": 1}}, r"QuotaEntity\(user='alice'\), but was for 'alice'"),
        ({QuotaEntity(): {"rate": 1}}, "has to name a user"),
        ({QuotaEntity(QUOTA_ANY): {"rate": 1}}, "QUOTA_ANY finds quotas"),
        ({QuotaEntity("a"): 5}, "the quotas of user a have names"),
        ({QuotaEntity("a"): {"rate": "5"}}, "rate of user a must be a number, or None to remove it, but was '5'"),
        ({QuotaEntity("a"): {"rate": True}}, "must be a number"),
        ({QuotaEntity("a"): {"rate": 10**400}}, "rate of user a is too large"),
    ],
)
def test_slips_in_quotas(given: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        admin_quotas.quotas_to_alter(given)


# Credentials


def test_the_example_of_rfc_7677() -> None:
    """A proof that its client sends, made from our salted password."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    change = ScramUpsertion("user", SHA_256, "pencil", iterations=4096, salt=salt)
    ((upsertion,),) = admin_scram.salted([change], [b"unused"]).values()
    assert isinstance(upsertion, ScramCredentialUpsertion)
    assert (upsertion.salt, upsertion.iterations) == (salt, 4096)
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", "sha256")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def test_credentials_are_altered() -> None:
    changes = admin_scram.scram_changes(
        [
            ScramUpsertion("a", SHA_256, "one", 4096),
            ScramDeletion("b", SHA_512),
            ScramUpsertion("c", SHA_512, b"two", 5000, b"own"),
        ]
    )
    call = admin_scram.alter_user_scram_credentials_call(admin_scram.salted(changes, [b"s1", b"s2", b"s3"]))
    request = sent(call, ["a", "b", "c"], 0)
    assert [(entry.name, entry.mechanism) for entry in request.deletions] == [("b", 2)]
    assert [(entry.name, entry.mechanism, entry.iterations, entry.salt) for entry in request.upsertions] == [
        ("a", 1, 4096, b"s1"),
        ("c", 2, 5000, b"own"),
    ]
    assert [len(entry.salted_password) for entry in request.upsertions] == [32, 64]
    assert [entry.name for entry in sent(call, ["c"], 0).upsertions] == ["c"]
    results = [AlterUserScramCredentialsResult(user="c"), AlterUserScramCredentialsResult(user="a", error_code=91)]
    answers = heard(call, ["a", "c"], AlterUserScramCredentialsResponse(results=results), 0)
    assert answers["c"] is None
    assert answers["a"].message.startswith("user a: ")


def test_credentials_that_are_described() -> None:
    wire = describe_user_scram_credentials
    infos = [wire.CredentialInfo(mechanism=number, iterations=number * 1000) for number in (1, 2, 9)]
    response = wire.DescribeUserScramCredentialsResponse(
        results=[
            wire.DescribeUserScramCredentialsResult(user="b", error_code=ErrorCode.RESOURCE_NOT_FOUND),
            wire.DescribeUserScramCredentialsResult(user="a", credential_infos=infos),
        ]
    )
    expected = {SHA_256: 1000, SHA_512: 2000, ScramMechanism.UNKNOWN: 9000}
    named, everybody = (
        admin_scram.describe_user_scram_credentials_call(),
        admin_scram.describe_all_scram_credentials_call(),
    )
    assert [user.name for user in sent(named, ["a", "b"], 0).users] == ["a", "b"]
    assert sent(everybody, [admin_scram.ALL_USERS], 0).users is None
    assert heard(named, ["a", "b"], response, 0)["a"] == expected
    found = heard(everybody, [admin_scram.ALL_USERS], response, 0)[admin_scram.ALL_USERS]
    assert list(found) == ["a", "b"]
    assert found["a"] == expected
    assert found["b"].code is ErrorCode.RESOURCE_NOT_FOUND

    failed = wire.DescribeUserScramCredentialsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for call, keys in ((named, ["a", "b"]), (everybody, [admin_scram.ALL_USERS])):
        errors = heard(call, keys, failed, 0)
        assert [errors[key].code for key in keys] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(keys)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (ScramUpsertion("a", SHA_256, ""), "the password of 'a' must be text or bytes"),
        (ScramUpsertion("a", SHA_256, 5), "the password of 'a' must be text or bytes"),  # type: ignore[arg-type]
        (ScramUpsertion("a", SHA_256, "secret\ud800"), "the password of 'a' has characters that cannot be encoded"),
        (ScramUpsertion("a", "SCRAM-SHA-256", "secret"), "must be ScramMechanism"),  # type: ignore[arg-type]
        (ScramUpsertion("a", ScramMechanism.UNKNOWN, "secret"), "must be ScramMechanism.SCRAM_SHA_256 or"),
        (ScramUpsertion("a", SHA_256, "secret", iterations=0), "must be from 1 to 1000000, but were 0"),
        (ScramUpsertion("a", SHA_256, "secret", iterations=2**40), "must be from 1 to 1000000"),
        (ScramUpsertion("a", SHA_256, "secret", salt=b""), "the salt for 'a' must be bytes"),
        (ScramDeletion("b", SHA_256), "'b' has two changes for SCRAM_SHA_256"),
        (("a", SHA_256, "secret"), "not by <class 'tuple'>"),
    ],
)
def test_slips_in_credentials(given: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=shown) as caught:
        admin_scram.scram_changes([ScramDeletion("b", SHA_256), given])
    assert "secret" not in str(caught.value)


def test_a_password_is_never_shown() -> None:
    change = ScramUpsertion("a", SHA_256, "secret", salt=b"secret salt")
    ((upsertion,),) = admin_scram.salted([change], [b""]).values()
    hashed = hashlib.pbkdf2_hmac("sha256", b"secret", b"secret salt", 8192)
    for shown in (repr(change), str(change), f"{change}", repr([change]), repr(upsertion)):
        assert "secret" not in shown
        assert repr(hashed)[2:-1] not in shown
