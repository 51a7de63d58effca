"""Options of commands: how verbs are found, what is refused and in whose words, and how help looks, to the blank."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

import pytest

from ottla.cli.parsing import CommandParser, number


@pytest.fixture(autouse=True)
def _no_servers_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)


def made(kafka: str = "", **given: Any) -> CommandParser:
    usual: dict[str, Any] = {"words": "[VERB] [NAME]", "verbs": ("list", "alter-all"), "connects": False}
    parser = CommandParser("things", "Look after things.", kafka=kafka, **{**usual, **given})
    parser.add_verb_flags({"list": "list them", "alter-all": "change them"})
    parser.add_argument("--size", type=number, metavar="N", help="how large")
    parser.add_argument("--kind", choices=("a", "b"), help="which")
    parser.add_argument("--name", action="append", default=[], metavar="NAME", help="repeatable")
    return parser


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str], **given: Any) -> tuple[object, str]:
    with pytest.raises(SystemExit) as end:
        made(**given).read(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    return end.value.code, said.err


# Verbs


@pytest.mark.parametrize(
    ("arguments", "verb", "words"),
    [
        (["list"], "list", []),
        (["--list"], "list", []),
        (["alter-all", "x"], "alter-all", ["x"]),
        (["--alter-all", "x"], "alter-all", ["x"]),
        (["--size", "1", "list", "list"], "list", ["list"]),
        (["list", "--size", "1", "x"], "list", ["x"]),
    ],
)
def test_a_verb_is_a_word_or_a_flag(arguments: list[str], verb: str, words: list[str]) -> None:
    options = made().read(arguments)
    assert (options.verb, options.words, options.kafka) == (verb, words, False)


ONE_OF = "name exactly one of list, alter-all"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], ONE_OF),
        (["--list", "--alter-all"], ONE_OF),
        (["list", "--alter-all"], ONE_OF),
        (["lst"], f"'lst' is no verb; did you mean 'list'? {ONE_OF}"),
        (["xyz"], f"'xyz' is no verb; {ONE_OF}"),
        (["list", "--sizes"], "unrecognized arguments: --sizes; did you mean '--size'?"),
        (["--xyz"], "unrecognized arguments: --xyz"),
        (["list", "--size", "many"], "argument --size: 'many' is not a whole number"),
        (["list", "--siz"], "unrecognized arguments: --siz; did you mean '--size'?"),
    ],
)
def test_mistakes_are_told_with_how_it_is_used(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = "Usage: ottla things [OPTIONS] [VERB] [NAME]\nTry 'ottla things -h' for help."
    assert refused(capsys, arguments) == (2, f"{usage}\n\nError: {told}\n")


def test_without_words_there_are_none_in_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = refused(capsys, ["x"], words="", verbs=())
    assert (code, told.splitlines()[0]) == (2, "Usage: ottla things [OPTIONS]")


# Kafka's scripts

SCRIPT = "kafka-things.sh"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Command must include exactly one action: --list, --alter-all"),
        (["list"], "Command must include exactly one action: --list, --alter-all"),
        (["--list", "--alter-all"], "Command must include exactly one action: --list, --alter-all"),
        (["--list", "--xyz", "1"], "xyz is not a recognized option"),
        (["--list", "--size"], "Option size requires an argument"),
        (["--list", "--size", "many"], "Cannot parse argument 'many' of option size"),
        (["--list", "--kind", "c"], "Cannot parse argument 'c' of option kind"),
        (["--list", "--size", "1", "--size", "2"], "Found multiple arguments for option size, but you asked for only"),
        (["--list", "--size=1", "--size", "2"], "Found multiple arguments for option size, but you asked for only one"),
    ],
)
def test_scripts_refuse_in_kafkas_words(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = refused(capsys, arguments, kafka=SCRIPT)
    assert code == 1 and error.startswith(told) and error.count("\n") == 1


def test_words_say_nothing_to_scripts() -> None:
    options = made(SCRIPT).read(["--list", "x", "--name", "a", "--name", "b", "--list"])
    assert (options.verb, options.words, options.name) == ("list", [], ["a", "b"])
    assert (options.kafka, options.output) == (True, "kafka")
    options = made("kafka-transactions.sh").read(["list", "x"])
    assert (options.verb, options.words) == ("list", ["x"])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("kafka-console-producer.sh", "Missing required option(s) [bootstrap-server]"),
        ("kafka-consumer-perf-test.sh", "Missing required option(s) [bootstrap-server]"),
        ("kafka-topics.sh", "--bootstrap-server must be specified"),
        ("kafka-reassign-partitions.sh", "Please specify --bootstrap-server"),
        ("kafka-acls.sh", 'Missing required argument "[bootstrap-server]"'),
    ],
)
def test_scripts_have_to_be_told_where_brokers_are(
    script: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "h:1")
    assert refused(capsys, ["--list"], kafka=script, connects=True) == (1, f"{told}\n")
    assert made(script, connects=True).read(["--list", "--bootstrap-server", "x:1"]).bootstrap_server == "x:1"


# Where brokers are


@pytest.mark.parametrize(
    ("arguments", "server"),
    [
        ([], "127.0.0.1:9092"),
        (["-b", "h:1"], "h:1"),
        (["--bootstrap-server", "h:1"], "h:1"),
        (["--bootstrap-servers", "h:1"], "h:1"),
        (["--broker-list", "h:1"], "h:1"),
    ],
)
def test_brokers_are_named_in_several_ways(arguments: list[str], server: str) -> None:
    options = made(connects=True).read(["list", *arguments])
    assert (options.bootstrap_server, options.command_config) == (server, None)


def test_a_list_of_brokers_may_be_one_of_ids(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = refused(capsys, ["list", "--broker-list", "1"], connects=True, broker_ids=True)
    assert code == 2 and "unrecognized arguments: --broker-list" in told


def test_a_zookeeper_is_of_no_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = refused(capsys, ["list", "--zookeeper", "z:1"], connects=True)
    assert code == 2
    assert told.endswith(
        "Error: --zookeeper is gone: commands talk to a broker, which needs no ZooKeeper. "
        "Write --bootstrap-server HOST:PORT instead.\n"
    )


# Topics


@pytest.mark.parametrize(
    ("arguments", "topic"), [([], None), (["t"], "t"), (["--topic", "t"], "t")], ids=["none", "word", "option"]
)
def test_a_topic_is_a_word_or_an_option(arguments: list[str], topic: str | None) -> None:
    parser = CommandParser("x", "X.", words="[TOPIC]", connects=False)
    parser.add_argument("--topic")
    options = parser.read(arguments)
    parser.take_topic(options)
    assert options.topic == topic


@pytest.mark.parametrize("arguments", [["t", "u"], ["t", "--topic", "u"], ["t", "--topic", ""]])
def test_a_topic_is_named_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandParser("x", "X.", words="[TOPIC]", connects=False)
    parser.add_argument("--topic")
    options = parser.read(arguments)
    with pytest.raises(SystemExit):
        parser.take_topic(options)
    assert "Error: the topic is named twice\n" in capsys.readouterr().err


# Help


def described(kafka: str = "") -> CommandParser:
    parser = CommandParser(
        "things",
        "Look after things of which there are so many that the sentence which says so does not fit on one line.",
        words="[NAME]",
        examples=("ottla things a", "ottla things b"),
        kafka=kafka,
        prints_rows=True,
    )
    parser.add_flag("--flag", "a flag")
    parser.add_argument("--22-characters-longer", metavar="N", help="just fits")
    parser.add_argument("--23-characters-too-long", metavar="N", help="does not fit, and has a text of two lines" * 2)
    parser.add_argument("--maybe", nargs="?", metavar="X", help="with or without")
    parser.add_argument(
        "--many", metavar="N", help="a text that is so long that it needs a second line below the first"
    )
    parser.add_argument("--kind", choices=("a", "b"), help="without a name for what it takes")
    return parser


HELP = """\
Usage: ottla things [OPTIONS] [NAME]

  Look after things of which there are so many that the sentence which says so
  does not fit on one line.

