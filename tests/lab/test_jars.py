"""Jars are fetched once; what stands in the way is named with how to get it."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from onceonly.errors import ConfigurationError
from onceonly.spark.jars import cache_directory, delta_jars, fast_options
from onceonly_lab.servers.kafka import EmbeddedKafka
from onceonly_lab.servers.ports import KAFKA_VERSION, kafka_broker_jars, postgres_jdbc_jar

SPARK_VERSION, DELTA_VERSION = "4.2.0", "4.4.0"
NAMES = [f"delta-spark_4.2_2.13-{DELTA_VERSION}.jar", f"delta-storage-{DELTA_VERSION}.jar"]

POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.postgresql</groupId>
<artifactId>postgresql</artifactId><version>42.7.14</version></project>"""

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="Ivy needs Java, and there is none")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    for name in NAMES:
        (tmp_path / "jars" / name).write_bytes(b"jar")
    return tmp_path


def test_jars_that_are_there_are_not_fetched_again(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert [jar.name for jar in delta_jars(filled)] == NAMES


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("ONCEONLY_CACHE", raising=False)
    assert cache_directory() == Path("/x/onceonly")
    monkeypatch.setenv("ONCEONLY_CACHE", "/mine")
    assert cache_directory() == Path("/mine")


def test_a_missing_java_is_named_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError) as refused:
        postgres_jdbc_jar(tmp_path)
    assert refused.value.code == "E110"
    assert "apt install openjdk" in str(refused.value)


@needs_java
def test_a_registry_that_does_not_answer_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "empty").as_uri())
    with pytest.raises(ConfigurationError) as refused:
        postgres_jdbc_jar(tmp_path)
    assert "postgresql-42.7.14.jar" in str(refused.value)
    assert "DEFAULT_ARTIFACT_REPOSITORY" in str(refused.value)
    assert list((tmp_path / "jars").iterdir()) == []


@needs_java
def test_jars_come_from_the_mirror_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "mirror/org/postgresql/postgresql/42.7.14"
    place.mkdir(parents=True)
    (place / "postgresql-42.7.14.pom").write_text(POM)
    with zipfile.ZipFile(place / "postgresql-42.7.14.jar", "w") as jar:
        jar.writestr("a", "b")
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "mirror").as_uri())
    assert postgres_jdbc_jar(tmp_path / "cache").read_bytes() == (place / "postgresql-42.7.14.jar").read_bytes()


@needs_java
def test_a_broker_whose_jars_cannot_be_had_names_them_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "empty").as_uri())
    with pytest.raises(ConfigurationError) as refused:
        EmbeddedKafka(tmp_path / "node", cache=tmp_path / "cache").start()
    assert refused.value.code == "E110"
    assert f"kafka_2.13-{KAFKA_VERSION}.jar" in str(refused.value)
    assert "DEFAULT_ARTIFACT_REPOSITORY" in str(refused.value)
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_the_jars_of_the_broker_come_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    folder = tmp_path / "jars" / f"kafka-{KAFKA_VERSION}"
    folder.mkdir(parents=True)
    for name in "cab":
        (folder / f"{name}.jar").touch()
    assert [jar.stem for jar in kafka_broker_jars(tmp_path)] == ["a", "b", "c"]


def test_a_session_with_kafka_has_its_jars_beside_those_of_delta(filled: Path) -> None:
    names = [
        f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
        "kafka-clients-3.9.2.jar",
        "commons-pool2-2.13.1.jar",
    ]
    for name in names:
        (filled / "jars" / name).touch()
    path = fast_options(delta=True, kafka=True, cache=filled)["spark.driver.extraClassPath"]
    assert [Path(jar).name for jar in path.split(os.pathsep)] == [*NAMES, *names]


def test_a_session_without_delta_asks_for_no_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "ONCEONLY_CACHE": "/nowhere"})
    assert "spark.driver.extraClassPath" not in fast_options(delta=False)


def test_driver_and_executors_get_the_same_class_path(filled: Path) -> None:
    options = fast_options(cache=filled)
    assert options["spark.driver.extraClassPath"] == options["spark.executor.extraClassPath"]
    assert all(name in options["spark.driver.extraClassPath"] for name in NAMES)
