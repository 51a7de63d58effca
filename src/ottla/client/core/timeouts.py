"""How long a call of any client may take."""

from __future__ import annotations

import math

_LONGEST_S = 1e9
"""For ever, in a form that every clock can add up."""


def seconds(timeout: float | None) -> float:
    """How long to wait; None is as long as it takes."""
    if timeout is None:
        return _LONGEST_S
    try:
        is_number = not math.isnan(timeout)
    except TypeError:
        is_number = False
    if not is_number:
        raise ValueError(f"a timeout is a number of seconds, but was {timeout!r}")
    return max(0.0, min(timeout, _LONGEST_S))