Options:
  -b, --bootstrap-server HOST:PORT
                              a broker, or several; 127.0.0.1:9092
  --command-config FILE       a properties file with settings of the client
  --flag                      a flag
  --22-characters-longer N    just fits
  --23-characters-too-long N  does not fit, and has a text of two linesdoes not
                              fit, and has a text of two lines
  --maybe [X]                 with or without
  --many N                    a text that is so long that it needs a second line
                              below the first
  --kind                      without a name for what it takes
  -o, --output                table, json or tsv; table
  -h, --help                  Show this message and exit.

Examples:
  ottla things a
  ottla things b
"""


def test_help_to_the_blank(capsys: pytest.CaptureFixture[str]) -> None:
    parser = described()
    assert parser.format_help() == parser.format_help() == HELP
    with pytest.raises(SystemExit) as end:
        described().read(["-h"])
    assert (end.value.code, capsys.readouterr().out) == (0, HELP)


def test_an_option_may_have_nothing_said_of_it() -> None:
    parser = CommandParser("x", "Does it.", connects=False)
    parser.add_argument("--bare", metavar="N")
    assert "  --bare N" in map(str.rstrip, parser.format_help().splitlines())


def test_help_of_a_script() -> None:
    shown = HELP.replace("ottla things [", "kafka-x.sh [").replace("127.0.0.1:9092", "must be given")
    shown = shown.partition("\nExamples:")[0].replace("  -o, --output                table, json or tsv; table\n", "")
    assert described("kafka-x.sh").format_help() == shown


def test_help_without_words_and_examples() -> None:
    shown = CommandParser("x", "Does it.", connects=False).format_help()
    assert shown == (
        "Usage: ottla x [OPTIONS]\n\n  Does it.\n\nOptions:\n"
        "  -h, --help                  Show this message and exit.\n"
    )


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e3", "0x1"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(ArgumentTypeError) as refusal:
        number(text)
    assert str(refusal.value) == f"{text!r} is not a whole number"
    assert [number(good) for good in ("0", "-1", " 12 ")] == [0, -1, 12]
