"""The network as a network: every broker and every ZooKeeper has a network namespace, and with it a stack, of its own.

All of them hang on a router, which is a namespace too, and so does this one, where clients are. Whatever one sends to
another, the router forwards, drops or holds back; ends learn nothing of it but what TCP tells them. No namespace knows
a way to anywhere else.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
import threading
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import TracebackType

from ottla.cli.zookeeper.ensemble import Server
from tests.cluster.chaos.cluster import CLIENTS, IDS
from tests.cluster.chaos.links import Link

_ZOOKEEPERS = (-1, -2, -3)
_NET = "10.77"
_ROUTER, _HERE = 253, 254
"""The last part of their addresses."""
_FOR_JUDGE, _FOR_CLIENTS, _INTERNAL = 9092, 9093, 9094
"""Every broker has the same ports, for it has them to itself. Nothing is ever done to the first one's packets."""
_OF_ZOOKEEPER = (2181, 2888, 3888)
_QUEUE_S = 0.4
"""So much of what a slow link carries may wait for it; the rest is dropped."""
_ALL = [(who, broker_id) for who in (CLIENTS, *IDS) for broker_id in IDS if who != broker_id]
_ALL += [(broker_id, server) for broker_id in IDS for server in _ZOOKEEPERS]

_numbers = itertools.count()


