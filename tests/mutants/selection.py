"""Which modules are worth a mutant, which tests ought to notice it, and the seeded choice among all edits."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.mutants.operators import Edit, edits_of, lines_of
from tests.mutants.tracing import function_around

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

DECLARATIONS = (
    "wire/apis",
    "wire/stored",
    "wire/api_keys.py",
    "broker/config/keys",
    "base/errors.py",
    "__main__.py",
    "__init__.py",
)
"""Tables of what Kafka has laid down: other tests compare them with Kafka's own, value by value."""

ONLY_SPEED = ("base/memory.py",)
"""Nothing in them can be seen but how long things take."""

OWN_TESTS = {
    "broker/handlers": ("tests/unit/broker", "tests/integration"),
    "testing/sim": ("tests/sim",),
    "testing": ("tests/testing",),
}
"""The layer's tests where they do not lie in the same place under tests/unit."""

WIDER_TESTS = {
    "broker/coordinators": ("tests/unit/machines", "tests/interop/groups/test_rules.py", "tests/interop/transactions"),
    "broker": (
        "tests/integration",
        "tests/testing",
        "tests/access/test_refusals.py",
        "tests/access/test_quotas.py",
        "tests/interop/test_every_version.py",
        "tests/client/test_admin.py",
        "tests/client/test_admin_cluster.py",
        "tests/cluster/test_replication.py",
    ),
    "machines/groups": ("tests/interop/groups/test_rules.py", "tests/interop/groups/test_group_admin.py"),
    "machines/transactions": ("tests/interop/transactions",),
    "machines": ("tests/unit/broker", "tests/client/test_admin_cluster.py", "tests/cluster/test_replication.py"),
    "client/app": ("tests/client/test_app.py", "tests/client/test_app_example.py"),
    "client/serdes": ("tests/client", "tests/unit/spark/pipeline/formats"),
    "client": ("tests/client",),
    "cli/pipeline": ("tests/spark/test_pipeline_command.py", "tests/unit/spark/pipeline"),
    "cli/demo": ("tests/spark/test_demo.py",),
    "cli/flow_positions": ("tests/spark/test_reset.py", "tests/spark/test_reset_flows.py"),
    "cli/mirrored_groups": ("tests/spark/test_mirror.py",),
    "cli/redrive": ("tests/spark/test_redrive.py",),
    "cli": (
        "tests/integration",
        "tests/interop/test_own_broker.py",
        "tests/interop/test_dump_log_broker.py",
        "tests/interop/test_kafka_names.py",
        "tests/cluster",
    ),
    "spark/connect": ("tests/spark/connect", "tests/spark/test_pipeline_checks.py"),
    "spark/mirror": ("tests/spark/test_mirror_parts.py", "tests/spark/test_mirror.py"),
    "spark/pipeline/mirrors": ("tests/spark/test_mirror_parts.py", "tests/spark/test_mirror.py"),
    "spark/pipeline/formats": (
        "tests/spark/test_formats.py",
        "tests/spark/test_avro_evolution.py",
        "tests/spark/test_value_verdicts.py",
        "tests/spark/test_pipeline.py",
    ),
    "spark/pipeline/moves": ("tests/spark/test_reset.py", "tests/spark/test_reset_flows.py"),
    "spark/pipeline/redrive": ("tests/spark/test_redrive.py",),
    "spark/pipeline": (
        "tests/spark/test_pipeline.py",
        "tests/spark/test_pipeline_checks.py",
        "tests/spark/test_pipeline_continuity.py",
        "tests/spark/test_pipeline_failures.py",
        "tests/spark/test_pipeline_screen.py",
        "tests/spark/test_formats.py",
    ),
    "spark": (
        "tests/spark/test_connections.py",
        "tests/spark/test_readers.py",
        "tests/spark/test_sink.py",
        "tests/spark/test_sink_protocol.py",
        "tests/spark/test_source.py",
    ),
    "testing": ("tests/client/test_bad_network.py",),
    "log": (
        "tests/unit/broker",
        "tests/integration",
        "tests/interop/test_own_broker.py",
        "tests/crash/test_torn_files.py",
    ),
    "": ("tests/integration", "tests/interop/test_own_broker.py", "tests/testing"),
}
"""Where a survivor is tried again: not its own layer, but better than nobody. The first prefix that fits counts."""

GENERATED = "# Written by `make generate`"
"""How such files begin. A test compares them with what they are generated from, so that no mutant escapes."""

_IMPORTERS_MAX = 10
"""What more files of tests import, they use rather than test."""

LEFT_OUT = ("tests/client/test_types.py",)
"""What looks at the code without running it."""


@cache
def source_of(path: Path) -> str:
    """As it was at first sight: somebody may be at work on it."""
    return (SOURCE / path).read_text()


