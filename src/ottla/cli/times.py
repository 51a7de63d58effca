"""Moments as people write them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.cli.failures import UsageError


def parse_time_ms(option: str, text: str) -> int:
    """`2026-03-01`, `2026-03-01T12:00`, with a zone or in UTC; or milliseconds since 1970."""
    if text.isdecimal():
        return _checked(option, text, int(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time: write 2026-03-01, 2026-03-01T12:00 or 2026-03-01T12:00+01:00 (UTC without "
            "a zone), or milliseconds since 1970"
        ) from None
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return _checked(option, text, int(zoned.timestamp() * 1000))


def _checked(option: str, text: str, time_ms: int) -> int:
    """Requests have 64 bits for a time, and other meanings for negative ones."""
    if not 0 <= time_ms < 1 << 63:
        raise UsageError(f"{option} {text!r} is {'before 1970' if time_ms < 0 else 'too far away'}")
    return time_ms
