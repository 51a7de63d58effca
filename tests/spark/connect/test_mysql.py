"""What only MySQL and MariaDB do: engines, collations, unique indexes, packets, and errors that pass or last."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.change_fold import Change, ChangeFold
from ottla.spark.connect.column_types import TableSchemaError
from ottla.spark.connect.database import Database, DatabaseAwayError, DatabaseError, open_database
from ottla.spark.connect.database_target import Target
from ottla.spark.connect.sql import MYSQL
from tests.spark.mariadb import MariadbProcess
from tests.waiting import join, repeat_until

pytestmark = pytest.mark.xdist_group("spark")

_numbers = itertools.count()


@pytest.fixture
def database(mariadb: MariadbProcess) -> Database:
    return open_database(mariadb.url)


@pytest.fixture
def name() -> str:
    return f"mysql_{next(_numbers)}"


@pytest.fixture
def run(mariadb: MariadbProcess) -> Callable[[str], list[tuple[object, ...]]]:
    return mariadb.rows


def columns_of(**types: str) -> StructType:
    """Without a Spark, which the text of a schema would need."""
    schema = StructType()
    for column, kind in types.items():
        schema.add(column, kind)
    return schema


Run = Callable[[str], list[tuple[object, ...]]]


def test_a_table_without_transactions_is_refused(database: Database, name: str, run: Run) -> None:
    run(f"CREATE TABLE {name} (id int PRIMARY KEY) ENGINE = MyISAM")
    with pytest.raises(TableSchemaError, match=r"MyISAM, which has no transactions.*ENGINE = InnoDB"):
        Target(database, name).check()
    run(f"ALTER TABLE {name} ENGINE = InnoDB")
    Target(database, name).check()
    run(f"CREATE VIEW {name}_seen AS SELECT * FROM {name}")
    with pytest.raises(TableSchemaError, match="VIEW, which has no transactions"):
        Target(database, f"{name}_seen").check()


def test_an_upsert_beside_another_unique_index_is_refused(database: Database, name: str, run: Run) -> None:
    run(
        f"CREATE TABLE {name} (id int AUTO_INCREMENT PRIMARY KEY, customer varchar(20) UNIQUE, email varchar(20), "
        "UNIQUE (customer, email))"
    )
    rows = columns_of(customer="string", email="string")
    Target(database, name, mode="upsert", keys=("customer",)).check(rows)
    run(f"CREATE UNIQUE INDEX by_email ON {name} (email)")
    with pytest.raises(TableSchemaError, match="another unique index, on email"):
        Target(database, name, mode="upsert", keys=("customer",)).check(rows)
    Target(database, name).check(rows)


def test_keys_of_text_are_told_apart_to_the_last_blank(database: Database, name: str, run: Run) -> None:
    with database.transaction() as session:
        session.create_table(name, columns_of(k="string", v="string"), ["k"])
    keys = ["a", "A", "a ", "ä", "𝄞"]
    with database.transaction() as session:
        session.upsert(name, ["k", "v"], ["k"], [pa.record_batch({"k": keys, "v": keys})])
    assert sorted(run(f"SELECT k, v FROM {name}")) == sorted((key, key) for key in keys)
    with pytest.raises(DatabaseError, match="too long"), database.transaction() as session:
        session.append(name, ["k", "v"], [pa.record_batch({"k": ["x" * 256], "v": ["y"]})])


def test_many_rows_and_large_ones(database: Database, name: str, run: Run) -> None:
    with database.transaction() as session:
        session.create_table(name, columns_of(id="long", text="string", raw="binary"), [])
    sizes = [0, 10, 600_000, 3_000_000, *[100] * 20_000]
    columns = {
        "id": list(range(len(sizes))),
        "text": ["'" * size for size in sizes],
        "raw": [bytes([number % 256]) * 3 for number in range(len(sizes))],
    }
    with database.transaction() as session:
        session.append(name, list(columns), [pa.record_batch(columns)])
    query = f"SELECT count(*), count(DISTINCT id), sum(length(text)), max(length(text)), sum(length(raw)) FROM {name}"
    assert run(query) == [(len(sizes), len(sizes), sum(sizes), 3_000_000, 3 * len(sizes))]
    with pytest.raises(DatabaseError, match="max_allowed_packet") as caught, database.transaction() as session:
        too_large = {"id": [0], "text": ["x" * 20_000_000], "raw": [b""]}
        session.append(name, list(columns), [pa.record_batch(too_large)])
    assert not isinstance(caught.value, DatabaseAwayError)


def test_numbers_that_are_none_are_refused(database: Database, name: str) -> None:
    with database.transaction() as session:
        session.create_table(name, columns_of(d="double"), [])
    with pytest.raises(DatabaseError, match="'d' holds NaN"), database.transaction() as session:
        session.append(name, ["d"], [pa.record_batch({"d": [1.0, float("nan"), None]})])


def test_changes_are_applied(database: Database, name: str, run: Run) -> None:
    run(f"CREATE TABLE {name} (id int PRIMARY KEY, `100%` varchar(20), d decimal(30,10), at datetime(6), raw blob)")
    changes = [
        Change("insert", None, '{"id": 1, "100%": "a?", "d": 1.0000000001}', '{"id": 1}'),
        Change("insert", None, '{"id": 2, "100%": "b", "d": 12345678901234567890.5}', '{"id": 2}'),
        Change("update", None, '{"id": 1, "100%": "%s"}', '{"id": 1}'),
        Change("update", '{"id": 2}', '{"id": 3, "100%": "moved"}', '{"id": 3}'),
        Change("insert", None, '{"id": 4, "100%": null, "d": null}', '{"id": 4}'),
        Change("update", None, '{"id": 1, "at": "2024-02-29 01:02:03.5+00", "raw": "\\\\x00ff"}', '{"id": 1}'),
        Change("update", None, '{"id": 3, "at": "2024-02-29 01:02:03", "raw": null}', '{"id": 3}'),
        Change("delete", None, None, '{"id": 4}'),
    ]
    with database.transaction() as session:
        columns = ["id", "100%", "d", "at", "raw"]
        fold = ChangeFold(name, columns, ["id"], MYSQL, session.change_converters(name))
        for step in fold.steps(changes):
            session.run(step.statement, step.rows)
    moment = datetime(2024, 2, 29, 1, 2, 3)
    assert run(f"SELECT * FROM {name} ORDER BY id") == [
        (1, "%s", Decimal("1.0000000001"), moment.replace(microsecond=500_000), b"\x00\xff"),
        (3, "moved", Decimal("12345678901234567890.5"), moment, None),
    ]


def test_a_second_driver_waits_for_the_first(database: Database, name: str, mariadb: MariadbProcess) -> None:
    seen: list[Progress | None] = []

    def second() -> None:
        with database.transaction() as session:
            session.claim(name)
            seen.append(session.progress(name))

    with database.transaction() as session:
        session.claim(name)
        assert session.progress(name) is None
        thread = threading.Thread(target=second)
        thread.start()
        waiting = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        # The server looks again only if it has not been asked for a tenth of a second.
        repeat_until(lambda: mariadb.rows(waiting) == [(1,)], lambda: time.sleep(0.2))
        assert seen == []
        session.save_progress(name, Progress("q", 0, ("{}",)))
    join(thread)
    assert seen == [Progress("q", 0, ("{}",))]


def test_a_connection_that_is_killed_is_something_that_passes(database: Database, name: str, run: Run) -> None:
    with pytest.raises(DatabaseAwayError) as caught, database.transaction() as session:
        session.claim(name)
        run(f"KILL {session.count('SELECT connection_id()')}")
        session.save_progress(name, Progress("q", 0, ("{}",)))
    assert "s3cret" not in str(caught.value)
    with database.transaction() as session:
        assert session.progress(name) is None


def test_a_deadlock_is_something_that_passes(database: Database, name: str, mariadb: MariadbProcess) -> None:
    mariadb.rows(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
    mariadb.rows(f"INSERT INTO {name} VALUES (1, 0), (2, 0), (3, 0)")
    outcomes: list[str] = []

    def second(ready: threading.Event) -> None:
        with mariadb.connect(autocommit=False) as other, other.cursor() as cursor:
            # Has changed more than the other: the one that gives way is the one that has less to undo.
            cursor.execute(f"UPDATE {name} SET v = 1 WHERE id > 1")
            ready.set()
            cursor.execute(f"UPDATE {name} SET v = 1 WHERE id = 1")
            other.commit()
            outcomes.append("done")

    ready = threading.Event()
    thread = threading.Thread(target=second, args=(ready,))
    with pytest.raises(DatabaseAwayError, match="Deadlock"), database.transaction() as session:
        session.run(f"UPDATE {name} SET v = 2 WHERE id = 1")
        thread.start()
        assert ready.wait(60)
        session.run(f"UPDATE {name} SET v = 2 WHERE id = 2")
    join(thread)
    assert outcomes == ["done"]


def test_who_is_not_let_in_stays_out(mariadb: MariadbProcess) -> None:
    wrong = open_database(mariadb.url.replace("s3cret", "wr0ng"))
    with pytest.raises(DatabaseError, match="Access denied") as caught, wrong.transaction():
        pass
    assert not isinstance(caught.value, DatabaseAwayError)
    assert "wr0ng" not in str(caught.value) + repr(wrong.__dict__)


@pytest.mark.parametrize(
    ("options", "encrypted"),
    [
        ("", True),
        ("?ssl_mode=disabled", False),
        ("?ssl_mode=required", True),
        ("?ssl_ca=CA", True),
        ("?ssl_mode=verify_ca&ssl_ca=CA", True),
        ("?ssl_mode=verify_identity", None),
        ("?ssl_ca=/nowhere", None),
    ],
)
def test_tls(mariadb: MariadbProcess, options: str, encrypted: bool | None) -> None:
    if not mariadb.certificate.exists():
        pytest.skip("there is no openssl to make a certificate with")
    database = open_database(mariadb.url + options.replace("CA", str(mariadb.certificate)))
    if encrypted is None:
        with pytest.raises(DatabaseError, match="certificate") as caught, database.transaction():
            pass
        assert "s3cret" not in str(caught.value)
        assert not isinstance(caught.value, DatabaseAwayError)
        return
    with database.transaction() as session:
        query = "SELECT variable_value <> '' FROM information_schema.session_status WHERE variable_name = 'Ssl_cipher'"
        assert bool(session.count(query)) == encrypted


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://me:secret@host", "names no database"),
        ("mysql://me:secret@host:port/db", "is no address"),
        ("mysql://me:secret@host/db?sslmode=require", "no option sslmode; there is ssl_mode"),
        ("mariadb://me:secret@host/db?ssl_mode=yes", "ssl_mode cannot be 'yes'"),
    ],
)
def test_addresses_that_are_none(url: str, words: str) -> None:
    with pytest.raises(DatabaseError, match=words) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)
