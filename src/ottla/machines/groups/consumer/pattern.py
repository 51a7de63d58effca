"""Regular expressions that subscribe to topics, matched in time linear in the topic's name (KIP-848).

The coordinator serves everybody, so it cannot run a pattern that may take exponential time, as a backtracking engine
would. This one takes the common part of RE2's syntax, which Kafka uses, turns it into a finite automaton over the
characters topic names are made of, and matches whole names. Back references, look-around and Unicode classes are not
regular or not needed here, and are refused as bad patterns.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from itertools import pairwise

from ottla.base.errors import ErrorCode, KafkaError

MAX_LENGTH = 1_000
MAX_STATES = 5_000
"""Of the automaton; counted repetition multiplies them."""
MAX_DEPTH = 50
MAX_REPEAT = 1_000
_MAX_CACHED_STEPS = 20_000

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
_NOTHING: frozenset[str] = frozenset()
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPED_CLASSES = {"d": frozenset(string.digits), "w": _WORD, "s": _NOTHING}
_ESCAPED_CONTROLS = frozenset("tnrfva")
_COUNTS = re.compile(r"\{(\d{1,5})(?:(,)(\d{1,5})?)?\}")
_QUOTED = re.compile(r"\\\\|\\Q(.*?)(?:\\E|$)", re.DOTALL)
"""Java's way of quoting, which clients send; the first branch steps over an escaped backslash."""
_GROUP_START = re.compile(r"\?(?:P?<[A-Za-z_]\w*>|(i?):)")

Fragment = tuple[int, int]
"""The first and the last state of a part of the automaton."""


