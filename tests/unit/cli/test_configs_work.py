"""What `ottla configs` asks brokers and tells of their answers. Their answers are scripted."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import KafkaError
from ottla.base.types import Uuid
from ottla.cli import session
from ottla.cli.configs import _every, _run, parser
from ottla.cli.failures import UsageError
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import ConfigOperation, ConfigResource, ConfigSource, ResourceType, TopicDescription
from tests.waiting import run_async

OWN = {
    "topics": ConfigSource.TOPIC,
    "brokers": ConfigSource.BROKER,
    "broker-loggers": ConfigSource.BROKER_LOGGER,
    "groups": ConfigSource.GROUP,
    "client-metrics": ConfigSource.CLIENT_METRICS,
}
KINDS = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "groups": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}


class Cluster:
    """Brokers 1 and 2, topics b and a, groups g and h. Everything has a setting `own` and one with its default."""

    def __init__(self) -> None:
        self.source = ConfigSource.TOPIC
        self.described: list[ConfigResource] = []
        self.altered: list[tuple[ConfigResource, list[tuple[str, str | None, ConfigOperation]]]] = []

    async def list_topics(self, *, include_internal: bool) -> Any:
        names = ["b", "a", *(["__x"] if include_internal else [])]
        return {name: SimpleNamespace(name=name) for name in names}

    async def list_groups(self) -> Any:
        return [SimpleNamespace(group_id=group) for group in ("g", "h")]

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers={2: "", 1: ""})

    async def describe_topics(self) -> Any:
        return Outcomes({"a": TopicDescription("a", Uuid(bytes(16)), False, ())}, what="topics")

    async def describe_configs(self, resources: list[ConfigResource], *, include_synonyms: bool = False) -> Any:
        self.described += resources
        entry = {"value": "1", "is_sensitive": False, "synonyms": []}
        entries = {
            "own": SimpleNamespace(name="own", source=self.source, **entry),
            "default": SimpleNamespace(name="default", source=ConfigSource.DEFAULT, **entry),
        }
        return Outcomes(dict.fromkeys(resources, entries), what="configs")

    async def incremental_alter_configs(self, changes: Mapping[ConfigResource, Any]) -> Any:
        self.altered += [(one, [tuple(change) for change in found]) for one, found in changes.items()]
        return Outcomes(dict.fromkeys(changes), what="alter")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Cluster()

    @asynccontextmanager
    async def open_scripted(options: Namespace, name: str) -> AsyncIterator[Cluster]:
        yield made

    monkeypatch.setattr(session, "open_admin", open_scripted)
    return made


def run(verb: str, kind: str, name: str | None, **given: Any) -> None:
    own = {"all": False, "output": "table", "add_config": [], "delete_config": [], "add_config_file": None}
    run_async(_run(Namespace(**{**own, "verb": verb, "entities": [(kind, name)], **given})))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("topics", ["__x", "a", "b"]),
        ("groups", ["g", "h"]),
        ("brokers", ["1", "2", ""]),
        ("broker-loggers", ["1", "2"]),
    ],
)
def test_without_a_name_all_are_meant(cluster: Any, kind: str, names: list[str]) -> None:
    assert run_async(_every(cluster, kind)) == names
    run("describe", kind, None)
    assert cluster.described == [ConfigResource(KINDS[kind], name) for name in names]


@pytest.mark.parametrize(
    ("kind", "name", "heading", "source"),
    [
        ("topics", "a", "topic a", "TOPIC"),
        ("brokers", "1", "broker 1", "BROKER"),
        ("broker-loggers", "2", "broker-logger 2", "BROKER_LOGGER"),
        ("groups", "any", "group any", "GROUP"),
        ("client-metrics", "m", "client-metric m", "CLIENT_METRICS"),
    ],
)
def test_each_kind_has_settings_of_its_own(
    cluster: Any, kind: str, name: str, heading: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.source = OWN[kind]
    run("describe", kind, name)
    assert cluster.described == [ConfigResource(KINDS[kind], name)]
    own, default = (f"  {setting}=1 sensitive=false synonyms={{}}\n" for setting in ("own", "default"))
    shown = default + own if kind == "broker-loggers" else own
    assert capsys.readouterr().out == f"Dynamic configs for {heading} are:\n{shown}"
    run("describe", kind, name, all=True, output="tsv")
    assert capsys.readouterr().out.splitlines() == [
        "type\tname\tsetting\tvalue\tsource",
        f"{kind}\t{name}\tdefault\t1\tDEFAULT_CONFIG",
        f"{kind}\t{name}\town\t1\tDYNAMIC_{source}_CONFIG",
    ]


def test_defaults_of_all_brokers_are_their_own(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for source, shown in ((ConfigSource.DEFAULT_BROKER, 2), (ConfigSource.BROKER, 1)):
        cluster.source = source
        run("describe", "brokers", "")
        assert len(capsys.readouterr().out.splitlines()) == shown


def test_settings_are_made_and_removed(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("alter", "topics", "a", add_config=["x=1,y=[2,3]"], delete_config=["own, ", " "])
    topic = ConfigResource(ResourceType.TOPIC, "a")
    made = [("x", "1", ConfigOperation.SET), ("y", "2,3", ConfigOperation.SET)]
    assert cluster.altered == [(topic, [*made, ("own", None, ConfigOperation.DELETE)])]
    assert capsys.readouterr().out == "Completed updating config for topic a.\n"
    run("alter", "brokers", "", add_config=["x=1"])
    assert capsys.readouterr().out == "Completed updating default config for brokers in the cluster.\n"


@pytest.mark.parametrize(
    ("kind", "name", "given", "error", "told"),
    [
        ("topics", "a", {"delete_config": ["own,default,none"]}, KafkaError, "Invalid config(s): default,none"),
        ("broker-loggers", "1", {"add_config": ["own=1,x=2"]}, KafkaError, "Invalid broker logger(s): x"),
        ("broker-loggers", "1", {"delete_config": ["default,x"]}, KafkaError, "Invalid broker logger(s): x"),
        ("topics", "x", {"add_config": ["a=1"]}, KafkaError, "x"),
        ("brokers", "one", {"add_config": ["a=1"]}, UsageError, "for brokers must be a valid integer broker id"),
        ("broker-loggers", "3", {"add_config": ["a=1"]}, KafkaError, "broker 3 does not exist; there are 1, 2"),
    ],
)
def test_what_is_not_there_is_not_changed(
    cluster: Any, kind: str, name: str, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as refusal:
        run("alter", kind, name, **given)
    assert told in str(refusal.value)
    assert cluster.altered == []


def test_a_file_holds_settings_and_options_win(cluster: Any, tmp_path: Any) -> None:
    path = tmp_path / "settings"
    path.write_text("x=1\ny=2\n")
    run("alter", "groups", "g", add_config_file=str(path), add_config=["y=3"])
    assert [change[:2] for change in cluster.altered[0][1]] == [("x", "1"), ("y", "3")]


def test_help_names_what_most_want_to_know() -> None:
    told = parser().format_help()
    for shown in ("--topic NAME", "--broker NAME", "--group NAME", "--client-metrics NAME", "--delete", "--alter"):
        assert f"  {shown} " in told
    for hidden in ("--user", "--client ", "--ip", "--broker-defaults", "--set", "--force"):
        assert f"  {hidden}" not in told
    assert "--delete " not in parser("kafka-configs.sh").format_help()
