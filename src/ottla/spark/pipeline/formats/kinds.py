"""The formats there are, by name. They are imported when a pipeline uses them: one of JSON needs no Avro."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ottla.spark.pipeline.formats.value_format import SinkFormat, SourceFormat
from ottla.spark.pipeline.section import Section

RAW = "raw"
"""Records as they are, with nothing to decode or to encode."""
_HERE = "ottla.spark.pipeline.formats"
SOURCE_FORMATS = {
    "text": f"{_HERE}.text:TextFormat",
    "json": f"{_HERE}.json:JsonFormat",
    "csv": f"{_HERE}.csv:CsvFormat",
    "avro": f"{_HERE}.avro.format:AvroFormat",
    "protobuf": f"{_HERE}.protobuf.format:ProtobufFormat",
    "python": f"{_HERE}.python:PythonFormat",
}
SINK_FORMATS = {"json": f"{_HERE}.json:JsonObjects", "avro": f"{_HERE}.avro.format:AvroRows"}
_WITHOUT_SCHEMA = (RAW, "text")


def take_source_format(section: Section) -> SourceFormat | None:
    """The format a source's section asks for; None is raw."""
    name = section.take_choice("format", (RAW, *SOURCE_FORMATS), RAW)
    if name in _WITHOUT_SCHEMA and section.take("schema", str, None) is not None:
        section.fail("format", f"format {name} has no schema")
    found: SourceFormat | None = _made(section, name, SOURCE_FORMATS)
    return found


def take_sink_format(section: Section) -> SinkFormat | None:
    """The format a sink's section asks for; None is raw."""
    found: SinkFormat | None = _made(section, section.take_choice("format", (RAW, *SINK_FORMATS), RAW), SINK_FORMATS)
    return found


def _made(section: Section, name: str, formats: dict[str, str]) -> Any:
    if name == RAW:
        return None
    module_name, _, class_name = formats[name].partition(":")
    try:
        found = getattr(import_module(module_name), class_name)
    except ImportError as e:
        extra = "avro" if name == "avro" else "spark"
        section.fail("format", f"format {name} needs {e.name}: pip install 'ottla[{extra}]'")
    return found.from_section(section)
