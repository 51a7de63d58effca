"""Where ids come from. Everything that needs a new one takes an `Ids`, so that a seed can decide them all."""

from __future__ import annotations

import random
from uuid import UUID

from ottla.base.types import Uuid

_MAX_SESSION_ID = 2**31 - 1


class Ids:
    """New ids, and the numbers that placement is shuffled with. Without a source they are the system's, unguessable."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._source = source or random.SystemRandom()

    def uuid(self) -> Uuid:
        """A new topic, cluster or directory id. Its text never starts with a dash, so command lines can carry it."""
        while True:
            value = self._uuid4().bytes
            if value[0] >> 2 != 62:  # 62 is '-' in URL-safe base64
                return Uuid(value)

    def member_id(self) -> str:
        return str(self._uuid4())

    def hexadecimal(self) -> str:
        """32 digits that make the name of a directory unique."""
        return self._uuid4().hex

    def fetch_session_id(self) -> int:
        return self._source.randrange(1, _MAX_SESSION_ID)

    def below(self, end: int) -> int:
        return self._source.randrange(end)

    def _uuid4(self) -> UUID:
        return UUID(int=self._source.getrandbits(128), version=4)
