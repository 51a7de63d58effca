"""SCRAM credentials: what is asked of brokers, and what their answers say (KIP-554). Sends nothing.

Passwords stay here: brokers get them salted and hashed, and no error or log says them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ottla.client.core.admin.access_types import ScramChange, ScramDeletion, ScramMechanism, ScramUpsertion
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Call, admin_error, known, outcome
from ottla.client.errors import ClientError
from ottla.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

ALL_USERS = "all users"
SALT_BYTES = 20

_DIGESTS = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
_ITERATIONS_MAX = 1_000_000
"""Above this a slip would keep the machine busy for long; brokers have limits of their own."""

Credentials: TypeAlias = dict[ScramMechanism, int]
"""How often the password was hashed, by mechanism."""

WireChange: TypeAlias = ScramCredentialUpsertion | ScramCredentialDeletion

# Describing


def describe_user_scram_credentials_call() -> Call[str, Credentials]:
    def build(users: Sequence[str], version: int) -> DescribeUserScramCredentialsRequest:
        return DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])

    return Call(
        "describe_user_scram_credentials",
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        build,
        _read_described,
    )


def describe_all_scram_credentials_call() -> Call[str, dict[str, Credentials | ClientError]]:
    def build(_: Sequence[str], version: int) -> DescribeUserScramCredentialsRequest:
        return DescribeUserScramCredentialsRequest(users=None)

    def read(
        response: DescribeUserScramCredentialsResponse,
    ) -> dict[str, dict[str, Credentials | ClientError]] | ClientError:
        described = _read_described(response)
        return described if isinstance(described, ClientError) else {ALL_USERS: dict(sorted(described.items()))}

    return Call(
        "describe_user_scram_credentials",
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        build,
        read,
    )


def _read_described(
    response: DescribeUserScramCredentialsResponse,
) -> dict[str, Credentials | ClientError] | ClientError:
    if response.error_code:
        return admin_error(response.error_code, response.error_message)
    return {
        result.user: outcome(
            result.error_code,
            {known(ScramMechanism, info.mechanism): info.iterations for info in result.credential_infos},
            result.error_message,
            where=_user_label(result.user),
        )
        for result in response.results
    }


def _user_label(user: str) -> str:
    return f"user {user}"


# Altering


def scram_changes(given: Iterable[ScramChange]) -> list[ScramChange]:
    changes = as_list(given, "changes")
    seen = set()
    for change in changes:
        if not isinstance(change, ScramUpsertion | ScramDeletion):
            # It may be a password, in whatever form.
            raise ValueError(f"credentials are changed by ScramUpsertion and ScramDeletion, not by {type(change)}")
        if change.mechanism not in _DIGESTS:
            raise ValueError(
                f"the mechanism for {change.user!r} must be ScramMechanism.SCRAM_SHA_256 or SCRAM_SHA_512, "
                f"but was {change.mechanism!r}"
            )
        if isinstance(change, ScramUpsertion):
            _check_upsertion(change)
        if (change.user, change.mechanism) in seen:
            raise ValueError(f"{change.user!r} has two changes for {ScramMechanism(change.mechanism).name}")
        seen.add((change.user, change.mechanism))
    return changes


def _check_upsertion(change: ScramUpsertion) -> None:
    user, _, password, iterations, salt = _unchecked(change)
    if not (isinstance(password, str | bytes) and password):
        raise ValueError(f"the password of {user!r} must be text or bytes, and not empty")
    if isinstance(password, str) and password.encode(errors="ignore").decode() != password:
        # Python's own error would hold the password.
        raise ValueError(f"the password of {user!r} has characters that cannot be encoded")
    if not (isinstance(iterations, int) and 0 < iterations <= _ITERATIONS_MAX):
        raise ValueError(f"the iterations for {user!r} must be from 1 to {_ITERATIONS_MAX}, but were {iterations!r}")
    if not (salt is None or (isinstance(salt, bytes) and salt)):
        raise ValueError(f"the salt for {user!r} must be bytes, and not empty")


def _unchecked(change: ScramUpsertion) -> tuple[object, ...]:
    """Its values, which may be anything at run time."""
    return change


def salted(changes: Sequence[ScramChange], new_salts: Sequence[bytes]) -> dict[str, list[WireChange]]:
    """What brokers are told, by user. Each change has a new salt, in case it brings none. Takes milliseconds each."""
    by_user: dict[str, list[WireChange]] = {}
    for change, new_salt in zip(changes, new_salts, strict=True):
        by_user.setdefault(change.user, []).append(_wire_change(change, new_salt))
    return by_user


def _wire_change(change: ScramChange, new_salt: bytes) -> WireChange:
    if isinstance(change, ScramDeletion):
        return ScramCredentialDeletion(name=change.user, mechanism=change.mechanism)
    password = change.password.encode() if isinstance(change.password, str) else change.password
    salt = change.salt or new_salt
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(_DIGESTS[change.mechanism], password, salt, change.iterations),
    )


def alter_user_scram_credentials_call(changes: Mapping[str, Sequence[WireChange]]) -> Call[str, None]:
    def build(users: Sequence[str], version: int) -> AlterUserScramCredentialsRequest:
        wanted = [change for user in users for change in changes[user]]
        return AlterUserScramCredentialsRequest(
            deletions=[change for change in wanted if isinstance(change, ScramCredentialDeletion)],
            upsertions=[change for change in wanted if isinstance(change, ScramCredentialUpsertion)],
        )

    def read(response: AlterUserScramCredentialsResponse) -> dict[str, ClientError | None]:
        return {
            result.user: outcome(result.error_code, None, result.error_message, where=_user_label(result.user))
            for result in response.results
        }

    return Call(
        "alter_user_scram_credentials",
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        build,
        read,
    )
