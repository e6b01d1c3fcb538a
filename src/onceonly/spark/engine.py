"""Spark engine protocol: every request beyond PySpark's public calls.

Public calls that are alike everywhere (``df.schema``, ``df.write``, ``mapInArrow`` for tasks on executors,
``spark.conf``) need no protocol and are made where they are needed. A request that needs a private API of PySpark, or
differs by the kind of session, is a method here. ``detect.engine_for`` returns the engine of a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from onceonly_checkpoints.storage import Readable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from onceonly.spark.digest import Summed

LOSSY = {"TextSocket": "socket", "MemoryStream": "memory"}
"""Sources that forget what they have handed out: part of their class's name, and what users call them."""


class Brokers(Protocol):
    """Brokers of a Kafka source. Asked for each batch, since a topic can be recreated between two."""

    servers: str

    def identity(self, topics: Iterable[str]) -> str | None:
        """Identify the topics of these offsets, or ``None`` if brokers do not answer, or not in time."""
        ...


class UnknownBrokers:
    """Brokers that cannot be asked: neither their address nor a login is known here."""

    servers = ""

    def identity(self, topics: Iterable[str]) -> str | None:
        """Unknown."""
        return None


@dataclass(frozen=True, slots=True)
class Source:
    """One source of the query.

    Attributes:
        id: its name, or its position. Names the directory of its own log in the checkpoint.
        origin: description, e.g. ``FileStreamSource[file:/in]``.
        passes_over: the setting with which it skips missing or damaged files, or ``None`` if it stops.
        reads_on: whether it continues past missing input.
        clears_up: ``archive`` or ``delete`` for files that it has read, or ``None`` if they stay.
    """

    id: str
    kind: str
    origin: str
    brokers: Brokers | None = field(default=None, repr=False, compare=False)
    passes_over: str | None = None
    reads_on: bool = False
    clears_up: str | None = None

    @property
    def lossy(self) -> str | None:
        """Kind of a source that cannot replay rows, or ``None`` for one that can, as far as is known."""
        return next((name for part, name in LOSSY.items() if part in self.kind), None)

    @property
    def reads_files(self) -> bool:
        """Whether it keeps a log of the files it has read."""
        return self.kind.endswith("FileStreamSource")


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The query's plan, read once per run.

    Attributes:
        nondeterministic: SQL of the first expression that another run may compute differently, or ``None``.
        text: the analysed plan, for :mod:`onceonly.spark.float_lineage`, or ``None`` if Spark cannot spell it.
        unseen: parts of a plan that this kind of session hides, as reasons why a guarantee may not hold.
        delays: of its watermarks, outermost first, as Spark spells them: ``text`` lacks them.
    """

    stateful: bool
    nondeterministic: str | None
    sources: tuple[Source, ...]
    text: str | None = field(default=None, repr=False, compare=False)
    unseen: tuple[str, ...] = field(default=(), repr=False, compare=False)
    delays: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def source(self, id_: str) -> Source:
        """Return the source of an id in the offset log: its name, or, in a log of version 1, its position."""
        return {**{str(at): source for at, source in enumerate(self.sources)}, **{s.id: s for s in self.sources}}[id_]


Describing = Callable[[], AbstractContextManager[Callable[[str], object]]]


def undescribed() -> AbstractContextManager[Callable[[str], object]]:
    """A context of sessions whose jobs take no description from the driver."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a query.

    Attributes:
        mode: why this run cannot have epochs (trigger, temporary checkpoint ...), or ``None`` if it can.
        temporary: whether the checkpoint is deleted when the query stops.
        handle: the running query, for that engine only.
        output: its output mode, ``append``, ``update`` or ``complete``. Empty if the engine does not provide it.
        entry: batch id and text of the offset log's last read entry. A run never changes logged entries.
        describing: a context whose function names what the jobs of this thread do, for the Spark UI.
    """

    run_id: str
    query_id: str
    name: str | None
    checkpoint: str
    mode: str | None
    temporary: bool
    session: str
    plan: QueryPlan
    engine: QueryEngine = field(repr=False, compare=False)
    handle: Any = field(repr=False, compare=False)
    files: Readable = field(repr=False, compare=False)
    output: str = field(default="", repr=False, compare=False)
    entry: dict[int, str] = field(default_factory=dict[int, str], repr=False, compare=False)
    describing: Describing = field(default=undescribed, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity of a callback's batch.

    Attributes:
        session: id of the session that the rows belong to. Each start of a query has its own, which its batches keep
            even if the callback changes the thread's properties. Rows that the callback made itself have another.
        batch_id: set by Spark for the batch that the thread is to write.
    """

    session: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class QueryHint:
    """Name and checkpoint of its query, as given to the callback. An engine that finds them by itself ignores it."""

    name: str | None = None
    checkpoint: str | None = None


NOTHING_TOLD = QueryHint()


class AnalysedPlan(Protocol):
    """Analysed plan of a DataFrame. Each call asks Spark: a few hundred calls into the JVM for a large plan."""

    def text(self) -> str | None:
        """Return the plan in Spark's JSON, for :mod:`onceonly.spark.float_lineage`, or ``None`` without a spelling."""
        ...

    def nondeterministic(self) -> str | None:
        """Return SQL of the first expression that another run may compute differently, or ``None``."""
        ...

    def leaves(self) -> tuple[Any, ...]:
        """Return what the plan reads, to be compared. Empty if this kind of session hides it."""
        ...


