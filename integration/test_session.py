"""A second start resolves nothing and loads its classes from the archive that ``prepare`` made."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_IVY = """<ivy-module version="2.0"><info organisation="acme" module="thing" revision="1.0"/>
<configurations><conf name="default"/></configurations>
<publications><artifact name="thing" type="jar" ext="jar" conf="default"/></publications></ivy-module>"""

_DRIVER = """
import json, sys
from pyspark.sql import SparkSession
from onceonly_lab.session import prepare, start

place = sys.argv[2]
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", "acme:thing:1.0")
    .config("spark.jars.ivy", f"{place}/ivy")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", f"-Xlog:class+load:file={place}/{sys.argv[1]}.log")
)
if sys.argv[1] == "prepare":
    prepare(builder)
else:
    spark = start(builder)
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    rows = spark.range(10).count()
    print(json.dumps({"found": loader.getResource("thing.txt") is not None, "rows": rows}))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that nothing but a local repository has, and a driver that wants it."""
    local = tmp_path / "ivy" / "local" / "acme" / "thing" / "1.0"
    for folder in ("ivys", "jars"):
        (local / folder).mkdir(parents=True)
    (local / "ivys" / "ivy.xml").write_text(_IVY)
    with zipfile.ZipFile(local / "jars" / "thing.jar", "w") as jar:
        jar.writestr("thing.txt", "here")
    (tmp_path / "driver.py").write_text(_DRIVER)
    monkeypatch.setenv("ONCEONLY_CACHE", str(tmp_path / "cache"))
    return tmp_path


def driver(place: Path, what: str) -> subprocess.CompletedProcess[str]:
    """Run the driver program to its end."""
    command = [sys.executable, str(place / "driver.py"), what, str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)


def test_the_second_start_resolves_nothing_and_takes_classes_from_the_archive(place: Path) -> None:
    first, _, second = driver(place, "first"), driver(place, "prepare"), driver(place, "second")
    assert json.loads(first.stdout) == json.loads(second.stdout) == {"found": True, "rows": 10}
    assert "acme#thing" in first.stderr
    assert "acme#thing" not in second.stderr
    loaded = {name: (place / f"{name}.log").read_text().splitlines() for name in ("first", "second")}
    shared = {name: sum("shared objects file (top)" in line for line in lines) for name, lines in loaded.items()}
    assert shared["first"] == 0
    assert shared["second"] > len(loaded["second"]) / 2
