"""Codecs made from declarations: Python functions, generated once per message and version, on first use.

Generated code reads without checking bounds at every step: a slice past the end is short, the position still moves, and
either the next fixed read fails or the final position is beyond the buffer. Whatever goes wrong, the reference codec
then goes over the same message and says which field it was. So the common case pays nothing for good error messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire import reference
from ottla.wire.decoder_source import DecoderSource
from ottla.wire.encoder_source import EncoderSource
from ottla.wire.fields import show_versions
from ottla.wire.primitives import Buffer

Decoder = Callable[[Buffer, int], tuple[Any, int]]
Encoder = Callable[[Any, list[bytes]], None]

_StructKey = tuple[type, int, bool]
_struct_decoders: dict[_StructKey, Callable[..., Any]] = {}
_struct_encoders: dict[_StructKey, Callable[..., Any]] = {}


def message_decoder(cls: type[Any], version: int) -> Decoder:
    """`decode(buffer, position) -> (message, next position)` for one version."""
    if version not in cls.VERSIONS:
        raise DecodeError(f"{cls.__name__} has versions {show_versions(cls.VERSIONS)}, not {version}")
    flexible = version in cls.FLEXIBLE_VERSIONS
    read = struct_decoder(cls, version, flexible)

    def decode(buffer: Buffer, position: int) -> tuple[Any, int]:
        view = buffer if type(buffer) is memoryview else memoryview(buffer)
        try:
            message, end = read(view, position)
            if end <= len(view):
                return message, end
        except (struct.error, IndexError, ValueError, DecodeError):
            pass
        reference.decode(cls, view, version, position, flexible)
        raise DecodeError(f"the two codecs of {cls.__name__} version {version} disagree", position=position)

    return decode


def message_encoder(cls: type[Any], version: int) -> Encoder:
    """`encode(message, out)` for one version: appends the message's bytes to `out` in pieces."""
    if version not in cls.VERSIONS:
        raise EncodeError(f"{cls.__name__} has versions {show_versions(cls.VERSIONS)}, not {version}")
    flexible = version in cls.FLEXIBLE_VERSIONS
    write = struct_encoder(cls, version, flexible)

    def encode(message: Any, out: list[bytes]) -> None:
        before = len(out)
        try:
            write(message, out.append)
        except (struct.error, TypeError, AttributeError, ValueError, EncodeError) as e:
            del out[before:]
            reference.encode(message, version, flexible)
            raise EncodeError(f"the two codecs of {cls.__name__} version {version} disagree: {e}") from e

    return encode


def struct_decoder(cls: type[Any], version: int, flexible: bool) -> Callable[..., Any]:
    key = (cls, version, flexible)
    if key not in _struct_decoders:
        _struct_decoders[key] = DecoderSource(cls, version, flexible, struct_decoder).compile()
    return _struct_decoders[key]


def struct_encoder(cls: type[Any], version: int, flexible: bool) -> Callable[..., Any]:
    key = (cls, version, flexible)
    if key not in _struct_encoders:
        _struct_encoders[key] = EncoderSource(cls, version, flexible, struct_encoder).compile()
    return _struct_encoders[key]
