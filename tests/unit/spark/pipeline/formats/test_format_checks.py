"""What is wrong with a format's options, files, schemas and registry is found before anything runs, with its cure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from ottla.spark.pipeline.formats.kinds import take_sink_format, take_source_format
from ottla.spark.pipeline.formats.registry_options import RegistryOptions
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from tests.schema_registry import Registry, running_registry

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def section(directory: Path, values: dict[str, object]) -> Section:
    return Section.of({"topic": "orders", **values}, Place("p.yaml", 7), "source orders", directory=directory)


def found(directory: Path, values: dict[str, object], *, sink: bool = False) -> str:
    """All problems in one text; empty if there are none."""
    part = section(directory, values)
    part.take("topic", str)
    try:
        made: Any = take_sink_format(part) if sink else take_source_format(part)
        part.finish()
        return "\n".join(map(str, made.check()))
    except SpecError as e:
        return str(e)


SOURCES = [
    ({"format": "avro"}, "needs a 'schema', a 'schema_file' or a 'registry'"),
    ({"format": "avro", "schema": SCHEMA, "schema_file": "a.avsc"}, "either 'schema' or 'schema_file'"),
    ({"format": "avro", "schema": "{"}, "the schema is not JSON"),
    ({"format": "avro", "schema_file": "nowhere.avsc"}, "nowhere.avsc cannot be read: No such file or directory"),
    ({"format": "avro", "schema_file": "wrong.avsc"}, "the schema names a type 'lon' that it does not define"),
    ({"format": "avro", "schema": SCHEMA, "registry": {}}, "'url' is missing"),
    ({"format": "avro", "registry": {"url": "registry:8081"}}, "addresses such as http://host:8081"),
    ({"format": "avro", "registry": {"url": "http://a", "user": "me"}}, "give it both 'user' and 'password'"),
    ({"format": "avro", "registry": {"url": "http://a", "ca_file": "no.pem"}}, "no.pem cannot be read"),
    ({"format": "avro", "registry": {"url": "https://a", "ca_file": "wrong.avsc"}}, "there are no certificates in it"),
    ({"format": "avro", "registry": {"url": "http://a", "pasword": "x"}}, "there is no option 'pasword'. Did you mean"),
    (
        {"format": "avro", "registry": {"url": "http://127.0.0.1:1"}},
        "the schema registry at http://127.0.0.1:1 cannot be",
    ),
    (
        {"format": "avro", "schema": SCHEMA, "registry": {"url": "http://me:s3cret@127.0.0.1:1"}},
        "the schema registry at http://127.0.0.1:1 cannot be reached",
    ),
    ({"format": "protobuf", "message": "a.B"}, "'descriptor_file' is missing"),
    ({"format": "protobuf", "descriptor_file": "no.pb", "message": "a.B"}, "no.pb cannot be read: No such file"),
    ({"format": "protobuf", "descriptor_file": "wrong.avsc", "message": "a.B"}, "it is not a set of descriptors"),
    ({"format": "python", "schema": "id INT"}, "'decoder' is missing"),
    ({"format": "python", "decoder": "a.py:f"}, "format python needs a 'schema'"),
    ({"format": "python", "schema": "id INT", "decoder": "a.py"}, "'a.py' names no function"),
    ({"format": "python", "schema": "id INT", "decoder": "no.py:f"}, "there is no file"),
    ({"format": "python", "schema": "id INT", "decoder": "d.py:g"}, "d.py has no function 'g'"),
    ({"format": "python", "schema": "id INT", "decoder": "d.py:rows"}, "asks for 'rows'; a record has value, key"),
    ({"format": "python", "schema": "id INT", "decoder": "d.py:nothing"}, "asks for nothing; a record has value"),
    ({"format": "arvo"}, "'format' cannot be 'arvo'. Did you mean 'avro'?"),
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "wrong.avsc").write_text(SCHEMA.replace("long", "lon"))
    (tmp_path / "d.py").write_text("def rows(rows): ...\ndef nothing(): ...\ndef right(value, key): ...\n")
    return tmp_path


@pytest.mark.parametrize(("values", "sentence"), SOURCES)
def test_sources(directory: Path, values: dict[str, object], sentence: str) -> None:
    told = found(directory, values)
    assert sentence in told
    assert told.startswith("p.yaml:7: source orders")
    assert "Traceback" not in told and "s3cret" not in told


def test_sources_that_are_right(directory: Path, registry: Registry) -> None:
    assert found(directory, {"format": "avro", "schema": SCHEMA}) == ""
    assert found(directory, {"format": "avro", "schema": SCHEMA, "registry": {"url": registry.url}}) == ""
    assert found(directory, {"format": "python", "schema": "id INT", "decoder": "d.py:right"}) == ""
    registry.add("orders-value", SCHEMA)
    assert found(directory, {"format": "avro", "registry": {"url": registry.url, "user": "me", "password": "x"}}) == ""
    assert (registry.auth or "").startswith("Basic ")


def test_subjects(directory: Path, registry: Registry) -> None:
    values = {"format": "avro", "registry": {"url": registry.url}}
    assert "the registry has no subject 'orders-value'; register it, or give the schema" in found(directory, values)
    registry.add("all", SCHEMA)
    assert found(directory, {**values, "subject": "all"}) == ""
    several = Section.of({"topics": ["a", "b"], **values}, Place("p.yaml", 7), "source orders", directory=directory)
    with pytest.raises(SpecError, match="the source reads several topics: give it the 'subject'"):
        take_source_format(several)


def test_a_registry_that_refuses(directory: Path, registry: Registry) -> None:
    registry.broken = True
    told = found(directory, {"format": "avro", "schema": SCHEMA, "registry": {"url": registry.url}})
    assert f"the schema registry at {registry.url} answered 500" in told


def test_sinks(directory: Path, registry: Registry) -> None:
    assert found(directory, {"format": "avro"}, sink=True) == ""
    assert found(directory, {"format": "avro", "registry": {"url": registry.url}, "register": True}, sink=True) == ""
    assert "no 'registry' to register" in found(directory, {"format": "avro", "register": True}, sink=True)
    assert "is not JSON" in found(directory, {"format": "avro", "schema": "{"}, sink=True)
    assert "cannot be reached" in found(
        directory, {"format": "avro", "registry": {"url": "http://127.0.0.1:1"}}, sink=True
    )


def test_a_password_is_not_shown() -> None:
    assert "s3cret" not in repr(RegistryOptions("http://me:s3cret@host", ("me", "s3cret")))
