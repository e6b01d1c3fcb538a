"""``with_delta`` adds to a builder and takes nothing away; versions that do not fit are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from onceonly.errors import ConfigurationError
from onceonly.spark.versions import LINES, Delta
from onceonly_sinks.delta import with_delta
from onceonly_sinks.delta.session import check_pair, settings
from onceonly_sinks.delta.spark_committer import store_orders_writers

SPARK_VERSION, DELTA_VERSION = "4.2.0", "4.4.0"
BUILT = Delta("delta-spark_4.2_2.13", DELTA_VERSION)
PACKAGE = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def test_a_plain_builder_gets_package_extension_and_catalog() -> None:
    assert settings({}, BUILT) == {
        "spark.jars.packages": PACKAGE,
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def test_packages_and_extensions_of_the_user_stay() -> None:
    added = settings({"spark.jars.packages": "a:b:1, c:d:2", "spark.sql.extensions": "org.Mine"}, BUILT)
    assert added["spark.jars.packages"] == f"a:b:1,c:d:2,{PACKAGE}"
    assert added["spark.sql.extensions"] == f"org.Mine,{EXTENSION}"


def test_adding_twice_adds_once() -> None:
    once = settings({}, BUILT)
    twice = settings(once, BUILT)
    assert {**once, **twice} == once


@pytest.mark.parametrize("name", ["spark.jars", "spark.driver.extraClassPath"])
def test_a_jar_on_the_class_path_needs_no_package(name: str) -> None:
    assert "spark.jars.packages" not in settings({name: "/jars/delta-spark_4.2_2.13-4.4.0.jar"}, BUILT)


def test_another_version_that_the_user_asks_for_is_not_doubled() -> None:
    asked = {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.1"}
    assert "spark.jars.packages" not in settings(asked, BUILT)


@pytest.mark.parametrize(
    ("pyspark", "delta"),
    [
        (SPARK_VERSION, DELTA_VERSION),
        (SPARK_VERSION, None),
        ("4.1.2", "4.4.1"),
        ("4.2.1", None),
        ("3.5.1", None),
        ("3.5.9", "3.3.2"),
    ],
)
def test_versions_that_fit_pass(pyspark: str, delta: str | None) -> None:
    assert check_pair(pyspark, delta) is LINES[pyspark[:3]].delta


def test_each_spark_gets_its_own_jar() -> None:
    built = {minor: line.delta for minor, line in LINES.items() if line.delta}
    packages = {minor: settings({}, each)["spark.jars.packages"] for minor, each in built.items()}
    assert packages == {
        "3.5": "io.delta:delta-spark_2.12:3.3.3",
        "4.0": "io.delta:delta-spark_4.0_2.13:4.4.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": PACKAGE,
    }


@pytest.mark.parametrize(
    ("pyspark", "delta"),
    [
        ("4.3.0", DELTA_VERSION),
        ("4.3.0.dev1", None),
    ],
)
def test_a_spark_without_a_jar_of_delta_is_refused_with_those_that_have_one(pyspark: str, delta: str | None) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_pair(pyspark, delta)
    assert refused.value.code == "E111"
    assert f"PySpark {pyspark} has no jar of Delta" in str(refused.value)
    assert "Spark 3.5, 4.0, 4.1, 4.2" in str(refused.value)
    assert "leave with_delta() out" in str(refused.value)


@pytest.mark.parametrize(
    ("pyspark", "delta", "wanted"), [("3.5.1", DELTA_VERSION, "3.3.3"), (SPARK_VERSION, "4.1.0", DELTA_VERSION)]
)
def test_a_delta_spark_of_another_version_is_refused_with_that_of_this_spark(
    pyspark: str, delta: str, wanted: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_pair(pyspark, delta)
    assert refused.value.code == "E111"
    assert f"PySpark {pyspark} and the Python package delta-spark {delta} do not fit" in str(refused.value)
    assert f"pip install delta-spark=={wanted}," in str(refused.value)
    assert "pip install pyspark" not in str(refused.value)


def test_a_spark_that_nobody_knows_is_refused_as_such() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_pair("4.4.0", None)
    assert refused.value.code == "E113"


def test_a_missing_pyspark_is_named() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_pair(None, None)
    assert refused.value.code == "E108"


def test_a_real_builder_is_filled_and_returned() -> None:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.config("spark.jars.packages", "a:b:1")
    assert with_delta(builder) is builder
    assert builder._options["spark.jars.packages"] == f"a:b:1,{PACKAGE}"


@pytest.mark.parametrize(
    ("root", "chosen", "orders"),
    [
        ("/data/t", {}, True),
        ("abfss://c@a/t", {}, True),
        ("s3a://b/t", {}, False),
        ("s3://b/t", {"spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore"}, False),
        ("s3a://b/t", {"spark.delta.logStore.s3.impl": "io.delta.storage.S3DynamoDBLogStore"}, False),
        ("s3a://b/t", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, True),
        ("s3a://b/t", {"spark.delta.logStore.class": "io.delta.storage.S3DynamoDBLogStore"}, True),
    ],
)
def test_on_s3_only_a_store_that_orders_writers_will_do(root: str, chosen: dict[str, str], orders: bool) -> None:
    assert store_orders_writers(root, chosen.get) is orders
