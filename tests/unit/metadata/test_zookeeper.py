"""What the store on ZooKeeper has beyond the contract: paths, lost connections, missed changes, access, encryption."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from kazoo.exceptions import UnimplementedError

from ottla.base.errors import InvalidConfigError, StartError
from ottla.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    SessionEvent,
    Set,
    StoreError,
    StoreFailedError,
)
from ottla.metadata.zookeeper.address import EnsembleAddress
from ottla.metadata.zookeeper.multi_read import MultiRead
from ottla.metadata.zookeeper.security import Credentials, Security, TlsFiles
from ottla.metadata.zookeeper.store import SessionOptions, ZooKeeperStore
from tests.ports import free_ports
from tests.waiting import run_async, until
from tests.zookeeper_process import ZooKeeperProcesses, require_zookeeper


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a:1", "a:1", ""),
        ("a", "a:2181", ""),
        ("a:1, b/", "a:1,b:2181", ""),
        ("a:1,b:2/kafka", "a:1,b:2", "/kafka"),
        ("[::1]:1,[::2]/x/y/", "[::1]:1,[::2]:2181", "/x/y"),
    ],
)
def test_an_address_is_servers_and_a_path(text: str, hosts: str, chroot: str) -> None:
    assert EnsembleAddress.parse(text) == (hosts, chroot)


@pytest.mark.parametrize("text", ["", "/kafka", "a:1,,b:1", "a:b", "a:0", "a:70000", "a:1//x", "a:1/x/../y"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"zookeeper\.connect"):
        EnsembleAddress.parse(text)


async def connect(
    address: str, security: Security | None = None, *, connection_timeout_ms: int = 30_000
) -> ZooKeeperStore:
    options = SessionOptions(6_000, connection_timeout_ms, security=security or Security())
    return await ZooKeeperStore.connect(EnsembleAddress.parse(address), options)


def test_a_path_is_made_once_and_hides_all_others(zookeeper: ZooKeeperProcesses) -> None:
    async def scenario() -> None:
        above = zookeeper.new_cluster()
        one, other = await asyncio.gather(connect(above + "/x/y"), connect(above + "/x/y"))
        root = await connect(above)
        await one.commit([Create("/a", b"1")])
        assert (await other.tree("")).keys() == {"", "/a"}
        assert (await root.tree("/x")).keys() == {"/x", "/x/y", "/x/y/a"}
        for store in (one, other, root):
            await store.close()

    run_async(scenario())


def test_an_ensemble_that_is_away_fails_commits_in_time_and_no_reads_when_it_is_back(tmp_path: Path) -> None:
    require_zookeeper(tmp_path)
    ensemble = ZooKeeperProcesses(tmp_path).start()

    async def scenario() -> None:
        store, other = await connect(ensemble.connect), await connect(ensemble.connect)
        events: list[SessionEvent] = []
        store.on_session(events.append)
        events_of_other: list[SessionEvent] = []
        other.on_session(events_of_other.append)
        heard: list[str] = []
        await store.commit([Create("/a"), Create("/a/kept"), Create("/a/gone"), Create("/own", ephemeral=True)])
        store.watch("/a", heard.append)
        session_id = store.session_id
        await asyncio.to_thread(ensemble.kill)
        await until(lambda: SessionEvent.SUSPENDED in events)
        waiting = asyncio.create_task(store.get("/a"))
        with pytest.raises(StoreFailedError, match=r"ZooKeeper \(127\.0\.0\.1:\d+\) cannot be reached: .*refused"):
            await store.commit([Create("/b")])
        with pytest.raises(StoreFailedError, match="cannot be reached"):
            await waiting
        with pytest.raises(StoreFailedError, match="cannot be reached"):
            await store.get("/a")
        assert heard == []
        await asyncio.to_thread(ensemble.start)
        await until(lambda: SessionEvent.RESUMED in events and SessionEvent.RESUMED in events_of_other)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.RESUMED] and store.session_id == session_id
        node = await store.get("/own")
        assert node is not None and node.owner == session_id
        assert await store.get("/b") is None
        heard.clear()
        await other.commit([Delete("/a/gone"), Set("/a/kept", b"2"), Create("/a/new")])
        await store.get("/a")
        assert sorted(heard) == ["/a/gone", "/a/kept", "/a/new"], "watches go on"
        await store.close()
        await other.close()

    try:
        run_async(scenario())
    finally:
        ensemble.kill()


def test_what_happened_while_the_connection_was_lost_is_told_afterwards(zookeeper: ZooKeeperProcesses) -> None:
    async def scenario() -> None:
        address = zookeeper.new_cluster()
        store, other = await connect(address), await connect(address)
        await other.commit([Create("/a"), Create("/a/kept"), Create("/a/gone"), Create("/a/same")])
        heard: list[str] = []
        events: list[SessionEvent] = []
        store.watch("/a", heard.append)
        store.on_session(events.append)
        await store.get("/a")
        heard.clear()
        drop_connection(store)
        await until(lambda: SessionEvent.SUSPENDED in events)
        await other.commit([Delete("/a/gone"), Set("/a/kept", b"2"), Create("/a/new")])
        await until(lambda: SessionEvent.RESUMED in events)
        await store.get("/a")
        assert {"/a/gone", "/a/kept", "/a/new"} <= set(heard) and "/a/same" not in heard
        await store.close()
        await other.close()

    run_async(scenario())


def drop_connection(store: ZooKeeperStore) -> None:
    """As if the network had."""
    store._client._connection._socket.shutdown(2)


def test_no_change_is_missed_however_fast_they_come(zookeeper: ZooKeeperProcesses) -> None:
    async def scenario() -> None:
        address = zookeeper.new_cluster()
        store, other = await connect(address), await connect(address)
        await other.commit([Create("/a")])
        last_heard: dict[str, int] = {}
        looks: set[asyncio.Task[None]] = set()

        async def look(path: str) -> None:
            node = await store.get(path)
            last_heard[path] = -1 if node is None else max(last_heard.get(path, 0), node.modified_id)

        def changed(path: str) -> None:
            task = asyncio.get_running_loop().create_task(look(path))
            looks.add(task)
            task.add_done_callback(looks.discard)

        store.watch("/a", changed)
        for number in range(60):
            await other.commit([Create(f"/a/{number}"), Set("/a", str(number).encode())])
            await asyncio.gather(*(other.commit([Set(f"/a/{number}", b"x")]) for _ in range(3)))
            if number % 3 == 0:
                await other.commit([Delete(f"/a/{number}")])
        nodes = await store.tree("/a")
        while looks:
            await asyncio.gather(*looks)
        assert {path: at for path, at in last_heard.items() if at >= 0} == {
            path: node.modified_id for path, node in nodes.items()
        }
        await store.close()
        await other.close()

    run_async(scenario())


def test_a_node_that_comes_and_goes_is_told_of(zookeeper: ZooKeeperProcesses) -> None:
    """Whoever lost against it, and has read it before it went, would wait for ever."""

    async def scenario() -> None:
        address = zookeeper.new_cluster()
        watching, writing = await connect(address), await connect(address)
        told: list[str] = []
        watching.watch("/role", told.append)
        await watching.get("/role")
        for _ in range(20):
            told.clear()
            await asyncio.gather(writing.commit([Create("/role")]), writing.commit([Delete("/role")]))
            await until(lambda: "/role" in told)
            await watching.get("/role")
        await watching.close()
        await writing.close()

    run_async(scenario())


@pytest.mark.parametrize("is_old", [False, True], ids=["3.6 or newer", "older"])
def test_thousands_of_nodes_are_read_by_few_requests(
    zookeeper: ZooKeeperProcesses, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """Of a server that knows no request for many nodes each is asked for alone, but without waiting for the last."""

    async def scenario() -> None:
        store = await connect(zookeeper.new_cluster())
        expected = {"/t": b""}
        await store.commit([Create("/t")])
        for topic in range(20):
            parts = {f"/t/{topic}/{index}": b"%d" % (1000 * topic + index) for index in range(100)}
            await store.commit([Create(f"/t/{topic}"), *(Create(path, data) for path, data in parts.items())])
            expected |= {f"/t/{topic}": b"", **parts}
        sent: list[object] = []
        unanswered_max = 0
        send = store._send

        def counted(request: object) -> object:
            nonlocal unanswered_max
            sent.append(request)
            result = send(request)
            unanswered_max = max(unanswered_max, len(store._requests._sent))
            if is_old and isinstance(request, MultiRead):
                result = store._handler.async_result()
                result.set_exception(UnimplementedError())
            return result

        monkeypatch.setattr(store, "_send", counted)
        nodes = await store.tree("/t")
        assert {path: node.data for path, node in nodes.items()} == expected
        if is_old:
            assert len(expected) <= len(sent) < 1.2 * len(expected)
            assert unanswered_max == SessionOptions().max_in_flight
            sent.clear()
            await store.tree("/t")
            assert not any(isinstance(request, MultiRead) for request in sent), "it is not asked twice"
        else:
            assert len(sent) < len(expected) / 100
        await store.close()

    run_async(scenario())


def test_who_has_no_credentials_may_look_at_most(zookeeper: ZooKeeperProcesses) -> None:
    async def scenario() -> None:
        address = zookeeper.new_cluster()
        owner = Security(restricts_access=True, credentials=Credentials("digest", "broker", "secret"))
        store = await connect(address, owner)
        await store.commit([Create("/config"), Create("/config/users"), Create("/config/users/u", b"1"), Create("/a")])
        stranger = await connect(address, Security(credentials=Credentials("digest", "broker", "wrong")))
        assert await stranger.get("/a") is not None
        for change in (Set("/a", b"2"), Create("/a/b"), Delete("/a")):
            with pytest.raises(StoreError, match="ZooKeeper's access list does not let this broker change the node"):
                await stranger.commit([change])
        with pytest.raises(StoreFailedError, match="does not let this broker read"):
            await stranger.get("/config/users/u")
        same = await connect(address, owner)
        await same.commit([Set("/a", b"2"), Delete("/config/users/u")])
        for each in (store, stranger, same):
            await each.close()

    run_async(scenario())


def test_a_refused_commit_names_its_node_in_the_middle_of_others(zookeeper: ZooKeeperProcesses) -> None:
    async def scenario() -> None:
        store = await connect(zookeeper.new_cluster())
        await store.commit([Create("/a"), Create("/b")])
        with pytest.raises(BadVersionError, match="/b"):
            await store.commit([Set("/a", b"1"), Check("/b", 5), Create("/c")])
        with pytest.raises(NodeExistsError, match="/a"):
            await store.commit([Create("/c"), Create("/a"), Create("/c/d")])
        assert await store.get("/c") is None
        await store.close()

    run_async(scenario())


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "trust.pem").write_text("nothing")
    with pytest.raises(StartError, match=r"trust\.pem cannot be used for TLS to ZooKeeper"):
        Security(tls=TlsFiles(trusted=str(tmp_path / "trust.pem"))).tls_context()


NETTY = (
    *(f"netty-{part}-[0-9]" for part in ("common", "buffer", "transport", "handler", "resolver")),
    *("netty-codec-base-", "netty-transport-native-unix-common-", "netty-transport-classes-epoll-"),
)
"""Jars of a server that encrypts, or knows clients by more than a password that they say."""


def make_certificates(directory: Path) -> tuple[Path, Path]:
    """An authority's certificate, and one it has signed for 127.0.0.1, with its key."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=own")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    openssl("x509", "-req", "-in", "own.csr", "-out", "own.crt", *signing)
    both = directory / "own.pem"
    both.write_text((directory / "own.key").read_text() + (directory / "own.crt").read_text())
    return directory / "ca.pem", both


def test_the_way_to_zookeeper_is_encrypted_and_both_ends_are_known(tmp_path: Path) -> None:
    require_zookeeper(tmp_path)
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    authority, own = make_certificates(tmp_path)
    secure_port = free_ports(1)
    settings = {
        "secureClientPort": str(secure_port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(own),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    ensemble = ZooKeeperProcesses(tmp_path / "zookeeper", settings=settings)
    address = f"127.0.0.1:{secure_port}/kafka"

    async def scenario() -> None:
        known = TlsFiles(certificate=str(own), trusted=str(authority))
        store = await connect(address, Security(tls=known))
        await store.commit([Create("/a", bytes(100_000))])
        node = await store.get("/a")
        assert node is not None and node.data == bytes(100_000)
        await store.close()
        for stranger in (TlsFiles(trusted=str(authority)), TlsFiles(certificate=str(own))):
            with pytest.raises(StartError, match="cannot be reached"):
                await connect(address, Security(tls=stranger), connection_timeout_ms=1_500)

    try:
        ensemble.start(*NETTY)
        run_async(scenario())
    finally:
        ensemble.kill()
