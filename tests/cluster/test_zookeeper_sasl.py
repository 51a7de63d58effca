"""A ZooKeeper that knows brokers by SASL (DIGEST-MD5): they prove who they are, and their nodes are theirs alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla import Admin, ConfigChange, ConfigResource, NewTopic
from ottla.metadata.zookeeper.address import EnsembleAddress
from tests.broker_process import BrokerProcess
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaOnZooKeeper
from tests.ports import free_port
from tests.unit.metadata.test_zookeeper import NETTY
from tests.waiting import repeat_until
from tests.zookeeper_process import ZooKeeperProcesses, require_zookeeper

pytestmark = pytest.mark.timeout(240)

USER, PASSWORD, WRONG = "broker", "the-right-one", "the-wrong-one"
Acls = dict[str, set[tuple[str, str, int]]]


@pytest.fixture(scope="module", params=[False, True], ids=["lets others in", "insists"])
def ensemble(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcesses]:
    directory = tmp_path_factory.mktemp("zookeeper")
    require_zookeeper(directory)
    jaas = directory / "jaas.conf"
    login = f'org.apache.zookeeper.server.auth.DigestLoginModule required user_{USER}="{PASSWORD}"'
    jaas.write_text(f"Server {{ {login}; }};\n")
    settings = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    if request.param:
        settings["sessionRequireClientSASLAuth"] = "true"
    options = f"-Djava.security.auth.login.config={jaas}"
    processes = ZooKeeperProcesses(directory / "data", settings=settings, java_options=options)
    try:
        processes.start(*NETTY)
        yield processes
    finally:
        processes.kill()


def settings_of(connect: str, password: str | None = PASSWORD) -> dict[str, str]:
    settings = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "3000"}
    if password is not None:
        settings |= {"ottla.zookeeper.auth": "sasl", "ottla.zookeeper.credentials": f"{USER}:{password}"}
    return settings


def acls_of(connect: str) -> Acls:
    address = EnsembleAddress.parse(connect)
    sasl = {"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD}
    client = KazooClient(address.hosts, sasl_options=sasl)
    client.start()
    found: Acls = {}

    def walk(path: str) -> None:
        acls, _ = client.get_acls(address.chroot + path)
        found[path] = {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}
        for name in client.get_children(address.chroot + path):
            walk(f"{path}/{name}")

    try:
        walk("")
    finally:
        client.stop()
        client.close()
    return found


def test_brokers_that_prove_who_they_are_own_their_nodes(
    ensemble: ZooKeeperProcesses, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    connect = ensemble.new_cluster()

    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create("t", partitions=3)
        async with cluster.producer() as producer:
            await send_some(producer, "t", 10, "x")
        lost = cluster.controller
        await cluster.stop(lost.broker_id)
        await cluster.start(lost.broker_id)
        await cluster.in_sync("t", 3, *IDS)

    settings = {name.replace(".", "_"): value for name, value in settings_of(connect).items()}
    in_cluster(tmp_path, scenario, zookeeper_set_acl="true", **settings)
    own, everybody = ("sasl", USER, 31), ("world", "anyone", 1)
    acls = acls_of(connect)
    assert acls["/brokers/topics/t"] == acls["/controller_epoch"] == acls[""] == {own, everybody}
    assert acls["/config/users"] == acls["/config/brokers"] == {own}
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("password", [WRONG, None], ids=["a wrong password", "none"])
def test_who_cannot_prove_it_is_told_so_in_one_sentence(
    ensemble: ZooKeeperProcesses, tmp_path: Path, password: str | None
) -> None:
    connect = ensemble.new_cluster()
    broker = BrokerProcess(tmp_path, settings_of(connect, password))
    insists = "sessionRequireClientSASLAuth" in ensemble.settings
    if password is None and not insists:
        broker.start()
        assert broker.stop() == 0
        return
    with pytest.raises(RuntimeError, match="the broker did not start"):
        broker.start()
    hosts = connect.partition("/")[0]
    reason = (
        f"ZooKeeper ({hosts}) cannot be reached: it does not accept ottla.zookeeper.credentials"
        if password is not None
        else f"ZooKeeper ({hosts}) insists on SASL; set ottla.zookeeper.auth=sasl and ottla.zookeeper.credentials"
    )
    assert [line for line in broker.log_lines if "ZooKeeper" in line] == [f"ottla: cannot start: {reason}"]
    assert broker.tracebacks() == []
    assert not any(WRONG in line for line in broker.log_lines)


@pytest.mark.parametrize("ensemble", [True], ids=["insists"], indirect=True)
def test_access_lists_are_kafkas(ensemble: ZooKeeperProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jaas.conf").write_text(
        f'Client {{ org.apache.zookeeper.server.auth.DigestLoginModule required username="{USER}" '
        f'password="{PASSWORD}"; }};\n'
    )
    ours, kafkas = ensemble.new_cluster(), ensemble.new_cluster()
    port = free_port()
    common = {"broker.id": "1", "zookeeper.set.acl": "true", "zookeeper.session.timeout.ms": "3000"}
    broker = BrokerProcess(tmp_path / "ours", {**common, **settings_of(ours)})
    log_dirs = {"log.dirs": str(tmp_path / "kafka-logs"), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    kafka = KafkaOnZooKeeper(
        fetch_kafka_libs(), tmp_path / "kafka", port, {**common, **log_dirs, "zookeeper.connect": kafkas}
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}")
    try:
        for each in (broker, kafka):
            each.start()
            with Admin({"bootstrap.servers": each.bootstrap}) as admin:
                admin.create_topics([NewTopic("t", 2, 1)]).check()
                for resource, name in (
                    (ConfigResource.topic("t"), "retention.ms"),
                    (ConfigResource.broker(1), "log.cleaner.threads"),
                ):
                    admin.incremental_alter_configs({resource: [ConfigChange(name, "2")]}).check()
        repeat_until(lambda: "/brokers/topics/t/partitions/1/state" in acls_of(kafkas))
        assert acls_of(ours) == acls_of(kafkas)
    finally:
        broker.kill()
        kafka.kill()
