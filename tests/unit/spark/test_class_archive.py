"""Where the archive of Java's classes is, when it is used, and when a new one is kept. Java is a stand-in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyspark

from ottla.spark.class_archive import NewArchive, archive_path, find_java, options_to_use


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Java with a program in it."""
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return java


def test_which_java_is_started(java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_java() == java
    monkeypatch.setenv("PATH", str(java.parent))
    for home in (str(tmp_path), ""):
        monkeypatch.setenv("JAVA_HOME", home)
        assert find_java() == java, "that of the PATH"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() is None


def test_an_archive_is_for_one_java_and_one_spark(java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = archive_path()
    assert first.parent == tmp_path / "cache" / "ottla"
    assert first.name.startswith(f"spark-{pyspark.__version__}-") and first.suffix == ".jsa"
    assert len(first.stem.rpartition("-")[2]) == 12
    assert archive_path() == first
    os.utime(java, ns=(1, 1))
    newer = archive_path()
    assert newer != first
    monkeypatch.setattr(pyspark, "__path__", ["/elsewhere"])
    assert archive_path() not in (first, newer)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    none = archive_path()
    assert none not in (first, newer)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert archive_path() == tmp_path / "home" / ".cache" / "ottla" / none.name


def test_an_archive_is_used_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_to_use() == ""
    archive = archive_path()
    archive.parent.mkdir(parents=True)
    archive.mkdir()
    assert options_to_use() == "", "that is no file"
    archive.rmdir()
    archive.touch()
    assert options_to_use() == f'"-XX:SharedArchiveFile={archive}" -Xlog:disable'


def test_whoever_has_no_home_has_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", home)
    assert options_to_use() == ""


class Gateway:
    """To a Java process, which leaves an archive once its input is closed."""

    def __init__(self, options: str, *, leaves: bool = True, ends: bool = True) -> None:
        self._archive = Path(options.partition("=")[2].partition('"')[0])
        self._leaves, self._ends = leaves, ends
        self.is_shut_down = False
        self.is_closed = False
        self.waited_s = 0.0
        self.stdin = SimpleNamespace(close=self._close)
        self.proc = self

    def shutdown(self) -> None:
        self.is_shut_down = True

    def _close(self) -> None:
        self.is_closed = True
        if self._leaves:
            self._archive.write_text("classes")

    def wait(self, timeout_s: float) -> None:
        self.waited_s = timeout_s
        if not self._ends:
            raise subprocess.TimeoutExpired("java", timeout_s)


def kept(archive: NewArchive, monkeypatch: pytest.MonkeyPatch, **how: bool) -> tuple[Path | None, Gateway]:
    gateway = Gateway(archive.options, **how)
    context: Any = pyspark.SparkContext
    monkeypatch.setattr(context, "_gateway", gateway)
    monkeypatch.setattr(context, "_jvm", object())
    found = archive.keep()
    assert context._gateway is None and context._jvm is None, "the next session starts another Java"
    assert gateway.is_shut_down and gateway.is_closed
    return found, gateway


def test_a_new_archive_is_kept_when_java_has_written_it(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = NewArchive()
    assert archive.options.startswith('"-XX:ArchiveClassesAtExit=') and archive.options.endswith('" -Xlog:disable')
    found, gateway = kept(archive, monkeypatch)
    assert found == archive_path() and found.read_text() == "classes"
    assert list(found.parent.iterdir()) == [found]
    assert gateway.waited_s == 300
    assert NewArchive().options == archive.options, "the directory may be there"


@pytest.mark.parametrize("how", [{"leaves": False}, {"ends": False}])
def test_what_java_has_not_finished_is_no_archive(how: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = kept(NewArchive(), monkeypatch, **how)
    assert found is None
    assert list(archive_path().parent.iterdir()) == []
