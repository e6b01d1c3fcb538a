"""What onceonly asks of Spark beyond PySpark's public calls: one protocol, and the values that answer it.

Public calls that are alike everywhere (``df.schema``, ``df.write``, ``mapInArrow`` for tasks on executors,
``spark.conf``) need no protocol and are made where they are needed. What needs a private of PySpark, or a path of its
own on another kind of session, is a method here. ``choose.engine_for`` tells which engine a DataFrame is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from onceonly_checkpoints.storage import Readable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

    from onceonly.protocol import DataFrame
    from onceonly.spark.digest import Summed

LOSSY = {"TextSocket": "socket", "MemoryStream": "memory"}
"""Sources that forget what they have handed out: part of their class's name, and what users call them."""


class Brokers(Protocol):
    """What serves a Kafka source: asked for each batch, since a topic can be deleted and made anew between two."""

    def identity(self, topics: Iterable[str]) -> str | None:
        """What offsets of these topics are offsets of; ``None`` where brokers do not say it, or not in time."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """One source of the query.

    Attributes:
        id: its name, or its position; names the directory of its own log in the checkpoint.
        kind: class name.
        origin: description, e.g. ``FileStreamSource[file:/in]``.
        brokers: of a Kafka source, to ask; ``None`` for others.
        passes_over: the setting with which it reads files that are gone or damaged as no rows; ``None``: it stops.
        reads_on: whether it goes on past input that is gone.
        clears_up: what becomes of files that it has read, ``archive`` or ``delete``; ``None``: they stay.
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
        """The name of a kind of source that cannot give rows again; ``None`` for one that can, as far as is known."""
        return next((name for part, name in LOSSY.items() if part in self.kind), None)

    @property
    def reads_files(self) -> bool:
        """Whether it keeps a log of the files it has read."""
        return self.kind.endswith("FileStreamSource")


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What the query's plan is, found once per run.

    Attributes:
        stateful: whether any operator keeps state.
        nondeterministic: SQL of the first expression that another run may compute otherwise; ``None`` if there is none.
        sources: each source of the query, in the order of the plan.
        text: the analysed plan, for :mod:`onceonly.spark.float_lineage`; ``None`` where Spark cannot spell it.
        unseen: what this kind of session does not show of a plan, as reasons for which a promise may not hold.
        delays: of its watermarks, outermost first, as Spark spells them: ``text`` lacks them.
    """

    stateful: bool
    nondeterministic: str | None
    sources: tuple[Source, ...]
    text: str | None = field(default=None, repr=False, compare=False)
    unseen: tuple[str, ...] = field(default=(), repr=False, compare=False)
    delays: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def source(self, id_: str) -> Source:
        """The source behind an id of the offset log: its name, or, in a log of version 1, its position."""
        return {**{str(at): found for at, found in enumerate(self.sources)}, **{s.id: s for s in self.sources}}[id_]


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a query.

    Attributes:
        run_id: Spark's id of this start.
        query_id: Spark's id of the query.
        name: ``queryName``, or ``None``.
        checkpoint: resolved checkpoint root.
        mode: why epochs cannot be built on this run (trigger, temporary checkpoint ...); ``None`` if they can.
        temporary: whether the checkpoint is deleted when the query stops.
        session: as in :class:`Caller`.
        plan: what the plan is.
        engine: what found it, and is asked about it.
        handle: what that engine keeps of the running query; nobody else reads it.
        files: the checkpoint's files.
        output: its output mode, ``append``, ``update`` or ``complete``; empty where the engine does not say.
        entry: batch id and text of the offset log's entry read last; a run never changes what it has logged.
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


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose batch a callback was handed.

    Attributes:
        session: id of the session that the rows belong to. Each start of a query has its own, which its batches keep
            whatever the callback does to the thread's properties; rows that the callback made itself have another.
        batch_id: what Spark set for the batch that the thread is to write.
    """

    session: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class QueryHint:
    """What the callback was given to say of its query; an engine that finds it by itself does not ask.

    Attributes:
        name: of the pipeline, and then of the query.
        checkpoint: of the query, as the server reaches it.
    """

    name: str | None = None
    checkpoint: str | None = None


NOTHING_TOLD = QueryHint()


class AnalysedPlan(Protocol):
    """The analysed plan of a DataFrame. Each call asks Spark: a few hundred calls into the JVM for a large plan."""

    def text(self) -> str | None:
        """The plan as Spark spells it in JSON, for :mod:`onceonly.spark.float_lineage`; ``None`` where it cannot."""
        ...

    def nondeterministic(self) -> str | None:
        """SQL of the first expression that another run may compute otherwise; ``None`` if there is none."""
        ...


