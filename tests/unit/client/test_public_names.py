"""The short names of the client library: typed, and free of cost for whoever does not use them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ottla

STATEMENTS = """
import ottla.aio
import ottla.aio as short
import ottla.client.aio as real
from ottla.aio import Consumer
from ottla.errors import CommitFailedError
assert ottla.aio is short is real
assert Consumer is real.Consumer
import ottla.errors
assert issubclass(CommitFailedError, ottla.errors.ClientError)
try:
    ottla.aio.Prodcer
except AttributeError as e:
    print(e)
"""


def test_names() -> None:
    from ottla.client import aio, sync

    assert ottla.Producer is sync.Producer
    assert ottla.aio is aio
    assert {"Producer", "aio"} <= set(dir(ottla))
    with pytest.raises(AttributeError):
        ottla.Prodcer  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_is_where_it_is_said_to_be_and_has_its_type() -> None:
    stub = Path(ottla.__file__).with_suffix(".pyi").read_text()
    for name in ottla.__all__:
        assert getattr(ottla, name) is not None
        assert f" as {name}\n" in stub


def methods_of(client: type) -> dict[str, dict[str, object]]:
    """The parameters of every public method, with their defaults."""
    found = inspect.getmembers(client, inspect.isfunction)
    return {
        name: {parameter.name: parameter.default for parameter in inspect.signature(method).parameters.values()}
        for name, method in found
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("name", "only_in_asyncio"),
    [
        ("Producer", {"start", "send_and_wait"}),
        ("Consumer", {"start"}),
        ("Admin", {"start"}),
        ("ParallelConsumer", {"start", "partitions_of"}),
    ],
)
def test_clients_for_threads_and_for_asyncio_have_one_shape(name: str, only_in_asyncio: set[str]) -> None:
    threads, tasks = methods_of(getattr(ottla, name)), methods_of(getattr(ottla.aio, name))
    assert tasks.keys() - threads.keys() == only_in_asyncio
    assert threads == {method: parameters for method, parameters in tasks.items() if method not in only_in_asyncio}


def test_the_package_alone_loads_no_client() -> None:
    code = "import sys, ottla; print(any(name.startswith('ottla.client') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


_OTHER_CLIENTS = (
    "ottla.client.aio.admin.admin",
    "ottla.client.aio.consumer.consumer",
    "ottla.client.sync.admin.admin",
    "ottla.client.sync.consumer.consumer",
)


@pytest.mark.parametrize("home", ["ottla", "ottla.aio"])
def test_whoever_produces_loads_no_other_client(home: str) -> None:
    listing = f"print([name for name in sys.modules if name in {_OTHER_CLIENTS}])"
    code = f"import sys, {home}; {home}.Producer; {listing}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_short_names_of_modules_can_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", STATEMENTS], capture_output=True, text=True, check=True)
    assert "'ottla.client.aio' has no attribute 'Prodcer'" in done.stdout
