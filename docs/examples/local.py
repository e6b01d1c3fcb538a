"""What the examples share: a folder to work in, a Spark session, an inbox of JSON files, and a look at a table."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id bigint, item string, amount bigint, version bigint, at timestamp"


def work_folder() -> Path:
    """The folder named on the command line, else a temporary one."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="onceonly-example-"))
    return folder.absolute()


def session() -> SparkSession:
    """A small session. DeltaSink commits through deltalake, so that Spark itself needs no jars for it."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def receive(inbox: Path, name: str, *orders: dict[str, Any]) -> None:
    """A file of orders arrives."""
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / f"{name}.json").write_text("".join(json.dumps(order) + "\n" for order in orders))


def read(spark: SparkSession, inbox: Path) -> DataFrame:
    """The stream of all files in an inbox, one file per batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(inbox))


def run(stream: DataFrame, write: Callable[[DataFrame, int], None], checkpoint: Path, mode: str = "append") -> None:
    """Run a query called "orders" over everything that has arrived, and wait for its end."""
    query = (
        stream.writeStream.queryName("orders")
        .outputMode(mode)
        .foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def rows(table: Path, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
    """Rows of a Delta table, sorted."""
    # Arrow's own file system: its threads may close a file after the program's last line.
    files = SubTreeFileSystem(str(table), LocalFileSystem())
    found = DeltaTable(table, version).to_pyarrow_dataset(filesystem=files).to_table(columns=list(columns)).to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in found)


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a crash leaves it between the sink's commit and Spark's own note of it."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def onceonly(*arguments: object) -> str:
    """Run the command line as a user would; what it says is printed, too."""
    program = Path(sys.executable).with_name("onceonly")
    said = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    print(f"$ onceonly {' '.join(map(str, arguments))}\n{said.stdout}{said.stderr}")
    if said.returncode:
        raise SystemExit(said.returncode)
    return said.stdout
