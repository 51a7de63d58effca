"""What `ottla perf` counts and how it writes it down."""

from __future__ import annotations

import json
import math
import sys
import time
from argparse import Namespace
from array import array
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.cli.failures import UsageError
from ottla.cli.perf.measuring import (
    Latencies,
    _report_s,
    _show_total,
    _stamp,
    _tell,
    payloads,
    percentile,
    rates,
    total_line,
)
from ottla.client.errors import ClientError
from tests.own_thread import patch_own_thread

MB = 1_048_576


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 50.0, 0.0),
        ([7.0], 0.0, 7.0),
        ([7.0], 99.9, 7.0),
        (range(100), 50.0, 50.0),
        (range(100), 99.0, 99.0),
        (range(1000), 99.9, 999.0),
        (range(4), 50.0, 2.0),
        (range(4), 95.0, 3.0),
        (range(4), 100.0, 3.0),
    ],
)
def test_percentiles(values: Any, share: float, expected: float) -> None:
    assert percentile(array("d", values), share) == expected


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    patch_own_thread(monkeypatch, time, "perf_counter", made.perf_counter)
    return made


def test_acknowledgements_are_counted_with_their_latency(clock: Clock) -> None:
    latencies = Latencies()
    for size, waited_ms in ((MB, 10), (2 * MB, 30)):
        note = latencies.acknowledged(clock.now, size)
        clock.now += waited_ms / 1000
        note(None, None)
    error = ClientError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    latencies.acknowledged(clock.now, MB)(None, error)
    assert latencies.errors == [error] and latencies.bytes == 3 * MB
    assert list(latencies.all_ms) == pytest.approx([10, 30])
    assert latencies.window(2) == (
        "2 records sent, 1.0 records/sec (1.50 MB/sec), 20.0 ms avg latency, 30.0 ms max latency."
    )
    note = latencies.acknowledged(clock.now, MB)
    clock.now += 0.005
    note(None, None)
    assert latencies.window(1) == (
        "1 records sent, 1.0 records/sec (1.00 MB/sec), 5.0 ms avg latency, 5.0 ms max latency."
    )
    assert latencies.window(1) == (
        "0 records sent, 0.0 records/sec (0.00 MB/sec), 0.0 ms avg latency, 0.0 ms max latency."
    )
    total = latencies.total(2)
    assert {name: round(value, 3) for name, value in total.items()} == {
        "records": 3,
        "records_per_second": 1.5,
        "mb_per_second": 2.0,
        "avg_ms": 15.0,
        "max_ms": 30.0,
        "p50_ms": 10.0,
        "p95_ms": 30.0,
        "p99_ms": 30.0,
        "p99.9_ms": 30.0,
    }
    assert total_line(total) == (
        "3 records sent, 1.500000 records/sec (2.00 MB/sec), 15.00 ms avg latency, 30.00 ms max latency, "
        "10 ms 50th, 30 ms 95th, 30 ms 99th, 30 ms 99.9th."
    )


def test_of_nothing_there_is_no_mean() -> None:
    total = Latencies().total(1)
    assert math.isnan(total.pop("avg_ms"))
    assert set(total.values()) == {0.0}


def test_rates_are_those_of_kafkas_columns() -> None:
    assert rates(3 * MB, 30, 2.0, 0.5) == "3.0000, 1.5000, 30, 15.0000, 500, 1500, 2.0000, 20.0000"
    assert rates(0, 0, 1.0, 1.0) == "0.0000, 0.0000, 0, 0.0000, 1000, 1, 0.0000, 0.0000"
    assert _stamp(datetime(2026, 3, 4, 5, 6, 7, 89_999)) == "2026-03-04 05:06:07:089"


def options(**given: Any) -> Namespace:
    own = {
        "payload_file": None,
        "payload_delimiter": "\\n",
        "payload_monotonic": False,
        "record_size": 50,
        "kafka": False,
        "output": "table",
        "reporting_interval": 5000,
    }
    return Namespace(**{**own, **given})


def test_what_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = payloads(options())
    assert fixed(0) == fixed(1) and len(fixed(0)) == 50
    drawn = payloads(options(record_size=5000))(0)
    assert set(drawn) == set(range(ord("A"), ord("Z") + 1))
    assert [payloads(options(payload_monotonic=True))(number) for number in (0, 12)] == [b"0", b"12"]
    path = tmp_path / "payloads"
    path.write_bytes(b"a;;b;")
    chosen = payloads(options(payload_file=str(path), payload_delimiter=";"))
    assert {chosen(number) for number in range(60)} == {b"a", b"b"}
    assert capsys.readouterr().out == ""
    path.write_bytes(b"a\nb")
    payloads(options(payload_file=str(path), kafka=True))
    assert capsys.readouterr().out == f"Reading payloads from: {path}\nNumber of messages read: 2\n"
    path.write_bytes(b"\n\n")
    with pytest.raises(UsageError, match="is empty"):
        payloads(options(payload_file=str(path)))


@pytest.mark.parametrize(
    ("at_terminal", "kafka", "report_s", "told"),
    [
        (False, False, 5.0, "x\n"),
        (True, False, 0.5, "\r\x1b[Kx"),
        (True, True, 5.0, "x\n"),
    ],
)
def test_at_a_terminal_one_line_is_written_over(
    at_terminal: bool, kafka: bool, report_s: float, told: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal)
    given = options(kafka=kafka)
    assert _report_s(given) == report_s
    assert _report_s(options(kafka=kafka, reporting_interval=100)) == 0.1
    _tell("x", given)
    assert capsys.readouterr().out == told
    for output in ("json", "tsv"):
        _tell("x", options(output=output))
    assert capsys.readouterr().out == ""
    _show_total({}, "the total", given)
    assert capsys.readouterr().out == (f"{told[:-1]}the total\n" if told.startswith("\r") else "the total\n")


def test_totals_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    total = {"records": 2.0, "avg_ms": float("nan")}
    _show_total(total, "", options(output="json"))
    assert json.loads(capsys.readouterr().out) == {"records": 2.0, "avg_ms": None}
    _show_total({"records": 2.0, "p50_ms": 1.23456}, "", options(output="tsv"))
    assert capsys.readouterr().out == "records\tp50_ms\n2.000\t1.235\n"
