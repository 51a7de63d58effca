"""Our source answers as Spark's own Kafka source does, to the same questions, from the same broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ottla
from ottla.client.sync import Admin, Producer
from tests.broker_process import BrokerProcess
from tests.spark.both_sources import BASE_MS, answers
from tests.spark.kafka_source import NotFetchedError, fetch_kafka_source

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def fill(broker: BrokerProcess, topic: str) -> None:
    """Two partitions: plain records, then an aborted and a committed transaction."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(topic, 2)]).check()
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number, ends in enumerate(
            (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
        ):
            producer.begin_transaction()
            for index in range(10 * number, 10 * number + 10):
                producer.send(
                    topic,
                    None if index % 7 == 0 else f"value {index}".encode(),
                    None if index % 3 == 0 else f"key {index}".encode(),
                    headers=[("a", b"%d" % index), ("b", b"")] if index % 4 == 0 else [],
                    partition=index % 2,
                    timestamp_ms=BASE_MS + 1000 * index,
                )
            producer.flush()
            ends()


def test_the_same_queries_give_the_same_answers(
    spark: SparkSession, spark_broker: BrokerProcess, new_topic: str, tmp_path: Path
) -> None:
    try:
        fetch_kafka_source()
    except NotFetchedError as e:
        pytest.skip(str(e))
    fill(spark_broker, new_topic)
    # As far as JSON can tell.
    theirs, ours = (
        json.loads(json.dumps(answers(spark, name, spark_broker.bootstrap, new_topic, tmp_path / name)))
        for name in ("kafka", "ottla")
    )
    assert theirs.keys() == ours.keys()
    for question, answer in theirs.items():
        assert ours[question] == answer, question
    assert len(theirs["all"]) == 30
    assert len(theirs["committed"]) == 20
