"""`ottla elect-leaders`: preferred replicas lead again, or anybody does; options and texts of kafka-leader-election."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.reassign.plan_file import read_partitions
from ottla.cli.terminal import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    UsageError,
    errors_told,
    fail,
    run_client,
    run_command,
)
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import ElectionType


class Kind(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def main(arguments: list[str]) -> int:
    return run_command("elect-leaders", elect_leaders, arguments)


def elect_leaders(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    election_type: Annotated[
        Kind,
        typer.Option(
            case_sensitive=False,
            help="preferred: the first replica leads again, if it is in sync; "
            "unclean: any replica leads where there is no leader, and records may be lost",
        ),
    ] = Kind.PREFERRED,
    all_topic_partitions: Annotated[bool, typer.Option("--all-topic-partitions", help="wherever it is needed")] = False,
    topic: Annotated[str | None, typer.Option(help="with --partition: one partition")] = None,
    partition: Annotated[int | None, typer.Option(min=0)] = None,
    path_to_json_file: Annotated[Path | None, typer.Option(help='{"partitions":[{"topic":"t","partition":0}]}')] = None,
) -> None:
    """Elect leaders of partitions.

    Example:

      ottla elect-leaders --all-topic-partitions
    """
    with errors_told():
        if [topic is not None, all_topic_partitions, path_to_json_file is not None].count(True) != 1:
            raise UsageError(
                "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
            )
        if (topic is None) != (partition is None):
            raise UsageError("Missing required option(s): partition")
        partitions: list[TopicPartition] | None = None
        if topic is not None and partition is not None:
            partitions = [TopicPartition(topic, partition)]
        elif path_to_json_file is not None:
            partitions = read_partitions(path_to_json_file)
    run_client(_elect(bootstrap_server, ElectionType[election_type.name], partitions))


async def _elect(bootstrap_server: str, kind: ElectionType, partitions: list[TopicPartition] | None) -> None:
    if partitions == []:
        return
    async with Admin(bootstrap_servers=bootstrap_server, bootstrap_fail_fast=True, client_id="ottla-elect") as admin:
        outcomes = await admin.elect_leaders(partitions, kind=kind)
    elected, errors = outcomes.results, outcomes.errors
    not_needed = [tp for tp, error in errors.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {tp: error for tp, error in errors.items() if tp not in not_needed}
    if elected:
        print(f"Successfully completed leader election ({kind.name}) for partitions {_listed(elected)}")
    if not_needed:
        print(f"Valid replica already elected for partitions {_listed(not_needed)}")
    for tp, error in failed.items():
        print(f"Error completing leader election ({kind.name}) for partition: {tp}: {error.message}")
    if failed:
        sys.stdout.flush()
        fail(f"{len(failed)} replica(s) could not be elected")


def _listed(partitions: list[TopicPartition] | dict[TopicPartition, None]) -> str:
    return ", ".join(map(str, partitions))