class Observed(Protocol):
    """A DataFrame whose digest is computed in the first action on it."""

    @property
    def dataframe(self) -> DataFrame:
        """What to act on."""
        ...

    def get(self) -> Mapping[str, Any]:
        """``rows``, ``high`` and ``low`` of the digest and what is beside; waits for the end of the first action."""
        ...


class Rows(Protocol):
    """Rows on their way to the driver, as they come."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches, in the order in which partitions finish; raises what ended the job."""
        ...

    def close(self) -> None:
        """Let the job go, wherever it is. May repeat."""
        ...


class QueryEngine(Protocol):
    """What runs streaming queries, as it is asked about a query and one of its batches.

    ``df`` is the batch, in whatever form this engine hands it out.
    """

    # ---- who is calling

    def caller(self, df: DataFrame, told: QueryHint = NOTHING_TOLD) -> Caller:
        """Whose batch this is; asked for each batch.

        Raises:
            ConfigurationError: E110 not called from a streaming query; E106 what was told does not lead to it.
        """
        ...

    def group(self, df: DataFrame) -> str:
        """The calling thread's job group: the run's id, unless the callback has set another; empty for none."""
        ...

    def application(self, df: DataFrame) -> str:
        """Spark's id of the application."""
        ...

    def discover(self, df: DataFrame, told: QueryHint = NOTHING_TOLD) -> Run:
        """Everything that stays the same for one start of the query: once per run.

        Raises:
            ConfigurationError: E110 not called from a streaming query; E106 what was told does not lead to it.
        """
        ...

    def still_running(self, df: DataFrame, query_id: str, run_id: str) -> bool:
        """Whether a run is active in this process."""
        ...

    def await_end(self, run: Run) -> None:
        """Block until the run has ended, however it ends: stopped, failed, or Spark gone with it."""
        ...

    # ---- what a batch reads

    def entries(self, run: Run, numbers: Sequence[int]) -> Mapping[int, str] | None:
        """Entries of the query's offset log, in the text that is on disk, too; without those that it has not.

        Returns:
            The entries; ``None`` where the query cannot be asked, and the checkpoint's files must say it.
        """
        ...

    def file_size(self, df: DataFrame, path: str) -> int | None:
        """Bytes of an input file that is not of this machine's disk; ``None`` if it is gone."""
        ...

    def late_rows(self, run: Run) -> int:
        """Rows of the batch that was executed last which Spark dropped, since they were older than the watermark.

        They are counted after the commit, so what cannot be asked counts as none and stops nobody.
        """
        ...


class SparkEngine(QueryEngine, Protocol):
    """One kind of Spark session, as seen from inside the callback of a streaming query."""

    # ---- plans

    def foreseen(self, df: DataFrame) -> QueryPlan:
        """The plan of a query that is not started yet, by its streaming DataFrame. Runs nothing."""
        ...

    def analysed(self, rows: DataFrame, *, started: bool) -> AnalysedPlan:
        """The plan of what is written.

        Args:
            rows: a batch as it is written; or, before the start, the stream.
            started: which of both. In a batch, clocks that the callback reads are its own; in a stream Spark puts the
                batch's time for most of them.
        """
        ...

    # ---- rows

    def hadoop_setting(self, df: DataFrame, name: str) -> str | None:
        """What the application says for a setting of Hadoop; ``None``: nothing."""
        ...

    def hashed(self, df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
        """The rows with their hash behind all columns; of what ``leave_out`` names, no column is hashed."""
        ...

    def observed(
        self,
        df: DataFrame,
        leave_out: frozenset[str],
        summed: tuple[Summed, ...] = (),
        beside: tuple[Column, ...] = (),
    ) -> Observed:
        """The rows with their digest on the side, and those of columns in ``summed``; else as for :meth:`hashed`.

        Args:
            df: the rows.
            leave_out: columns that the digest leaves out.
            summed: columns with a digest of their own.
            beside: aggregates of this batch alone, which is asked for them in the same action.
        """
        ...

    def arrow(self, df: DataFrame) -> Rows:
        """Start collecting the rows."""
        ...


# ---- What readers of files are told in the same way everywhere.

PASSING = ("ignoreMissingFiles", "ignoreCorruptFiles")
"""Options of Spark's readers of files, and behind ``spark.sql.files.`` settings of a session."""


def passes_over(df: DataFrame, given: Mapping[str, str]) -> str | None:
    """The setting with which files that are gone or damaged are read as no rows; ``None`` where reading stops.

    Args:
        df: of the session.
        given: options of the source, which count before the session's settings; their names in any case.
    """
    said = {name.lower(): value.lower() for name, value in given.items()}
    for name in PASSING:
        setting = f"spark.sql.files.{name}"
        if name.lower() in said:
            if said[name.lower()] == "true":
                return name
        elif str(df.sparkSession.conf.get(setting, "false")).lower() == "true":
            return setting
    return None
