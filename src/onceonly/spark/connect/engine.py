"""Spark Connect engine: checkpoint files, ``streams.active`` and ``explain``. No JVM.

The callback runs in a process beside the server (:mod:`worker <onceonly.spark.connect.worker>`). Spark gives this
process neither the query's name nor its checkpoint. Both come with the callback, and are checked here against the
server.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.spark import digest
from onceonly.spark import engine as spark_engine
from onceonly.spark.connect import reads, worker
from onceonly.spark.connect.reads import PlanText
from onceonly.spark.digest import Summed
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.storage import Readable, root_by_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FIELDS = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = "1000000"
_TRIES = 5
"""Another callback of the same session sets the setting back to what it was before; both then ask again."""

_FILES = "FileStreamSource"


class ConnectEngine:
    """``SparkEngine`` by public calls, which documents each method."""

    def __init__(self) -> None:
        self._files: dict[str, Readable] = {}

    # ---- who is calling

    def caller(self, df: DataFrame, hint: spark_engine.QueryHint = spark_engine.NOTHING_TOLD) -> spark_engine.Caller:
        """Identify the batch, the newest planned one of the process's run (E106: no or another checkpoint)."""
        if hint.checkpoint is None:
            raise worker.untold()
        # No property of a thread says it here. A batch's offsets are on the disk before its callback begins.
        planned = offsets.offset_ids(self._checkpoint(df, hint.checkpoint))
        if not planned:
            raise _no_checkpoint(hint.checkpoint, "it holds no offsets of a batch")
        return spark_engine.Caller(hint.checkpoint, planned[-1])

    def group(self, df: DataFrame) -> str:
        """Return nothing: a job group belongs to a thread in the server."""
        return ""

    def application(self, df: DataFrame) -> str:
        """Spark's id of the application."""
        return str(df.sparkSession.conf.get("spark.app.id", None) or "")

    def discover(self, df: DataFrame, hint: spark_engine.QueryHint = spark_engine.NOTHING_TOLD) -> spark_engine.Run:
        """Discover a run by some files and three calls (E106: no active query of this name has the checkpoint)."""
        if hint.checkpoint is None:
            raise worker.untold()
        checkpoint_files = self._checkpoint(df, hint.checkpoint)
        query = self._query(df, hint, checkpoint_files)
        text = _explained(worker.session_of(df), lambda: query.explain(True))
        worker.watch()
        return spark_engine.Run(
            run_id=str(query.runId),
            query_id=str(query.id),
            name=query.name,
            checkpoint=root_by_spark(hint.checkpoint),
            # Spark refuses every other trigger and tracking for a query that writes by a callback.
            mode=None,
            temporary=False,
            session=hint.checkpoint,
            plan=_plan(df, text, checkpoint_files),
            engine=self,
            handle=query,
            files=checkpoint_files,
        )

    def still_running(self, df: DataFrame, query_id: str, run_id: str) -> bool:
        """Check whether a run is active in this session, the only one that this process can see."""
        active = worker.session_of(df).streams.active
        return any((str(query.id), str(query.runId)) == (query_id, run_id) for query in active)

    def await_end(self, run: spark_engine.Run) -> None:
        """Wait for the end of this process, which ends with the run."""
        worker.await_end()

    def _checkpoint(self, df: DataFrame, checkpoint: str) -> Readable:
        if checkpoint not in self._files:
            self._files[checkpoint] = reads.files_of(worker.session_of(df), checkpoint)
        return self._files[checkpoint]

    def _query(self, df: DataFrame, hint: spark_engine.QueryHint, checkpoint_files: Readable) -> Any:
        checkpoint = str(hint.checkpoint)
        try:
            query_id = offsets.query_id(checkpoint_files)
        except offsets.UnreadableCheckpoint as error:
            raise _no_checkpoint(checkpoint, error.reason) from error
        active = list(worker.session_of(df).streams.active)
        query = next((candidate for candidate in active if str(candidate.id) == query_id), None)
        if query is None:
            raise _no_checkpoint(checkpoint, "no active query of this session writes it")
        if hint.name is None and len(active) > 1:
            raise _unsure(checkpoint, len(active))
        if hint.name is not None and query.name != hint.name:
            raise _another(checkpoint, query.name, hint.name)
        return query

    # ---- what a batch reads

    def entries(self, run: spark_engine.Run, numbers: Sequence[int]) -> Mapping[int, str] | None:
        """Return ``None``, so that the checkpoint's files are read."""
        return None

    def file_size(self, df: DataFrame, path: str) -> int | None:
        """Read the size through Spark's own reader of files, which reaches the query's input."""
        return reads.size(df.sparkSession, path)

    def late_rows(self, run: spark_engine.Run) -> int:
        """Return 0: a batch's progress exists only after its callback has returned."""
        return 0

    # ---- plans

    def foreseen(self, df: DataFrame) -> spark_engine.QueryPlan:
        """Return the plan of a query before its start."""
        text = _explained(df.sparkSession, lambda: df.explain(True))
        sources = tuple(_foreseen_source(at, line) for at, line in enumerate(text.relations))
        return spark_engine.QueryPlan(text.stateful, text.nondeterministic(), sources, unseen=_unseen(text, sources))

    def analysed(self, rows: DataFrame, *, started: bool) -> spark_engine.AnalysedPlan:
        """Return the analysed plan by its text."""
        text = _explained(rows.sparkSession, lambda: rows.explain(True))
        return PlanText(text.all, clocks=started)

    # ---- rows

    def hadoop_setting(self, df: DataFrame, name: str) -> str | None:
        """Read the session's setting. Hadoop's own files on the server cannot be read."""
        value: str | None = df.sparkSession.conf.get(f"spark.hadoop.{name}", None)
        return value

    def hashed(self, df: DataFrame, leave_out: frozenset[str]) -> DataFrame:
        """The rows with their hash."""
        return reads.hashed(df, leave_out)

    def observed(
        self,
        df: DataFrame,
        leave_out: frozenset[str],
        summed: tuple[Summed, ...] = (),
        batch_metrics: tuple[Column, ...] = (),
    ) -> spark_engine.Observed:
        """The rows with their digest on the side."""
        return reads.Observation(df, digest.observable(df.schema, leave_out, summed), batch_metrics)

    def arrow(self, df: DataFrame) -> spark_engine.Rows:
        """Collect the rows in one table."""
        return reads.Collected(df)


