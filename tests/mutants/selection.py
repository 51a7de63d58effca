"""Which modules are worth a mutant, which tests ought to notice it, and the seeded choice among all edits."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.mutants.operators import Edit, edits_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"

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
    "testing": ("tests/testing",),
}
"""The layer's tests where they do not lie in the same place under tests/unit."""

WIDER_TESTS = {
    "broker": ("tests/integration", "tests/interop/test_every_version.py", "tests/interop/test_confluent_kafka.py"),
    "machines/groups": ("tests/interop/groups/test_rules.py", "tests/interop/groups/test_group_admin.py"),
    "machines/transactions": ("tests/interop/transactions",),
    "client": (
        "tests/client/test_producer.py",
        "tests/client/test_consumer.py",
        "tests/client/test_consumer_groups.py",
    ),
    "cli": ("tests/interop/test_own_broker.py",),
    "": ("tests/integration", "tests/interop/test_own_broker.py", "tests/testing"),
}
"""Where a survivor may be tried again: not its own layer, but better than nobody."""


class Mutant(NamedTuple):
    path: Path
    """Below src/ottla."""
    edit: Edit

    @property
    def place(self) -> str:
        return f"src/ottla/{self.path}:{self.edit.line}"


def choose(seed: int, count: int, prefix: str) -> list[Mutant]:
    """Modules by the number of their edits; in a module every kind of mistake is as likely as another."""
    rng = Random(seed)
    edits = {path: edits_of((SOURCE / path).read_text()) for path in modules(prefix)}
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
    return [p for p in paths if rooms & {p, *p.parents} and not str(p).startswith(DECLARATIONS + ONLY_SPEED)]


def own_tests(path: Path) -> tuple[str, ...]:
    """Where the tests of the module's layer lie."""
    for prefix, places in OWN_TESTS.items():
        if str(path).startswith(prefix):
            return places
    folder = path.parent
    while not any((ROOT / "tests" / "unit" / folder).rglob("test_*.py")):
        folder = folder.parent
    return (f"tests/unit/{folder}",)


def wider_tests(path: Path) -> tuple[str, ...]:
    return next(places for prefix, places in WIDER_TESTS.items() if str(path).startswith(prefix))
