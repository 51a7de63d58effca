"""How often a fused decoder has given up on a request that the declared codec could read, by API.

Such a request is answered all the same, only slower, so nothing but the count gives a mistake in a fused decoder away.
"""

from __future__ import annotations

from collections import Counter

FALLBACKS: Counter[str] = Counter()
