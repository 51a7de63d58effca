"""User code passes `mypy --strict`, with every call of the library in it; and mistakes are found."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ottla

USER_CODE = Path(__file__).with_name("user_code.py")
CLIENTS = [getattr(home, name) for home in (ottla, ottla.aio) for name in ("Producer", "Consumer", "Admin")] + [
    ottla.ParallelConsumer
]

MISTAKES = """
import ottla

with ottla.Consumer(bootstrap_servers="h:1") as consumer:
    for record in consumer:
        print(record.value.decode())
    consumer.seek("topic", 5)

with ottla.Producer(bootstrap_servers="h:1") as producer:
    producer.send("topic", b"").offset
    producer.send(5, b"")

with ottla.Admin(bootstrap_servers="h:1") as admin:
    admin.create_topics("topic").chek()

ottla.Producer(bootstrap_servers="h:1").send("topic", "text")
ottla.Producer(bootstrap_servers="h:1", value_serializer=ottla.StringSerde()).send("topic", 3)
ottla.Producer(bootstrap_servers="h:1", key_serializer=str.encode).send("topic", b"", key=b"")

ottla.Producer(bootstrap_servers="h:1", grup_id="g")
ottla.Producer(bootstrap_servers="h:1", linger_ms="five")
ottla.Consumer(bootstrap_servers="h:1", linger_ms=5)
ottla.Consumer(bootstrap_servers=9092, auto_offset_reset="earlyest")
ottla.Admin(bootstrap_server="h:1")
ottla.ParallelConsumer(["topic"], print, bootstrap_servers="h:1", grup_id="g")
ottla.App(bootstrap_servers="h:1", enable_auto_comit=False)
ottla.App().listener("topic", group_id="g", max_poll_records="all")
ottla.aio.Producer(bootstrap_servers="h:1", compression_type="zip")
ottla.aio.Consumer(bootstrap_servers="h:1", isolation_levels="read_committed")
ottla.aio.Admin(bootstrap_servers="h:1", request_timeout=5)
ottla.aio.ParallelConsumer(["topic"], print, bootstrap_servers="h:1", fetch_min_bytes=b"1")
settings: ottla.ProducerKeywords = {"batch_sise": 5}
"""
FOUND = [
    (6, 'has no attribute "decode"'),
    (7, 'Argument 1 to "seek"'),
    (10, 'has no attribute "offset"'),
    (11, 'Argument 1 to "send"'),
    (14, 'has no attribute "chek"'),
    (16, 'Argument 2 to "send" of "BaseProducer" has incompatible type "str"'),
    (17, 'Argument 2 to "send" of "BaseProducer" has incompatible type "int"'),
    (18, 'Argument "key" to "send" of "BaseProducer" has incompatible type "bytes"'),
    (20, 'Unexpected keyword argument "grup_id" for "Producer"'),
    (21, 'Argument "linger_ms" to "Producer" has incompatible type "str"; expected "int"'),
    (22, 'Unexpected keyword argument "linger_ms" for "Consumer"'),
    (23, 'Argument "bootstrap_servers" to "Consumer" has incompatible type "int"'),
    (23, 'Argument "auto_offset_reset" to "Consumer" has incompatible type'),
    (24, 'Unexpected keyword argument "bootstrap_server" for "Admin"'),
    (25, 'Unexpected keyword argument "grup_id" for "ParallelConsumer"'),
    (26, 'Unexpected keyword argument "enable_auto_comit" for "App"; did you mean "enable_auto_commit"'),
    (27, 'Argument "max_poll_records" to "listener" of "App" has incompatible type "str"; expected "int"'),
    (28, 'Argument "compression_type" to "Producer" has incompatible type'),
    (29, 'Unexpected keyword argument "isolation_levels" for "Consumer"; did you mean "isolation_level"'),
    (30, 'Unexpected keyword argument "request_timeout" for "Admin"'),
    (31, 'Argument "fetch_min_bytes" to "ParallelConsumer" has incompatible type "bytes"'),
    (32, 'Extra key "batch_sise" for TypedDict "ProducerKeywords"'),
]


def check(path: Path) -> tuple[int, str]:
    """As for a user, who has no part in the settings of this project."""
    cache = path.parent / "cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_all_of_the_library_is_typed_and_mistakes_are_found(tmp_path: Path) -> None:
    right = Path(shutil.copy(USER_CODE, tmp_path / "user_code.py"))
    assert check(right) == (0, "Success: no issues found in 1 source file\n")
    wrong = tmp_path / "mistakes.py"
    wrong.write_text(MISTAKES)
    _, output = check(wrong)
    for line, words in FOUND:
        assert re.search(rf"mistakes\.py:{line}: error: .*{re.escape(words)}", output), (words, output)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.__module__}.{client.__name__}")
def test_no_call_is_left_out(client: type) -> None:
    is_async = ".aio." in client.__module__
    for_threads, for_asyncio = USER_CODE.read_text().split("# For asyncio")
    code = for_asyncio if is_async else for_threads
    subject = {"ParallelConsumer": "consumer"}.get(client.__name__, client.__name__.lower())
    public = [name for name, _ in inspect.getmembers_static(client) if not name.startswith("_")]
    missing = [name for name in public if not re.search(rf"\b{subject}\.{name}\b", code)]
    assert missing == []
