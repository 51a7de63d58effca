"""Writes the types of the clients' settings as keywords, from the options: `python -m scripts.client_keywords`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.base.options import OneOf, Option, Type
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.core.settings import CLIENT_OPTIONS
from scripts.formatting import formatted

TARGET = Path(__file__).parents[1] / "src" / "ottla" / "client" / "core" / "keywords.py"

_HEAD = '''\
# Written by `make generate` from the options in src/ottla/client/core: change those instead.

"""The settings of each client as keywords, with their types: Kafka's names with underscores for dots."""

from __future__ import annotations

from typing import Literal, TypedDict
'''

_TYPES = {
    Type.BOOLEAN: "bool",
    Type.STRING: "str",
    Type.INT: "int",
    Type.SHORT: "int",
    Type.LONG: "int",
    Type.DOUBLE: "float",
    Type.LIST: "str | list[str] | tuple[str, ...]",
    Type.PASSWORD: "str",
}


class Keywords(NamedTuple):
    name: str
    bases: tuple[str, ...]
    doc: str
    options: tuple[Option, ...]


def _beyond(options: Iterable[Option], *known: Option) -> tuple[Option, ...]:
    return tuple(option for option in options if option not in known)


_GROUP_ID = CONSUMER_OPTIONS["group.id"]

ALL = (
    Keywords("ClientKeywords", ("TypedDict",), "What every client can be told.", CLIENT_OPTIONS),
    Keywords(
        "AdminKeywords",
        ("ClientKeywords",),
        "The settings of `Admin`.",
        _beyond(ADMIN_OPTIONS.values(), *CLIENT_OPTIONS),
    ),
    Keywords(
        "ProducerKeywords",
        ("ClientKeywords",),
        "The settings of `Producer`.",
        _beyond(PRODUCER_OPTIONS.values(), *CLIENT_OPTIONS),
    ),
    Keywords(
        "ListenerKeywords",
        ("ClientKeywords",),
        "The settings of a consumer whose group is named otherwise, as that of a listener of `App` is.",
        _beyond(CONSUMER_OPTIONS.values(), *CLIENT_OPTIONS, _GROUP_ID),
    ),
    Keywords(
        "ConsumerKeywords", ("ListenerKeywords",), "The settings of `Consumer` and `ParallelConsumer`.", (_GROUP_ID,)
    ),
    Keywords("AppKeywords", ("ProducerKeywords", "ConsumerKeywords"), "The settings of `App`.", ()),
)


def render() -> str:
    text = _HEAD + "".join("\n".join(_class(keywords)) for keywords in ALL)
    return formatted(text, TARGET)


def _class(keywords: Keywords) -> Iterator[str]:
    yield f"\n\nclass {keywords.name}({', '.join(keywords.bases)}, total=False):"
    yield f'    """{keywords.doc}"""\n'
    for option in keywords.options:
        yield f"    {option.name.replace('.', '_')}: {type_of(option)}"
        yield f'    """{option.doc}"""\n'


def type_of(option: Option) -> str:
    """What a checker takes for it. A setting takes more, numbers as text for one, but not in code that is checked."""
    found = _TYPES[option.type]
    if isinstance(option.valid, OneOf):
        # Where "1" is a value, 1 is another way to write it.
        numbers = [int(word) for word in option.valid.allowed if word.lstrip("-").isdecimal()]
        found = f"Literal[{', '.join(map(repr, [*option.valid.allowed, *numbers]))}]"
    return f"{found} | None" if option.default is None else found


def main() -> int:
    TARGET.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
