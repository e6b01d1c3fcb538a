"""Check and commit batches of ``format("onceonly")``.

Checks run before a row is computed. Each batch then goes the way of ``write_epoch``. The batch is made of messages
of tasks, of the checkpoint's files and of options. The committing process of Spark has no session. It may or may
not last from one batch to the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.api import admission
from onceonly.api.arguments import Arguments
from onceonly.api.format_options import Options, need_xxhash
from onceonly.api.run_state import RunState
from onceonly.api.write_epoch import Epochs
from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.machine.state import State
from onceonly.protocol import Inspectable
from onceonly.runtime import events
from onceonly.runtime.staged_files import Directory, LocalDirectory, directory, hindrance
from onceonly.runtime.staging import folder_of
from onceonly.spark import digest, float_lineage, frames
from onceonly.spark.datasource.partition_files import PartitionFile, Parts
from onceonly.spark.datasource.query_files import Query
from onceonly.spark.fingerprint import Determinism
from onceonly.spark.input import read_input
from onceonly_checkpoints.manifest import NAME

if TYPE_CHECKING:
    from onceonly.spark.datasource.writer import Writer
    from onceonly.spark.frames import StructType

log = logging.getLogger(__name__)


def stream_writer(raw_options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """Make the writer of one batch. ``overwrite``: each batch is the whole result.

    Raises:
        ConfigurationError: E101, E102, E108, E110 or E150, with the causes of :class:`Options`. E113 another PySpark.
            E114 tasks cannot write there. E150 complete mode, or a column that only Spark can hash.
        IdentityError: E247, a sink cannot replace rows, and ``on_refresh`` asks for it.
    """
    from onceonly.spark.datasource.writer import Writer

    if overwrite:
        raise refuse(
            "E150",
            problem="in output mode complete each epoch would be the whole table",
            cause='.outputMode("complete")',
            next='.outputMode("append"); or foreachBatch with a sink that has a key: exactly_once(sink)',
        )
    options = Options.parse(raw_options)
    need_xxhash()
    admission.check_columns(options.arguments(), options.pipeline, schema.names, folds=True)
    if why := digest.why_not_in_driver(schema):
        raise refuse(
            "E150",
            problem=why,
            cause="a nested column, or a type of which Arrow carries something else than its value",
            next="use foreachBatch: exactly_once(sink); or write the column as text: to_json(column)",
        )
    files = TaskFiles(options.staging, options.pipeline)
    files.make()
    return Writer(raw_options, schema, files.address, _left_out(options, schema), commit)


def _left_out(options: Options, schema: StructType) -> frozenset[str]:
    """Columns that a digest excludes. State may add floats in another order, and the plan hides which it adds."""
    if not options.deterministic:
        return frozenset()
    return frozenset(column.name for column in schema.fields if float_lineage.holds_float(column.dataType.jsonValue()))


@dataclass
class _Call:
    """A query's options in this process, and its epochs.

    ``opening`` is of the run that committed last, or ``None``. ``done`` is the id of the last batch that this process
    committed, or -1.
    """

    options: Options
    arguments: Arguments
    epochs: Epochs
    files: TaskFiles
    opening: RunState | None = field(default=None)
    done: int = -1

    @classmethod
    def of(cls, raw_options: Mapping[str, str]) -> _Call:
        options = Options.parse(raw_options)
        arguments = options.arguments()
        return cls(options, arguments, Epochs(arguments), TaskFiles(options.staging, options.pipeline))

    def write(self, schema: StructType, parts: Sequence[PartitionFile], batch_id: int) -> None:
        """Commit the rows of tasks, or prove that they are committed. Then remove files that are no longer needed."""
        query = Query.of(self.options.checkpoint, self.options.pipeline, parts, batch_id)
        plan = query.plan()
        # The checkpoint does not show the whole plan of a query with state.
        if plan.stateful and not self.options.deterministic:
            raise refuse(
                "E109",
                query=self.options.pipeline,
                problem="cannot be seen from a data source, so onceonly cannot check that it is deterministic",
                cause='it was written through format("onceonly")',
                next='.option("deterministic", "true") if nothing in it depends on time or chance; '
                "else use foreachBatch, which looks at the plan",
            )
        caller = query.caller(None)
        opening = self.epochs.openings.of(None, query, caller)
        with opening.writing(batch_id, caller.batch_id):
            # A source without an offset shows its kind with the first one.
            opening.run = replace(opening.run, plan=plan)
            if self.done != batch_id - 1:
                # Spark takes whichever of its processes is idle, so another one has committed in between, under a
                # fence of its own: what this one remembers is outdated, and the run opens again.
                opening.state = None
            batch = Parts(parts, frames.in_arrow(schema))
            state = self._write(opening, schema, batch, batch_id)
        self.done = batch_id
        self._note_other_rows(opening, state, batch)
        self._tidy(opening, state, batch_id)

    def _write(self, opening: RunState, schema: StructType, batch: Parts, batch_id: int) -> State:
        columns = [(column.name, column.dataType.simpleString()) for column in schema.fields]
        determinism = Determinism(left_out=_left_out(self.options, schema))
        opening.written, opening.columns, self.epochs.written = determinism, columns, determinism
        read = replace(read_input(None, batch_id, opening.run, columns), estimate=batch.estimate)
        try:
            return self.epochs.write(opening, batch, read, frames.columns_of(schema), determinism)
        except OnceOnlyError as refused:
            raise self._for_want_of_spark() or refused from None

    def _for_want_of_spark(self) -> OnceOnlyError | None:
        """The refusal of a target that needs a session, worded for this format."""
        for sink in self.arguments.sinks:
            if isinstance(sink, Inspectable) and (why := sink.needs_spark()):
                return refuse(
                    "E150",
                    problem=f"{sink.id} can only be written by Spark ({why})",
                    cause="a property of the table, which Spark's own writer knows and deltalake does not",
                    next="use foreachBatch with a session that has Delta: exactly_once(sink)",
                )
        return None

    def _note_other_rows(self, opening: RunState, state: State, batch: Parts) -> None:
        """Record a replay that gave other rows. The committed rows stay."""
        epoch = state.work.epoch
        if not state.work.skipped or epoch is None or epoch.digest == batch.digest():
            return
        happening = events.other_rows(opening.pipeline, epoch)
        opening.runner.events.keep(opening.pipeline, [happening], state.opening.fence.generation)

    def _tidy(self, opening: RunState, state: State, batch_id: int) -> None:
        run, generation = opening.run.run_id, state.opening.fence.generation
        self.files.drop(run, batch_id)
        if opening is self.opening:
            return
        newest = state.work.epoch.number if state.work.epoch else 0
        records = opening.ledger.epochs(opening.pipeline, max(1, newest - _LOOKS_BACK), newest)
        lineages = (record.epoch.lineage for record in records if record.fence.generation < generation)
        self.files.sweep(run, frozenset(lineage.run_id for lineage in lineages if lineage is not None))
        if self.opening is not None:
            self.opening.run.handle.set()
        self.opening = opening


_calls: dict[tuple[tuple[str, str], ...], _Call] = {}
"""By options: Spark's process commits batch after batch, and those of several queries."""


