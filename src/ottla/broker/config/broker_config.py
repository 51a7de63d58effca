"""A broker's configuration: Kafka's names read from a file, the environment and the command line, checked before start.

Owns the layers a value can come from (default, static, dynamic for the cluster, dynamic for this broker) and what
follows from several settings together. Declarations are in `keys`, topic settings in `topics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError
from ottla.base.options import OptionSet, Update, Value, Values
from ottla.broker.config.keys import coordinators, log, network, ottla, replication, sasl, security, store, tiered, tls
from ottla.broker.config.keys.reasons import NOT_YET, PLAIN_TEXT_ONLY
from ottla.broker.config.keys.replication import RACK_AWARE_SELECTOR
from ottla.broker.config.listeners import (
    Listener,
    check_advertised,
    check_ports,
    host_name,
    parse_listeners,
    parse_protocol_map,
)
from ottla.broker.config.sources import Sources, require_none
from ottla.broker.config.zookeeper import check_zookeeper

BROKER_OPTIONS = OptionSet(
    "broker",
    (
        *network.OPTIONS,
        *log.OPTIONS,
        *replication.OPTIONS,
        *coordinators.OPTIONS,
        *security.OPTIONS,
        *sasl.OPTIONS,
        *tls.OPTIONS,
        *store.OPTIONS,
        *tiered.OPTIONS,
        *ottla.OPTIONS,
    ),
    prefixes=("listener.name.", "rsm.config.", "rlmm.config."),
)

SYNONYMS: dict[str, tuple[str, ...]] = {
    name: group
    for group in (
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    for name in group
}
"""Settings that say the same thing, the one that wins first."""

_ONE_BROKER_DEFAULTS: dict[str, Value] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
"""If the cluster is this broker, internal topics with three replicas could never be created."""


def _is_a_cluster_of_its_own(values: Mapping[str, Value]) -> bool:
    return values["zookeeper.connect"] is None and values["ottla.cluster.dir"] is None


_OF_LISTENERS = {
    "max.connections": Update.CLUSTER_WIDE,
    "max.connection.creation.rate": Update.CLUSTER_WIDE,
}
"""Settings besides those of security that a listener may have for itself, as `listener.name.<listener>.…`."""


class UnusedSetting(NamedTuple):
    name: str
    reason: str


class BrokerConfig(Values):
    """Immutable: a dynamic change makes a new one with `with_dynamic`.

    `static` is what the broker was started with; `cluster_wide` and `per_broker` are the dynamic layers above it.
    """

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        cluster_wide: Mapping[str, str] | None = None,
        per_broker: Mapping[str, str] | None = None,
        ignored_environment: Iterable[str] = (),
    ) -> None:
        self.static = dict(static)
        self.cluster_wide = dict(cluster_wide or {})
        self.per_broker = dict(per_broker or {})
        self.ignored_environment = tuple(ignored_environment)
        given = dict(self.static)
        for layer in (self.cluster_wide, self.per_broker):
            _overlay(given, layer)
        values = dict(BROKER_OPTIONS.parse(given))
        if _is_a_cluster_of_its_own(values):
            values.update({name: default for name, default in _ONE_BROKER_DEFAULTS.items() if name not in given})
        super().__init__(values, given)
        self._check()

    @classmethod
    def load(
        cls,
        properties_file: Path | None = None,
        overrides: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """What was asked for: the command line's `name=value` pairs beat the environment, which beats the file. Of the
        environment, our own variables beat those of Kafka's images.

        The error names everything that is wrong, and the lines of the file where it stands.
        """
        sources = Sources(BROKER_OPTIONS)
        if properties_file is not None:
            sources.read_file(properties_file)
        sources.read_kafka_environment(environ or {})
        sources.read_environment(environ or {})
        sources.read_overrides(overrides)
        try:
            require_none(sources.problems + BROKER_OPTIONS.problems(sources.settings))
            config = cls(sources.settings, ignored_environment=sources.ignored_environment)
            config.require_no_refusals()
        except InvalidConfigError as e:
            raise sources.located(e) from None
        return config

    def with_dynamic(self, *, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> BrokerConfig:
        for layer, allowed in (
            (cluster_wide, (Update.CLUSTER_WIDE,)),
            (per_broker, (Update.CLUSTER_WIDE, Update.PER_BROKER)),
        ):
            for name in layer:
                check_dynamic(name, allowed)
        changed = BrokerConfig(
            self.static,
            cluster_wide=cluster_wide,
            per_broker=per_broker,
            ignored_environment=self.ignored_environment,
        )
        changed.require_no_refusals()
        return changed

    def default(self, name: str) -> Value:
        """The value `name` has if nothing sets it."""
        if self.is_a_cluster_of_its_own and name in _ONE_BROKER_DEFAULTS:
            return _ONE_BROKER_DEFAULTS[name]
        return BROKER_OPTIONS[name].default

    # What follows from several settings together.

    @property
    def broker_id(self) -> int | None:
        """None: to be found in meta.properties, or generated."""
        broker_id = self.integer("broker.id") if "broker.id" in self.given else self.integer("node.id")
        return None if broker_id == -1 else broker_id

    @property
    def is_a_cluster_of_its_own(self) -> bool:
        return _is_a_cluster_of_its_own(self)

    @property
    def reads_from_closest_replica(self) -> bool:
        """Whether a leader sends consumers to a follower in their rack (KIP-392)."""
        return (self.optional_text("replica.selector.class") or "").endswith(RACK_AWARE_SELECTOR)

    @property
    def log_dirs(self) -> list[Path]:
        text = self.optional_text("log.dirs") or self.text("log.dir")
        return [Path(part.strip()).expanduser() for part in text.split(",") if part.strip()]

    @property
    def listener_security_protocol_map(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        return parse_protocol_map(key, self.text(key))

    @cached_property
    def listeners(self) -> list[Listener]:
        return parse_listeners("listeners", self.text("listeners"), self.listener_security_protocol_map)

    @cached_property
    def advertised_listeners(self) -> list[Listener]:
        """What clients are told. A port of 0 stands for the one that was bound."""
        text = self.optional_text("advertised.listeners")
        if text:
            return parse_listeners("advertised.listeners", text, self.listener_security_protocol_map)
        host: str | None = None
        advertised = []
        for listener in self.listeners:
            if listener.binds_every_interface:
                host = host or host_name()
                listener = listener._replace(host=host)
            advertised.append(listener)
        return advertised

    @property
    def inter_broker_listener_name(self) -> str:
        name = self.optional_text("inter.broker.listener.name")
        if name is not None:
            return name.upper()
        protocol = self.text("security.inter.broker.protocol")
        return next((listener.name for listener in self.listeners if listener.protocol == protocol), protocol)

    @property
    def control_plane_listener_name(self) -> str:
        """Where the controller's orders come in."""
        name = self.optional_text("control.plane.listener.name")
        return self.inter_broker_listener_name if name is None else name.upper()

    def of_listener(self, listener: str, name: str) -> int | None:
        """What a listener allows by itself; None if nothing is said."""
        prefix, ending = "listener.name.", f".{name}"
        for key in self.given:
            if key.lower() == f"{prefix}{listener.lower()}{ending}":
                text = self.optional_text(key)
                value = BROKER_OPTIONS[name]._replace(name=key).parse(text)
                return value if isinstance(value, int) else None
        return None

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        key = "max.connections.per.ip.overrides"
        overrides: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in self.text(key).split(","))):
            host, colon, count = entry.rpartition(":")
            if not colon or not host or not count.strip().isdecimal():
                raise InvalidConfigError(key, f"{key}: {entry!r} is not of the form address:count")
            overrides[host.strip()] = int(count)
        return overrides

    @property
    def retention_ms(self) -> int:
        ms = self.optional_integer("log.retention.ms")
        if ms is None:
            minutes = self.optional_integer("log.retention.minutes")
            ms = minutes * 60_000 if minutes is not None else self.integer("log.retention.hours") * 3_600_000
        return max(ms, -1)

    @property
    def roll_ms(self) -> int:
        ms = self.optional_integer("log.roll.ms")
        return ms if ms is not None else self.integer("log.roll.hours") * 3_600_000

    @property
    def roll_jitter_ms(self) -> int:
        ms = self.optional_integer("log.roll.jitter.ms")
        return ms if ms is not None else self.integer("log.roll.jitter.hours") * 3_600_000

    @property
    def flush_ms(self) -> int:
        ms = self.optional_integer("log.flush.interval.ms")
        return ms if ms is not None else self.integer("log.flush.scheduler.interval.ms")

    # What the person who starts the broker should know.

    def refusals(self) -> list[InvalidConfigError]:
        """What must not be ignored and cannot be done: whoever reads these settings would believe in them."""
        refusals = []
        for name in sorted(self.given):
            option = BROKER_OPTIONS.get(name)
            sentence = option.refusal(self[name]) if option is not None else _listener_refusal(name)
            if sentence is not None:
                refusals.append(InvalidConfigError(name, sentence))
        for listener in self.listeners:
            if listener.protocol != "PLAINTEXT":
                sentence = (
                    f"listeners: {listener} asks for {listener.protocol}, but {PLAIN_TEXT_ONLY}; make it PLAINTEXT"
                )
                refusals.append(InvalidConfigError("listeners", sentence))
        return refusals

    def require_no_refusals(self) -> None:
        require_none(self.refusals())

    def unused_settings(self) -> list[UnusedSetting]:
        """The settings that were given and do nothing, each with the reason."""
        unused = []
        for name in sorted(self.given):
            option = BROKER_OPTIONS.get(name)
            reason = "" if _of_listener(name) else NOT_YET if option is None else option.no_effect
            if reason:
                unused.append(UnusedSetting(name, reason))
        return unused

    def notices(self) -> list[str]:
        """One sentence on all settings that do nothing, one on each that is deprecated, one on foreign variables."""
        sentences = []
        unused: dict[str, list[str]] = {}
        for name, reason in self.unused_settings():
            unused.setdefault(reason, []).append(name)
        if unused:
            listed = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in unused.items())
            sentences.append(f"settings without effect in this version: {listed}")
        for name in sorted(self.given):
            option = BROKER_OPTIONS.get(name)
            if option is not None and option.deprecated:
                sentences.append(f"{name} is deprecated; use {option.deprecated}")
        if self.ignored_environment:
            sentences.append(f"environment variables that are no settings: {', '.join(self.ignored_environment)}")
        return sentences

    def _check(self) -> None:
        problems: list[InvalidConfigError] = []
        for check in (
            self._check_listeners,
            self._check_identity,
            self._check_logs,
            self._check_replication,
            self._check_groups,
            lambda: check_zookeeper(self),
        ):
            try:
                check()
            except InvalidConfigError as e:
                problems.append(e)
        require_none(problems)

    def _check_listeners(self) -> None:
        check_ports("listeners", self.listeners)
        published = self.listeners
        if self.optional_text("advertised.listeners"):
            check_advertised(self.advertised_listeners, self.listeners)
            published = self.advertised_listeners
        _ = self.max_connections_per_ip_overrides
        for listener in self.listeners:
            for name in _OF_LISTENERS:
                self.of_listener(listener.name, name)
        if "inter.broker.listener.name" in self.given and "security.inter.broker.protocol" in self.given:
            raise InvalidConfigError(
                "inter.broker.listener.name",
                "inter.broker.listener.name and security.inter.broker.protocol cannot both be set",
            )
        if self.inter_broker_listener_name not in {listener.name for listener in published}:
            raise InvalidConfigError(
                "inter.broker.listener.name",
                f"the listener between brokers, {self.inter_broker_listener_name}, is not one of the advertised ones; "
                "set inter.broker.listener.name",
            )
        if "control.plane.listener.name" in self.given:
            self._check_control_plane({listener.name for listener in published})

    def _check_control_plane(self, published: set[str]) -> None:
        key, name = "control.plane.listener.name", self.control_plane_listener_name
        if name not in published:
            raise InvalidConfigError(key, f"{key}: {name} is not one of the advertised listeners")
        if name == self.inter_broker_listener_name:
            raise InvalidConfigError(key, f"{key}: {name} is the listener between brokers; it needs one of its own")

    def _check_logs(self) -> None:
        if not self.log_dirs:
            raise InvalidConfigError("log.dirs", "log.dirs must name at least one directory")
        if self.retention_ms == 0:
            raise InvalidConfigError("log.retention.ms", "log.retention.ms must be -1 (for ever) or at least 1")

    def _check_replication(self) -> None:
        if self.integer("replica.fetch.wait.max.ms") > self.integer("replica.lag.time.max.ms"):
            raise InvalidConfigError(
                "replica.fetch.wait.max.ms", "replica.fetch.wait.max.ms must not exceed replica.lag.time.max.ms"
            )

    def _check_groups(self) -> None:
        key = "group.coordinator.rebalance.protocols"
        if "classic" not in self.items_of(key):
            raise InvalidConfigError(key, f"{key} must name classic: there is no broker without it")

    def _check_identity(self) -> None:
        ids = {self.integer(name) for name in ("broker.id", "node.id") if name in self.given}
        if len(ids) > 1:
            raise InvalidConfigError("node.id", "broker.id and node.id are both set and differ")
        if self.broker_id is None:
            if not self.flag("broker.id.generation.enable"):
                raise InvalidConfigError("broker.id", "broker.id must be set, as broker.id.generation.enable is false")
            return
        highest = self.integer("reserved.broker.max.id")
        if self.broker_id < 0 or (self.flag("broker.id.generation.enable") and self.broker_id > highest):
            raise InvalidConfigError(
                "broker.id", f"broker.id must be 0 to {highest} (reserved.broker.max.id), or -1 to have one generated"
            )