class Observed(Protocol):
    """A DataFrame whose first action computes its digest."""

    @property
    def dataframe(self) -> DataFrame:
        """DataFrame for the action."""
        ...

    def get(self) -> Mapping[str, Any]:
        """Return ``rows``, ``high``, ``low`` and other metrics. Waits for the end of the first action."""
        ...


class Rows(Protocol):
    """Rows on their way to the driver, as they come."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches in the order in which partitions finish. Raises the error that ended the job."""
        ...

    def close(self) -> None:
        """Release the job, finished or not. May repeat."""
        ...


class QueryEngine(Protocol):
    """Engine of streaming queries, which answers for a query and one of its batches, in its own form (``df``)."""

    # ---- who is calling

    def caller(self, df: DataFrame, hint: QueryHint = NOTHING_TOLD) -> Caller:
        """Identify the caller's batch, for each batch.

        Raises E110: not called from a streaming query. E106: the given identity does not match one.
        """
        ...

    def group(self, df: DataFrame) -> str:
        """Return the calling thread's job group: the run's id, unless the callback has set another. Empty for none."""
        ...

    def application(self, df: DataFrame) -> str:
        """Spark's id of the application."""
        ...

    def discover(self, df: DataFrame, hint: QueryHint = NOTHING_TOLD) -> Run:
        """Discover all constants of one start of the query, once per run. Raises as :meth:`caller`."""
        ...

    def still_running(self, df: DataFrame, query_id: str, run_id: str) -> bool:
        """Whether a run is active in this process."""
        ...

    def await_end(self, run: Run) -> None:
        """Block until the run has ended in any way: stopped, failed, or Spark gone with it."""
        ...

    # ---- what a batch reads

    def entries(self, run: Run, numbers: Sequence[int]) -> Mapping[int, str] | None:
        """Return logged entries in their text on disk, without missing ones. ``None``: the query cannot be asked."""
        ...

    def file_size(self, df: DataFrame, path: str) -> int | None:
        """Return bytes of an input file outside this machine's disk, or ``None`` if it is gone."""
        ...

    def late_rows(self, run: Run) -> int:
        """Count rows of the last executed batch that Spark dropped as older than the watermark.

        They are counted after the commit, so an unreadable count is 0 and stops no query.
        """
        ...


class SparkEngine(QueryEngine, Protocol):
    """One kind of Spark session, as seen from inside the callback of a streaming query."""

    # ---- plans

    def foreseen(self, df: DataFrame) -> QueryPlan:
        """Return the plan of a query before its start, by its streaming DataFrame. Runs nothing."""
        ...

    def analysed(self, rows: DataFrame, *, started: bool) -> AnalysedPlan:
        """Return the plan of the written rows, of a batch if ``started``, else of the stream.

        In a batch, clocks that the callback reads are its own. In a stream Spark puts the batch's time for most of
        them.
        """
        ...

    # ---- rows

    def hadoop_setting(self, df: DataFrame, name: str) -> str | None:
        """Return the application's setting of Hadoop, or ``None``."""
        ...

    def hashed(self, df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
        """Add the hash of the row as the last column, without hashing the columns of ``leave_out``."""
        ...

    def observed(
        self,
        df: DataFrame,
        leave_out: frozenset[str],
        summed: tuple[Summed, ...] = (),
        batch_metrics: tuple[Column, ...] = (),
    ) -> Observed:
        """Observe digests of the rows and of each column in ``summed``, and aggregates of this batch alone."""
        ...

    def arrow(self, df: DataFrame) -> Rows:
        """Start collecting the rows."""
        ...


# ---- What readers of files are told in the same way everywhere.

PASSING = ("ignoreMissingFiles", "ignoreCorruptFiles")
"""Options of Spark's readers of files, and behind ``spark.sql.files.`` settings of a session."""


def passes_over(df: DataFrame, options: Mapping[str, str]) -> str | None:
    """Return the setting that skips missing or damaged files, or ``None`` if reading stops.

    ``options``: options of the source, which override the session's settings. Their case does not matter.
    """
    lower_options = {name.lower(): value.lower() for name, value in options.items()}
    for name in PASSING:
        setting = f"spark.sql.files.{name}"
        if name.lower() in lower_options:
            if lower_options[name.lower()] == "true":
                return name
        elif str(df.sparkSession.conf.get(setting, "false")).lower() == "true":
            return setting
    return None


# ---- Read stream and output mode of a ``DataStreamWriter``: PySpark's private names.

__all__ = ["DataStreamWriter", "StreamingQuery", "output_of", "stream_of"]


def output_of(writer: Any) -> str:
    """Return the output mode of a writer of Spark Connect, or empty if it is not set, or set later."""
    return str(getattr(getattr(writer, "_write_proto", None), "output_mode", "")).lower()


def is_remote(of: object) -> bool:
    """Whether a session, or what came of one, is of Spark Connect. Without a call to Spark."""
    return type(of).__module__.startswith("pyspark.sql.connect")


def stream_of(writer: Any) -> DataFrame | None:
    """Return the stream of a writer, to inspect before the start, or ``None`` if this PySpark keeps it elsewhere."""
    if not is_remote(writer):
        stream: DataFrame | None = getattr(writer, "_df", None)
        return stream
    from pyspark.sql.connect.dataframe import DataFrame as Remote

    plan = getattr(getattr(writer, "_write_stream", None), "_child", None)
    session = getattr(writer, "_session", None)
    made: Any = Remote(plan, session) if plan is not None and session is not None else None
    return made