def commit(raw_options: Mapping[str, str], schema: StructType, parts: Sequence[PartitionFile], batch_id: int) -> None:
    """Commit a batch to every sink, or prove that it is committed. ``parts`` come from the batch's tasks.

    Raises:
        OnceOnlyError: the batch was not written. The message has the reason and the next step.
    """
    key = tuple(sorted(raw_options.items()))
    try:
        call = _calls.get(key)
        if call is None:
            call = _calls[key] = _Call.of(raw_options)
        call.write(schema, parts, batch_id)
    except OnceOnlyError as refused:
        log.error("%s", refused)
        log.debug("what led to it", exc_info=refused)
        # The message says all; what led to it would only bury it in Spark's traceback.
        raise refused.with_traceback(None) from None


def batch_writer() -> Any:
    """Refuse a batch write (E110)."""
    raise misused(
        'format("onceonly") is for streams: a batch write has no epoch.',
        'df.write.format("onceonly"), or INSERT INTO',
        'df.writeStream.format("onceonly"), or an ordinary df.write to the table itself',
    )


# ---- Files of tasks before their commit, and their sweeping. An epoch's staging renames the files. What stays here is
# garbage once the batch is committed, and for ever if its run died before. Their names hold no generation. The ledger
# knows which run wrote an epoch under a lower one. Files of a run that it does not know are removed after a day
# without a change.

ALONE_S = 24 * 3600.0
"""Seconds after which files of an unknown run are garbage."""

_LOOKS_BACK = 1000
"""Epochs in which older runs are looked for: each opening sweeps, so what it finds is of the run before it."""


class TaskFiles:
    """Files of one pipeline's tasks, below the path or URL of its staged epochs (E114: cannot be staged there)."""

    def __init__(self, root: str, pipeline: str) -> None:
        self._directory = directory(root).child(f"{folder_of(pipeline)}tasks")

    @property
    def address(self) -> str:
        """Directory that tasks write to."""
        return self._directory.address

    def make(self) -> None:
        """Create the directory before tasks begin (E114): an obstacle for this process is one for them too."""
        try:
            self._directory.make()
        except OSError as error:
            cause, next_ = hindrance(error)
            raise refuse("E114", place=self._directory.address, cause=cause, next=next_) from error

    def drop(self, run_id: str, batch_id: int) -> None:
        """Remove the files that tasks of a batch wrote. Files that cannot be removed stay for the next opening."""
        self._directory.child(run_id).child(str(batch_id)).remove(NAME)

    def sweep(self, own: str, older: Collection[str]) -> None:
        """Remove files of other runs: of those known as ``older``, and of those without a change for a day."""
        for name in self._directory.names():
            run = self._directory.child(name)
            if name != own and (name in older or _left_alone(run) > ALONE_S):
                run.remove(NAME)


def _left_alone(run: Directory) -> float:
    """Seconds since the last change of any file in it, or 0 if the store does not report it."""
    if not isinstance(run, LocalDirectory):
        return 0.0
    return time.time() - max((_changed(path) for path in (run.path, *run.path.rglob("*"))), default=time.time())


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # a task that has just tidied up
        return time.time()
