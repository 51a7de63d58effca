"""The broker's log: one format, levels by setting, and by DescribeConfigs and IncrementalAlterConfigs while it runs.

Loggers are named after the modules that write to them, so `ottla.broker.coordinators` is all there is about groups and
transactions. Levels have Kafka's names where a client sees them (KIP-412).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from ottla.base.errors import InvalidConfigError, InvalidRequestError
from ottla.broker.config.describe import Alteration, AlterOperation
from ottla.broker.config.log_levels import LEVELS, level_named

ROOT = "root"
_OURS = "ottla"


class LineFormatter(logging.Formatter):
    """Time, level, area, message. A record is one line: what clients send as names cannot begin another."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 the name is logging's
        record.message = record.message.replace("\r", "\\r").replace("\n", "\\n")
        return super().formatMessage(record)


def start_logging(levels: Iterable[str]) -> None:
    """Writes to stderr from now on, with the levels of `ottla.log.level`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for item in levels:
        name, _, level = item.rpartition("=")
        logging.getLogger(name.strip() or None).setLevel(level_named(level) or logging.INFO)


def describe_loggers(names: Iterable[str] | None = None) -> dict[str, str]:
    """Every logger, or those of `names` that exist, with the level in force."""
    known = _names()
    wanted = sorted(known) if names is None else [name for name in names if name in known]
    return {name: _level_in_force(name) for name in wanted}


def alter_loggers(alterations: Iterable[Alteration], *, validate_only: bool) -> None:
    """Sets levels, or takes them back so that those of the logger above count; all of them, or none."""
    changes = [(_logger(name), _new_level(name, operation, value)) for name, operation, value in alterations]
    if validate_only:
        return
    for logger, level in changes:
        logger.setLevel(level)


def _names() -> set[str]:
    # Parents that nobody writes to are there, too: whoever sets their level means all that is below.
    return {ROOT} | {name for name in logging.root.manager.loggerDict if name.partition(".")[0] == _OURS}


def _logger(name: str) -> logging.Logger:
    if name not in _names():
        raise InvalidConfigError(name, f"there is no logger {name}")
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _new_level(name: str, operation: AlterOperation, value: str | None) -> int:
    if operation is AlterOperation.DELETE:
        if name == ROOT:
            raise InvalidRequestError("the root logger must have a level")
        return logging.NOTSET
    if operation is not AlterOperation.SET:
        raise InvalidRequestError(f"the level of a logger can be set or deleted, not {operation.name.lower()}ed to")
    level = level_named(value or "")
    if level is None:
        raise InvalidConfigError(name, f"the level of {name} must be one of {', '.join(LEVELS)}, but was {value!r}")
    return level


def _level_in_force(name: str) -> str:
    level = _logger(name).getEffectiveLevel()
    return max((known for known in LEVELS if LEVELS[known] <= level), key=LEVELS.__getitem__, default="TRACE")
