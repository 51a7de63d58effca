"""What keeps a broker from starting is said in one sentence on stderr, with a non-zero exit code and no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.crash

_TIMEOUT_S = 30


def refused(*arguments: str, settings: dict[str, str] | None = None) -> str:
    """Runs `ottla start`, which must end by itself; returns the sentence."""
    overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
    command = [sys.executable, "-m", "ottla", "start", *arguments]
    for name, value in overrides.items():
        command += ["--override", f"{name}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert ended.returncode != 0, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout, ended.stderr
    assert "listening" not in ended.stdout
    lines = [line for line in ended.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert len(lines) == 1, ended.stderr
    return lines[0]


@pytest.fixture
def used_dir(tmp_path: Path) -> Path:
    """The directory of a broker that ran and was stopped."""
    broker = BrokerProcess(tmp_path / "used", {"broker.id": "3"}).start()
    assert broker.stop() == 0
    return broker.data_dir


def change_owner(directory: Path, name: str, value: str) -> None:
    path = directory / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{name}=")]
    path.write_text("\n".join([*lines, f"{name}={value}", ""]))


def test_a_directory_another_broker_uses(own_broker: BrokerProcess) -> None:
    own_broker.start()
    sentence = refused(settings={"log.dirs": str(own_broker.data_dir)})
    assert str(own_broker.data_dir) in sentence and "in use" in sentence
    assert own_broker.stop() == 0


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    path = tmp_path / "file" / "data"
    sentence = refused(settings={"log.dirs": str(path)})
    assert str(path) in sentence and "Not a directory" in sentence


def test_a_directory_on_a_read_only_file_system(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        sentence = refused(settings={"log.dirs": str(tmp_path)})
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True, timeout=PATIENCE_S)
    assert str(tmp_path) in sentence and "Read-only file system" in sentence


def test_a_directory_of_another_cluster(used_dir: Path) -> None:
    change_owner(used_dir, "cluster.id", "AAAAAAAAAAAAAAAAAAAAAA")
    sentence = refused(settings={"log.dirs": str(used_dir)})
    assert "AAAAAAAAAAAAAAAAAAAAAA" in sentence and "cluster" in sentence


def test_a_directory_of_another_broker(used_dir: Path) -> None:
    sentence = refused(settings={"log.dirs": str(used_dir), "broker.id": "4"})
    assert "belongs to broker 3, this is broker 4" in sentence


@pytest.mark.parametrize("content", ["broker.id=three\n", "nonsense\n", "\xff\xfe"])
def test_an_owner_that_cannot_be_read(used_dir: Path, content: str) -> None:
    (used_dir / "meta.properties").write_bytes(content.encode("latin-1"))
    assert "meta.properties" in refused(settings={"log.dirs": str(used_dir)})


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refused(settings={"log.dirs": str(tmp_path / "data"), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    assert str(port) in sentence and "in use" in sentence


def test_a_host_that_is_not_ours(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://192.0.2.1:9092"}
    assert "192.0.2.1" in refused(settings=settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.segment.bytes", "many"),
        ("log.segment.bytes", "-1"),
        ("listeners", "nowhere"),
        ("listeners", "PLAINTEXT://127.0.0.1:99999"),
        ("broker.id", "x"),
        ("log.cleanup.policy", "shred"),
        ("no.such.setting", "1"),
        ("listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"),
        ("listeners", "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("ssl.keystore.location", "/etc/broker.pem"),
        ("zookeeper.connect", "127.0.0.1:none"),
        ("process.roles", "broker,controller"),
    ],
)
def test_a_setting_that_cannot_be(tmp_path: Path, name: str, value: str) -> None:
    sentence = refused(settings={"log.dirs": str(tmp_path / "data"), name: value})
    assert name in sentence
    assert not (tmp_path / "data").exists()


def test_a_setting_that_is_close_to_one_names_it(tmp_path: Path) -> None:
    sentence = refused(settings={"log.dirs": str(tmp_path / "data"), "log.segment.byte": "100"})
    assert "log.segment.bytes" in sentence


def test_a_properties_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    assert str(path) in refused(str(path))


def test_a_properties_file_that_is_a_directory(tmp_path: Path) -> None:
    assert str(tmp_path) in refused(str(tmp_path))


@pytest.mark.parametrize("content", [b"broker.id\xff=1", b"log.segment.bytes=soon"])
def test_a_properties_file_with_a_bad_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(content)
    refused(str(path), settings={"log.dirs": str(tmp_path / "data")})


@pytest.mark.parametrize("damage", ["garbage", "zeros", "middle", "not ours"])
def test_a_damaged_metadata_file(used_dir: Path, damage: str) -> None:
    path = used_dir / "ottla-metadata.db"
    data = path.read_bytes()
    match damage:
        case "garbage":
            path.write_bytes(os.urandom(len(data)))
        case "zeros":
            path.write_bytes(bytes(len(data)))
        case "middle":
            # The header stays, so that it is still taken for a database.
            path.write_bytes(data[:100] + os.urandom(len(data) - 100))
        case _:
            path.write_text("a text file that somebody put here")
    assert str(path) in refused(settings={"log.dirs": str(used_dir)})


def test_a_metadata_file_that_is_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "data" / "ottla-metadata.db"
    path.mkdir(parents=True)
    assert str(path) in refused(settings={"log.dirs": str(tmp_path / "data")})


def test_all_is_well_after_the_reason_is_gone(used_dir: Path) -> None:
    """A start that was refused has changed nothing."""
    refused(settings={"log.dirs": str(used_dir), "broker.id": "4"})
    broker = BrokerProcess(used_dir, {"broker.id": "3"}).start()
    assert broker.stop() == 0
