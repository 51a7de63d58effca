"""What the pages about pipelines show is so: options there are, fields that are told, links that lead somewhere."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

DOCUMENTS = (
    "docs/pipelines.md",
    "docs/connect.md",
    "docs/formats.md",
    "docs/mirroring.md",
    "docs/guarantees.md",
    "docs/spark-cluster.md",
    "docs/tuning.md",
)


@pytest.mark.parametrize("block", [block for document in DOCUMENTS for block in blocks(document, "yaml")], ids=str)
def test_descriptions_have_only_options_there_are(block: Block, tmp_path: Path) -> None:
    """A part of a description is made whole, and read as `check` reads it before it looks outside."""
    import yaml

    from ottla.spark.pipeline import Pipeline

    described = {"name": "documented", "kafka": {"bootstrap.servers": "localhost:9092"}, **yaml.safe_load(block.code)}
    described.setdefault("sources", {"some": {"kind": "spark", "format": "rate"}})
    described.setdefault("sinks", {"some": {"kind": "console"}})
    origin, sink = next(iter(described["sources"])), next(iter(described["sinks"]))
    described.setdefault("flows", {"some": {"from": origin, "to": sink}})
    ends = {mirror[key] for mirror in described.get("mirrors", {}).values() for key in ("from", "to")}
    described.setdefault("clusters", {name: {"bootstrap.servers": "localhost:9092"} for name in ends})
    path = tmp_path / "documented.yaml"
    path.write_text(yaml.safe_dump(described))
    assert Pipeline.from_file(path).model().flows


def test_events_have_the_fields_that_are_documented() -> None:
    from ottla.spark.pipeline.flows.report import Batch, EndOffsets, FlowReport, Rows
    from ottla.spark.pipeline.line_displays import JsonDisplay

    ends = EndOffsets(0, {})
    report = FlowReport(Batch(0, Rows(), 0), None, Rows(), 1, 0.0, 0, ends, {}, 0, None)
    out = io.StringIO()
    JsonDisplay("orders", out).flow_progressed("totals", report)
    (block,) = blocks("docs/pipelines.md", "json")
    documented, told = json.loads(block.code), json.loads(out.getvalue())
    assert list(documented) == list(told)
    assert list(documented["total"]) == list(told["total"])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / document).read_text()):
        assert "://" in target or (ROOT / document).parent.joinpath(target).exists(), target