def _listener_refusal(name: str) -> str | None:
    """The sentence for a setting of one listener (`listener.name.<listener>.…`) that is about its security."""
    if not name.startswith("listener.name."):
        return None
    _, _, rest = name.removeprefix("listener.name.").partition(".")
    about_security = "sasl." in rest or rest.startswith(("ssl.", "principal.builder."))
    return f"{name} is set, but {PLAIN_TEXT_ONLY}; leave it out" if about_security else None


def _of_listener(name: str) -> str:
    """The setting a listener has for itself by this name; empty if it is none of `_OF_LISTENERS`."""
    if not name.startswith("listener.name."):
        return ""
    _, _, rest = name.removeprefix("listener.name.").partition(".")
    return rest if rest in _OF_LISTENERS else ""


def check_dynamic(name: str, allowed: tuple[Update, ...]) -> None:
    if BROKER_OPTIONS.accepts_unseen(name):
        update = _OF_LISTENERS[_of_listener(name)] if _of_listener(name) else Update.PER_BROKER
    else:
        update = BROKER_OPTIONS.find(name).update
    if update not in allowed:
        how = "can only be set at start" if update is Update.READ_ONLY else "can only be set for one broker"
        raise InvalidConfigError(name, f"{name} {how}")


def _overlay(settings: dict[str, str], layer: Mapping[str, str]) -> None:
    """Puts a layer on top. Hours set above milliseconds still win, so the lower layer's synonyms go."""
    for name in layer:
        for synonym in SYNONYMS.get(name, ()):
            settings.pop(synonym, None)
    settings.update(layer)
