"""What the options of `ottla topics` come to, and which topics they choose. No broker is asked."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid, uuid_to_text
from ottla.cli import topics
from ottla.cli.failures import UsageError
from ottla.cli.rows import Output
from ottla.cli.topics import (
    Filters,
    Settings,
    _check,
    _choose,
    _list,
    _raise_failures,
    _refuse_as_kafka,
    _settings,
    main,
    parse_assignment,
    parser,
)
from ottla.client.core.admin.types import TopicDescription
from ottla.client.core.topic_info import PartitionInfo

NO_FILTERS = Filters(False, False, False, False, False)
SERVER = ["--bootstrap-server", "h:1"]
OPTIONS = {
    "--config": (["a=1"], {"create", "alter"}),
    "--delete-config": (["a"], {"alter"}),
    "--partitions": (["3"], {"create", "alter"}),
    "--replication-factor": (["2"], {"create"}),
    "--replica-assignment": (["1:2"], {"create", "alter"}),
    "--under-replicated-partitions": ([], {"describe"}),
    "--unavailable-partitions": ([], {"describe"}),
    "--under-min-isr-partitions": ([], {"describe"}),
    "--at-min-isr-partitions": ([], {"describe"}),
    "--topics-with-overrides": ([], {"describe"}),
    "--if-not-exists": ([], {"create"}),
    "--if-exists": ([], {"alter", "delete", "describe"}),
    "--exclude-internal": ([], {"list", "describe", "delete"}),
    "--topic-id": (["x"], {"create", "list", "describe", "alter", "delete"}),
    "--yes": ([], {"create", "list", "describe", "alter", "delete"}),
}


def settings(*arguments: str, kafka: str = "") -> Settings:
    found = _settings(parser(kafka).read([*arguments, *SERVER]))
    _check(found)
    return found


@pytest.mark.parametrize("verb", ["create", "list", "describe", "alter", "delete"])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_for_some_verbs_only(verb: str, option: str) -> None:
    values, verbs = OPTIONS[option]
    more = ["--delete-config", "b"] if verb == "alter" else []
    arguments = [verb, "t", option, *values, *more]
    if verb in verbs:
        assert settings(*arguments).verb == verb
    else:
        with pytest.raises(UsageError, match=f"^{option} is for .*only$"):
            settings(*arguments)


def test_every_option_finds_its_place() -> None:
    plain = settings("create", "t")
    expected = Settings("create", "t", None, None, [], {}, False, False, False, NO_FILTERS, plain.output)
    assert plain == expected and plain.output is not Output.AUTO
    assert settings("create", "--topic", "t", "--partitions", "1", "--replication-factor", "1") == expected._replace(
        partitions=1, replication_factor=1
    )
    assert settings("create", "t", "--replica-assignment", "1:2,2:3").assignments == [[1, 2], [2, 3]]
    changed = settings("alter", "t", "--config", "a=1", "--config", "b=", "--delete-config", "c", "--if-exists")
    assert (changed.configs, changed.delete_configs, changed.if_exists) == ({"a": "1", "b": ""}, ("c",), True)
    assert settings("create", "t", "--if-not-exists").if_not_exists
    assert settings("list", "--exclude-internal").exclude_internal
    assert settings("delete", "t", "--yes").yes
    assert settings("describe", "--topic-id", "x").topic_id == "x"


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--under-replicated-partitions", "under_replicated"),
        ("--unavailable-partitions", "unavailable"),
        ("--under-min-isr-partitions", "under_min_isr"),
        ("--at-min-isr-partitions", "at_min_isr"),
        ("--topics-with-overrides", "with_overrides"),
    ],
)
def test_what_a_description_is_narrowed_to(option: str, field: str) -> None:
    filters = settings("describe", option).filters
    assert filters == NO_FILTERS._replace(**{field: True})
    assert filters.by_partition is (field != "with_overrides")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "t", "--partitions", "0"], "--partitions must be at least 1"),
        (["create", "t", "--replication-factor", "0"], "--replication-factor must be at least 1"),
        (["create", "t", "u"], "the topic is named twice"),
        (["alter"], "which topic to alter is not said; use --topic"),
        (["delete"], "which topic to delete is not said; use --topic"),
        (["alter", "t"], "--alter needs --partitions with the new number of partitions, or --config"),
        (["create", "t", "--replica-assignment", "1", "--replication-factor", "1"], "--replica-assignment says all"),
    ],
)
def test_what_makes_no_sense(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        settings(*arguments)
    assert told in str(refusal.value)


def test_partitions_of_an_assignment_differ_at_most_in_their_brokers() -> None:
    assert parse_assignment("1") == [[1]]
    assert parse_assignment("1:2,3:4,4:1") == [[1, 2], [3, 4], [4, 1]]
    for text in ("1:2,3:3", "1,2:3", ""):
        with pytest.raises(UsageError):
            parse_assignment(text)


# Under Kafka's name


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Command must include exactly one action"),
        (["--list", "--describe"], "Command must include exactly one action"),
        (["--create"], 'Missing required argument "[topic]"'),
        (["--alter", "--partitions", "3"], 'Missing required argument "[topic]"'),
        (["--delete"], 'Missing required argument "[topic]"'),
        (["--alter", "--topic", "t", "--partitions", "2", "--config", "a=1"], "supports altering topic configs with"),
        (["--alter", "--topic", "t"], 'Missing required argument "[partitions]"'),
        (["--list", "--if-not-exists"], 'Option "[if-not-exists]" can\'t be used with option "[list]"'),
        (
            ["--describe", "--topics-with-overrides", "--unavailable-partitions"],
            'Option "[unavailable-partitions]" can\'t be used with option "[topics-with-overrides]"',
        ),
        (
            ["--create", "--topic", "t", "--partitions", "1", "--replica-assignment", "1"],
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
    ],
)
def test_kafkas_words_for_what_makes_no_sense(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*arguments, *SERVER], kafka="kafka-topics.sh")
    assert end.value.code == 1
    assert told in capsys.readouterr().err


def test_kafkas_words_for_a_setting_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--create", "--topic", "t", "--config", "a", *SERVER], kafka="kafka-topics.sh") == 1
    assert capsys.readouterr().out.startswith("Error while executing topic command : ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--list"],
        ["--describe", "--topics-with-overrides"],
        ["--describe", "--unavailable-partitions", "--under-replicated-partitions"],
        ["--create", "--topic", "t", "--replica-assignment", "1"],
        ["--create", "--topic", "t", "--partitions", "0"],
        ["--alter", "--topic", "t", "--partitions", "2"],
        ["--delete", "--topic", "t", "--if-exists"],
    ],
)
def test_what_kafkas_script_takes(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Settings] = []

    async def run(options: object, settings: Settings) -> None:
        done.append(settings)

    monkeypatch.setattr(topics, "_options_run", run)
    assert main([*arguments, *SERVER], kafka="kafka-topics.sh") == 0
    assert (done[0].verb, done[0].kafka) == (arguments[0].removeprefix("--"), True)


def topic(name: str, *, partitions: int = 1, number: int = 0, is_internal: bool = False) -> TopicDescription:
    infos = tuple(PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in range(partitions))
    return TopicDescription(name, Uuid(bytes(15) + bytes([number])), is_internal, infos)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (2, "Topic currently has 3 partitions, which is higher than the requested 2."),
        (3, "Topic already has 3 partitions."),
        (4, None),
    ],
)
def test_kafkas_words_for_partitions_that_are_not_more(wanted: int, told: str | None) -> None:
    if told is None:
        _refuse_as_kafka([topic("t", partitions=3)], wanted)
        return
    with pytest.raises(KafkaError) as refusal:
        _refuse_as_kafka([topic("more"), topic("t", partitions=3)], wanted)
    assert (refusal.value.message, refusal.value.code) == (told, ErrorCode.INVALID_PARTITIONS)


# Which topics

TOPICS = [topic("a", number=1), topic("ab", number=2), topic("a.b", number=3), topic("__a", is_internal=True)]


def chosen(*arguments: str, kafka: bool = False) -> list[str]:
    return [found.name for found in _choose(TOPICS, settings(*arguments)._replace(kafka=kafka))]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["list"], ["a", "ab", "a.b", "__a"]),
        (["list", "--exclude-internal"], ["a", "ab", "a.b"]),
        (["describe", "a"], ["a"]),
        (["describe", "a.b"], ["a.b"]),
        (["describe", "a.*"], ["a", "ab", "a.b"]),
        (["describe", "a,ab"], ["a", "ab"]),
        (["list", "none"], []),
        (["describe", "none", "--if-exists"], []),
        (["describe", "--topic-id", uuid_to_text(Uuid(bytes(15) + b"\2"))], ["ab"]),
        (["describe", "--topic-id", "x", "--if-exists"], []),
    ],
)
def test_the_topics_that_are_meant(arguments: list[str], names: list[str]) -> None:
    assert chosen(*arguments) == names


def test_topics_that_are_not_there() -> None:
    with pytest.raises(KafkaError, match="TopicId 'x' does not exist as expected"):
        chosen("describe", "--topic-id", "x")
    for kafka, told in ((True, "Topic 'Optional[b]' does not exist as expected"), (False, "b")):
        with pytest.raises(KafkaError) as refusal:
            chosen("describe", "b", kafka=kafka)
        assert told in refusal.value.message and refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError):
        chosen("delete", "__a", "--exclude-internal")
    with pytest.raises(UsageError, match="is not a regular expression"):
        chosen("describe", "(")


@pytest.mark.parametrize(
    ("output", "kafka", "shown"),
    [
        ("kafka", False, "a\nab\n"),
        ("tsv", False, "topic\na\nab\n"),
        ("json", False, json.dumps(["a", "ab"]) + "\n"),
        ("kafka", True, "a\nab\n"),
    ],
)
def test_names_are_listed(output: str, kafka: bool, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    _list(TOPICS[:2], settings("list", "-o", output)._replace(kafka=kafka))
    assert capsys.readouterr().out == shown
    _list([], settings("list", "-o", "kafka")._replace(kafka=kafka))
    assert capsys.readouterr().out == ("\n" if kafka else "")


def test_failures_of_several_topics_are_one_sentence() -> None:
    def outcomes(*told: str) -> Any:
        return SimpleNamespace(errors={text: KafkaError(text, code=ErrorCode.INVALID_PARTITIONS) for text in told})

    _raise_failures(outcomes())
    with pytest.raises(KafkaError) as one:
        _raise_failures(outcomes("a"))
    assert (one.value.message, one.value.code) == ("a", ErrorCode.INVALID_PARTITIONS)
    with pytest.raises(KafkaError) as both:
        _raise_failures(outcomes("a", "b"))
    assert both.value.message == "a; b"
