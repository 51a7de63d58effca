"""What the documentation shows works: every block of Python runs against a real broker, as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import EmbeddedBroker
from tests.docs.blocks import NEEDS_KAFKA, ROOT, Block, blocks

PATIENCE_S = 60.0
_PRINTED_TEXT = re.compile(r'print\("([^"]+)"')


CLIENT = [*blocks("docs/client.md"), *blocks("docs/client-configuration.md")]
TESTING = blocks("docs/testing.md")
README = blocks("README.md")


@pytest.fixture(scope="module")
def documented_broker() -> Iterator[EmbeddedBroker]:
    """The blocks of a document follow one another: later ones read what earlier ones have written.

    New groups wait for members, as they do on the broker a reader has started.
    """
    with EmbeddedBroker(config={"group.initial.rebalance.delay.ms": 3_000}) as broker:
        yield broker


def python(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    script = directory / "block.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=directory, timeout=PATIENCE_S, check=False
    )


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("block", CLIENT, ids=str)
def test_the_client_library(block: Block, documented_broker: EmbeddedBroker, tmp_path: Path) -> None:
    done = python(block.against(documented_broker.bootstrap_servers), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout or "print(" not in block.code
    assert [text for text in _PRINTED_TEXT.findall(block.code) if text not in done.stdout] == []


@pytest.mark.parametrize("block", TESTING, ids=str)
def test_testing(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "test_block.py"
    script.write_text(block.against("127.0.0.1:9092"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


@pytest.mark.xdist_group("docs")
def test_the_readme(documented_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """One block reads for ever: it is stopped once it has read something."""
    (reading,) = [block for block in README if "for record in consumer:" in block.code]
    others = [block for block in README if block is not reading]
    assert len(others) >= 2
    for block in others:
        done = python(block.against(documented_broker.bootstrap_servers), tmp_path)
        assert done.returncode == 0, done.stderr
    code = reading.against(documented_broker.bootstrap_servers)
    process = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("b'hello'\n")
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_there_is_something_to_run() -> None:
    assert len(CLIENT) >= 12
    assert len(TESTING) >= 2


@pytest.mark.parametrize("document", ["docs/client.md", "docs/testing.md"])
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    text = path.read_text()
    headings = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif "://" not in target:
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_user_code_of_the_client_library_is_typed(tmp_path: Path) -> None:
    """Pyarrow itself is not."""
    command = [sys.executable, "-m", "mypy", "--strict", "--disable-error-code=import-untyped"]
    files = []
    for block in CLIENT + blocks("docs/client.md", NEEDS_KAFKA):
        file = tmp_path / f"block_{block.line}.py"
        file.write_text(block.code)
        files.append(str(file))
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), *files],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
