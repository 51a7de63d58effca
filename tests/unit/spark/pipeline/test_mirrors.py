"""The section `mirrors` of a description: what it becomes, and what is wrong with it, without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.builder import build_model
from ottla.spark.pipeline.mirrors import MirrorSink, MirrorSource
from ottla.spark.pipeline.model import Model
from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.yaml_file import read_yaml

WHOLE = """\
name: dr
checkpoint: state
clusters:
  west: {bootstrap.servers: "west:9092", fetch.max.bytes: 70000}
  east: {bootstrap.servers: "east:9092", compression.type: zstd}
mirrors:
  west-to-east:
    from: west
    to: east
    pattern: 'shop.*'
    exclude: ['.*-tmp']
    rename: prefix
    groups: {names: [billing], interval: 2 seconds}
    trigger: 1 second
    max_offsets_per_trigger: 500
    data_loss: continue
  plain:
    from: east
    to: west
    topics: [orders]
    starting_offsets: latest
"""


def model_of(tmp_path: Path, text: str) -> Model:
    path = tmp_path / "dr.yaml"
    path.write_text(text)
    return build_model(read_yaml(path, {}))


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        model_of(tmp_path, text)
    return [f"{problem.place.line}: {problem.message}" for problem in caught.value.problems]


def test_a_mirror_becomes_a_source_a_sink_and_a_flow(tmp_path: Path) -> None:
    model = model_of(tmp_path, WHOLE)
    assert list(model.flows) == list(model.sinks) == ["west-to-east", "plain"]
    flow = model.flows["west-to-east"]
    assert (flow.origin, flow.sink, flow.mode) == ("_mirror_west_to_east", "west-to-east", "append")
    assert (flow.group_id, flow.trigger_ms) == ("ottla-pipeline-dr-west-to-east", 1000)
    assert flow.checkpoint == str(tmp_path / "state" / "west-to-east")
    source, sink = model.sources[flow.origin].part, model.sinks[flow.sink].part
    assert isinstance(source, MirrorSource) and isinstance(sink, MirrorSink)
    assert source.reads("shop-1") and not source.reads("shop-tmp") and not source.reads("east.shop-1")
    mirror = sink.mirror
    assert (mirror.names.on_target("orders"), mirror.marks_origin) == ("west.orders", False)
    assert mirror.groups is not None and mirror.groups.interval_ms == 2000
    assert mirror.map_topic == "ottla.mirror.west-to-east.offsets"
    plain = model.sinks["plain"].part
    assert isinstance(plain, MirrorSink)
    assert (plain.mirror.names.on_target("orders"), plain.mirror.marks_origin, plain.mirror.groups) == (
        "orders",
        True,
        None,
    )


def test_the_same_in_python(tmp_path: Path) -> None:
    servers = {name: {"bootstrap.servers": f"{name}:9092"} for name in ("west", "east")}
    model = Pipeline("dr", clusters=servers).mirror("m", "west", "east", topics=["orders"]).model()
    assert list(model.flows) == ["m"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("from: east", "from: eats", "18: mirror plain: there is no cluster 'eats'. Did you mean 'east'?"),
        ("to: west", "to: east", "19: mirror plain: 'from' and 'to' are both 'east'"),
        ("topics: [orders]", "", "17: mirror plain: give it either 'topics' or 'pattern'"),
        ("[orders]", "[__x]", "20: mirror plain: '__x' is never copied: "),
        ("pattern: 'shop.*'", "pattern: 'shop['", "10: mirror west-to-east: 'shop[' is not a regular expression: "),
        ("rename: prefix", "rename: suffix", "12: mirror west-to-east: 'rename' cannot be 'suffix'."),
        ("names: [billing], ", "", "13: mirror west-to-east, groups: give it either 'names' or 'pattern'"),
        ("compression.type", "compresion.type", "5: cluster east: clients have no setting 'compresion.type'. Did you"),
        ("bootstrap.servers: \"east:9092\", ", "", "5: cluster east: 'bootstrap.servers' is missing"),
        ("starting_offsets", "starting", "21: mirror plain: there is no option 'starting'. Did you mean"),
        ("trigger: 500", "trigger: many", "15: mirror west-to-east: maxOffsetsPerTrigger must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in WHOLE
    found = problems_of(tmp_path, WHOLE.replace(before, after, 1))
    assert any(problem.startswith(told) for problem in found), found


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("compression.type", "x.y", "5: cluster east: clients have no setting 'x.y'."),
        ("  east: {", "  a b: {", "5: cluster a b: a name has letters"),
    ],
)
def test_of_a_cluster_that_is_wrong_nobody_is_told_twice(tmp_path: Path, before: str, after: str, told: str) -> None:
    (found,) = problems_of(tmp_path, WHOLE.replace(before, after, 1))
    assert found.startswith(told)


def test_names_of_mirrors_are_names(tmp_path: Path) -> None:
    (found,) = problems_of(tmp_path, WHOLE.replace("  plain:\n", "  a b:\n"))
    assert found.startswith("17: mirror a b: a name has letters")


def test_names_are_not_shared(tmp_path: Path) -> None:
    both = WHOLE.replace("  plain:\n", "  west.to.east:\n")
    assert any("its name is also that of a flow" in problem for problem in problems_of(tmp_path, both))
