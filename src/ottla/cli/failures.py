"""How commands end: in one sentence and exit code 1 if something went wrong, 2 if they were called wrongly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ottla.base.errors import InvalidConfigError, KafkaError, OttlaError

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


class UsageError(OttlaError):
    """The options do not make sense together; the message is one sentence."""


def run_program(work: Callable[[], int]) -> NoReturn:
    """The outermost frame of a program: whatever becomes of its streams, it ends in order."""
    # A stream that the caller has closed is None. Nothing else may get its number, and be written to.
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    with errors_told():
        exit_code = work()
    sys.exit(exit_code)


def run_client(work: Coroutine[Any, Any, None]) -> None:
    """Runs a command's asynchronous work."""
    import asyncio  # a command that only shows its help pays nothing for it

    with errors_told():
        try:
            asyncio.run(work)
        except (OttlaError, OSError, ValueError):
            raise
        except Exception as e:
            # Python's development mode is for those who look for our mistake.
            if sys.flags.dev_mode:
                raise
            fail(f"a mistake in ottla, {_place(e)}: {type(e).__name__}: {e}; PYTHONDEVMODE=1 shows the way there")


def _place(error: Exception) -> str:
    import traceback
    from pathlib import Path

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"


@contextmanager
def errors_told() -> Iterator[None]:
    """What can go wrong outside this program ends in one sentence and exit code 1."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has gone. Nothing may be flushed to it at exit, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE) from None
    except OSError as e:
        fail(f"{e.filename or 'input or output'}: {(e.strerror or str(e)).lower()}")
    except UsageError as e:
        misuse(str(e))
    except InvalidConfigError as e:
        misuse(e.message)
    except (OttlaError, ValueError) as e:
        fail(sentence(e))


def sentence(error: Exception) -> str:
    from ottla.client.errors import ClusterUnreachableError

    if isinstance(error, ClusterUnreachableError):
        return f"{error.summary}. Is a broker running? Start one with `ottla start`."
    return error.message if isinstance(error, KafkaError) else str(error)


def fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(FAILED)


def misuse(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(MISUSED)


def nearest(name: str, known: Collection[str]) -> str:
    """What to say after the name of something that does not exist."""
    import difflib

    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean '{close[0]}'?" if close else ""


def parse_pairs(option: str, pairs: list[str]) -> dict[str, str]:
    """`name=value` pairs of an option that can be repeated."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r} is not of the form name=value")
        parsed[name] = value
    return parsed
