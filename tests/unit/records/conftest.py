"""The golden bytes of other implementations, and how a record of ours compares with what they expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "records.json").read_text())


@pytest.fixture(params=GOLDEN["record_batches"], ids=lambda item: item["name"])
def golden_batch(request: pytest.FixtureRequest) -> dict[str, Any]:
    item: dict[str, Any] = request.param
    return item | {"bytes": bytes.fromhex(item["hex"])}
