"""Replay epochs through the query: same rows, clock and watermark.

Each batch starts from a replay checkpoint with one uncommitted entry, under ``trigger(once=True)``. Spark runs that
batch and plans no other, regardless of waiting input. The batch is compared with the record before any row is passed
on. Nothing is written but the replay checkpoint, which is removed.
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.replay.replay_files import Origin, discard, prepare, replays_of
from onceonly.spark import input
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import QueryPlan, Run, is_remote, stream_of
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.model import SourceOffsets, shorten_list
from onceonly_checkpoints.spark.replay_plan import CannotReplay, MissingInput, StateFrom, Step, plan_steps
from onceonly_checkpoints.storage import FileStore, open_storage, root_by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Job = Callable[[SparkSession], DataFrame | DataStreamWriter]
    """Gives a query that is not started: its stream, or its writer with the output mode. Checkpoint, trigger, name and
    ``foreachBatch`` are set over whatever it set."""

    Each = Callable[[tuple[EpochRecord, ...], DataFrame], None]
    """Gets the rows of epochs that were run as one batch. With state it reads them once, to the last."""

_PARTITIONS = "spark.sql.shuffle.partitions"

_CLOCK = re.compile(r"\.(Now|Current(Batch)?Timestamp|CurrentDate|CurrentTime|LocalTimestamp)\b")
"""Classes of expressions that give the time of a batch, as a plan in JSON names them."""

_GONE = re.compile(
    r"\[(KAFKA_DATA_LOSS|FAILED_READ_FILE|DELTA_FILE_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|DELTA_TRUNCATED_TRANSACTION_LOG"
    r"|DELTA_VERSIONS_NOT_CONTIGUOUS|PATH_NOT_FOUND)[^\]]*\]|\b(OffsetOutOfRangeException|KafkaIllegalStateException)\b"
)
"""Error classes of Spark's and Delta's sources for input that is gone, and Java's names of Kafka's, which have none.
They are only in the text: Spark wraps the error of a query in its own class."""


@dataclass(frozen=True)
class Replay:
    """Recorded epochs of one pipeline, and the query that runs them again.

    Args:
        spark: a classic session.
        job: returns the query, called once.
        records: with their file lists. All from the first on if state grows from the beginning, if batches were
            trimmed, and to find the origin of state.
        checkpoint: the query's own, as recorded. It may be lost if no state is copied from it.
    """

    spark: SparkSession
    job: Job
    records: Sequence[EpochRecord]
    checkpoint: str
    ledger: str
    transform: Callable[[DataFrame], DataFrame] | None = None

    @cached_property
    def plan(self) -> QueryPlan:
        """The query's plan, with ``transform=`` (E113: another PySpark. E110: no stream, or Spark Connect)."""
        return engine_for(self.stream).foreseen(self.shaped(self.stream))

    @property
    def clock(self) -> bool:
        """Whether rows depend on the time of their batch, as far as the plan shows."""
        text = self.plan.text
        return text is None or _CLOCK.search(text) is not None

    def shaped(self, rows: Any) -> Any:
        """Return rows as written: through ``transform=``."""
        return self.transform(rows) if self.transform else rows

    def run(self, epochs: range, each: Each, *, state: StateFrom = StateFrom.COPIED, coalesce: int = 1) -> None:
        """Run epochs again, oldest first. Those without a batch are left out.

        ``epochs`` are dense numbers, of which up to ``coalesce`` consecutive ones run as one batch. ``each`` gets the
        rows of each batch, inside its callback.

        Raises:
            IdentityError: E230 the source lacks their input. E234 their input is not on record. E236 Spark ran another
                batch.
            StateError: E235, the state before them is not kept.
            ConfigurationError: E110, coalesced epochs whose rows depend on state or clock. E116, E126 the query reads
                missing input as no rows.
        """
        stateful = self.plan.stateful
        if coalesce != 1 and (stateful or self.clock or self.plan.nondeterministic):
            problem = "epochs whose rows depend on state, or on the time or the order of their batch, as one batch"
            raise _unfit(problem, "leave coalesce out: one batch for each epoch")
        self._refuse_passing_over()
        with self._translated():
            steps = plan_steps(
                self.records, epochs.start, epochs.stop - 1, stateful=stateful, state=state, coalesce=coalesce
            )
        with self._replay_directory() as directory:
            at, own = "", ""
            for number, step in enumerate(steps):
                if step.fresh:
                    at, own = f"{directory}/{number}", str(uuid.uuid4())
                storage, origin = open_storage(at), Origin(open_storage(self.checkpoint))
                conf = {_PARTITIONS: str(self.spark.conf.get(_PARTITIONS))}
                with self._translated():
                    prepare(step, storage, origin, query_id=own, conf=conf, about=self.checkpoint)
                self._start(step, storage, at, each)
                if not stateful:
                    discard(at)

    @cached_property
    def _query(self) -> Any:
        return self.job(self.spark)

    @cached_property
    def stream(self) -> Any:
        """The query's stream, without ``transform=`` (E110: there is none, or it is one of Spark Connect)."""
        query = self._query
        if is_remote(query):
            raise _unfit("a session of Spark Connect", "give a classic session: SparkSession.builder.master(...)")
        stream = stream_of(query) if _is_writer(query) else query
        if not getattr(stream, "isStreaming", False):
            problem = f"a function that gives {type(query).__name__} and no stream"
            raise _unfit(problem, "have it return the DataFrame of spark.readStream, or its .writeStream")
        return stream

    def _refuse_passing_over(self) -> None:
        """Refuse a source that skips missing input, as for a running query."""
        for source in self.plan.sources:
            if source.reads_on:
                raise refuse("E116", query=self._pipeline, source=source.origin)
            if source.passes_over:
                raise refuse("E126", query=self._pipeline, source=source.origin, setting=source.passes_over)

    @property
    def _pipeline(self) -> str:
        return self.records[0].pipeline if self.records else ""

    @contextmanager
    def _replay_directory(self) -> Generator[str]:
        directory = f"{replays_of(self.checkpoint)}/{uuid.uuid4().hex}"
        try:
            yield directory
        finally:
            discard(directory)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except CannotReplay as error:
            about = {"pipeline": self._pipeline, "first": error.first, "reason": error.reason}
            if error.lacking is MissingInput.STATE:
                raise refuse("E235", next=self._grown(), **about) from error
            raise refuse("E234", last=error.last, ledger=self.ledger, **about) from error

    def _start(self, step: Step, storage: FileStore, at: str, each: Each) -> None:
        query, stopped, came, done = self._query, list[BaseException](), list[int](), list[int]()

        def batch(df: DataFrame, batch_id: int) -> None:
            came.append(batch_id)
            try:
                engine = engine_for(df)
                self._check(step, engine.discover(df), partial(engine.file_size, df), batch_id)
                if step.is_requested:
                    each(step.records, self.shaped(df))
                else:
                    df.write.format("noop").mode("append").save()
            except BaseException as error:
                stopped.append(error)
                # On any other error, Spark's side would wait for an answer for ever.
                raise error if isinstance(error, Exception) else RuntimeError("interrupted") from error
            done.append(batch_id)

        writer = query if _is_writer(query) else query.writeStream
        writer = writer.foreachBatch(batch).option("checkpointLocation", root_by_spark(at))
        running = writer.queryName(f"{self._pipeline} (replay {uuid.uuid4().hex[:8]})").trigger(once=True).start()
        try:
            running.awaitTermination()
        except Exception as error:
            if stopped:
                raise self._translate_error(step, stopped[0]) from None
            failure = self._translate_error(step, error)
            if not came and failure is error:  # the query cannot even plan what is on record
                line = str(error).partition("\n")[0].partition("terminated with exception: ")[2]
                did = f"nothing ({line or type(error).__name__})"
                failure = self._another(step, "what it ran", did, f"batch {step.batch_id}")
            raise failure from error
        if done != [step.batch_id]:
            raise self._another(
                step, "what it ran", f"batches {done}" if done else "no batch", f"batch {step.batch_id}"
            )

    def _translate_error(self, step: Step, error: BaseException) -> BaseException:
        """Return the error of a start, as a refusal if a source reports missing input."""
        gone = None if isinstance(error, OnceOnlyError) else _GONE.search(str(error))
        return self._lacks(step, f"Spark reports {gone[1] or gone[2]}") if gone else error

    def _grown(self) -> str:
        where = f"--query {shlex.quote(self._pipeline)} --ledger {shlex.quote(self.ledger)}"
        grow = 'let the state grow from the first batch: state="beginning", or --state beginning'
        return f"{grow}\nevery batch of the query must be on record for that: onceonly epochs list " + where

    def _lacks(self, step: Step, reason: str) -> OnceOnlyError:
        about = {"pipeline": self._pipeline, "first": step.first, "last": step.last}
        where = f"{step.first} --query {shlex.quote(self._pipeline)} --ledger {shlex.quote(self.ledger)}"
        return refuse("E230", reason=reason, next="see the recorded input: onceonly epochs show " + where, **about)

    def _another(self, step: Step, what: str, actual: object, recorded: object) -> OnceOnlyError:
        about = {"pipeline": self._pipeline, "epoch": step.last, "ledger": self.ledger}
        return refuse("E236", what=what, found=str(actual), recorded=str(recorded), **about)

    def _check(self, step: Step, run: Run, size: input.Size, batch_id: int) -> None:
        """Check that this is the recorded batch, before any row of it is read."""
        if batch_id != step.batch_id:
            raise self._another(step, "the number of the batch", batch_id, step.batch_id)
        logs = input.see(batch_id, run)
        recorded = {source.source: source.identity for source in step.records[-1].epoch.sources}
        identities = {source.source: source.identity for source in logs.sources if recorded.get(source.source)}
        expected_identities = {source: identity for source, identity in recorded.items() if identity}
        for what, actual, expected in (
            ("where it starts", _known_offsets(logs.slice.start), _known_offsets(step.slice.start)),
            ("where it ends", _known_offsets(logs.slice.end), _known_offsets(step.slice.end)),
            ("what its sources are", identities, expected_identities),
            ("the list of its files", _listed(logs.files), _listed(step.files)),
            ("its clock", logs.lineage.batch_timestamp_ms, step.lineage.batch_timestamp_ms),
            ("its watermark", logs.lineage.watermark_ms, step.lineage.watermark_ms),
        ):
            if actual != expected:
                raise self._another(step, what, actual, expected)
        # Spark silently reads a missing file as no rows.
        _, missing = input.stat(logs.files, size)
        if missing:
            raise self._lacks(step, f"{shorten_list(missing, 1)} is gone")


def _is_writer(query: Any) -> bool:
    # On the class: an instance of DataFrame returns a column for any name.
    return hasattr(type(query), "foreachBatch")


def _known_offsets(offsets: SourceOffsets) -> Mapping[str, str]:
    return {source: offset for source, offset in offsets.entries if offset is not None}


def _listed(files: Sequence[Any]) -> list[tuple[str, str, int]]:
    return [(file.source, file.path, file.modified_ms) for file in files]


def _unfit(problem: str, next_: str) -> OnceOnlyError:
    cause = "each recorded batch is started on its own, from a checkpoint that is made for it"
    return misused(f"Recorded epochs cannot be replayed with {problem}.", cause, next_)
