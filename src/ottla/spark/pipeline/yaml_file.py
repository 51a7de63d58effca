"""Reads a pipeline's description from a YAML file into sections that know their lines.

Owns the syntax: text to sections, `${NAME}` from the environment, and single values set from outside. What the keys
mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ottla.spark.pipeline.problems import Place, Problem, SpecError
from ottla.spark.pipeline.section import Entry, Scalar, Section

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BLOCK_STYLES = ("|", ">")
_FREE_SECTIONS = frozenset({"conf", "kafka", "options"})
"""Sections whose keys have dots of their own."""
_SECTIONS_MADE_WHEN_SET = _FREE_SECTIONS | {"spark", "restart", "watermark"}


def read_yaml(path: Path, environment: Mapping[str, str]) -> Section:
    """The root section of a file; SpecError if it cannot be read or is no YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise SpecError([Problem(Place(str(path)), f"cannot be read: {(e.strerror or str(e)).lower()}")]) from None
    except UnicodeDecodeError:
        raise SpecError([Problem(Place(str(path)), "cannot be read: it is not UTF-8 text")]) from None
    reader = _Reader(str(path), path.parent, environment)
    node = reader.composed(text)
    if not isinstance(node, yaml.MappingNode):
        reader.fail(1, "a pipeline is described by keys and values, beginning with 'name: …'")
    return reader.section(node, "pipeline")


def set_value(root: Section, dotted_key: str, text: str) -> None:
    """Puts a value where its dotted key leads: `sinks.out.topic`. A key that has dots itself is recognised if it is
    there already, or if it is the last one: `kafka.bootstrap.servers`."""
    name = f"--set {dotted_key}"
    reader = _Reader(name, root.directory, {})
    section, rest = root, dotted_key
    while (key := _leading_key(section, rest)) != rest:
        if key not in section:
            section.put(key, Entry(Section({}, Place(name), key, directory=root.directory), Place(name), Place(name)))
        below = section.take_section(key)
        if below is None:
            raise SpecError([Problem(Place(name), f"{key!r} is not a section")])
        section, rest = below, rest.removeprefix(f"{key}.")
    node = reader.composed(text)
    entry = reader.entry(node, rest) if node is not None else Entry(Scalar(None, ""), Place(name), Place(name))
    section.put(rest, entry)


def _leading_key(section: Section, dotted_key: str) -> str:
    known = [key for key in section.names() if dotted_key == key or dotted_key.startswith(f"{key}.")]
    if known:
        return max(known, key=len)
    head, dot, _ = dotted_key.partition(".")
    if section.title in _FREE_SECTIONS:
        return dotted_key
    return head if dot and head in _SECTIONS_MADE_WHEN_SET else dotted_key


class _Reader:
    def __init__(self, file: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._file = file
        self._directory = directory
        self._environment = environment
        self._has_lines = not file.startswith("--set ")

    def place(self, line: int) -> Place:
        return Place(self._file, line if self._has_lines else 0)

    def fail(self, line: int, message: str) -> NoReturn:
        raise SpecError([Problem(self.place(line), message)])

    def composed(self, text: str) -> yaml.Node | None:
        try:
            found: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as e:
            mark = e.problem_mark or e.context_mark
            self.fail(0 if mark is None else mark.line + 1, f"this is not YAML: {e.problem or e.context}")
        except yaml.YAMLError as e:
            self.fail(0, f"this is not YAML: {e}")
        return found

    def section(self, node: yaml.MappingNode, title: str) -> Section:
        entries: dict[str, Entry] = {}
        for key_node, value_node in self._pairs(node):
            key = str(key_node.value)
            if key in entries:
                self.fail(_line(key_node), f"{key!r} is there twice; the first is in line {entries[key].place.line}")
            entry = self.entry(value_node, key)
            entries[key] = entry._replace(place=self.place(_line(key_node)))
        return Section(entries, self.place(_line(node)), title, directory=self._directory)

    def _pairs(self, node: yaml.MappingNode) -> Iterable[tuple[Any, Any]]:
        # Merge keys (`<<: *defaults`) come first, so that a section's own keys win.
        merged: list[tuple[Any, Any]] = []
        own: list[tuple[Any, Any]] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fail(_line(key), "a key must be plain text")
            if key.tag != "tag:yaml.org,2002:merge":
                own.append((key, value))
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    self.fail(_line(key), "'<<' needs a section to take keys from")
                merged += self._pairs(source)
        overridden = {key.value for key, _ in own}
        return [pair for pair in merged if pair[0].value not in overridden] + own

    def entry(self, node: yaml.Node, title: str) -> Entry:
        place = self.place(_line(node))
        if isinstance(node, yaml.MappingNode):
            return Entry(self.section(node, title), place, place)
        if isinstance(node, yaml.SequenceNode):
            items = [self._scalar(item) for item in node.value if isinstance(item, yaml.ScalarNode)]
            if len(items) != len(node.value):
                self.fail(_line(node), f"{title!r} must be a list of plain values")
            return Entry(items, place, place)
        assert isinstance(node, yaml.ScalarNode)
        is_block = node.style in _BLOCK_STYLES
        return Entry(self._scalar(node), place, place.below(1) if is_block else place)

    def _scalar(self, node: yaml.ScalarNode) -> Scalar:
        loader = yaml.SafeLoader("")
        text = _VARIABLE.sub(lambda found: self._variable(found, node), node.value)
        if text != node.value and node.style is None:
            # What a variable holds may be a number, as if it had been written in its place.
            tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
            node = yaml.ScalarNode(tag, text, node.start_mark)
        try:
            value = loader.construct_object(node)
        except (ValueError, yaml.YAMLError) as e:
            self.fail(_line(node), f"{text!r} is not a value: {e}")
        return Scalar(value if isinstance(value, (int, float, bool)) or value is None else text, text)

    def _variable(self, found: re.Match[str], node: yaml.ScalarNode) -> str:
        name, default = found.groups()
        value = self._environment.get(name, default)
        if value is None:
            self.fail(_line(node), f"the environment has no variable {name}; set it, or write ${{{name}:-default}}")
        return value


def _line(node: yaml.Node) -> int:
    return 0 if node.start_mark is None else int(node.start_mark.line) + 1
