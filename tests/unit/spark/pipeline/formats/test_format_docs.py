"""What docs/formats.md shows is understood as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.formats.kinds import RAW, SINK_FORMATS, SOURCE_FORMATS
from ottla.spark.pipeline.formats.python import BatchDecoder
from tests.docs.blocks import ROOT, Block, blocks

AROUND = """
name: documented
kafka: {bootstrap.servers: "localhost:9092"}
"""
ENDS = {
    "sources": "sinks: {out: {kind: console}}\nflows: {f: {from: %s, to: out}}\n",
    "sinks": "sources: {rows: {kind: topic, topic: rows}}\nflows: {f: {from: rows, to: %s}}\n",
}


@pytest.mark.parametrize("block", blocks("docs/formats.md", "yaml"), ids=str)
def test_every_part_is_understood(block: Block, tmp_path: Path) -> None:
    key, part = (line.strip().rstrip(":") for line in block.code.splitlines()[:2])
    path = tmp_path / "p.yaml"
    path.write_text(AROUND + block.code + ENDS[key] % part)
    assert Pipeline.from_file(path).model().flows


def test_the_decoder_decodes() -> None:
    names: dict[str, Any] = {}
    for block in blocks("docs/formats.md"):
        exec(block.code, names)
    columns = StructType([StructField("sensor", StringType(), False), StructField("celsius", DoubleType())])
    decode = BatchDecoder(names["readings"], ("value", "key"), columns)
    values, keys = pa.array([b"\x00\xd7", b"\xff\xf6", b"x", b"\x00\x00"]), pa.array([b"a", b"b", b"c", None])
    assert decode([values, keys]).to_pylist() == [
        {"value": {"sensor": "a", "celsius": 21.5}, "error": None},
        {"value": {"sensor": "b", "celsius": -1.0}, "error": None},
        {"value": None, "error": "a reading has two bytes"},
        {"value": None, "error": "the column sensor is missing"},
    ]


def test_every_format_is_in_the_table() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    for name in {RAW, *SOURCE_FORMATS, *SINK_FORMATS}:
        assert f"\n| `{name}` | yes | {'yes' if name in (RAW, *SINK_FORMATS) else ''}" in text