class Mutant(NamedTuple):
    path: Path
    """Below src/ottla."""
    edit: Edit

    @property
    def place(self) -> str:
        return f"src/ottla/{self.path}:{self.edit.line}"

    @property
    def identity(self) -> Identity:
        source = source_of(self.path)
        before, after = lines_of(source, self.edit)
        return Identity(str(self.path), function_around(source, self.edit.line) or "", before, after)


class Identity(NamedTuple):
    """A mutant by its text: what it is called when the lines above it have changed."""

    path: str
    function: str
    """Empty outside of functions."""
    before: str
    after: str


def listed(file: Path) -> dict[Identity, str]:
    """The mutants of such a file (`equivalent.toml`, `--survivors`), and what it says about each."""
    entries = tomllib.loads(file.read_text()).get("mutant", [])
    return {Identity(e["path"], e["function"], e["before"], e["after"]): e["why"] for e in entries}


def written(entries: dict[Identity, str]) -> str:
    fields = ({**identity._asdict(), "why": why} for identity, why in entries.items())
    return "\n".join(
        "[[mutant]]\n" + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in each.items())
        for each in fields
    )


def find(identities: Collection[Identity]) -> dict[Identity, Mutant]:
    """Those that can still be made of the code as it is."""
    texts = {(identity.path, identity.before, identity.after) for identity in identities}
    found: dict[Identity, Mutant] = {}
    for path in sorted({identity.path for identity in identities}):
        source = source_of(Path(path)) if (SOURCE / path).exists() else ""
        for edit in edits_of(source):
            if (path, *lines_of(source, edit)) in texts:
                mutant = Mutant(Path(path), edit)
                found[mutant.identity] = mutant
    return {identity: found[identity] for identity in identities if identity in found}


def choose(seed: int, count: int, prefix: str) -> list[Mutant]:
    """Modules by the number of their edits; in a module every kind of mistake is as likely as another."""
    rng = Random(seed)
    edits = {path: edits_of(source_of(path)) for path in modules(prefix)}
    edits = {path: found for path, found in edits.items() if found}
    if not edits:
        raise SystemExit(f"no module below src/ottla that belongs to {prefix!r} has anything to mutate")
    paths, weights = list(edits), [len(found) for found in edits.values()]
    chosen: dict[tuple[Path, int, str], Mutant] = {}
    for _ in range(count * 20):
        if len(chosen) == count:
            break
        path = rng.choices(paths, weights)[0]
        kind = rng.choice(sorted({edit.kind for edit in edits[path]}))
        edit = rng.choice([edit for edit in edits[path] if edit.kind == kind])
        chosen.setdefault((path, edit.line, kind), Mutant(path, edit))
    return list(chosen.values())


def modules(prefix: str) -> list[Path]:
    """`prefix` may be several modules or packages, separated by commas."""
    rooms = {Path(each.removeprefix("src/ottla").strip("/")) for each in prefix.split(",")}
    paths = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return [
        path
        for path in paths
        if rooms & {path, *path.parents}
        and not str(path).startswith(DECLARATIONS + ONLY_SPEED)
        and not source_of(path).startswith(GENERATED)
    ]


def own_tests(path: Path) -> tuple[str, ...]:
    """Files with the tests of the module's layer."""
    for prefix, places in OWN_TESTS.items():
        if str(path).startswith(prefix):
            return _files(places)
    return _files((f"tests/unit/{path.parts[0]}",))


def wider_tests(path: Path) -> tuple[str, ...]:
    """Those of its own layer are among them: the time may have been over before they had their turn."""
    places = next(places for prefix, places in WIDER_TESTS.items() if str(path).startswith(prefix))
    return tuple(sorted({*own_tests(path), *_files(places), *files_about(path)}))


def all_tests(path: Path) -> tuple[str, ...]:
    return _every_file()


@cache
def files_about(path: Path) -> frozenset[str]:
    """Files of tests, wherever they lie, that are called like the module or its package, or are few that import it."""
    module = ".".join(("ottla", *path.with_suffix("").parts))
    names = f"test_{path.stem.strip('_')}", f"test_{path.parent.name}.py"
    named = {file for file in _every_file() if Path(file).name.startswith(names)}
    importing = {file for file in _every_file() if module in _modules_named_in(file)}
    return frozenset(named | importing if len(importing) <= _IMPORTERS_MAX else named)


@cache
def _modules_named_in(file: str) -> set[str]:
    return set(re.findall(r"\bottla(?:\.\w+)+", (ROOT / file).read_text()))


@cache
def _every_file() -> tuple[str, ...]:
    return _files(("tests",))


@cache
def _files(places: tuple[str, ...]) -> tuple[str, ...]:
    found = [
        file
        for place in places
        for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("test_*.py"))
    ]
    return tuple(sorted({str(file.relative_to(ROOT)) for file in found} - set(LEFT_OUT)))
