"""What an admin client is given, looked at before anything is sent: a slip must not do something else, or spoil the
rest of a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ottla.base.errors import EncodeError, ErrorCode
from ottla.client.core.admin.outcomes import Call, admin_error
from ottla.client.core.admin.types import ConfigValue
from ottla.client.errors import ClientError

K = TypeVar("K")
V = TypeVar("V")


def as_list(given: Iterable[K], what: str) -> list[K]:
    """One thing in place of a list would be taken apart: a name into its letters, a partition into its fields."""
    if isinstance(given, str | bytes) or hasattr(given, "_fields") or not isinstance(given, Iterable):
        raise ValueError(f"{what} must be a list, such as [{given!r}]")
    return list(given)


def config_text(value: ConfigValue | None) -> str | None:
    """The value of a setting as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def sort_out(call: Call[K, V], keys: list[K]) -> tuple[list[K], dict[K, ClientError]]:
    """The keys that can be asked about, and errors for those whose values do not fit the request in any version.

    What cannot be encoded after this is something that the version of a broker does not know.
    """
    version = call.request.VERSIONS[-1] if call.max_version is None else call.max_version
    if _refusal(call, keys, version) is None:
        return keys, {}
    refusals = {key: _refusal(call, [key], version) for key in keys}
    refused = {
        key: admin_error(ErrorCode.INVALID_REQUEST, f"this cannot be sent: {reason}", where=key)
        for key, reason in refusals.items()
        if reason is not None
    }
    return [key for key in keys if key not in refused], refused


def _refusal(call: Call[K, V], keys: list[K], version: int) -> EncodeError | None:
    try:
        call.build(keys, version).encode(version)
    except EncodeError as e:
        return e
    return None
