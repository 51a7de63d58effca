"""Which settings of what `ottla configs` is asked about, and how it shows them. Nobody is connected to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import configs
from ottla.cli.configs import _entities, _heading, _read_words, entry_text, main, parse_settings, parser, source_name
from ottla.cli.failures import UsageError
from ottla.client.core.admin.types import ConfigSource


def read(*arguments: str, kafka: str = "") -> Any:
    made = parser(kafka)
    options = made.read([*arguments, "--bootstrap-server", "h:1"])
    _read_words(options)
    options.entities = _entities(made, options)
    return options


@pytest.mark.parametrize(
    ("arguments", "entities"),
    [
        (["describe", "topics"], [("topics", None)]),
        (["describe", "topic", "t"], [("topics", "t")]),
        (["describe", "groups", "g"], [("groups", "g")]),
        (["describe", "broker-logger", "1"], [("broker-loggers", "1")]),
        (["describe", "brokers", "--entity-default"], [("brokers", "")]),
        (["describe", "--entity-type", "topics", "--entity-name", "t"], [("topics", "t")]),
        (["describe", "--topic", "t"], [("topics", "t")]),
        (["describe", "--client-metrics", "m"], [("client-metrics", "m")]),
        (["describe", "--broker-logger", "1"], [("broker-loggers", "1")]),
        (["describe", "--broker-defaults"], [("brokers", "")]),
        (["describe", "--user", "u", "--client-defaults"], [("users", "u"), ("clients", "")]),
        (["describe", "--user-defaults", "--ip-defaults"], [("users", ""), ("ips", "")]),
        (
            ["describe", "--entity-type", "users", "--entity-type", "clients", "--entity-name", "u"],
            [("users", "u"), ("clients", None)],
        ),
    ],
)
def test_what_is_meant(arguments: list[str], entities: list[tuple[str, str | None]]) -> None:
    assert read(*arguments).entities == entities


def test_further_words_are_settings() -> None:
    changed = read("alter", "topics", "t", "a=1", "b=2", "--add-config", "c=3")
    assert (changed.add_config, changed.delete_config) == (["c=3", "a=1", "b=2"], [])
    removed = read("delete", "topics", "t", "a", "b")
    assert (removed.add_config, removed.delete_config) == ([], ["a", "b"])
    default = read("alter", "brokers", "a=1", "--entity-default")
    assert (default.entities, default.add_config) == ([("brokers", "")], ["a=1"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["describe"], "At least one entity type must be specified"),
        (["describe", "topcs"], "Invalid entity type topcs, the entity type must be one of topics, brokers,"),
        (["describe", "--topic", "t", "--user", "u"], "Only users and clients can be named together"),
        (["alter", "topics", "t"], "At least one of --add-config, --add-config-file, or --delete-config must be"),
        (["alter", "topics", "t", "a=1", "--add-config-file", "f"], "Only one of --add-config or --add-config-file"),
        (["alter", "topics", "--add-config", "a=1"], "an entity name must be specified with --alter of topics"),
        (["alter", "topics", "--entity-default", "a=1"], "an entity name must be specified with --alter of topics"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--bootstrap-server", "h:1"])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "topics"],
        ["alter", "brokers", "--entity-default", "a=1"],
        ["alter", "topics", "t", "--add-config-file", "f"],
        ["alter", "topics", "t", "--delete-config", "a"],
    ],
)
def test_what_can_be_meant_is_done(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    async def run(options: Any) -> None:
        done.append(options.verb)

    monkeypatch.setattr(configs, "_run", run)
    assert main([*arguments, "--bootstrap-server", "h:1"]) == 0
    assert done == [arguments[0]]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a=1"], {"a": "1"}),
        ([" a = 1 , b = 2 "], {"a": "1", "b": "2"}),
        (["a=[x,y],b=2"], {"a": "x,y", "b": "2"}),
        (["a=[[x],[y,z]]"], {"a": "[x],[y,z]"}),
        (["a=b=c"], {"a": "b=c"}),
        (["a=", "b=1"], {"a": "", "b": "1"}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a=[x"], {"a": "[x"}),
        (["a=x]"], {"a": "x]"}),
    ],
)
def test_settings_are_read(texts: list[str], expected: dict[str, str]) -> None:
    assert parse_settings(texts) == expected


@pytest.mark.parametrize("text", ["a", "=1", "a=1,", "a=1,b", ""])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="all configs to be added must be in the format"):
        parse_settings([text])


@pytest.mark.parametrize(
    ("kind", "name", "all_", "heading"),
    [
        ("topics", "t", False, "Dynamic configs for topic t"),
        ("topics", "t", True, "All configs for topic t"),
        ("broker-loggers", "1", False, "Dynamic configs for broker-logger 1"),
        ("client-metrics", "m", False, "Dynamic configs for client-metric m"),
        ("groups", "g", False, "Dynamic configs for group g"),
        ("brokers", "1", True, "All configs for broker 1"),
        ("users", "u", False, "Dynamic configs for user u"),
        ("clients", "c", False, "Dynamic configs for client c"),
        ("ips", "i", False, "Dynamic configs for ip i"),
        ("brokers", "", True, "Default configs for brokers in the cluster"),
    ],
)
def test_what_stands_above_settings(kind: str, name: str, all_: bool, heading: str) -> None:
    assert _heading(kind, name, all_=all_) == heading


def test_a_setting_is_shown_with_where_its_value_comes_from() -> None:
    synonyms = [
        SimpleNamespace(source=ConfigSource.TOPIC, name="a", value="1"),
        SimpleNamespace(source=ConfigSource.DEFAULT, name="log.a", value=None),
    ]
    entry: Any = SimpleNamespace(name="a", value="1", is_sensitive=False, synonyms=synonyms)
    assert entry_text(entry) == "a=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:a=1, DEFAULT_CONFIG:log.a=null}"
    secret: Any = SimpleNamespace(name="p", value=None, is_sensitive=True, synonyms=[])
    assert entry_text(secret) == "p=null sensitive=true synonyms={}"


def test_every_source_has_kafkas_name() -> None:
    assert {source: source_name(source) for source in ConfigSource} == {
        ConfigSource.UNKNOWN: "UNKNOWN",
        ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
        ConfigSource.BROKER: "DYNAMIC_BROKER_CONFIG",
        ConfigSource.DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
        ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
        ConfigSource.DEFAULT: "DEFAULT_CONFIG",
        ConfigSource.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
        ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
        ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
    }
