"""ottla topics on a broker: what each verb does, says and returns."""

from __future__ import annotations

import json
import sys
from typing import cast

import pytest

from ottla.base.types import NIL_UUID
from ottla.cli.main import main
from ottla.cli.rows import Output
from ottla.cli.topics import Filters, Settings, _choose, _delete
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import TopicDescription
from ottla.client.errors import ClientError
from tests.broker_process import BrokerProcess
from tests.waiting import run_async

Said = tuple[int, str, str]


@pytest.fixture
def topics(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Topics:
    return Topics(broker.bootstrap, capsys)


class Topics:
    def __init__(self, server: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        code = main(["topics", *arguments, "--bootstrap-server", self._server])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def described(self, name: str) -> dict[str, object]:
        code, shown, _ = self("describe", name, "--output", "json")
        assert code == 0
        (topic,) = json.loads(shown)
        assert isinstance(topic, dict)
        return topic

    def partitions(self, *filters: str) -> list[str]:
        code, shown, error = self("describe", *filters)
        assert (code, error) == (0, "")
        return [line.split("\t")[1].removeprefix("Topic: ") for line in shown.splitlines() if line.startswith("\t")]


def test_a_topic_from_its_creation_to_its_end(topics: Topics, new_topic: str) -> None:
    assert topics("create", new_topic, "--partitions", "2") == (0, f"Created topic {new_topic}.\n", "")
    code, _, error = topics("create", new_topic)
    assert (code, error.count("\n")) == (1, 1) and new_topic in error
    assert topics("--create", "--topic", new_topic, "--if-not-exists") == (0, "", "")
    assert topics("list", new_topic) == (0, f"{new_topic}\n", "")
    assert topics("list", new_topic, "--output", "json") == (0, f'["{new_topic}"]\n', "")
    described = topics.described(new_topic)
    broker_id = described["partitions"][0]["leader"]  # type: ignore[index]
    replicas = {"leader": broker_id, "replicas": [broker_id], "isr": [broker_id], "offline": []}
    topic_id = described["topic_id"]
    assert isinstance(topic_id, str) and len(topic_id) == 22
    assert described == {
        "topic": new_topic,
        "topic_id": topic_id,
        "internal": False,
        "replication_factor": 1,
        "configs": {},
        "partitions": [{"partition": partition, **replicas} for partition in range(2)],
    }
    assert topics("alter", new_topic, "--partitions", "4") == (0, "", "")
    assert len(topics.described(new_topic)["partitions"]) == 4  # type: ignore[arg-type]
    assert topics("delete", new_topic) == (0, "", "")
    assert topics("list", new_topic) == (0, "", "")
    for verb in ("describe", "delete"):
        code, shown, error = topics(verb, new_topic)
        assert (code, shown) == (1, "") and error.startswith(f"topic '{new_topic}' does not exist")
        assert topics(verb, new_topic, "--if-exists") == (0, "", "")


def test_replicas_by_hand(topics: Topics, new_topic: str) -> None:
    assert topics("create", new_topic)[0] == 0
    broker_id = topics.described(new_topic)["partitions"][0]["leader"]  # type: ignore[index]
    placed = f"{new_topic}-placed"
    assert topics("create", placed, "--replica-assignment", f"{broker_id},{broker_id}")[0] == 0
    assert len(topics.described(placed)["partitions"]) == 2  # type: ignore[arg-type]
    # An assignment for an existing topic begins with what is there: only what follows is new.
    grown = ",".join([str(broker_id)] * 3)
    assert topics("alter", placed, "--partitions", "3", "--replica-assignment", grown) == (0, "", "")
    assert len(topics.described(placed)["partitions"]) == 3  # type: ignore[arg-type]
    code, _, error = topics("create", f"{new_topic}-away", "--replica-assignment", str(broker_id + 1))
    assert (code, error.count("\n")) == (1, 1)


def test_the_number_of_replicas_is_asked_for(topics: Topics, new_topic: str) -> None:
    code, _, error = topics("create", new_topic, "--replication-factor", "2")
    assert (code, error.count("\n")) == (1, 1)
    assert topics("create", new_topic, "--replication-factor", "1")[0] == 0


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
def test_a_topic_has_at_least_one_of_each(topics: Topics, option: str) -> None:
    assert topics("create", "none-of-it", option, "0")[0] == 2


def test_every_failure_is_said(topics: Topics, new_topic: str) -> None:
    for name in ("a", "b"):
        assert topics("create", f"{new_topic}-{name}", "--partitions", "2")[0] == 0
    code, shown, error = topics("alter", f"{new_topic}-.*", "--partitions", "1")
    assert (code, shown, error.count("\n")) == (1, "", 1)
    assert all(f"{new_topic}-{name}" in error for name in ("a", "b"))


@pytest.mark.parametrize("name", ["a.{}", "a_{}"])
def test_names_that_metrics_cannot_tell_apart_are_warned_of(topics: Topics, new_topic: str, name: str) -> None:
    code, _, error = topics("create", name.format(new_topic))
    assert code == 0
    assert error.startswith("WARNING: metrics cannot tell '.' from '_' in topic names")


def test_a_setting_nothing_acts_on_is_warned_of(topics: Topics, new_topic: str) -> None:
    options = ("--config", "min.insync.replicas=1", "--config", "local.retention.ms=1000000")
    code, shown, error = topics("create", new_topic, *options)
    assert (code, shown) == (0, f"Created topic {new_topic}.\n")
    assert error.startswith("WARNING: local.retention.ms has no effect: ") and error.endswith(".\n")
    assert error.count("\n") == 1


def test_what_describe_is_narrowed_to(topics: Topics, new_topic: str) -> None:
    plain, strict, loose = (f"{new_topic}-{name}" for name in ("plain", "strict", "loose"))
    assert topics("create", plain)[0] == 0
    assert topics("create", strict, "--config", "min.insync.replicas=2")[0] == 0
    assert topics("create", loose, "--config", "min.insync.replicas=1")[0] == 0
    chosen = f"{new_topic}-.*"
    assert topics.partitions(chosen) == [loose, plain, strict]
    assert topics.partitions(chosen, "--under-min-isr-partitions") == [strict]
    assert topics.partitions(chosen, "--at-min-isr-partitions") == [loose, plain]
    assert topics.partitions(chosen, "--under-replicated-partitions") == []
    assert topics.partitions(chosen, "--unavailable-partitions") == []
    code, shown, _ = topics("describe", chosen, "--topics-with-overrides")
    assert code == 0
    assert [line.split("\t")[0] for line in shown.splitlines()] == [f"Topic: {loose}", f"Topic: {strict}"]


def test_a_pattern_that_is_none(topics: Topics) -> None:
    code, _, error = topics("describe", "(")
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith("--topic '(' is not a regular expression: ")


def test_what_was_deleted_is_said_even_if_not_all_were(capsys: pytest.CaptureFixture[str]) -> None:
    class OneIsKept:
        async def delete_topics(self, names: list[str]) -> Outcomes[str, None]:
            return Outcomes({name: ClientError("topic b: may not go") if name == "b" else None for name in names})

    there = [TopicDescription(name, NIL_UUID, False, ()) for name in "abc"]
    settings = ALL._replace(verb="delete", topic=".", yes=True)
    with pytest.raises(ClientError, match="may not go"):
        run_async(_delete(cast("Admin", OneIsKept()), there, settings))
    assert capsys.readouterr().out == "Deleted topic a.\nDeleted topic c.\n"


ALL = Settings("list", None, None, None, [], {}, False, False, False, Filters(*[False] * 5), Output.KAFKA)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ALL, ["__own", "a.b", "axb"]),
        (ALL._replace(exclude_internal=True), ["a.b", "axb"]),
        (ALL._replace(topic="a.b"), ["a.b", "axb"]),
        (ALL._replace(topic="a"), []),
        (ALL._replace(topic="__own", exclude_internal=True, verb="delete", if_exists=True), []),
    ],
)
def test_which_topics_are_meant(settings: Settings, expected: list[str]) -> None:
    there = [TopicDescription(name, NIL_UUID, name.startswith("__"), ()) for name in ("__own", "a.b", "axb")]
    assert [topic.name for topic in _choose(there, settings)] == expected


def test_a_name_that_is_no_pattern_of_itself_is_found_all_the_same() -> None:
    there = [TopicDescription("a+", NIL_UUID, False, ())]
    assert _choose(there, ALL._replace(topic="a+", verb="describe")) == there


def test_people_get_a_table_and_programs_kafkas_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, form in ((True, Output.TABLE), (False, Output.KAFKA)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        assert Output.AUTO.resolve() is form
        assert Output.JSON.resolve() is Output.JSON