class TopicPattern:
    """A compiled pattern. States are numbers; what leaves a state is free, or costs one character of a set."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._free: list[list[int]] = []
        self._at_start: dict[int, int] = {}
        self._at_end: dict[int, int] = {}
        self._reads: dict[int, tuple[frozenset[str], int]] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        first, self._accept = _Parser(text, self).parse()
        self._start = self._reach([first], at_start=True)

    def matches(self, name: str) -> bool:
        states = self._start
        for character in name:
            if not states:
                return False
            step = self._steps.get((states, character))
            states = self._step(states, character) if step is None else step
        return self._accept in self._reach(states, at_start=not name, at_end=True)

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        read = [edge[1] for state in states if (edge := self._reads.get(state)) is not None and character in edge[0]]
        if len(self._steps) >= _MAX_CACHED_STEPS:
            self._steps.clear()
        result = self._steps[states, character] = self._reach(read)
        return result

    def _reach(
        self, states: list[int] | frozenset[int], *, at_start: bool = False, at_end: bool = False
    ) -> frozenset[int]:
        seen = set(states)
        pending = list(states)
        while pending:
            state = pending.pop()
            following = list(self._free[state])
            if at_start and state in self._at_start:
                following.append(self._at_start[state])
            if at_end and state in self._at_end:
                following.append(self._at_end[state])
            for other in following:
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        return frozenset(seen)

    # The parser builds the automaton out of these.

    def _state(self) -> int:
        if len(self._free) >= MAX_STATES:
            raise _bad(self.text, "it is too large")
        self._free.append([])
        return len(self._free) - 1

    def empty(self) -> Fragment:
        state = self._state()
        return state, state

    def one_of(self, characters: frozenset[str]) -> Fragment:
        first, last = self._state(), self._state()
        self._reads[first] = (characters, last)
        return first, last

    def anchor(self, *, at_start: bool) -> Fragment:
        first, last = self._state(), self._state()
        (self._at_start if at_start else self._at_end)[first] = last
        return first, last

    def sequence(self, parts: list[Fragment]) -> Fragment:
        for (_, last), (first, _) in pairwise(parts):
            self._free[last].append(first)
        return (parts[0][0], parts[-1][1]) if parts else self.empty()

    def either(self, parts: list[Fragment]) -> Fragment:
        if len(parts) == 1:
            return parts[0]
        first, last = self._state(), self._state()
        for part_first, part_last in parts:
            self._free[first].append(part_first)
            self._free[part_last].append(last)
        return first, last

    def optional(self, part: Fragment) -> Fragment:
        return self.either([part, self.empty()])

    def any_number_of(self, part: Fragment) -> Fragment:
        hub = self._state()
        self._free[hub].append(part[0])
        self._free[part[1]].append(hub)
        return hub, hub


class _Parser:
    def __init__(self, text: str, automaton: TopicPattern) -> None:
        if len(text) > MAX_LENGTH:
            raise _bad(text[:40] + "...", f"it has more than {MAX_LENGTH} characters")
        self.text = _QUOTED.sub(lambda found: found[0] if found[1] is None else re.escape(found[1]), text)
        self.position = 0
        self.depth = 0
        self.build = automaton

    def parse(self) -> Fragment:
        result = self._alternatives(ignore_case=False)
        if self.position < len(self.text):
            raise self._bad("it closes a group that was not opened")
        return result

    def _alternatives(self, ignore_case: bool) -> Fragment:
        parts: list[Fragment] = []
        sequence: list[Fragment] = []
        while self.position < len(self.text) and self.text[self.position] != ")":
            if self._take("(?i)"):
                ignore_case = True
            elif self._take("|"):
                parts.append(self.build.sequence(sequence))
                sequence = []
            else:
                sequence.append(self._repeated(ignore_case))
        return self.build.either([*parts, self.build.sequence(sequence)])

    def _repeated(self, ignore_case: bool) -> Fragment:
        start = self.position
        part = self._atom(ignore_case)
        counts = self._repetition()
        if counts is None:
            return part
        self._take("?")  # A lazy repetition matches the same whole names.
        if self.position < len(self.text) and self.text[self.position] in "*+?":
            raise self._bad("a repetition follows a repetition")
        after = self.position
        at_least, at_most = counts
        if (at_most is not None and at_most < at_least) or max(at_least, at_most or 0) > MAX_REPEAT:
            raise self._bad("a repetition's bounds are out of order or too large")

        def again() -> Fragment:
            self.position = start
            return self._atom(ignore_case)

        # Each round needs states of its own, so the atom is read again for it.
        copies = [part if n == 0 else again() for n in range(at_least)]
        if at_most is None:
            copies.append(self.build.any_number_of(again() if copies else part))
        else:
            copies += [self.build.optional(again()) for _ in range(at_most - at_least)]
        self.position = after
        return self.build.sequence(copies)

    def _repetition(self) -> tuple[int, int | None] | None:
        for mark, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return counts
        counted = _COUNTS.match(self.text, self.position)
        if counted is None:
            return None
        self.position = counted.end()
        at_least = int(counted[1])
        if counted[2] is None:
            return at_least, at_least
        return at_least, None if counted[3] is None else int(counted[3])

    def _atom(self, ignore_case: bool) -> Fragment:
        character = self._next()
        match character:
            case "(":
                return self._group(ignore_case)
            case "^":
                return self.build.anchor(at_start=True)
            case "$":
                return self.build.anchor(at_start=False)
            case ".":
                return self.build.one_of(ALPHABET)
            case "[":
                return self.build.one_of(self._class(ignore_case))
            case "*" | "+" | "?":
                raise self._bad(f"nothing comes before {character!r} that could be repeated")
            case "\\":
                return self._escape(ignore_case)
        return self.build.one_of(_letters(character, ignore_case))

    def _group(self, ignore_case: bool) -> Fragment:
        if self._peek() == "?":
            start = _GROUP_START.match(self.text, self.position)
            if start is None:
                raise self._bad("this kind of group is not supported")
            self.position = start.end()
            ignore_case = ignore_case or start[1] == "i"
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._bad("its groups are nested too deep")
        result = self._alternatives(ignore_case)
        self.depth -= 1
        if not self._take(")"):
            raise self._bad("it leaves a group open")
        return result

    def _escape(self, ignore_case: bool) -> Fragment:
        if self._take("A"):
            return self.build.anchor(at_start=True)
        if self._take("z"):
            return self.build.anchor(at_start=False)
        return self.build.one_of(self._escaped_set(ignore_case))

    def _escaped_set(self, ignore_case: bool) -> frozenset[str]:
        character = self._next()
        if character.lower() in _ESCAPED_CLASSES:
            characters = _ESCAPED_CLASSES[character.lower()]
            return ALPHABET - characters if character.isupper() else characters
        if character in _ESCAPED_CONTROLS:
            return _NOTHING
        if character.isalnum():
            raise self._bad(f"\\{character} is not supported")
        return _letters(character, ignore_case)

    def _class(self, ignore_case: bool) -> frozenset[str]:
        negated = self._take("^")
        members: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self.text.startswith("[:", self.position):
                raise self._bad("named character classes are not supported")
            if self._take("\\"):
                low = self._escaped_set(ignore_case)
                character = self.text[self.position - 1]
            else:
                character = self._next()
                low = _letters(character, ignore_case)
            if self._peek() == "-" and self.text[self.position + 1 : self.position + 2] not in ("]", ""):
                self._next()
                high = self._next()
                high = self._next() if high == "\\" else high
                if high < character:
                    raise self._bad(f"the range {character}-{high} is out of order")
                low = frozenset(
                    letter for n in range(ord(character), ord(high) + 1) for letter in _letters(chr(n), ignore_case)
                )
            members |= low
        self._next()
        return ALPHABET - members if negated else ALPHABET & members

    def _peek(self) -> str:
        if self.position >= len(self.text):
            raise self._bad("it ends too soon")
        return self.text[self.position]

    def _next(self) -> str:
        character = self._peek()
        self.position += 1
        return character

    def _take(self, literal: str) -> bool:
        if not self.text.startswith(literal, self.position):
            return False
        self.position += len(literal)
        return True

    def _bad(self, reason: str) -> KafkaError:
        return _bad(self.text, f"{reason} (at character {self.position})")


def _letters(character: str, ignore_case: bool) -> frozenset[str]:
    return frozenset({character.lower(), character.upper()} if ignore_case else {character})


def _bad(text: str, reason: str) -> KafkaError:
    return KafkaError(
        f"cannot subscribe with the regular expression {text!r}: {reason}",
        code=ErrorCode.INVALID_REGULAR_EXPRESSION,
    )


@lru_cache(maxsize=256)
def compile_topic_pattern(text: str) -> TopicPattern:
    """Raises INVALID_REGULAR_EXPRESSION. Members of one group often bring the same pattern, and it never changes."""
    return TopicPattern(text)
