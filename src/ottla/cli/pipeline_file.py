"""The arguments that all commands about a pipeline share: its file, and what is said in place of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.failures import fail, parse_pairs

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline

FILE = Annotated[Path, typer.Argument(help="the pipeline's YAML file")]
FLOW = Annotated[str, typer.Argument(help="the name of a flow")]
SERVERS = Annotated[str | None, typer.Option(help="host:port of a broker, in place of the file's bootstrap.servers")]
SET = Annotated[list[str] | None, typer.Option("--set", help="key=value, repeatable: as if it were in the file")]
JSON = Annotated[bool, typer.Option("--json", help="the same as --output json")]


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OUTPUT = Annotated[Output, typer.Option(help="json: one object, for programs")]


def load_pipeline(file: Path, bootstrap_server: str | None, settings: list[str] | None) -> Pipeline:
    """Loads what Spark needs in Python, and starts nothing."""
    overrides = list(parse_pairs("--set", settings or []).items())
    if bootstrap_server is not None:
        overrides.append(("kafka.bootstrap.servers", bootstrap_server))
    try:
        from ottla.spark.pipeline.definition import Pipeline
        from ottla.spark.sessions import require_spark
    except ImportError as e:
        fail(f"pipelines need {e.name or 'PySpark'}; install what they need with: pip install 'ottla[spark]'")
    require_spark()
    pipeline = Pipeline.from_file(file, overrides)
    pipeline.model()
    return pipeline
