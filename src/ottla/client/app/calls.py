"""How a listener wants to be called: its parameters, looked at once, and a record turned into arguments each time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, get_origin, get_type_hints

from ottla.client.app.payloads import AnnotationError, Decoder, decoder_for
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.client.core.processing.parallel import RawRecord
from ottla.client.errors import DeserializationError, ListenerError

Argument: TypeAlias = Callable[[RawRecord], Any]


def name_of(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


class Call:
    """The arguments of one listener. ListenerError says what is wrong with its parameters."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._name = name_of(function)
        self._arguments: dict[str, Argument] = {}
        hints = self._hints(function)
        has_payload = False
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ListenerError(f"{self._name}: a listener's parameters have names, but there is {parameter}")
            annotation = hints.get(parameter.name, parameter.empty)
            argument = self._origin_argument(parameter.name, annotation)
            if argument is None and has_payload:
                if parameter.default is not parameter.empty:
                    continue
                raise ListenerError(
                    f"{self._name}: {parameter.name} would be a second payload; a listener has one, and may ask for"
                    " key, headers, and the record (annotated as ConsumerRecord)"
                )
            if argument is None:
                has_payload = True
                argument = self._payload_argument(parameter.name, annotation)
            self._arguments[parameter.name] = argument
        if not self._arguments:
            raise ListenerError(f"{self._name}: a listener takes the payload, or the record (ConsumerRecord)")

    def _hints(self, function: Callable[..., object]) -> dict[str, Any]:
        target = function if inspect.isroutine(function) else type(function).__call__
        try:
            return get_type_hints(target, include_extras=True)
        except NameError as e:
            raise ListenerError(f"{self._name}: an annotation uses {e.name}, which its module does not have") from e

    def _origin_argument(self, name: str, annotation: Any) -> Argument | None:
        if annotation is ConsumerRecord or get_origin(annotation) is ConsumerRecord:
            return lambda record: record
        if name == "headers":
            return lambda record: dict(record.headers)
        if name == "key":
            decode = self._decoder(name, annotation)
            return lambda record: decode(record.key)
        return None

    def _payload_argument(self, name: str, annotation: Any) -> Argument:
        decode = self._decoder(name, annotation)
        return lambda record: decode(record.value)

    def _decoder(self, name: str, annotation: Any) -> Decoder:
        if annotation is inspect.Parameter.empty:
            raise ListenerError(f"{self._name}: annotate {name} with its type (bytes, str, dict, a dataclass, …)")
        try:
            return decoder_for(annotation)
        except (AnnotationError, NameError) as e:
            raise ListenerError(f"{self._name}: {name}: {e}") from e

    def arguments(self, record: RawRecord) -> dict[str, Any]:
        """DeserializationError if the record is not what the listener expects."""
        made: dict[str, Any] = {}
        for name, argument in self._arguments.items():
            try:
                made[name] = argument(record)
            except ValueError as e:
                # Pydantic's errors are ValueErrors, too.
                raise DeserializationError(
                    f"{name}: {e}", topic_partition=record.topic_partition, offset=record.offset
                ) from e
        return made
