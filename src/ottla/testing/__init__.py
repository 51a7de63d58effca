"""Real brokers for the tests of other people's code: in this process, on free ports, with faults on demand.

`EmbeddedBroker` and `EmbeddedCluster` are context managers for any test runner; pytest finds the fixtures of `plugin`
by itself. What is exported here is imported when it is asked for, because every run of pytest imports this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.base.clock import ManualClock
    from ottla.base.errors import ErrorCode
    from ottla.testing.cluster import EmbeddedCluster
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.faults import Fault, Faults
    from ottla.testing.proxy import CALM, FaultProxy, NetworkFaults
    from ottla.wire.api_keys import ApiKey

__all__ = [
    "CALM",
    "ApiKey",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "ErrorCode",
    "Fault",
    "FaultProxy",
    "Faults",
    "ManualClock",
    "NetworkFaults",
]

_HOMES = {
    "CALM": "ottla.testing.proxy",
    "ApiKey": "ottla.wire.api_keys",
    "EmbeddedBroker": "ottla.testing.embedded",
    "EmbeddedCluster": "ottla.testing.cluster",
    "ErrorCode": "ottla.base.errors",
    "Fault": "ottla.testing.faults",
    "FaultProxy": "ottla.testing.proxy",
    "Faults": "ottla.testing.faults",
    "ManualClock": "ottla.base.clock",
    "NetworkFaults": "ottla.testing.proxy",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
