"""The format is found by its name, with nothing registered and no jar."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import ottla.spark
from ottla.spark.data_source import OttlaDataSource

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_the_module_spark_looks_for_holds_the_format() -> None:
    from pyspark_ottla import DefaultSource

    assert DefaultSource is OttlaDataSource
    assert DefaultSource.name() == "ottla"


def test_a_session_has_retries_and_counts_in_utc(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2,3]"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_session_of_this_process_is_found_again(spark: SparkSession) -> None:
    assert ottla.spark.session().sparkContext is spark.sparkContext


def test_processes_of_tasks_import_the_installed_pyspark(spark: SparkSession) -> None:
    """And not the archive of it, which each of them would have to compile."""

    def where(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]
