"""One Spark and one broker for all tests of this directory: starting them takes longer than any of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.broker_process import BrokerProcess
from tests.spark.mariadb import mariadb as mariadb
from tests.spark.postgres import postgres as postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:MetaspaceSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For Java processes that soon end: compiling more thoroughly, and proving again what compilers of Spark's jars have
proven, would take longer than they live. The room for compiled code is what it is without the first of these: the
session that tests share would fill the 48 MB it leaves, go on without a compiler, and end up without new classes."""

# Read by every driver, also by those in processes of their own.
os.environ["PYSPARK_SUBMIT_ARGS"] = (
    f"--conf 'spark.driver.extraJavaOptions={SHORT_LIVED}' --conf 'spark.executor.extraJavaOptions={SHORT_LIVED}' "
    "pyspark-shell"
)
os.environ["SPARK_DAEMON_JAVA_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = SHORT_LIVED


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With the defaults of pipelines, on two cores, and with the jars of Spark's own Kafka source where they can be
    had: one test compares ours with it."""
    pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
    from ottla.spark.sessions import build_session
    from tests.spark.kafka_source import NotFetchedError, fetch_kafka_source

    place = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "local")
    conf = {
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
    }
    with suppress(NotFetchedError):
        conf["spark.jars"] = ",".join(map(str, fetch_kafka_source()))
    session = build_session("ottla-tests", master="local[2]", conf=conf, log_file=place / "spark.log")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker of all Spark tests; each uses topics of its own (`new_topic`)."""
    process = BrokerProcess(tmp_path_factory.mktemp("spark-broker"), {"log.cleaner.enable": "false"}).start()
    yield process
    code = process.stop()
    assert code == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []
