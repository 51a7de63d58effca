"""Every format in one pipeline: thousands of bad records between good ones, and each of them is where it belongs."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

import ottla
from ottla.cli.pipeline import main
from ottla.spark.pipeline import Pipeline
from tests.broker_process import BrokerProcess
from tests.schema_registry import Registry, running_registry
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

GOOD = 1500
BAD = 1100
SEED = 20260101
EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "price", "type": "double"}],
}
DECODER = '''\
import pyarrow as pa
import pyarrow.compute as pc


def decode(value, key):
    """`id|name|price`; what has a second key is a mistake of the sender's."""
    texts = value.cast(pa.string())
    parts = [text.split("|") if text is not None else [] for text in texts.to_pylist()]
    is_odd = pc.equal(key, b"odd")
    return {
        "id": pa.array([int(part[0]) for part in parts], pa.int64()),
        "name": [part[1] for part in parts],
        "price": [float(part[2]) for part in parts],
        "_error": pc.if_else(is_odd, "the key is odd", None),
    }
'''
COLUMNS = "schema: id BIGINT NOT NULL, name STRING, price DOUBLE"
DESCRIPTION = """\
name: {prefix}
checkpoint: state
kafka:
  bootstrap.servers: {bootstrap}
sources:
"""
SOURCES = {
    "text": "format: text",
    "json": "format: json\n    " + COLUMNS,
    "csv": "format: csv\n    " + COLUMNS,
    "avro": "format: avro\n    schema_file: event.avsc",
    "framed": "format: avro\n    registry: {{url: {registry}, user: me, password: s3cret}}",
    "protobuf": "format: protobuf\n    descriptor_file: event.pb\n    message: shop.Event",
    "python": "format: python\n    decoder: decoder.py:decode\n    " + COLUMNS,
}
VIEW = "views:\n  rows:\n    sql: |\n" + "      UNION ALL\n".join(
    f"      SELECT '{kind}' AS format, {'NULL, value, NULL' if kind == 'text' else 'id, name, price'} FROM {kind}\n"
    for kind in sorted(SOURCES)
)
_ANY_ID = "schema: id STRING NOT NULL, name STRING, price DOUBLE"
_NUMBERED = "\n    metadata: [headers]"
_APART = "\n    redrive_topic: formats-again-"
MENDED = {
    "text": "format: text" + _NUMBERED,
    "json": f"format: json\n    {_ANY_ID}{_NUMBERED}",
    "csv": f"format: csv\n    {_ANY_ID}{_NUMBERED}{_APART}csv",
    "avro": f"format: avro\n    schema_file: mended.avsc{_NUMBERED}{_APART}avro",
    "framed": SOURCES["framed"] + _NUMBERED,
    "protobuf": f"format: protobuf\n    descriptor_file: mended.pb\n    message: shop.Event{_NUMBERED}",
    "python": f"format: python\n    decoder: mended.py:decode\n    {COLUMNS}{_NUMBERED}",
}
MENDED_VIEW = "views:\n  rows:\n    sql: |\n" + "      UNION ALL\n".join(
    f"      SELECT '{kind}' AS format, CAST(filter(_headers, h -> h.key = 'n')[0].value AS STRING) AS n FROM {kind}\n"
    for kind in sorted(SOURCES)
)
MENDED_MAKER = {"json": 2, "csv": 1, "avro": 3, "framed": 3, "protobuf": 2, "python": 1}
"""Of those below in `bad`, the one whose records can be read then."""
SINK = """\
sinks:
  rows: {{kind: topic, topic: {rows}, format: json, create_partitions: 1}}
flows:
  rows: {{from: rows, to: rows}}
"""


def avro(row: dict[str, Any], schema: dict[str, Any] = EVENT) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), row)
    return out.getvalue()


def _with_bytes(schema: dict[str, Any]) -> dict[str, Any]:
    fields = [{**field, "type": "bytes"} if field["name"] == "name" else field for field in schema["fields"]]
    return {**schema, "fields": fields}


def event_descriptors(*, name_is_text: bool = True) -> bytes:
    from google.protobuf import descriptor_pb2 as d

    file = d.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Event")
    field = d.FieldDescriptorProto
    name_kind = field.TYPE_STRING if name_is_text else field.TYPE_BYTES
    for number, (name, kind) in enumerate(
        [("id", field.TYPE_INT64), ("name", name_kind), ("price", field.TYPE_DOUBLE)], 1
    ):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    return d.FileDescriptorSet(file=[file]).SerializeToString()


def protobuf(row: dict[str, Any]) -> bytes:
    from google.protobuf import message_factory

    from ottla.spark.pipeline.formats.protobuf.descriptors import find_message

    made = message_factory.GetMessageClass(find_message(event_descriptors(), "shop.Event"))(**row)
    return bytes(made.SerializeToString())


class Injected:
    """Good and bad records of every format, in one order; a record is its key and its value."""

    def __init__(self, schema_id: int, other_id: int) -> None:
        self._random = random.Random(SEED)
        self._head = b"\0" + schema_id.to_bytes(4, "big")
        self._other = b"\0" + other_id.to_bytes(4, "big")
        self.makers: dict[str, int] = {}
        self.records: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
        self.rows = [{"id": n * 7919 - 5_000_000, "name": f"näme {n}", "price": n / 4} for n in range(GOOD)]

    def good(self, kind: str) -> list[bytes]:
        write = {
            "text": lambda row: row["name"].encode(),
            "json": lambda row: json.dumps(row).encode(),
            "csv": lambda row: f"{row['id']},{row['name']},{row['price']}".encode(),
            "avro": avro,
            "framed": lambda row: self._head + avro(row),
            "protobuf": protobuf,
            "python": lambda row: f"{row['id']}|{row['name']}|{row['price']}".encode(),
        }[kind]
        return [write(row) for row in self.rows]

    def bad(self, kind: str) -> list[tuple[bytes | None, bytes | None]]:
        """Each is bad for certain, whatever its random part."""
        makers = {
            "text": [lambda junk: b"\xff" + junk],
            "json": [
                lambda junk: b"\xfe" + junk,
                lambda junk: b"{" + junk.hex().encode(),
                lambda junk: b'{"id": "' + junk.hex().encode() + b'"}',
                lambda junk: b'{"id": 1} ' + junk.hex().encode(),
                lambda junk: json.dumps({"name": junk.hex()}).encode(),
                lambda junk: None,
            ],
            "csv": [
                lambda junk: b"\xfe" + junk,
                lambda junk: b"x" + junk.hex().encode() + b",a,1.0",
                lambda junk: b"1,a,b" + junk.hex().encode(),
                lambda junk: None,
            ],
            "avro": [
                lambda junk: avro(self.rows[0])[: -1 - junk[0] % 8],
                lambda junk: avro(self.rows[1]) + junk,
                lambda junk: b"\xff" * 10 + junk,  # a number of more than 64 bits
                lambda junk: b"\x02\x06\xff\xfe\xfd" + bytes(8),  # three bytes that are no text
                lambda junk: b"\x02\x01" + junk,  # a length below zero
                lambda junk: b"",
                lambda junk: None,
            ],
            "framed": [
                lambda junk: self._head + avro(self.rows[0])[: -1 - junk[0] % 8],
                lambda junk: self._head + avro(self.rows[1]) + junk,
                lambda junk: b"\x01" + self._head[1:] + avro(self.rows[2]),
                lambda junk: b"\0\0\0\0" + bytes([1 + junk[0] % 9]) + avro(self.rows[3]),  # a schema nobody knows
                lambda junk: self._other + b"\x02",  # a schema that has not got the fields
                lambda junk: self._head[:4],
                lambda junk: None,
            ],
            "protobuf": [
                lambda junk: protobuf(self.rows[1])[: -1 - junk[0] % 7],
                lambda junk: protobuf(self.rows[1]) + b"\x0f" + junk,  # there is no wire type 7
                lambda junk: b"\x12\x03\xff\xfe\xfd",
                lambda junk: None,
            ],
            "python": [
                lambda junk: b"x" + junk.hex().encode() + b"|a|1.0",
                lambda junk: b"1|a",
                lambda junk: b"\xff" + junk,
                lambda junk: None,
            ],
        }[kind]
        self.makers[kind] = len(makers)
        found: list[tuple[bytes | None, bytes | None]] = []
        for index in range(BAD):
            key = None if index % 3 == 0 else f"bad-{index}".encode()
            found.append((key, makers[index % len(makers)](self._random.randbytes(1 + index % 12))))  # type: ignore[operator]
        if kind == "python":
            found[0] = (b"odd", b"1|a|1.0")
        return found

    def mended(self, kind: str) -> Counter[tuple[bytes | None, bytes | None]]:
        """Those of the bad ones that `Formats.mend` is about."""
        if kind not in MENDED_MAKER:
            return Counter()
        return Counter(self.records[kind][MENDED_MAKER[kind] :: self.makers[kind]])

    def mixed(self, kind: str) -> list[tuple[bytes | None, bytes | None]]:
        self.records[kind] = self.bad(kind)
        records = [*self.records[kind], *((b"good", value) for value in self.good(kind))]
        self._random.shuffle(records)
        return records


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


class Formats:
    """One run of one pipeline over all formats."""

    def __init__(self, spark: Any, topics: Topics, registry: Registry, directory: Path) -> None:
        self.topics = topics
        (directory / "event.avsc").write_text(json.dumps(EVENT))
        (directory / "event.pb").write_bytes(event_descriptors())
        (directory / "decoder.py").write_text(DECODER)
        schema_id = registry.add(f"{topics.name('framed')}-value", json.dumps(EVENT))
        other = {"type": "record", "name": "Other", "fields": [{"name": "id", "type": "long"}]}
        self.injected = Injected(schema_id, registry.add("other", json.dumps(other)))
        topics.create(**dict.fromkeys(SOURCES, 2))
        self.sent = {kind: self.injected.mixed(kind) for kind in SOURCES}
        with ottla.Producer(bootstrap_servers=topics.bootstrap) as producer:
            for kind, records in self.sent.items():
                for index, (key, value) in enumerate(records):
                    headers = [("n", str(index).encode())]
                    producer.send(topics.name(kind), value, key=key, partition=index % 2, headers=headers)
            producer.flush()
        self.directory = directory
        self.registry = registry
        self.path = directory / "formats.yaml"
        self._run(spark, SOURCES, VIEW)
        self.letters = {kind: topics.records(f"{kind}-dead") for kind in SOURCES}
        self.rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in SOURCES}
        for row in topics.values("rows"):
            self.rows[row.pop("format")].append(row)

    def _run(self, spark: Any, sources: dict[str, str], view: str) -> None:
        self._describe(sources, view)
        Pipeline.from_file(self.path).run(spark, once=True, observer=Recorder())

    def _describe(self, sources: dict[str, str], view: str) -> None:
        topics = self.topics
        text = DESCRIPTION.format(prefix=topics.prefix, bootstrap=topics.bootstrap)
        for kind, options in sources.items():
            text += f"  {kind}:\n    kind: topic\n    topic: {topics.name(kind)}\n    {options}\n"
            text += f"    dead_letter: {topics.name(kind)}-dead\n    dead_letter_partitions: 1\n"
        text += view + SINK
        self.path.write_text(text.format(registry=self.registry.url, rows=topics.name("rows")))

    def mend(self, spark: Any, redrive: Callable[[str], None]) -> None:
        """Some kinds of bad records can be read from now on; all that were set aside are sent back."""
        (self.directory / "mended.avsc").write_text(json.dumps(_with_bytes(EVENT)))
        (self.directory / "mended.pb").write_bytes(event_descriptors(name_is_text=False))
        (self.directory / "mended.py").write_text(DECODER.replace("float(part[2])", "float((part + ['0'])[2])"))
        for unknown in range(1, 10):
            self.registry.schemas[unknown] = {"schema": json.dumps(EVENT)}
        known = Counter(json.dumps(row) for row in self.topics.values("rows"))
        self._describe(MENDED, MENDED_VIEW)
        for kind in SOURCES:
            redrive(f"{kind}-dead-letters")
        self._run(spark, MENDED, MENDED_VIEW)
        rows = Counter(json.dumps(row) for row in self.topics.values("rows")) - known
        self.came_back = Counter(tuple(json.loads(row).values()) for row in rows.elements())
        self.letters_after = {kind: self.topics.records(f"{kind}-dead") for kind in SOURCES}


@pytest.fixture(scope="module")
def formats(
    spark: Any, spark_broker: BrokerProcess, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Formats:
    return Formats(spark, Topics(spark_broker.bootstrap, "formats"), registry, tmp_path_factory.mktemp("formats"))


@pytest.mark.parametrize("kind", SOURCES)
def test_dead_letters_are_what_was_injected_byte_for_byte(formats: Formats, kind: str) -> None:
    injected = {index: (key, value) for index, (key, value) in enumerate(formats.sent[kind]) if key != b"good"}
    assert len(injected) == BAD
    letters = formats.letters[kind]
    found = {}
    for letter in letters:
        headers = dict(letter.headers)
        found[int(headers["n"] or b"")] = (letter.key, letter.value)
        assert len((headers["ottla.dead-letter.error"] or b"").decode()) > 5
        assert headers["ottla.dead-letter.topic"] == formats.topics.name(kind).encode()
    assert len(letters) == BAD
    assert found == injected


@pytest.mark.parametrize("kind", SOURCES)
def test_the_others_are_unharmed(formats: Formats, kind: str) -> None:
    rows = formats.rows[kind]
    if kind == "text":
        assert sorted(row["name"] for row in rows) == sorted(row["name"] for row in formats.injected.rows)
    else:
        assert sorted(rows, key=lambda row: row["id"]) == formats.injected.rows


def test_what_is_wrong_is_told(formats: Formats) -> None:
    told = {
        kind: {(dict(letter.headers)["ottla.dead-letter.error"] or b"").decode() for letter in formats.letters[kind]}
        for kind in ("avro", "framed", "protobuf", "python")
    }
    assert "price: the value ends too early" in told["avro"]
    assert "name: a text is not UTF-8" in told["avro"]
    assert "name: a length is below zero" in told["avro"]
    assert "id: a number has more than 64 bits" in told["avro"]
    assert "5 bytes are left after what the schema describes" in told["avro"]
    assert "the schema registry has no Avro schema with the id 7" in told["framed"]
    assert any("name: it is not among what was written, and has no default" in sentence for sentence in told["framed"])
    assert "it does not begin with a zero byte and the four bytes of a schema's id" in told["framed"]
    assert told["protobuf"] == {"the value is null", "the value is not a message of type shop.Event"}
    assert "the key is odd" in told["python"]
    assert any(sentence.startswith("the decoder failed: ValueError: invalid literal") for sentence in told["python"])
    assert not [sentence for sentences in told.values() for sentence in sentences if "s3cret" in sentence]


def test_exactly_the_mended_ones_come_back(formats: Formats, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Some to where they were, some to a topic that the source alone reads; those that are still bad are set aside
    again, once."""

    def redrive(flow: str) -> None:
        for letters in (BAD, 0):
            assert main(["redrive", str(formats.path), flow, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["letters"] == letters

    formats.mend(spark, redrive)
    for kind in SOURCES:
        sent = dict(enumerate(formats.sent[kind]))
        came = Counter({int(n): count for (of, n), count in formats.came_back.items() if of == kind})
        assert Counter(sent[n] for n in came.elements()) == formats.injected.mended(kind)
        assert set(came.values()) <= {1}
        letters = Counter(_number(letter) for letter in formats.letters_after[kind])
        bad = {n for n, (key, _) in sent.items() if key != b"good"}
        assert letters == {n: 1 if n in came else 2 for n in bad}
        if kind in ("csv", "avro"):
            # What came back to a topic of the source alone says where it was at first, and nothing twice.
            assert len({_origin(letter) for letter in formats.letters_after[kind]}) == BAD
            assert {len(letter.headers) for letter in formats.letters_after[kind]} == {7}
    assert sum(formats.came_back.values()) > 1000


def _number(letter: ottla.ConsumerRecord[bytes, bytes]) -> int:
    return int(dict(letter.headers)["n"] or b"")


def _origin(letter: ottla.ConsumerRecord[bytes, bytes]) -> tuple[bytes | None, ...]:
    headers = dict(letter.headers)
    origin = tuple(headers[f"ottla.dead-letter.{name}"] for name in ("topic", "partition", "offset"))
    assert int(origin[2] or b"") == _number(letter) // 2
    return origin
