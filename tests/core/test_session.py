"""What a session starts from: jars that Spark itself has resolved, as long as they are what they were."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from onceonly.errors import OnceOnlyError
from onceonly_lab.session import launch, prepare
from onceonly_lab.session.launch import begin

FIXED = {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0, org.acme:thing:1.0"}


@pytest.fixture
def jars(tmp_path: Path) -> tuple[Path, ...]:
    """What the packages were resolved to."""
    made = (tmp_path / "delta.jar", tmp_path / "thing.jar")
    for jar in made:
        with zipfile.ZipFile(jar, "w") as opened:
            opened.writestr("some.class", jar.name)
    return made


@pytest.fixture
def known(tmp_path: Path, jars: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which the jars are remembered."""
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    cache = tmp_path / "cache"
    launch.remember(launch.packages_key(FIXED) or "", jars, cache)
    return cache


def test_remembered_jars_take_the_place_of_their_packages(known: Path, jars: tuple[Path, ...]) -> None:
    found = begin({**FIXED, "spark.master": "local[2]"}, known)
    assert found.options == {"spark.jars.packages": ""}
    assert found.environment["SPARK_DIST_CLASSPATH"] == os.pathsep.join(map(str, jars))
    assert found.unknown is None


def test_executors_elsewhere_fetch_them_from_the_driver(known: Path, jars: tuple[Path, ...]) -> None:
    found = begin({**FIXED, "spark.master": "k8s://cluster", "spark.jars": "s3a://jars/own.jar"}, known)
    assert found.options["spark.jars"] == ",".join(["s3a://jars/own.jar", *map(str, jars)])


def test_the_users_own_class_path_comes_first(
    known: Path, jars: tuple[Path, ...], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/hadoop/*")
    own = tmp_path / "own.jar"
    own.write_bytes(b"")
    found = begin({**FIXED, "spark.jars": str(own)}, known)
    assert found.environment["SPARK_DIST_CLASSPATH"].split(os.pathsep) == ["/opt/hadoop/*", str(own), *map(str, jars)]


@pytest.mark.parametrize("harm", [Path.unlink, lambda jar: jar.write_bytes(b"half")], ids=["gone", "changed"])
def test_a_jar_that_is_not_what_it_was_is_resolved_again(known: Path, jars: tuple[Path, ...], harm: Any) -> None:
    harm(jars[1])
    found = begin(FIXED, known)
    assert found.options == {}
    assert found.unknown == launch.packages_key(FIXED)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"spark.jars.packages": "org.acme:thing:latest.release"},
        {"spark.jars.packages": "org.acme:thing:1.+"},
        {"spark.jars.packages": "org.acme:thing:[1.0]"},
        {"spark.jars.packages": "org.acme:thing:1.0-SNAPSHOT"},
        {**FIXED, "spark.jars.ivySettings": "/etc/ivy.xml"},
    ],
)
def test_what_may_mean_other_jars_tomorrow_is_not_remembered(options: dict[str, str]) -> None:
    assert launch.packages_key(options) is None


@pytest.mark.parametrize("name", ["spark.jars.repositories", "spark.jars.excludes", "spark.jars.ivy"])
def test_jars_of_another_origin_are_remembered_apart(name: str) -> None:
    assert launch.packages_key({**FIXED, name: "other"}) != launch.packages_key(FIXED)


def test_a_jar_with_python_code_is_left_to_spark(tmp_path: Path, jars: tuple[Path, ...]) -> None:
    with zipfile.ZipFile(jars[0], "a") as opened:
        opened.writestr("acme/__init__.py", "")
    launch.remember("key", jars, tmp_path)
    assert launch.recall("key", tmp_path) is None


def test_the_users_own_jars_are_not_taken_for_resolved_ones(jars: tuple[Path, ...]) -> None:
    started = ",".join(["file:/elsewhere/own.jar", *(jar.as_uri() for jar in jars)])
    assert launch.resolved(started, "own.jar") == jars


def test_the_program_behind_prepare_starts_where_warnings_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Builder:
        _options: ClassVar[dict[str, str]] = {}

    monkeypatch.setenv("ONCEONLY_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # the session fails, after its program was read
    monkeypatch.setenv("PYTHONWARNINGS", "error::RuntimeWarning")
    with pytest.raises(OnceOnlyError) as refused:
        prepare(Builder())
    assert "sys.modules" not in str(refused.value)
    assert "/nowhere" in str(refused.value)
