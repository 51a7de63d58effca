"""The section of a schema registry, and what comes of asking it. The registry itself is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.client.serdes.registry import SchemaRegistryError
from ottla.spark.pipeline.formats.registry_options import RegistryOptions, find_schema, subject_of
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section


def section(directory: Path = Path(), **values: object) -> Section:
    return Section.of(values, Place("p.yaml", 3), "source in", directory=directory)


def options(**registry: object) -> RegistryOptions | None:
    return RegistryOptions.from_section(section(registry=registry))


def test_what_the_section_says() -> None:
    assert RegistryOptions.from_section(section()) is None
    assert options(url="http://h:1") == RegistryOptions("http://h:1", None, 10_000, None)
    assert options(url="http://h:1", user="me", password="x", timeout="2 s") == RegistryOptions(
        "http://h:1", ("me", "x"), 2000, None
    )
    shown = repr(RegistryOptions("http://h:1", ("me", "x"), 5, "certificates"))
    assert shown == "RegistryOptions(timeout_ms=5)"


@pytest.mark.parametrize(
    ("registry", "told"),
    [
        (None, "source in: the registry needs a 'url'"),
        ({"user": "me", "password": "x"}, "source in, registry: 'url' is missing"),
        ({"url": "http://h:1", "user": "me"}, "source in, registry: give it both 'user' and 'password'"),
        ({"url": "http://h:1", "password": "x"}, "source in, registry: give it both 'user' and 'password'"),
        ({"url": "http://h:1", "timeout": "x"}, "source in, registry: 'timeout' is not a length of time: 'x'. Write"),
        ({"url": "http://h:1", "usr": "me"}, "source in, registry: there is no option 'usr'. Did you mean 'user'?"),
        ({"url": "http://h:1", "ca_file": "no.pem"}, "source in, registry: no.pem cannot be read: [Errno 2] No such"),
    ],
)
def test_what_is_wrong_with_it(registry: object, told: str) -> None:
    with pytest.raises(SpecError) as refusal:
        RegistryOptions.from_section(section(registry=registry))
    assert str(refusal.value).startswith(f"p.yaml:3: {told}")


def test_certificates_are_read_where_the_description_is(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(SpecError, match="source in, registry: there are no certificates in it: "):
        RegistryOptions.from_section(section(tmp_path, registry={"url": "https://h:1", "ca_file": "ca.pem"}))
    (tmp_path / "ca.pem").write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"source in, registry: .*ca\.pem cannot be read: 'utf-8' codec"):
        RegistryOptions.from_section(section(tmp_path, registry={"url": "https://h:1", "ca_file": "ca.pem"}))


def test_the_same_options_have_the_same_client() -> None:
    made = [RegistryOptions(f"http://of-a-test:{port}").connect() for port in (1, 1, 2)]
    assert made[0] is made[1] and made[0] is not made[2]


@pytest.mark.parametrize(
    ("subject", "topic", "found"),
    [
        (None, "orders", "orders-value"),
        ("fixed", None, "fixed"),
        ("{record}", None, "R"),
        ("x.{topic}.{record}.{topic}", "t", "x.t.R.t"),
        ("{record}", "t", "R"),
    ],
)
def test_the_name_that_schemas_are_kept_under(subject: str | None, topic: str | None, found: str) -> None:
    given: dict[str, Any] = {} if subject is None else {"subject": subject}
    assert subject_of(section(**given), topic, "R") == found


@pytest.mark.parametrize("subject", [None, "x-{topic}"])
def test_a_source_of_several_topics_has_no_topic_to_name_it_by(subject: str | None) -> None:
    given: dict[str, Any] = {} if subject is None else {"subject": subject}
    with pytest.raises(SpecError) as refusal:
        subject_of(section(**given), None, "R")
    told = "the source reads several topics: give it the 'subject' of the schema to read with"
    assert str(refusal.value) == f"p.yaml:3: source in: {told}"


def registry(error: Exception | None = None) -> Any:
    def schema(schema_id: int) -> str:
        if error is not None:
            raise error
        return f"schema {schema_id}"

    return SimpleNamespace(schema=schema)


def test_schemas_by_their_ids() -> None:
    found: Any = find_schema(registry(), 5)
    assert found == "schema 5"
    unknown = SchemaRegistryError("not there", status=404, error_code=40403)
    assert find_schema(registry(unknown), 5) is None
    for passing in (SchemaRegistryError("away"), SchemaRegistryError("away", status=503)):
        with pytest.raises(ConnectionError, match="away"):
            find_schema(registry(passing), 5)
    lasting = SchemaRegistryError("wrong password", status=401)
    with pytest.raises(SchemaRegistryError) as refusal:
        find_schema(registry(lasting), 5)
    assert refusal.value is lasting
