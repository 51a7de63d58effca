"""Every option of every command and of Kafka's scripts: runbooks name them, so that none may go or change its kind."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, _AppendAction
from importlib import import_module
from inspect import signature

import pytest

from ottla.base.environment import BOOTSTRAP_SERVERS
from ottla.cli.kafka_names.scripts import SCRIPTS
from ottla.cli.main import COMMANDS

SHARED = {
    "<client>": (
        "--bootstrap-server/-b=text(127.0.0.1:9092) --bootstrap-servers/--broker-list=text>bootstrap_server "
        "--command-config=text --zookeeper=text"
    ),
    "<rows>": "--output/-o=table|json|tsv(table)",
}
OWN = {
    "demo": "--port=number(9092) --data=text(data) --rate=number(200) --duration=float",
    "start": ("--override=text* --log-level=text* --brokers=at_least_one --port=int --data=Path --no-restart"),
    "cluster": (
        "<client> <rows> --watch --throttle=number --yes/-y --plan=text --data=text(data/cluster) --rolling "
        "--timeout-s=number(300)"
    ),
    "zookeeper": "--nodes=number(1) --port=number(2181) --data=text(data/zookeeper) --no-restart",
    "topics": (
        "<client> --create --list --describe --alter --delete --topic=text --topic-id=text "
        "--partitions=number --replication-factor=number --replica-assignment=text --config=text* "
        "--delete-config=text* --if-exists --if-not-exists --exclude-internal --under-replicated-partitions "
        "--unavailable-partitions --under-min-isr-partitions --at-min-isr-partitions --topics-with-overrides "
        "--partition-size-limit-per-response=number --yes --output/-o=auto|table|kafka|json|tsv(auto)"
    ),
    "reassign": (
        "<rows> --bootstrap-server/-b=text(127.0.0.1:9092) --bootstrap-servers=text>bootstrap_server "
        "--command-config=text --zookeeper=text --generate --execute --verify --cancel --list "
        "--reassignment-json-file=text --topics-to-move-json-file=text --topic=text* --broker-list=text "
        "--replication-factor=number --disable-rack-aware --throttle=number "
        "--replica-alter-log-dirs-throttle=number --timeout=number --additional --preserve-throttles --wait "
        "--bootstrap-controller=text"
    ),
    "elect-leaders": (
        "<client> <rows> --admin.config=text>command_config --election-type=preferred|unclean(preferred) "
        "--all-topic-partitions --topic=text --partition=number --path-to-json-file=text"
    ),
    "produce": (
        "<client> --topic=text --sync --compression-codec=text?(none) --batch-size=number(16384) "
        "--request-required-acks=text(all) --request-timeout-ms=number(30000) --max-block-ms=number(60000) "
        "--timeout=number(0) --property=text* --reader-config=text --producer-property=text* "
        "--producer.config=text>producer_config --message-send-max-retries=text --retry-backoff-ms=text "
        "--metadata-expiry-ms=text --max-memory-bytes=text --max-partition-memory-bytes=text "
        "--socket-buffer-size=text --line-reader=text(org.apache.kafka.tools.LineMessageReader)"
    ),
    "consume": (
        "<client> --topic=text --include=text --whitelist=text>include --from-beginning --partition=number "
        "--offset=text --from-time=text --tail=number --grep=text --max-messages=number --timeout-ms=number "
        "--group=text --isolation-level=read_uncommitted|read_committed --property=text* --formatter=text "
        "--formatter-config=text --key-deserializer=text --value-deserializer=text --consumer-property=text* "
        "--consumer.config=text>consumer_config --skip-message-on-error --enable-systest-events "
        "-o/--output=lines|json(lines)>output"
    ),
    "groups": (
        "<client> <rows> --list --describe --delete --reset-offsets --delete-offsets --remove-members "
        "--group=text* --all-groups --topic=text* --all-topics --offsets --members --state=text? --type=text? "
        "--verbose --to-earliest --to-latest --to-current --to-offset=number --shift-by=number "
        "--to-datetime=text --by-duration=text --from-file=text --dry-run --execute --export "
        "--instance-id=text* --member-id=text* --timeout=number(5000)"
    ),
    "configs": (
        "<client> <rows> --describe --alter --delete --entity-type=text* --entity-name=text* --entity-default "
        "--topic=text --broker=text --broker-logger=text --group=text --client-metrics=text --user=text "
        "--client=text --ip=text --broker-defaults --user-defaults --client-defaults --ip-defaults --all "
        "--add-config=text* --set=text*>add_config --add-config-file=text --delete-config=text* --force"
    ),
    "offsets": (
        "<client> <rows> --topic=text --partitions=text --topic-partitions=text --time=text(latest) "
        "--exclude-internal-topics"
    ),
    "log-dirs": (
        "<rows> --bootstrap-server/-b=text(127.0.0.1:9092) --bootstrap-servers=text>bootstrap_server "
        "--command-config=text --zookeeper=text --describe --topic-list=text --broker-list=text"
    ),
    "delete-records": "<client> <rows> --offset-json-file=text --partition=number --before=text --yes",
    "transactions": (
        "<client> <rows> --transactional-id=text --duration-filter=number --topic=text --partition=number "
        "--broker-id=number --max-transaction-timeout=number(15) --start-offset=number --producer-id=number "
        "--producer-epoch=number --coordinator-epoch=number"
    ),
    "acls": (
        "<client> <rows> --list --add --remove --topic=text* --group=text* --transactional-id=text* "
        "--delegation-token=text* --user-principal=text* --cluster --resource-pattern-type=text(literal) "
        "--operation=text* --allow-principal=text* --allow-host=text* --deny-principal=text* "
        "--deny-host=text* --principal=text* --producer --consumer --idempotent --yes "
        "--force>yes --authorizer=text --authorizer-properties=text --bootstrap-controller=text"
    ),
    "users": (
        "<client> <rows> --mechanism=SCRAM-SHA-256|SCRAM-SHA-512(SCRAM-SHA-512) --iterations=number(8192) "
        "--password-file=text"
    ),
    "quotas": "<client> <rows> --user=text --client=text --ip=text",
    "perf": (
        "<client> <rows> --topic=text --num-records=number --messages=number>num_records --record-size=number "
        "--payload-file=text --payload-delimiter=text(\\n) --payload-monotonic --throughput=float(-1.0) "
        "--producer-props=text*+ --transactional-id=text --transaction-duration-ms=number(3000) --group=text "
        "--timeout=number(10000) --from-latest --hide-header --fetch-size=number(1048576) "
        "--reporting-interval=number(5000) --show-detailed-stats --consumer.config=text>command_config "
        "--print-metrics --socket-buffer-size=text --threads=text --num-fetch-threads=text --date-format=text"
    ),
    "aliases": "",
    "completion": "",
    "dump-log": (
        "--files=text --print-data-log --deep-iteration --key-decoder-class=text --value-decoder-class=text "
        "--offsets-decoder --transaction-log-decoder --index-sanity-check --verify-index-only "
        "--max-bytes=number --max-message-size=number --skip-record-metadata"
    ),
    "api-versions": "<client> <rows>",
}
"""Flags have no kind; `*` can be repeated, `?` and `+` are argparse's, in brackets is the default, after `>` the name
under which it is kept."""

OF_SCRIPTS = {
    "kafka-topics.sh": ("topics", "--output/-o=auto|table|kafka|json|tsv(auto)", ""),
    "kafka-console-producer.sh": ("produce", "", ""),
    "kafka-console-consumer.sh": ("consume", "-o/--output=lines|json(lines)>output", ""),
    "kafka-consumer-groups.sh": ("groups", "--remove-members <rows>", ""),
    "kafka-configs.sh": ("configs", "--delete <rows>", ""),
    "kafka-get-offsets.sh": ("offsets", "<rows>", ""),
    "kafka-log-dirs.sh": ("log-dirs", "<rows>", ""),
    "kafka-delete-records.sh": ("delete-records", "<rows>", ""),
    "kafka-transactions.sh": ("transactions", "<rows>", ""),
    "kafka-acls.sh": ("acls", "<rows>", ""),
    "kafka-broker-api-versions.sh": ("api-versions", "<rows>", ""),
    "kafka-reassign-partitions.sh": ("reassign", "<rows>", ""),
    "kafka-leader-election.sh": (
        "elect-leaders",
        "--election-type=preferred|unclean(preferred) <rows>",
        "--election-type=preferred|unclean",
    ),
    "kafka-dump-log.sh": ("dump-log", "", ""),
    "kafka-producer-perf-test.sh": (
        "perf",
        "<client> <rows>",
        "--bootstrap-server=text() --command-config/--producer.config=text",
    ),
    "kafka-consumer-perf-test.sh": ("perf", "<rows>", ""),
}
"""The command of ours that a script is, which of its options the script lacks, and what it has in addition."""

SCRIPTS_ALONE = {
    "kafka-verifiable-producer.sh": (
        "<client> --topic=text --max-messages=number(-1) --throughput=number(-1) --acks=0|1|-1(-1) "
        "--producer.config=text>producer_config --message-create-time=number(-1) --value-prefix=number "
        "--repeating-keys=number"
    ),
    "kafka-verifiable-consumer.sh": (
        "<client> --topic=text --group-id=text --group-protocol=text(classic) --group-remote-assignor=text "
        "--group-instance-id=text --max-messages=number(-1) --session-timeout=number(30000) --verbose "
        "--enable-autocommit --reset-policy=text(earliest) --assignment-strategy=text "
        "--consumer.config=text>consumer_config"
    ),
    "kafka-cluster.sh": "<client> --config=text>command_config --id=number",
}


def form(action: Action) -> str:
    text = "/".join(action.option_strings)
    if action.nargs != 0:
        named = getattr(action.type, "__name__", "text").strip("_")
        text += "=" + ("|".join(map(str, action.choices)) if action.choices else named)
        text += ("*" if isinstance(action, _AppendAction) else "") + str(action.nargs or "")
    if action.default not in (None, SUPPRESS, []) and action.default is not False:
        text += f"({action.default})"
    own_name = action.option_strings[0].lstrip("-").replace("-", "_")
    return text if action.dest == own_name else f"{text}>{action.dest}"


def taken(parser: ArgumentParser) -> set[str]:
    parser.format_help()  # after which options that are shown last are there, too
    return {form(action) for action in parser._actions if action.option_strings and action.dest != "help"}


def words(text: str) -> set[str]:
    for name, options in SHARED.items():
        text = text.replace(name, options)
    return set(text.split())


def as_in_a_script(options: set[str]) -> set[str]:
    """Where the brokers are has to be said."""
    return {option.replace("(127.0.0.1:9092)", "") for option in options}


@pytest.fixture(autouse=True)
def _no_servers_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BOOTSTRAP_SERVERS, raising=False)


@pytest.mark.parametrize("command", OWN)
def test_a_command_takes_these_options(command: str) -> None:
    assert taken(import_module(COMMANDS[command].module).parser()) == words(OWN[command])


@pytest.mark.parametrize("script", [*OF_SCRIPTS, *SCRIPTS_ALONE])
def test_a_script_takes_these_options(script: str) -> None:
    make = import_module(SCRIPTS[script].module).parser
    found = taken(make(script) if signature(make).parameters else make())
    if script in SCRIPTS_ALONE:
        assert found == as_in_a_script(words(SCRIPTS_ALONE[script]))
    else:
        command, lacks, has = OF_SCRIPTS[script]
        assert found == as_in_a_script(words(OWN[command]) - words(lacks) | words(has))


def test_every_command_is_here() -> None:
    assert {*OWN, "pipeline"} == set(COMMANDS)
    others = {"kafka-e2e-latency.sh", "kafka-server-start.sh", "kafka-server-stop.sh"}
    assert {*OF_SCRIPTS, *SCRIPTS_ALONE, *others} == set(SCRIPTS)


@pytest.mark.parametrize(
    ("in_environment", "default"), [(None, "127.0.0.1:9092"), ("", "127.0.0.1:9092"), ("h:1", "h:1")]
)
def test_where_brokers_are_may_be_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, in_environment: str | None, default: str
) -> None:
    if in_environment is not None:
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", in_environment)
    parser = import_module("ottla.cli.topics").parser
    assert parser().read(["list"]).bootstrap_server == default
    assert f"a broker, or several; {default}" in " ".join(parser().format_help().split())
    assert "a broker, or several; must be given" in parser("kafka-topics.sh").format_help()
