"""Loads what needs numpy and pyarrow when it is first asked for: a client that has no use for columns needs neither."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import Backlog, Partitioner

if TYPE_CHECKING:
    from ottla.client.core.producer.table_intake import TableIntake


def open_table_intake(
    settings: ProducerSettings,
    partitioner: Partitioner | None,
    random_below: Callable[[int], int],
    backlog: Callable[[str], Backlog],
) -> TableIntake:
    """ImportError, with what to install, if columns cannot be used here."""
    import ottla.records.columns  # noqa: F401  # it says what to install
    from ottla.client.core.producer.table_intake import TableIntake

    return TableIntake(settings, partitioner=partitioner, random_below=random_below, backlog=backlog)


def load_fetched_columns() -> ModuleType:
    """`ottla.client.core.consumer.fetched_columns`, or ImportError with what to install."""
    import ottla.records.columns  # noqa: F401  # it says what to install
    from ottla.client.core.consumer import fetched_columns

    return fetched_columns
