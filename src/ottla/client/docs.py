"""Writes docs/client-configuration.md from the declarations: `python -m ottla.client.docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ottla.base.option_docs import table
from ottla.base.options import Option
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.core.settings import CLIENT_OPTIONS

_INTRODUCTION = """\
# Configuration of clients

This file is generated (`python -m ottla.client.docs`); change the declarations, not the text here. What the clients do
is in [client.md](client.md), and [configuration.md](configuration.md) has the settings of brokers.

A setting has Kafka's name in a mapping, or is a keyword with underscores for dots; both may be given, for different
settings:

```python
import ottla

with ottla.Producer({"bootstrap.servers": "localhost:9092"}, linger_ms=5, acks="all") as producer:
    producer.send("greetings", b"hello").result()
```

A keyword that does not exist, or has a value of another type, is an error of `mypy`, pyright and editors before
anything runs; where only a few words are valid, their type is those words. `ottla.ProducerKeywords`,
`ConsumerKeywords`, `AdminKeywords` and `AppKeywords` are the types for functions and dictionaries that pass keywords
on. Whatever comes as text from elsewhere, a file or the environment, belongs into the mapping: there, "5" and "true"
are as good as 5 and True, and everything is checked when the client is made. A list is text with commas, a list or a
tuple.

All of this is the same for threads and in `ottla.aio`.
"""

_SHARED = frozenset(CLIENT_OPTIONS)

_SECTIONS: tuple[tuple[str, str, Iterable[Option]], ...] = (
    ("Every client", "`Producer`, `Consumer`, `ParallelConsumer`, `App` and `Admin` take these.", CLIENT_OPTIONS),
    ("Producers", "`Producer` and `App` take these.", PRODUCER_OPTIONS.values()),
    (
        "Consumers",
        "`Consumer`, `ParallelConsumer`, `App` and, as keywords, each listener of an `App` take these. All but\n"
        "`Consumer` commit by themselves: there, `enable.auto.commit` cannot be on.",
        CONSUMER_OPTIONS.values(),
    ),
    ("Admin clients", "`Admin` takes this one.", ADMIN_OPTIONS.values()),
)


def render() -> str:
    parts = [_INTRODUCTION]
    for title, takers, options in _SECTIONS:
        own = options if title == "Every client" else [option for option in options if option not in _SHARED]
        parts += [f"## {title}\n", f"{takers}\n", table("Setting", own)]
    parts += ["## Settings of Java's clients that are something else here\n", _elsewhere()]
    return "\n".join(parts)


def _elsewhere() -> str:
    found = {
        item for options in (PRODUCER_OPTIONS, CONSUMER_OPTIONS, ADMIN_OPTIONS) for item in options.elsewhere.items()
    }
    rows = [f"| `{name}` | {instead} |" for name, instead in sorted(found)]
    return "\n".join(["| Setting | In its place |", "|---|---|", *rows]) + "\n"


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else Path("docs/client-configuration.md")
    target.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
