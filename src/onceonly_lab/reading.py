"""Read each kind of sink as its readers do.

Each read is one snapshot with committed rows only.

Markers are read by plain SQL and out of the log, with none of the sinks' own code: the checker's evidence must not
come from what it judges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onceonly.errors import mask
from onceonly_lab.history import BAD, Mark, MarkTime, Row
from onceonly_lab.history.recorder import Seen, SinkUnreachable

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_PATIENCE_S = 10
_BEGINNING = -2
"""Kafka's own number for the first offset that is still there."""


Invariant = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Says of all rows of one look, by column, whether they are as they must be."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a row the lab looks at.

    Attributes:
        identity: unique in the input.
        key: rows of one key have an order; ``None``: none.
        epoch: the epoch's number; ``None`` where the sink has no such column.
        values: whose values are compared between sinks, as text.
        invariant: whether all rows of a look, by column, are as they must be; ``None``: nothing is asked.
    """

    identity: str
    key: str | None = None
    epoch: str | None = None
    values: tuple[str, ...] = ()
    invariant: Invariant | None = None

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        named = (self.identity, self.key, self.epoch, *self.values)
        return list(dict.fromkeys(name for name in named if name is not None))

    def seen(
        self, raw_rows: Iterable[Mapping[str, Any]], markers: tuple[Mark, ...] | None = None, leaks: Sequence[str] = ()
    ) -> Seen:
        """What a look showed, of a sink's rows in their order."""
        listed = list(raw_rows)
        broken = bool(listed) and self.invariant is not None and not self.invariant(listed)
        return Seen(self.rows(listed), markers, tuple(leaks), broken)

    def rows(self, raw_rows: Iterable[Mapping[str, Any]]) -> tuple[Row, ...]:
        """The lab's rows of a sink's rows, in their order."""
        return tuple(map(self.row, raw_rows))

    def record(self, key: bytes | None, value: bytes) -> Mapping[str, Any]:
        """A record of a topic as a row: its value is one, as JSON."""
        raw_row: Mapping[str, Any] = json.loads(value)
        return raw_row

    def row(self, raw_row: Mapping[str, Any]) -> Row:
        """The lab's row of a sink's row."""
        key = None if self.key is None or raw_row[self.key] is None else str(raw_row[self.key])
        epoch = None if self.epoch is None or raw_row[self.epoch] is None else int(raw_row[self.epoch])
        value = fingerprint(raw_row[name] for name in self.values) if self.values else None
        return Row(str(raw_row[self.identity]), epoch, key, value)


def fingerprint(values: Iterable[object]) -> str:
    """A short text that is equal for values with equal text."""
    text = json.dumps([None if value is None else str(value) for value in values])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_MARKERS = "SELECT generation, rows, marker FROM onceonly.epoch WHERE sink = %s ORDER BY epoch"
_LEAKS = """
SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'open transaction of ' || COALESCE(NULLIF(application_name, ''), pid::text) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
  AND backend_type = 'client backend'
"""


@dataclass(frozen=True, slots=True)
class PostgresReader:
    """Reads a table and the markers beside it in one snapshot. Rows come in the order of the table's pages.

    Attributes:
        sink: sink id.
        dsn: of the database.
        table: with its schema where it is not on the search path.
        columns: what to look at.
    """

    sink: str
    dsn: str
    table: str
    columns: Columns

    def __call__(self) -> Seen:
        """Look once.

        Raises:
            SinkUnreachable: no connection, or no answer.
        """
        import psycopg

        try:
            with closing(psycopg.connect(self.dsn, connect_timeout=_PATIENCE_S)) as connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{_PATIENCE_S}s",))
                snapshot = self._read(connection)
                # Waited for: a server that learns late of the end of a connection shows the next reader a leak.
                connection.rollback()
                return snapshot
        except psycopg.Error as error:
            raise SinkUnreachable(self.sink, mask(str(error).strip() or type(error).__name__)) from error

    def _read(self, connection: Any) -> Seen:
        from psycopg import sql
        from psycopg.rows import dict_row

        names = self.columns.names
        rows: list[Mapping[str, Any]] = []
        if there(connection, self.table):
            listed = sql.SQL(", ").join(sql.Identifier(name) for name in names)
            query = sql.SQL("SELECT {} FROM {}").format(listed, sql.Identifier(*self.table.split(".")))
            with connection.cursor(row_factory=dict_row) as cursor:
                rows = [*cursor.execute(query)]
        marked = connection.execute(_MARKERS, (self.sink,)) if there(connection, "onceonly.epoch") else ()
        marks = tuple(_mark(json.loads(text), generation, count) for generation, count, text in marked)
        return self.columns.seen(rows, marks, [leak for (leak,) in connection.execute(_LEAKS)])


