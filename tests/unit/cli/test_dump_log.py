"""dump-log on files the log room has written, against the lines Kafka's tool prints."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.main import main
from ottla.log.config import LogConfig
from ottla.log.producer_state import ProducerEntry, StoredBatch, encode_snapshot
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker


def segment(directory: Path) -> Path:
    """Two batches and a commit marker, with an index entry for each batch but the first."""
    written = Segment.create(directory, 0, LogConfig(index_interval_bytes=0, segment_index_bytes=120), now_ms=1)
    batches = [
        (build_batch([(b"k", b"v", [("h", b"1")], 1000), (None, b"w", (), 1001)], partition_leader_epoch=3), 1, 1001),
        (
            build_batch(
                [(b"k", None, (), 1002)],
                base_offset=2,
                codec=Codec.GZIP,
                producer_id=9,
                producer_epoch=1,
                base_sequence=5,
            ),
            2,
            1002,
        ),
        (end_transaction_marker(9, 1, True, 6, 1003, base_offset=3), 3, 1003),
    ]
    for data, last_offset, max_timestamp in batches:
        written.append(memoryview(bytearray(data)), last_offset, max_timestamp)
    written.seal()
    return directory / "00000000000000000000.log"


def dump(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], str]:
    assert main(["dump-log", *arguments]) == 0
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


def test_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path)
    lines, error = dump(capsys, "--files", str(path))
    assert error == ""
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert len(lines) == 5
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1001 size: 82 magic: 2 compresscodec: none crc: "
    )
    assert lines[2].endswith(" isvalid: true")
    assert "compresscodec: gzip" in lines[3]
    assert "isTransactional: true isControl: true" in lines[4]


def test_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, error = dump(capsys, "--files", str(segment(tmp_path)), "--print-data-log")
    assert error == "", "they follow each other"
    assert [line for line in lines if line.startswith("| ")] == [
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h] key: k payload: v",
        "| offset: 1 CreateTime: 1001 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: w",
        "| offset: 2 CreateTime: 1002 keySize: 1 valueSize: -1 sequence: 5 headerKeys: [] key: k",
        "| offset: 3 CreateTime: 1003 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: COMMIT coordinatorEpoch: 6",
    ]


def test_deep_iteration_shows_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, _ = dump(capsys, "--files", str(segment(tmp_path)), "--deep-iteration")
    assert lines[3].endswith("headerKeys: [h]")


def test_a_damaged_batch_and_junk_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[79] ^= 1
    path.write_bytes(data + b"junk!")
    lines, _ = dump(capsys, "--files", str(path), "--deep-iteration")
    assert lines[2].endswith("isvalid: false")
    assert lines[-1] == f"Found 5 invalid bytes at the end of {path.name}"


def test_offsets_that_do_not_follow_each_other_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(None, b"a", (), 1)]) + build_batch([(None, b"b", (), 1)], base_offset=5))
    _, error = dump(capsys, "--files", str(path), "--deep-iteration")
    assert error == f"Non-consecutive offsets in {path}\n  0 is followed by 5\n"
    more = build_batch([(None, b"c", (), 1), (None, b"d", (), 1)], base_offset=4)
    path.write_bytes(build_batch([(None, b"a", (), 1)], base_offset=3) + more + build_batch([(None, b"e", (), 1)]))
    _, error = dump(capsys, "--files", str(path), "--deep-iteration")
    assert error == f"Non-consecutive offsets in {path}\n  5 is followed by 0\n"


def test_the_offset_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = segment(tmp_path).with_suffix(".index")
    lines, error = dump(capsys, "--files", str(index))
    assert (lines[1], error) == ("offset: 2 position: 82", "")
    assert dump(capsys, "--files", str(index), "--verify-index-only") == ([f"Dumping {index}"], "")
    lines, _ = dump(capsys, "--files", str(index), "--index-sanity-check")
    assert lines[1] == f"{index} passed sanity check."


def test_the_zero_tail_of_an_active_index_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = segment(tmp_path)
    for suffix, zeros in ((".index", 80), (".timeindex", 120)):
        path = log.with_suffix(suffix)
        before, _ = dump(capsys, "--files", str(path))
        path.write_bytes(path.read_bytes() + bytes(zeros))
        assert dump(capsys, "--files", str(path))[0] == before


def test_an_index_that_contradicts_its_log_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = segment(tmp_path).with_suffix(".index")
    data = bytearray(index.read_bytes())
    data[3] = 1
    index.write_bytes(data)
    _, error = dump(capsys, "--files", str(index))
    assert error.splitlines()[:2] == [f"Mismatches in :{index}", "  Index offset: 1, log offset: 2"]


def test_the_time_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, error = dump(capsys, "--files", str(segment(tmp_path).with_suffix(".timeindex")))
    assert "timestamp: 1002 offset: 2" in lines
    assert error == ""


def test_the_transaction_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex(path, 0)
    index.append(AbortedTransaction(9, 1, 4, 5))
    index.write_pending()
    lines, _ = dump(capsys, "--files", str(path))
    assert lines[1] == "version: 0 producerId: 9 firstOffset: 1 lastOffset: 4 lastStableOffset: 5"


def test_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000007.snapshot"
    entry = ProducerEntry(9, 1, coordinator_epoch=2, last_timestamp=1003, transaction_first_offset=4)
    entry.batches.append(StoredBatch(5, 6, 6, 1, 1003))
    path.write_bytes(encode_snapshot([entry, ProducerEntry(10, 0)]))
    lines, _ = dump(capsys, "--files", str(path))
    assert lines[1] == (
        "producerId: 9 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong[4] lastTimestamp: 1003 "
        "firstSequence: 5 lastSequence: 6 lastOffset: 6 offsetDelta: 1 timestamp: 1003"
    )
    assert "currentTxnFirstOffset: OptionalLong.empty" in lines[2]


@pytest.mark.parametrize(("name", "words"), [("absent.log", "no such file"), ("notes.txt", "none of the files")])
def test_what_cannot_be_shown_is_one_sentence(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / (name if name == "notes.txt" else "00000000000000000009.log")
    assert main(["dump-log", "--files", str(path)]) == (2 if name == "notes.txt" else 1)
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_damaged_snapshot_is_said_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000007.snapshot"
    path.write_bytes(b"\0" * 30)
    assert main(["dump-log", "--files", str(path)]) == 1
    assert f"{path} is no valid snapshot: " in capsys.readouterr().err


OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(1, 10), (2, 20)], None),
        ([(1, 10), (1, 20)], "is out of order at 1"),
        ([(2, 20), (1, 30)], "is out of order at 1"),
        ([(1, 20), (2, 20)], "is out of order at 2"),
        ([(1, 10), (2, 82 + 87 + 78)], "points outside its log"),
        ([(1, 10), (2, 82 + 87 + 77)], None),
    ],
)
def test_whether_an_offset_index_is_sane(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], entries: list[tuple[int, int]], words: str | None
) -> None:
    log = segment(tmp_path)
    log.write_bytes(log.read_bytes()[: 82 + 87 + 78].ljust(82 + 87 + 78, b"\0"))
    index = log.with_suffix(".index")
    index.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))
    assert main(["dump-log", "--files", str(index), "--index-sanity-check"]) == (0 if words is None else 1)
    said = capsys.readouterr()
    assert (said.err == "") is (words is None)
    assert words is None or words in said.err


@pytest.mark.parametrize(
    ("entries", "complaints"),
    [
        ([(1001, 1), (1003, 3)], []),
        (
            [(1000, 1)],
            ["Found timestamp mismatch in :{path}", "  Index timestamp: 1000, log timestamp: 1001"],
        ),
        (
            [(1002, 2), (1001, 1)],
            [
                "Found out of order timestamp in :{path}",
                "  Index timestamp: 1001, Previously indexed timestamp: 1002",
            ],
        ),
        (
            [(1000, 0)],
            [
                "The following indexed offsets are not found in the log.",
                "Indexed offset: 0, found log offset: 1",
            ],
        ),
        (
            [(1009, 9)],
            [
                "The following indexed offsets are not found in the log.",
                "Indexed offset: 9, found log offset: -1",
            ],
        ),
    ],
)
def test_a_time_index_is_compared_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], entries: list[tuple[int, int]], complaints: list[str]
) -> None:
    path = segment(tmp_path).with_suffix(".timeindex")
    path.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in entries))
    lines, error = dump(capsys, "--files", str(path))
    assert lines[1:] == [f"timestamp: {timestamp} offset: {offset}" for timestamp, offset in entries]
    assert error.splitlines() == [line.format(path=path) for line in complaints]
    assert dump(capsys, "--files", str(path), "--verify-index-only") == (lines[:1], error)


def test_whether_a_time_index_is_sane(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path).with_suffix(".timeindex")
    path.write_bytes(TIME_ENTRY.pack(1001, 1) + TIME_ENTRY.pack(1002, 2))
    lines, _ = dump(capsys, "--files", str(path), "--index-sanity-check")
    assert lines == [f"Dumping {path}", f"{path} passed sanity check."]
    path.write_bytes(TIME_ENTRY.pack(1001, 1) + TIME_ENTRY.pack(1001, 2))
    assert main(["dump-log", "--files", str(path), "--index-sanity-check"]) == 1


def test_files_one_after_the_other_and_no_further_than_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path)
    index = path.with_suffix(".index")
    lines, error = dump(capsys, "--files", f"{path}, {index},", "--max-bytes", "100")
    assert error == ""
    assert [line for line in lines if line.startswith("Dumping")] == [f"Dumping {path}", f"Dumping {index}"]
    assert len([line for line in lines if line.startswith("baseOffset")]) == 1
    assert not any("invalid bytes" in line for line in lines)


def test_only_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, _ = dump(capsys, "--files", str(segment(tmp_path)), "--print-data-log", "--skip-record-metadata")
    assert [line for line in lines[2:] if not line.startswith("baseOffset")] == [
        "| key: k payload: v",
        " payload: w",
        "| key: k",
        "",
    ]


def test_a_file_that_is_not_named_after_an_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_bytes(b"")
    assert main(["dump-log", "--files", str(tmp_path / "x.log")]) == 2
    assert capsys.readouterr().err == f"the name of {tmp_path / 'x.log'} is not the offset a segment begins with\n"
    (tmp_path / "5.log").write_bytes(b"")
    assert dump(capsys, "--files", str(tmp_path / "5.log")) == (
        [f"Dumping {tmp_path / '5.log'}", "Log starting offset: 5"],
        "",
    )


@pytest.mark.parametrize(("size", "batches"), [(1, 0), (81, 0), (82, 1), (82 + 86, 1), (82 + 87, 2), (10_000, 3)])
def test_batches_are_shown_that_end_within_the_bytes_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, batches: int
) -> None:
    path = segment(tmp_path)
    second = int(next(line for line in dump(capsys, str(path))[0] if "gzip" in line).split("size: ")[1].split()[0])
    size += 0 if size < 100 else second - 87
    lines, error = dump(capsys, str(path), "--max-bytes", str(size))
    assert (len(lines) - 2, error) == (batches, "")


def test_a_file_without_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        (tmp_path / f"00000000000000000009{suffix}").touch()
    log = tmp_path / "00000000000000000009.log"
    assert dump(capsys, str(log)) == ([f"Dumping {log}", "Log starting offset: 9"], "")
    for suffix in (".index", ".timeindex"):
        path = log.with_suffix(suffix)
        assert dump(capsys, str(path)) == ([f"Dumping {path}"], "")
        lines, _ = dump(capsys, str(path), "--index-sanity-check")
        assert lines == [f"Dumping {path}", f"{path} passed sanity check."]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a file to show"),
        (["--files", " , "], "name a file to show"),
        (["x.log", "--max-bytes", "0"], "--max-bytes must be at least 1"),
        (
            ["x.log", "--offsets-decoder", "--transaction-log-decoder"],
            "a file is of __consumer_offsets or of __transaction_state, not of both",
        ),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", *arguments]) == 2
    assert capsys.readouterr().err.endswith(f"Error: {told}\n")


def test_kafkas_tool_passes_over_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "5.log").write_bytes(b"")
    names = [str(tmp_path / name) for name in ("notes.txt", "5.log")]
    assert run_script("kafka-dump-log.sh", ["--files", ",".join(names)]) == 0
    shown = [f"Dumping {names[0]}", f"Dumping {names[1]}", "Log starting offset: 5"]
    said = capsys.readouterr()
    assert (said.out.splitlines(), said.err) == (shown, f"Ignoring unknown file {names[0]}\n")
    assert run_script("kafka-dump-log.sh", []) == 1
    assert capsys.readouterr().err.startswith(
        "This tool helps to parse a log file and dump its contents to the console"
    )
