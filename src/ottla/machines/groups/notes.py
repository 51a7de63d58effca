"""Words for what the broker's log says of groups."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN_MAX = 10
_REASON_LENGTH_MAX = 255


def listed(member_ids: Sequence[str]) -> str:
    """The members by name, as many as a line has room for."""
    if len(member_ids) == 1:
        return f"member {member_ids[0]}"
    shown = ", ".join(member_ids[:_SHOWN_MAX]) + (" …" if len(member_ids) > _SHOWN_MAX else "")
    return f"{len(member_ids)} members ({shown})"


def because(reason: str | None) -> str:
    """What the client gives as its reason (KIP-800), to follow what it did."""
    return f" ({reason[:_REASON_LENGTH_MAX]})" if reason else ""
