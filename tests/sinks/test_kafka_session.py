"""``with_kafka`` adds to a builder and takes nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceonly.spark.versions import LINES
from onceonly_sinks.kafka.read import settings, with_kafka

SPARK_VERSION = LINES["4.2"].kafka
assert SPARK_VERSION is not None
PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
FILE = f"/jars/spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar"


@pytest.mark.parametrize("patch", [SPARK_VERSION, "4.2.99"])
def test_a_plain_builder_gets_the_tried_package_of_its_line_whatever_its_patch(patch: str) -> None:
    assert settings({}, patch) == {"spark.jars.packages": PACKAGE}


def test_a_line_without_a_tried_package_gets_that_of_its_own_version() -> None:
    assert settings({}, "4.3.0") == {"spark.jars.packages": PACKAGE.replace(SPARK_VERSION, "4.3.0")}


def test_the_package_is_built_with_the_scala_of_its_spark() -> None:
    assert "spark-sql-kafka-0-10_2.12:" in settings({}, "3.5.9")["spark.jars.packages"]


def test_packages_of_the_user_stay() -> None:
    assert settings({"spark.jars.packages": "a:b:1, c:d:2"}, SPARK_VERSION) == {
        "spark.jars.packages": f"a:b:1,c:d:2,{PACKAGE}"
    }


def test_adding_twice_adds_once() -> None:
    assert settings(settings({}, SPARK_VERSION), SPARK_VERSION) == {}
    assert settings(settings({}, SPARK_VERSION, [FILE]), SPARK_VERSION, [FILE]) == {}


@pytest.mark.parametrize("name", ["spark.jars", "spark.driver.extraClassPath"])
def test_a_jar_on_the_class_path_needs_no_package(name: str) -> None:
    assert settings({name: FILE}, SPARK_VERSION) == {}


def test_another_version_that_the_user_asks_for_is_not_doubled() -> None:
    assert settings({"spark.jars.packages": PACKAGE.replace(SPARK_VERSION, "4.2.1")}, SPARK_VERSION) == {}


def test_files_take_the_place_of_the_package_and_join_those_of_the_user() -> None:
    added = settings({"spark.jars": "/mine.jar", "spark.jars.packages": "a:b:1"}, SPARK_VERSION, [Path(FILE)])
    assert added == {"spark.jars": f"/mine.jar,{FILE}"}


def test_a_builder_is_handed_on_with_what_it_had() -> None:
    class Builder:
        def __init__(self) -> None:
            self._options = {"spark.jars.packages": "a:b:1", "spark.app.name": "mine"}

        def config(self, name: str, value: str) -> Builder:
            self._options[name] = value
            return self

    builder = Builder()
    assert with_kafka(builder) is builder
    assert builder._options["spark.app.name"] == "mine"
    assert builder._options["spark.jars.packages"].startswith("a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:")
