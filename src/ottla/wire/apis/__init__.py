"""The table of APIs. Each API's messages live in a module of their own, imported when first asked for.

A broker that starts does not pay for the many APIs nobody has called yet.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from ottla.base.errors import ProtocolError
from ottla.wire.api_keys import ApiKey
from ottla.wire.message import Request, Response


class ApiInfo(NamedTuple):
    key: int
    name: str
    """Kafka's name of the API, as in `Metadata`."""
    module: str


def _info(key: ApiKey) -> ApiInfo:
    words = key.name.lower()
    return ApiInfo(int(key), "".join(word.capitalize() for word in words.split("_")), f"{__name__}.{words}")


API_TABLE: dict[int, ApiInfo] = {int(key): _info(key) for key in ApiKey}

_requests: dict[int, type[Request]] = {}
_responses: dict[int, type[Response]] = {}


def request_class(api_key: int) -> type[Request]:
    """The request of an API; an API we do not speak is a ProtocolError."""
    if api_key not in _requests:
        _load(api_key)
    return _requests[api_key]


def response_class(api_key: int) -> type[Response]:
    """The response of an API; an API we do not speak is a ProtocolError."""
    if api_key not in _responses:
        _load(api_key)
    return _responses[api_key]


def _load(api_key: int) -> None:
    info = API_TABLE.get(api_key)
    if info is None:
        raise ProtocolError(f"there is no API with key {api_key}")
    module = import_module(info.module)
    _requests[api_key] = getattr(module, f"{info.name}Request")
    _responses[api_key] = getattr(module, f"{info.name}Response")