# ---- The plan by texts and files.


def _explained(session: Any, explain: Any) -> PlanText:
    """Return the output of ``explain(True)`` with complete lists."""
    text = PlanText("")
    for _ in range(_TRIES):
        printed = StringIO()
        with _full_plans(session), redirect_stdout(printed):
            explain()
        text = PlanText(printed.getvalue())
        if not text.cut:
            break
    return text


@contextmanager
def _full_plans(session: Any) -> Generator[None]:
    """Print plans with all their columns for a while."""
    before = session.conf.get(_FIELDS, None)
    session.conf.set(_FIELDS, _ALL_FIELDS)
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_FIELDS)
        else:
            session.conf.set(_FIELDS, before)


def _plan(df: DataFrame, text: PlanText, checkpoint_files: Readable) -> spark_engine.QueryPlan:
    # Two signs, and either is enough: a query that is wrongly taken for stateless would lose its state.
    stateful = text.stateful or checkpoint_files.exists("state")
    entry = offsets.offset_entry(checkpoint_files, offsets.offset_ids(checkpoint_files)[-1])
    sources = tuple(_source(df, id_, offset, text, checkpoint_files) for id_, offset in entry.offsets.entries)
    return spark_engine.QueryPlan(stateful, text.nondeterministic(), sources, unseen=_unseen(text, sources))


def _unseen(text: PlanText, sources: Sequence[spark_engine.Source]) -> tuple[str, ...]:
    cut = ("an expression is another value in each run: the plan is too long to be seen whole",) if text.cut else ()
    anew = (reads.TOPICS_UNSEEN,) if any(source.brokers for source in sources) else ()
    return (*reads.UNSEEN, *anew, *cut)


def _source(
    df: DataFrame, id_: str, offset: str | None, text: PlanText, checkpoint_files: Readable
) -> spark_engine.Source:
    """Identify a source by its offset, else by its own files in the checkpoint."""
    if offsets.log_offset(offset) is not None or (offset is None and _keeps_files(checkpoint_files, id_)):
        # No text of a running query names its directory. Its log names the files, which are compared by their paths.
        return spark_engine.Source(id_, _FILES, _FILES, passes_over=spark_engine.passes_over(df, {}))
    if offsets.reservoir_id(offset) is not None:
        return spark_engine.Source(id_, "DeltaSource", "DeltaSource", passes_over=spark_engine.passes_over(df, {}))
    if offsets.partitions_of(offset):
        return spark_engine.Source(id_, "KafkaMicroBatchStream", "Kafka", brokers=spark_engine.UnknownBrokers())
    kind = next((part for part in ("TextSocket",) if part in text.all), "")
    return spark_engine.Source(id_, kind, kind or "a source that is not known here")


def _keeps_files(checkpoint_files: Readable, id_: str) -> bool:
    # Made with the source; a Kafka source has written its first offsets there before its first batch.
    return checkpoint_files.exists(f"sources/{id_}") and offsets.source_start(checkpoint_files, id_) is None


def _foreseen_source(at: int, line: str) -> spark_engine.Source:
    kind = _FILES if "FileSource[" in line else line
    brokers = spark_engine.UnknownBrokers() if "KafkaSourceProvider" in line else None
    return spark_engine.Source(str(at), kind, line, brokers, reads_on="failondataloss=false" in line.lower())


# ---- Refusals: what the callback was told is not what the server says.


def _no_checkpoint(checkpoint: str, reason: str) -> OnceOnlyError:
    return refuse(
        "E106",
        problem=f"{checkpoint} is not the checkpoint of this query: {reason}.",
        cause="checkpoint= and the query's checkpointLocation differ, or the server sees another disk under that path",
        next="give both the same place, as the server spells it; onceonly.start() gives the query this one",
    )


def _another(checkpoint: str, query_name: str | None, name: str) -> OnceOnlyError:
    whose = f'query "{query_name}"' if query_name else "a query without a name"
    return refuse(
        "E106",
        problem=f'{checkpoint} is the checkpoint of {whose}, and the callback is that of "{name}".',
        cause="checkpoint= names another query's checkpoint, or queryName and name= differ",
        next=f'add .queryName("{name}") to the writeStream and give it this checkpointLocation; '
        "onceonly.start() gives the query both",
    )


def _unsure(checkpoint: str, number: int) -> OnceOnlyError:
    return refuse(
        "E106",
        problem=f"{number} queries are active in this session, and none of them is proven to own {checkpoint}.",
        cause="name= is missing: a single query is known without it",
        next='name it: .queryName("orders") and exactly_once(sink, name="orders", checkpoint="/cp/orders")',
    )
