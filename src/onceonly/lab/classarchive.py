"""A class archive for the JVM: built once per class path, it saves seconds of every later start of a Spark session.

Application class data sharing: a short job loads the classes that Spark and Delta need, and the JVM writes them down
when it exits. A JVM that does not match the archive passes over it without a word.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from onceonly.pins import SPARK_VERSION

_BUILD_SECONDS = 300.0
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def place(cache: Path, jars: Sequence[Path], java: str) -> Path:
    """Where the archive of a class path lies, whether it is there or not.

    Args:
        cache: directory of what was fetched and built once.
        jars: what goes in front of Spark's own class path.
        java: the executable that will run.
    """
    parts = [SPARK_VERSION, str(Path(java).resolve()), *(str(jar) for jar in jars)]
    return cache / "classes" / f"{hashlib.sha256(os.pathsep.join(parts).encode()).hexdigest()[:16]}.jsa"


def use(archive: Path) -> str:
    """JVM options that use an archive."""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def build(archive: Path) -> bool:
    """Build an archive with a short job in a process of its own; say whether it is there.

    A failure is no error: sessions start without it, only slower.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=archive.parent) as work:
        made = Path(work) / "made.jsa"
        command = [sys.executable, "-m", "onceonly.lab.classarchive", str(made), work]
        job = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if _ended(job) and made.is_file():
            # A rename: another process never maps half an archive.
            made.replace(archive)
    return archive.is_file()


def _ended(job: subprocess.Popen[bytes]) -> bool:
    """Wait for the job and its JVM, which writes the archive after Python has gone."""
    deadline = time.monotonic() + _BUILD_SECONDS
    while time.monotonic() < deadline:
        job.poll()
        try:
            os.killpg(job.pid, 0)
        except ProcessLookupError:
            return job.returncode == 0
        time.sleep(0.1)
    os.killpg(job.pid, 9)
    job.wait()
    return False


def _load_classes(archive: str, work: str) -> None:
    """The job: what a small pipeline makes the JVM load."""
    from pyspark.sql import SparkSession

    from onceonly.lab.jars import fast_session

    builder = SparkSession.builder.master("local[2]").appName("classes")
    spark = fast_session(builder, archive_to=Path(archive))
    source, table = f"{work}/source", f"{work}/table"
    frame = spark.range(10).selectExpr("id", "cast(id as string) note", "current_timestamp() at")
    frame.write.csv(source)
    frame.write.format("delta").save(table)
    spark.read.format("delta").load(table).groupBy("note").count().collect()
    stream = spark.readStream.schema(frame.schema).csv(source).writeStream.queryName("classes")
    query = stream.foreachBatch(lambda rows, _: rows.toArrow()).option("checkpointLocation", f"{work}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    shutil.rmtree(table, ignore_errors=True)


if __name__ == "__main__":
    _load_classes(sys.argv[1], sys.argv[2])
