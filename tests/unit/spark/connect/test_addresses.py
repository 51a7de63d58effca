"""Which database an address names, how it is shown, and what is said of one that names none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.connect.database import DatabaseError, driver_of, open_database, without_password
from ottla.spark.connect.sqlite import SqliteDatabase
from ottla.spark.connect.table_server import open_table_server


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite:///", "sqlite", "postgresql", "postgres", "mysql", "mariadb", "h/d", ""]
)
def test_what_is_no_database(url: str) -> None:
    with pytest.raises(DatabaseError) as refusal:
        open_database(url)
    assert str(refusal.value) == (
        f"{url.partition(':')[0]!r} is no database that is known here: write sqlite:path, "
        "postgresql://user@host/name or mysql://user@host/name"
    )


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:x.db", "/there/x.db"),
        ("sqlite:///x.db", "/there/x.db"),
        ("sqlite:////x.db", "/x.db"),
        ("sqlite:/x.db", "/x.db"),
        ("sqlite:~/x.db", "/home/me/x.db"),
    ],
)
def test_where_a_file_is(url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    made = open_database(url, directory=Path("/there"))
    assert isinstance(made, SqliteDatabase) and made.path == Path(path)


def test_without_a_directory_a_file_is_where_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = open_database("sqlite:x.db")
    assert isinstance(made, SqliteDatabase) and made.path == tmp_path / "x.db"


@pytest.mark.parametrize("url", ["sqlite:x.db", "oracle://h/d", ""])
def test_where_no_tables_are_read_from(url: str) -> None:
    with pytest.raises(DatabaseError) as refusal:
        open_table_server(url)
    assert str(refusal.value) == (
        "tables are read from PostgreSQL and MySQL: postgresql://user@host:port/name or mysql://user@host:port/name"
    )


def test_a_driver_that_is_missing() -> None:
    with (
        pytest.raises(DatabaseError, match=r"^MySQL needs its driver: pip install 'ottla\[connect\]'$"),
        driver_of("MySQL"),
    ):
        raise ModuleNotFoundError("pymysql")
    with pytest.raises(ZeroDivisionError), driver_of("MySQL"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://h/d", "mysql://h/d"),
        ("mysql://u@h:1/d", "mysql://u@h:1/d"),
        ("mysql://u:@h/d", "mysql://u@h/d"),
        ("mysql://:p@h/d", "mysql://@h/d"),
        ("mysql://u:p:q@h/d?a=1&password=p&passwords=2", "mysql://u@h/d?a=1&passwords=2"),
        ("mysql://h/d?password=p", "mysql://h/d"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
