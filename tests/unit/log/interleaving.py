"""Runs one operation in the middle of another, at every step of it: what two threads do by chance, done on purpose."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from ottla.log import durable_log, segment_set, segmented_log

_SHARED_CODE = frozenset({module.__file__ for module in (durable_log, segment_set, segmented_log)})
"""Where state is read and changed that threads share."""

_TOUCHES_STATE = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR") if name in dis.opmap)


T = TypeVar("T")


def every_step(
    operation: Callable[[T], object], action: Callable[[T], object], *, may_interrupt: Callable[[T], bool]
) -> Iterator[Callable[[T], None]]:
    """One run after the other, each with `action` one step later, until `operation` ends before it.

    A step is an instruction that reads or sets an attribute. `may_interrupt` says where another thread could get on:
    not while a lock is held that `action` needs.
    """
    at_step = 0
    was_interrupted = True

    def run(subject: T) -> None:
        nonlocal at_step, was_interrupted
        steps_left, was_interrupted = at_step, False

        def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
            nonlocal steps_left, was_interrupted
            code = frame.f_code
            if was_interrupted or code.co_filename not in _SHARED_CODE:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and code.co_code[frame.f_lasti] in _TOUCHES_STATE and may_interrupt(subject):
                steps_left -= 1
                if steps_left < 0:
                    was_interrupted = True
                    action(subject)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            operation(subject)
        finally:
            sys.settrace(before)
        at_step += 1

    while was_interrupted:
        yield run
