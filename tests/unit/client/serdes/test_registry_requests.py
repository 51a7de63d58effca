"""What a schema registry is asked for, and what its answers are taken for."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.serdes.registry import RegisteredSchema, SchemaRegistry, SchemaRegistryError


class Told(SchemaRegistry):
    """Answers by path."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        super().__init__("http://h:1")
        self.answers = answers
        self.asked: list[tuple[str, str, Any]] = []

    def _ask(self, method: str, path: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.asked.append((method, path, body))
        return self.answers[path]


@pytest.mark.parametrize(
    ("schema_type", "body"), [("AVRO", {"schema": "s"}), ("JSON", {"schema": "s", "schemaType": "JSON"})]
)
def test_an_id_is_asked_for_once(schema_type: str, body: dict[str, str]) -> None:
    registry = Told({"/subjects/a%2Fb": {"id": 0}, "/subjects/a%2Fb/versions": {"id": 5}})
    for _ in range(2):
        assert registry.lookup("a/b", "s", schema_type=schema_type) == 0
    assert registry.asked == [("POST", "/subjects/a%2Fb", body)]
    assert registry.register("a/b", "s") == 0, "it is known"
    assert registry.register("a/b", "other") == 5


@pytest.mark.parametrize("answer", [{}, {"id": None}, {"id": "5"}])
def test_an_answer_without_an_id_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(SchemaRegistryError, match="gave no id for subject a"):
        Told({"/subjects/a": answer}).lookup("a", "s")


def test_a_schema_comes_with_those_it_needs() -> None:
    registry = Told(
        {
            "/schemas/ids/7": {
                "schema": "outer",
                "schemaType": "PROTOBUF",
                "references": [{"subject": "in/ner", "version": 2}, {"subject": "last", "version": 1}],
            },
            "/subjects/in%2Fner/versions/2": {"schema": "inner", "references": [{"subject": "deep", "version": 3}]},
            "/subjects/deep/versions/3": {"schema": "deep"},
            "/subjects/last/versions/1": {"schema": "last", "references": None},
            "/subjects/a%20b/versions/latest": {"schema": "newest"},
        }
    )
    found = registry.schema(7)
    assert registry.schema(7) is found
    assert (found.text, found.schema_type) == ("outer", "PROTOBUF")
    assert found.references[0].schema_type == "AVRO", "where nothing is said"
    assert found.texts_of_references() == ["deep", "inner", "last"]
    assert len(registry.asked) == 4, "each once"
    for _ in range(2):
        assert registry.latest("a b") == RegisteredSchema("newest", "AVRO")
    assert len(registry.asked) == 6, "the newest may be another one by now"


@pytest.mark.parametrize("answer", [{}, {"schema": None}, {"schema": 5}])
def test_an_answer_without_a_schema_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(SchemaRegistryError, match="answered without a schema"):
        Told({"/schemas/ids/7": answer}).schema(7)


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("http://h:8081/", True),
        ("https://h/registry", True),
        ("http://h:0", False),
        ("http://h:99999", False),
        ("ftp://h:1", False),
        ("h:8081", False),
        ("http://:1", False),
        ("http://h:1?x=1", False),
        ("http://h:1#x", False),
        ("http://h:1/a@b", False),
        ("", False),
        (" , ", False),
        ("http://h:1,nonsense", False),
    ],
)
def test_addresses(url: str, is_fine: bool) -> None:
    if is_fine:
        assert not SchemaRegistry(url)._urls[0].endswith("/")
    else:
        with pytest.raises(ValueError, match="needs addresses such as"):
            SchemaRegistry(url)


@pytest.mark.parametrize(("timeout_ms", "is_fine"), [(0, False), (-1, False), (float("inf"), False), (1, True)])
def test_the_time_for_an_answer_is_above_nothing(timeout_ms: Any, is_fine: bool) -> None:
    if is_fine:
        assert SchemaRegistry("http://h", timeout_ms=timeout_ms)._timeout_s == 0.001
    else:
        with pytest.raises(ValueError, match="timeout_ms must be above 0"):
            SchemaRegistry("http://h", timeout_ms=timeout_ms)