@cache
def why_not() -> str:
    """Why there can be no such network here; empty if there can, for it was tried."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    missing = [name for name in ("ip", "tc", "iptables-restore") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}"
    try:
        with Namespaces() as tried:
            tried.loss = 0.5
            tried.bytes_per_s = {(CLIENTS, IDS[0]): 1_000_000}
    except subprocess.CalledProcessError as e:
        return f"network namespaces do not work: {(e.stderr.splitlines() or [''])[0]}"
    return ""


class Namespaces:
    """Made on entering the block, gone after it. The rules that are in force are all rules there are: each change of an
    attribute writes them anew, as a whole."""

    def __init__(self) -> None:
        self._name = f"ottla-{os.getpid()}-{next(_numbers)}"
        self._router = f"{self._name}-router"
        self._here = self._name.replace("ottla-", "ot")
        self._net = ""
        self._cut: set[Link] = set()
        self._loss = 0.0
        self._bytes_per_s: dict[Link, int] = {}
        self._slow_devices: set[str] = set()
        self._lock = threading.Lock()
        self._undo = ExitStack()

    # Making and removing

    def __enter__(self) -> Namespaces:
        _remove_what_is_left_of_the_dead()
        with ExitStack() as made:
            self._add_namespace(made, self._router)
            _ip(f"-n {self._router} link add {_device(CLIENTS)} type veth peer name {self._here} netns {os.getpid()}")
            made.callback(_ip, f"link del {self._here}")
            _ip(f"link set {self._here} up gso_max_segs 1")
            self._net = self._claim_net()
            _ip(f"addr add {self.host(CLIENTS)}/32 dev {self._here}")
            _ip(f"-n {self._router} link set lo up")
            _ip(f"-n {self._router} addr add {self._net}.{_ROUTER}/32 dev lo")
            self._route_to(CLIENTS)
            for node in (*IDS, *_ZOOKEEPERS):
                self._add_node(made, node)
            self._in_router("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self._undo = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def _add_namespace(self, made: ExitStack, name: str) -> None:
        _ip(f"netns add {name}")
        made.callback(_ip, f"netns del {name}")

    def _claim_net(self) -> str:
        """Two runs may choose at the same time, but only one of them is given the route."""
        for third in random.SystemRandom().sample(range(256), 256):
            net = f"{_NET}.{third}"
            try:
                _ip(f"route add {net}.0/24 via {net}.{_ROUTER} dev {self._here} onlink")
            except subprocess.CalledProcessError as e:
                if "File exists" not in e.stderr:
                    raise
            else:
                return net
        raise AssertionError(f"all of {_NET}.0.0 is taken")

    def _add_node(self, made: ExitStack, node: int) -> None:
        name = self._namespace(node)
        self._add_namespace(made, name)
        _ip(f"-n {self._router} link add {_device(node)} type veth peer name e0 netns {name}")
        _ip(f"-n {name} link set lo up")
        # Packets are as long as on a wire, so that to lose one is not to lose 64 kB.
        _ip(f"-n {name} link set e0 up gso_max_segs 1")
        _ip(f"-n {name} addr add {self.host(node)}/32 dev e0")
        _ip(f"-n {name} route add {self._net}.0/24 via {self._net}.{_ROUTER} dev e0 onlink")
        self._route_to(node)

    def _route_to(self, node: int) -> None:
        _ip(f"-n {self._router} link set {_device(node)} up")
        _ip(f"-n {self._router} route add {self.host(node)} dev {_device(node)}")

    def _namespace(self, node: int) -> str:
        return f"{self._name}-{_device(node)}"

    def _in_router(self, *command: str, said: str = "") -> None:
        _run("ip", "netns", "exec", self._router, *command, said=said)

    # What a cluster has to know

    async def open(self) -> None:
        """It is open as long as there are namespaces: ZooKeeper needs them before there are brokers."""

    def close(self) -> None:
        """See `open`."""

    @property
    def servers(self) -> str:
        return ",".join(f"{self.host(broker_id)}:{_FOR_CLIENTS}" for broker_id in IDS)

    def host(self, node: int) -> str:
        if node == CLIENTS:
            return f"{self._net}.{_HERE}"
        return f"{self._net}.{node if node > 0 else 100 - node}"

    def address(self, broker_id: int) -> tuple[str, int]:
        return self.host(broker_id), _FOR_JUDGE

    def listeners(self, broker_id: int) -> dict[str, str]:
        ports = {"PLAINTEXT": _FOR_CLIENTS, "INTERNAL": _INTERNAL, "JUDGE": _FOR_JUDGE}
        return {
            "listeners": ",".join(f"{name}://{self.host(broker_id)}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in ports),
            "inter.broker.listener.name": "INTERNAL",
        }

    def zookeepers(self, broker_id: int) -> str:
        return ",".join(f"{server.host}:{server.port}" for server in self.zookeeper_servers())

    def zookeeper_servers(self) -> list[Server]:
        return [Server(-node, *_OF_ZOOKEEPER, self.host(node)) for node in _ZOOKEEPERS]

    def command(self, node: int) -> list[str]:
        return ["ip", "netns", "exec", self._namespace(node)]

    # What a row does to it

    @property
    def cut(self) -> set[Link]:
        return self._cut

    @cut.setter
    def cut(self, links: set[Link]) -> None:
        with self._lock:
            self._cut = links
            self._write_rules()

    @property
    def loss(self) -> float:
        return self._loss

    @loss.setter
    def loss(self, share: float) -> None:
        with self._lock:
            self._loss = share
            self._write_rules()

    @property
    def bytes_per_s(self) -> dict[Link, int]:
        return self._bytes_per_s

    @bytes_per_s.setter
    def bytes_per_s(self, rates: dict[Link, int]) -> None:
        with self._lock:
            self._bytes_per_s = rates
            self._write_queues()

    def _write_rules(self) -> None:
        drops = [packets for link in sorted(self._cut) for packets in self._packets(link)]
        if self._loss:
            by_chance = f"-m statistic --mode random --probability {self._loss}"
            drops += [f"{packets} {by_chance}" for link in _ALL for packets in self._packets(link)]
        rules = [f"-A FORWARD {packets} -j DROP" for packets in drops]
        self._in_router("iptables-restore", "-w", said="\n".join(("*filter", *rules, "COMMIT", "")))

    def _packets(self, link: Link) -> tuple[str, str]:
        """Those that go there, and those that come back, of connections of the first to the second."""
        one, other = (self.host(node) for node in link)
        port = _port(link)
        return f"-p tcp -s {one} -d {other} --dport {port}", f"-p tcp -s {other} -d {one} --sport {port}"

    def _write_queues(self) -> None:
        """Before each end of a slow link is a queue that lets through so many bytes per second."""
        lines = [f"qdisc del dev {device} root" for device in sorted(self._slow_devices)]
        self._slow_devices = {_device(node) for link in self._bytes_per_s for node in link}
        lines += [f"qdisc add dev {device} root handle 1: htb" for device in sorted(self._slow_devices)]
        numbers = itertools.count(0x10)
        for link, rate in sorted(self._bytes_per_s.items()):
            one, other = link
            port = f"{_port(link)} 0xffff"
            for sender, receiver, ports in ((one, other, f"dport {port}"), (other, one, f"sport {port}")):
                device, number = f"dev {_device(receiver)}", f"{next(numbers):x}"
                lines += [
                    f"class add {device} parent 1: classid 1:{number} htb rate {rate}bps",
                    f"qdisc add {device} parent 1:{number} bfifo limit {int(rate * _QUEUE_S)}",
                    f"filter add {device} parent 1: protocol ip u32 match ip src {self.host(sender)}"
                    f" match ip dst {self.host(receiver)} match ip {ports} flowid 1:{number}",
                ]
        self._in_router("tc", "-batch", "-", said="\n".join((*lines, "")))


def _port(link: Link) -> int:
    who, server = link
    if server < 0:
        return _OF_ZOOKEEPER[0]
    return _FOR_CLIENTS if who == CLIENTS else _INTERNAL


def _device(node: int) -> str:
    """Of the router, for a node; and the last part of the name of that node's namespace."""
    if node == CLIENTS:
        return "clients"
    return f"broker{node}" if node > 0 else f"zookeeper{-node}"


def _remove_what_is_left_of_the_dead() -> None:
    """A run that was killed could not remove its namespaces."""
    for name, pid in re.findall(r"^(ottla-(\d+)-\S+)", _ip("netns list"), re.MULTILINE):
        if not Path("/proc", pid).exists():
            # Another run may be at it, too.
            with suppress(subprocess.CalledProcessError):
                _ip(f"netns del {name}")


def _ip(arguments: str) -> str:
    return _run("ip", *arguments.split())


def _run(*command: str, said: str = "") -> str:
    """Raises CalledProcessError, with what the command has said against it in `stderr`."""
    return subprocess.run(command, input=said, capture_output=True, text=True, check=True).stdout
