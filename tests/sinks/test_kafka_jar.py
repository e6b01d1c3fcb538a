"""The jar by which Spark's tasks send is built from the source that lies beside it."""

from __future__ import annotations

import subprocess

import pytest
from scripts import jar

from onceonly.spark.jars import java_program


@pytest.mark.spark
def test_the_jar_is_built_from_its_source() -> None:
    version = subprocess.run([java_program(), "-version"], capture_output=True, text=True, check=True).stderr
    if ' "17.' not in version:
        pytest.skip(f"another compiler writes other bytes: {version.splitlines()[0]}")
    assert jar.packed() == jar.classes()
