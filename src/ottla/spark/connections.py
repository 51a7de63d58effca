"""Clients of this process that outlive the calls they are made for.

Spark runs task after task in one Python process, and all calls about offsets of a query in another: whoever comes next
finds the connection open. A process that was forked off starts with none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from ottla.client import sync
from ottla.client.core.admin.options import ADMIN_OPTIONS

if TYPE_CHECKING:
    from ottla.client.sync import Admin, Consumer

    BytesConsumer: TypeAlias = Consumer[bytes | None, bytes | None]
_Key: TypeAlias = tuple[tuple[str, str], ...]

FAIL_FAST = {"bootstrap.fail.fast": "true"}
"""Spark tries tasks again itself, and whoever starts a query wants to know at once that there is no cluster."""

_DEFAULTS = {"client.id": "ottla-spark", **FAIL_FAST}

_lock = threading.Lock()
_admins: dict[_Key, Admin] = {}
_idle_consumers: dict[_Key, BytesConsumer] = {}


def admin_for(client: Mapping[str, str]) -> Admin:
    """The admin client of these settings; those that only consumers have are left out."""
    settings = {**_DEFAULTS, **{name: text for name, text in client.items() if name in ADMIN_OPTIONS}}
    key = _key(settings)
    with _lock:
        if key not in _admins:
            _admins[key] = sync.Admin(settings)
        return _admins[key]


@contextmanager
def consumer_for(settings: Mapping[str, str]) -> Iterator[BytesConsumer]:
    """A consumer nobody else uses meanwhile. It is kept for the next one, unless something went wrong with it."""
    settings = {**_DEFAULTS, **settings}
    key = _key(settings)
    with _lock:
        consumer = _idle_consumers.pop(key, None)
    if consumer is None:
        consumer = sync.Consumer(settings)
    try:
        yield consumer
    except Exception:
        consumer.close()
        raise
    except GeneratorExit:
        # The query wants no more of this partition; what was fetched ahead is dropped.
        _keep(key, consumer)
        raise
    _keep(key, consumer)


def _keep(key: _Key, consumer: BytesConsumer) -> None:
    consumer.unsubscribe()
    with _lock:
        kept = _idle_consumers.setdefault(key, consumer)
    if kept is not consumer:
        consumer.close()


def _key(settings: Mapping[str, str]) -> _Key:
    return tuple(sorted(settings.items()))


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _admins.clear()
    _idle_consumers.clear()


os.register_at_fork(after_in_child=_forget)
