"""What `ottla reassign` does once its options are understood."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.base.types import TopicPartition
from ottla.cli.failures import FAILED
from ottla.cli.reassign import moves
from ottla.cli.reassign.cluster_view import ClusterView, look
from ottla.cli.reassign.directories import DirectoryError
from ottla.cli.reassign.plan_file import PlanError, PlanFile, PlannedPartition, plan_json, read_plan, read_topics
from ottla.cli.reassign.proposals import propose
from ottla.cli.session import open_admin
from ottla.client.aio.admin.admin import Admin
from ottla.client.errors import ClusterUnreachableError

CLIENT_ID = "ottla-reassign"


async def run(options: Namespace) -> None:
    try:
        await _run(options)
    except (OttlaError, OSError) as e:
        if not options.kafka or isinstance(e, ClusterUnreachableError):
            raise
        # On standard output, where scripts look for it.
        print(_kafka_text(e))
        raise SystemExit(FAILED) from None


def _kafka_text(error: OttlaError | OSError) -> str:
    from ottla.cli.kafka_names.java_errors import java_name

    if isinstance(error, OSError):
        return f"Error: Unable to read file {error.filename}"
    if isinstance(error, PlanError):
        return f"Error: {error.reason}"
    if isinstance(error, DirectoryError):
        return f"Error: {error.summary}"
    if isinstance(error, KafkaError):
        if error.code is ErrorCode.REASSIGNMENT_IN_PROGRESS:
            return (
                "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
                "and create a new partition assignment in addition to the existing one. The --additional flag can also "
                "be used to change the throttle by resubmitting the current reassignment."
            )
        is_known = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return f"Error: {java_name(error.code) + ': ' if is_known else ''}{error.message}"
    return f"Error: {error}"


async def _run(options: Namespace) -> None:
    """Files are read first: what is wrong with them can be said without a broker."""
    if options.verb == "list":
        async with open_admin(options, CLIENT_ID) as admin:
            await moves.list_running(admin, options.output)
    elif options.verb == "generate":
        await _generate(options)
    else:
        file, plan = read_plan(Path(options.plan))
        async with open_admin(options, CLIENT_ID) as admin:
            await _follow(admin, file, plan, options)


async def _follow(admin: Admin, file: PlanFile, plan: list[PlannedPartition], options: Namespace) -> None:
    match options.verb:
        case "execute":
            limits = moves.Limits(options.throttle, options.replica_alter_log_dirs_throttle, options.timeout)
            await moves.execute(admin, file, plan, limits, additional=options.additional, wait=options.wait)
        case "verify":
            await moves.verify(admin, plan, preserve_throttles=options.preserve_throttles)
        case _:
            await moves.cancel(
                admin, plan, preserve_throttles=options.preserve_throttles, tells_of_directories=options.kafka
            )


async def _generate(options: Namespace) -> None:
    """Kafka's options print what its tool prints; the verb prints the plan alone, to be kept in a file."""
    topics = list(options.topic)
    if options.topics_to_move_json_file is not None:
        topics += read_topics(Path(options.topics_to_move_json_file))
    async with open_admin(options, CLIENT_ID) as admin:
        view = await look(admin)
    brokers = options.brokers
    current = chosen_partitions(view, topics)
    # As in Kafka, brokers that are not there are passed over.
    racks = {b: rack for b, rack in view.racks.items() if brokers is None or b in brokers}
    if options.disable_rack_aware:
        racks = dict.fromkeys(racks)
    proposed = propose(current, racks, replication_factor=options.replication_factor)
    if options.as_kafka:
        print(f"Current partition replica assignment\n{plan_json(current)}\n")
        print(f"Proposed partition reassignment configuration\n{plan_json(proposed)}")
    else:
        print(plan_json(proposed))


def chosen_partitions(view: ClusterView, topics: list[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Of the topics, or of all if none is named."""
    there = {tp.topic for tp in view.replicas}
    for topic in topics:
        if topic not in there:
            raise KafkaError(f"Topic {topic} not found.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {tp: replicas for tp, replicas in view.replicas.items() if not topics or tp.topic in topics}
