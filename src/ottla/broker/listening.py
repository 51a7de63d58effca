"""Where a broker listens, and what it allows those who connect; both may change while it runs (KIP-226)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.errors import StartError
from ottla.base.types import Endpoint
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.listeners import Listener
from ottla.broker.quotas import ByteRate
from ottla.net.limits import OS_DEFAULT, UNLIMITED, ConnectionLimits, ListenerLimits
from ottla.net.server import Server

log = logging.getLogger(__name__)

_LIMITS = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
)


class Listening:
    def __init__(self, server: Server, config: BrokerConfig) -> None:
        """Binds every listener; raises StartError if that cannot be."""
        self._server = server
        self._limits = _settings_of_limits(config)
        self._backlog = config.integer("socket.listen.backlog.size")
        self._bound: dict[str, Listener] = {}
        """As they are bound: with the port that was taken where any would do."""
        for listener in config.listeners:
            self._bind(listener)
        self.endpoints = self._advertised(config)
        """Where clients reach this broker."""
        self.on_moved: Callable[[], None] = lambda: None
        """Told that the endpoints are others."""

    def _bind(self, listener: Listener) -> None:
        port = self._server.bind(listener.name, listener.host, listener.port, backlog=self._backlog)
        self._bound[listener.name] = listener._replace(port=port)

    def _is_bound(self, listener: Listener) -> bool:
        bound = self._bound.get(listener.name)
        return bound is not None and listener._replace(port=listener.port or bound.port) == bound

    def _advertised(self, config: BrokerConfig) -> list[Endpoint]:
        return [
            Endpoint(listener.name, listener.host, listener.port or self._bound[listener.name].port)
            for listener in config.advertised_listeners
            if listener.name in self._bound
        ]

    def reconfigured(self, config: BrokerConfig) -> None:
        limits = _settings_of_limits(config)
        if limits != self._limits:
            self._limits = limits
            self._server.set_limits(connection_limits(config))
        self._follow_listeners(config)
        endpoints = self._advertised(config)
        if endpoints != self.endpoints:
            self.endpoints = endpoints
            self.on_moved()

    def _follow_listeners(self, config: BrokerConfig) -> None:
        kept = {listener.name for listener in config.listeners if self._is_bound(listener)}
        for name in self._bound.keys() - kept:
            log.info("listener %s is closed", self._bound.pop(name))
            self._server.unbind(name)
        for listener in config.listeners:
            if listener.name not in kept:
                try:
                    self._bind(listener)
                except StartError as e:
                    log.error("%s", e)
                else:
                    log.info("listener %s is open", self._bound[listener.name])
        self._server.start_accepting()


def _settings_of_limits(config: BrokerConfig) -> list[object]:
    """All that limits connections, to see whether it has changed: whoever is counted goes on being counted."""
    of_listeners = [
        config.of_listener(listener.name, name)
        for listener in config.listeners
        for name in ("max.connections", "max.connection.creation.rate")
    ]
    return [*(config[name] for name in _LIMITS), *of_listeners]


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_request_bytes=config.integer("socket.request.max.bytes"),
        max_connections=min(config.integer("max.connections"), UNLIMITED),
        max_connections_per_ip=config.integer("max.connections.per.ip"),
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        creation_rate=_creation_rate(config, config.integer("max.connection.creation.rate")),
        by_listener={listener.name: _listener_limits(config, listener.name) for listener in config.listeners},
        protected_listener=config.inter_broker_listener_name,
        max_idle_ms=config.integer("connections.max.idle.ms"),
        send_buffer_bytes=max(config.integer("socket.send.buffer.bytes"), 1_048_576),
        # Left alone, the system lets the buffer grow with what a client sends. A fixed one of Kafka's default size
        # would take eight reads for a frame of a megabyte.
        receive_buffer_bytes=(
            config.integer("socket.receive.buffer.bytes")
            if "socket.receive.buffer.bytes" in config.given
            else OS_DEFAULT
        ),
    )


def _listener_limits(config: BrokerConfig, listener: str) -> ListenerLimits:
    most = config.of_listener(listener, "max.connections")
    return ListenerLimits(
        max_connections=UNLIMITED if most is None else most,
        creation_rate=_creation_rate(config, config.of_listener(listener, "max.connection.creation.rate")),
    )


def _creation_rate(config: BrokerConfig, per_second: int | None) -> ByteRate | None:
    """Taken over the samples of quotas, as in Kafka. None in a second would be nobody ever: one is the least."""
    if per_second is None or per_second >= UNLIMITED:
        return None
    return ByteRate(
        max(per_second, 1),
        samples=config.integer("quota.window.num"),
        window_ms=config.integer("quota.window.size.seconds") * 1000,
    )
