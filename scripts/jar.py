"""Compiles ``sinks/java`` into the jar by which Spark's tasks send, which ships in the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from onceonly.spark.jars import jar_of_pyspark, java_program, kafka_source_jars

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "sinks" / "java"
JAR = ROOT / "sinks" / "onceonly_sinks" / "kafka" / "fill.jar"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def classes(sources: Path = SOURCES) -> Mapping[str, bytes]:
    """Compile for Java 8, on which the oldest line of Spark runs; the classes by their path in the jar."""
    javac = shutil.which(str(Path(java_program()).with_name("javac"))) or shutil.which("javac")
    if javac is None:
        raise SystemExit("there is no javac: install a JDK 17, or leave the jar as it is")
    path = os.pathsep.join([f"{jar_of_pyspark('spark-sql_*.jar').parent}/*", *map(str, kafka_source_jars())])
    with tempfile.TemporaryDirectory() as folder:
        options = ["--release", "8", "-Xlint:-options", "-d", folder, "-cp", path]
        subprocess.run([javac, *options, *map(str, sorted(sources.rglob("*.java")))], check=True)
        return {str(found.relative_to(folder)): found.read_bytes() for found in sorted(Path(folder).rglob("*.class"))}


def packed() -> Mapping[str, bytes]:
    """The classes in the jar as it is."""
    with zipfile.ZipFile(JAR) as jar:
        return {name: jar.read(name) for name in jar.namelist()}


def pack(compiled: Mapping[str, bytes], place: Path) -> None:
    """Write a jar, the same to the byte for the same classes."""
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in compiled.items():
            jar.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)


def main() -> int:
    """Compile and pack."""
    pack(classes(), JAR)
    print(f"{JAR.relative_to(ROOT)}: {JAR.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
