"""The codecs a batch may be compressed with."""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """A codec by its number in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name used by `compression.type` of a producer (a topic says `uncompressed` for NONE)."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The inverse of `config_name`; `uncompressed` is NONE too. Raises ValueError on any other name."""
        try:
            return _CODEC_OF_NAME[name]
        except KeyError:
            raise ValueError(f"no codec is called {name!r}; known: {', '.join(_CODEC_OF_NAME)}") from None


_CODEC_OF_NAME = {codec.config_name: codec for codec in Codec} | {"uncompressed": Codec.NONE}