def there(connection: Any, table: str) -> bool:
    """Whether there is a table of this name."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
    (relation,) = connection.execute("SELECT to_regclass(%s)", (quoted,)).fetchone()
    return relation is not None


def _mark(marker: Mapping[str, Any], generation: int, rows: int) -> Mark:
    digest = marker["epoch"]["digest"]
    digest_text = f"{digest['rows']}:{digest['high']}:{digest['low']}"
    filtered, bad = _beside(marker["epoch"].get("outputs", ()), marker["sink"])
    return Mark(
        marker["epoch"]["number"], generation, rows, digest_text, filtered, bad, _time(marker["epoch"].get("time"))
    )


def _time(epoch_time: Mapping[str, Any] | None) -> MarkTime | None:
    return (
        None
        if epoch_time is None
        else MarkTime(
            epoch_time.get("complete_until"), epoch_time.get("dataset_complete_until"), epoch_time.get("resets", 0)
        )
    )


def _beside(outputs: Sequence[Mapping[str, Any]], sink: str) -> tuple[int | None, int | None]:
    """Rows of an epoch that a sink does not want, and bad ones that are in another; nothing where it has no outputs."""
    if not outputs:
        return None, None
    ours: Mapping[str, Any] = next((output for output in outputs if sink in output.get("sinks", ())), {})
    bad = sum(output["digest"]["rows"] for output in outputs if output["name"] == BAD and output is not ours)
    return ours.get("filtered", 0), bad


def delta_rows(table: DeltaTable, columns: Sequence[str]) -> pa.Table:
    """Rows of an opened version of a Delta table.

    Arrow reads from a disk by its own file system: its threads may close a file after the last line of a program, and a
    file that Python opened, as deltalake's are, aborts the interpreter's exit then.
    """
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    scheme, _, path = table.table_uri.partition("://")
    files = SubTreeFileSystem(unquote(path), LocalFileSystem()) if scheme == "file" else None
    rows: pa.Table = table.to_pyarrow_dataset(filesystem=files).to_table(columns=list(columns))
    return rows


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """Reads one version of a Delta table: its rows, and the markers in its log up to that version.

    Attributes:
        sink: sink id.
        uri: of the table.
        columns: what to look at.
    """

    sink: str
    uri: str
    columns: Columns

    def __call__(self) -> Seen:
        """Look once. Where there is no table yet there are no rows; where its directory cannot be is no answer.

        Raises:
            SinkUnreachable: the storage or the log gives no answer.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if not DeltaTable.is_deltatable(self.uri):
                return self._nothing()
            table = DeltaTable(self.uri)
            # A table that was only fenced so far has no columns of the batch yet.
            rows = delta_rows(table, self.columns.names).to_pylist() if table.file_uris() else []
            marks = tuple(self._marks(table))
        except (DeltaError, OSError) as error:
            raise SinkUnreachable(self.sink, mask(str(error))) from error
        return self.columns.seen(rows, marks)

    def _nothing(self) -> Seen:
        if "://" not in self.uri and not Path(self.uri).parent.is_dir():
            raise SinkUnreachable(self.sink, f"there is no directory {Path(self.uri).parent}")
        return Seen((), ())

    def _marks(self, table: Any) -> Iterator[Mark]:
        version = table.version()
        for commit in reversed(table.history()):
            note = json.loads(commit.get("userMetadata") or "{}") if commit["version"] <= version else {}
            # A fence repeats the newest marker; only the commit that brought the rows says nothing of another one.
            if "onceonly" in note and note["marker"] and note["at"] is None and note["marker"]["sink"] == self.sink:
                yield _mark(note["marker"], note["marker"]["fence"]["generation"], note["rows"])


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Reads a topic as a consumer of committed records does, partition by partition; a record's value is JSON.

    Its markers lie in another topic and become visible at another moment, so they are not read here.

    Attributes:
        sink: sink id.
        servers: ``host:port`` of brokers.
        topic: the topic.
        columns: which fields of the value to look at.
        patience: seconds to wait for any one answer.
        isolation: as a consumer's ``isolation.level``; any other than the default shows what may never be committed.
    """

    sink: str
    servers: str
    topic: str
    columns: Columns
    patience: float = _PATIENCE_S
    isolation: str = "read_committed"

    def __call__(self) -> Seen:
        """Look once. A transaction that is open now shows as a leak.

        Raises:
            SinkUnreachable: the brokers give no answer.
        """
        from confluent_kafka import Consumer, KafkaException

        settings = {
            "bootstrap.servers": self.servers,
            "group.id": "onceonly-lab",
            "isolation.level": self.isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
        try:
            with closing(Consumer(settings)) as consumer:
                partitions = self._partitions(consumer)
                rows = [row for partition in partitions for row in self._rows(consumer, partition)]
                return self.columns.seen(rows, None, [*self._open(partitions)])
        except KafkaException as error:
            raise SinkUnreachable(self.sink, mask(str(error))) from error

    def _partitions(self, consumer: Any) -> list[Any]:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        metadata = consumer.list_topics(self.topic, timeout=self.patience).topics[self.topic]
        if metadata.error is not None and metadata.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(metadata.error)
        return [TopicPartition(self.topic, partition, _BEGINNING) for partition in sorted(metadata.partitions)]

    def _rows(self, consumer: Any, partition: Any) -> Iterator[Mapping[str, Any]]:
        from confluent_kafka import KafkaError, KafkaException

        consumer.assign([partition])
        while (message := consumer.poll(self.patience)) is not None:
            if message.error() is None:
                yield self.columns.record(message.key(), message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(message.error())
        raise SinkUnreachable(self.sink, f"neither a record nor the end of {self.topic} in {self.patience} s")

    def _open(self, partitions: list[Any]) -> Iterator[str]:
        """Partitions whose committed records end before their last one."""
        from confluent_kafka import IsolationLevel, TopicPartition

        # Its published types leave out OffsetSpec.
        admin: Any = import_module("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        latest = admin.OffsetSpec.latest()
        offset_specs = {TopicPartition(partition.topic, partition.partition): latest for partition in partitions}

        def ends(isolation: IsolationLevel) -> dict[int, int]:
            futures = client.list_offsets(offset_specs, isolation_level=isolation, request_timeout=self.patience)
            return {
                topic_partition.partition: int(answer.result(self.patience).offset)
                for topic_partition, answer in futures.items()
            }

        if offset_specs:
            stable, last = ends(IsolationLevel.READ_COMMITTED), ends(IsolationLevel.READ_UNCOMMITTED)
            late = [number for number in sorted(last) if stable[number] < last[number]]
            yield from (f"open transaction in {self.topic}/{number} from offset {stable[number]} on" for number in late)
