"""Which of our commands stands behind which of Kafka's script names, and running it under that name."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NamedTuple

from ottla import __version__
from ottla.cli.failures import FAILED, INTERRUPTED, MISUSED, run_program


class Script(NamedTuple):
    module: str
    speaks_kafka: bool = True
    """Whether the command's `main` takes the script's name; the text of others is Kafka's anyway."""


SCRIPTS = {
    "kafka-topics.sh": Script("ottla.cli.topics"),
    "kafka-console-producer.sh": Script("ottla.cli.produce"),
    "kafka-console-consumer.sh": Script("ottla.cli.consume"),
    "kafka-consumer-groups.sh": Script("ottla.cli.groups"),
    "kafka-configs.sh": Script("ottla.cli.configs"),
    "kafka-get-offsets.sh": Script("ottla.cli.offsets"),
    "kafka-log-dirs.sh": Script("ottla.cli.log_dirs"),
    "kafka-delete-records.sh": Script("ottla.cli.delete_records"),
    "kafka-transactions.sh": Script("ottla.cli.transactions"),
    "kafka-acls.sh": Script("ottla.cli.access.acls"),
    "kafka-broker-api-versions.sh": Script("ottla.cli.api_versions"),
    "kafka-reassign-partitions.sh": Script("ottla.cli.reassign"),
    "kafka-leader-election.sh": Script("ottla.cli.elect_leaders"),
    "kafka-dump-log.sh": Script("ottla.cli.dump_log"),
    "kafka-producer-perf-test.sh": Script("ottla.cli.perf"),
    "kafka-consumer-perf-test.sh": Script("ottla.cli.perf"),
    "kafka-e2e-latency.sh": Script("ottla.cli.kafka_names.end_to_end_latency"),
    "kafka-verifiable-producer.sh": Script("ottla.cli.kafka_names.verifiable_producer"),
    "kafka-verifiable-consumer.sh": Script("ottla.cli.kafka_names.verifiable_consumer"),
    "kafka-cluster.sh": Script("ottla.cli.kafka_names.cluster_id"),
    "kafka-server-start.sh": Script("ottla.cli.kafka_names.server"),
    "kafka-server-stop.sh": Script("ottla.cli.kafka_names.server"),
}


def run_script(name: str, arguments: list[str]) -> int:
    """Runs a command as Kafka's script; wrong use is exit code 1, as there."""
    script = SCRIPTS[name]
    if arguments == ["--version"]:
        print(f"ottla {__version__}")
        return 0
    main = import_module(script.module).main
    try:
        code: int = main(arguments, name) if script.speaks_kafka else main(arguments)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 0 if e.code is None else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    return FAILED if code == MISUSED else code


if __name__ == "__main__":
    run_program(lambda: run_script(sys.argv[1], sys.argv[2:]))
