"""Which values are bad, and what the others hold, against plain Python: thousands of texts in one job."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark.pipeline.formats.csv import CsvFormat
from ottla.spark.pipeline.formats.json import JsonFormat
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE, SourceFormat
from ottla.spark.pipeline.problems import Place
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SEED = 20_260
TEXTS = 3_000
NULL, NO_TEXT, MISSING = "the value is null", "the value is not UTF-8 text", "the column id is missing"
JSON_SCHEMA = (
    "id BIGINT NOT NULL, n INT, s STRING, x DOUBLE, d DECIMAL(5, 2), b BOOLEAN, at TIMESTAMP, day DATE,"
    " items ARRAY<INT>, sub STRUCT<y: INT>"
)
NO_OBJECT, REST = "the value is not a JSON object that fits the schema", "there is text after the JSON object"
CSV_SCHEMA = "id BIGINT NOT NULL, s STRING, x DOUBLE, b BOOLEAN"
NO_LINE = "the value is not a line of CSV that fits the schema"

TOKENS = {
    "null": "all",
    "5": "id n s x d at",
    "-7": "id n s x d at",
    "3000000000": "id s x at",
    "99999999999999999999": "s x",
    "1.5": "s x d",
    "5.0": "s x d",
    "1e3": "s x",
    "true": "s b",
    '"true"': "s",
    '""': "s",
    '"word"': "s",
    '"5"': "s d day",
    '"1.50"': "s d",
    '"NaN"': "s x",
    '"2026-01-02"': "s at day",
    '"2026-01-02T03:04:05Z"': "s at day",
    '"2026-13-02"': "s",
    "[1, 2]": "s items",
    "[]": "s items",
    '[1, "a"]': "s",
    '{"y": 1}': "s sub",
    '{"y": "a"}': "s",
    "{}": "s sub",
    '[{"y": 1}]': "s",
    '"}"': "s",
    '"a] }"': "s",
    '"Ä€😀"': "s",
}
"""JSON values, and the columns each fits: the table in docs/pipelines.md."""
PIECES = (
    "}",
    "]",
    "{",
    "[",
    ",",
    "1",
    '"',
    " ",
    "\n",
    "\t",
    " x",
    '{"id": 5}',
    ',{"id": 5}',
    ",1] x",
    "] }",
    "\ufeff",
    "\0",
    "//",
)


def test_json_agrees_with_python(spark: SparkSession) -> None:
    random_ = random.Random(SEED)
    values = [None, b"\xff\xfe", b"", *(_json_text(random_) for _ in range(TEXTS))]
    found = _decoded(spark, JsonFormat.from_section(_section(JSON_SCHEMA, "json")), values)
    expected = [_json_verdict(value) for value in values]
    wrong = [pair for pair in zip(values, found, expected, strict=True) if pair[1][0] != pair[2][0]]
    assert not wrong, wrong[:10]
    _check_mixture([error for error, _ in found], (None, NULL, NO_TEXT, MISSING, NO_OBJECT, REST))
    for value, (error, row), (_, wanted) in zip(values, found, expected, strict=True):
        assert error is not None or wanted.items() <= row.items(), value


def test_csv_agrees_with_python(spark: SparkSession) -> None:
    random_ = random.Random(SEED)
    values = [None, b"\xff\xfe", b"", b"\n", *(_csv_text(random_) for _ in range(TEXTS))]
    found = _decoded(spark, CsvFormat.from_section(_section(CSV_SCHEMA, "csv")), values)
    expected = [_csv_verdict(value) for value in values]
    wrong = [pair for pair in zip(values, found, expected, strict=True) if pair[1][0] != pair[2][0]]
    assert not wrong, wrong[:10]
    _check_mixture([error for error, _ in found], (None, NULL, NO_TEXT, MISSING, NO_LINE))
    for value, (error, row), (_, wanted) in zip(values, found, expected, strict=True):
        assert error is not None or wanted.items() <= row.items(), value


@pytest.mark.parametrize("kind", [JsonFormat, CsvFormat])
def test_a_value_is_parsed_once_whatever_a_view_asks_for(
    spark: SparkSession, kind: type[JsonFormat] | type[CsvFormat]
) -> None:
    records = spark.createDataFrame([(b"",)], "value binary")
    decoded = kind.from_section(_section("id BIGINT NOT NULL, x DOUBLE", "any")).decode(records)
    for frame in (decoded.where(f"{ERROR} IS NULL"), decoded.where(f"{ERROR} IS NOT NULL"), decoded):
        wanted = frame.where(f"{VALUE}.x > 1 OR {VALUE}.id IS NULL").select(f"{VALUE}.*", ERROR)
        plan = wanted._jdf.queryExecution().executedPlan().toString()
        assert sum(plan.count(f"{parser}(") for parser in ("from_json", "from_csv")) == 1, plan


def _section(schema: str, format_name: str) -> Section:
    options = {"schema": schema, "format": format_name}
    return Section.of(options, Place("test"), "source records", directory=Path())


def _decoded(
    spark: SparkSession, value_format: SourceFormat, values: list[bytes | None]
) -> list[tuple[str | None, dict[str, Any]]]:
    rows = [(number, None if value is None else bytearray(value)) for number, value in enumerate(values)]
    records: DataFrame = spark.createDataFrame(rows, "offset long, value binary").coalesce(2)
    answers = value_format.decode(records).select("offset", ERROR, VALUE).orderBy("offset").collect()
    return [(row[ERROR], row[VALUE].asDict(recursive=True)) for row in answers]


def _check_mixture(errors: list[str | None], kinds: tuple[str | None, ...]) -> None:
    """The texts are no test of a verdict that none of them gets."""
    assert set(errors) == set(kinds)
    assert errors.count(None) > len(errors) / 10


# JSON


def _json_text(random_: random.Random) -> bytes:
    names = [*_names(JSON_SCHEMA), "other"]
    chosen = random_.sample(names, random_.randint(0, 5)) + (["id"] if random_.random() < 0.9 else [])
    fields = []
    for name in dict.fromkeys(chosen):
        may_be_any = name == "other" or random_.random() < 0.05
        fields.append(f'"{name}": {random_.choice([token for token in TOKENS if may_be_any or _fits(name, token)])}')
    text = "{" + random_.choice([",", ", "]).join(fields) + "}"
    kind = random_.random()
    if kind < 0.15:
        text += "".join(random_.choices(PIECES, k=random_.randint(1, 3)))
    elif kind < 0.2:
        text = random_.choice(PIECES) + text
    elif kind < 0.25:
        text = text[: random_.randint(0, len(text))]
    elif kind < 0.28:
        return text.encode().replace(b":", b":\xc3\x28", 1) + b"\xff"
    return text.encode()


def _fits(name: str, token: str) -> bool:
    return name == "other" or TOKENS[token] == "all" or name in TOKENS[token].split()


def _json_verdict(value: bytes | None) -> tuple[str | None, dict[str, Any]]:
    """The error, and what is expected of some columns if there is none."""
    if value is None:
        return NULL, {}
    try:
        text = value.decode().strip(BLANK)
    except UnicodeDecodeError:
        return NO_TEXT, {}
    try:
        fields, end = DECODER.raw_decode(text)
    except ValueError:
        return NO_OBJECT, {}
    if not isinstance(fields, dict) or not all(_fits(name, _token_of(item)) for name, item in fields.items()):
        return NO_OBJECT, {}
    if text[end:]:
        return REST, {}
    if fields.get("id") is None:
        return MISSING, {}
    plain = {name: fields.get(name) for name in ("id", "n", "b", "items")}
    return None, {**plain, **{name: item for name, item in fields.items() if name == "s" and isinstance(item, str)}}


DECODER = json.JSONDecoder(parse_float=lambda text: ("number", text))
"""Numbers stay as they were written: 5.0 is no whole number."""
BLANK = " \t\r\n"
TOKENS_BY_ITEM = {repr(DECODER.decode(token)): token for token in TOKENS}


def _token_of(item: object) -> str:
    return TOKENS_BY_ITEM[repr(item)]


def _names(schema: str) -> list[str]:
    return re.findall(r"(?:^|, )(\w+) [A-Z]", schema)


# CSV


def _csv_text(random_: random.Random) -> bytes:
    columns = (
        ["1", "-20", '"7"', "9223372036854775807"] * 9 + ["", "x", "1.5", "9223372036854775808"],
        ["a", "", "Ä 😀", '"a,b"', '"a ""b"""', "{}"],
        ["1.5", "2", "-1e3", "", "NaN"] * 9 + ["x", "1,5"],
        ["true", "false", "", "TRUE"] * 9 + ["yes", "1"],
    )
    fields = [random_.choice(pool) for pool in columns]
    kind = random_.random()
    if kind < 0.05:
        fields = fields[: random_.randint(0, 3)]
    elif kind < 0.1:
        fields.append(random_.choice(["", "more"]))
    line = ",".join(fields) + random_.choice(["", "", "\n", "\r\n", "\n1,b,2,true"])
    return line.encode() + (b"\xff" if random_.random() < 0.03 else b"")


def _csv_verdict(value: bytes | None) -> tuple[str | None, dict[str, Any]]:
    if value is None:
        return NULL, {}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return NO_TEXT, {}
    lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if len(lines) != 1 or len(lines[0]) != 4:
        return NO_LINE, {}
    id_text, s, x, b = lines[0]
    try:
        if not -(2**63) <= int(id_text or 0) < 2**63 or b.lower() not in ("true", "false", ""):
            return NO_LINE, {}
        float(x or 0)
    except ValueError:
        return NO_LINE, {}
    return (None if id_text else MISSING), {
        "id": int(id_text or 0),
        "s": s or None,
        "b": b.lower() == "true" if b else None,
    }
