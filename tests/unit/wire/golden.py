"""Golden bytes for this room, from tests/golden/wire.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "wire.json").read_text(encoding="utf-8")
)
