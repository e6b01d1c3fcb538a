"""``replay.rerun``: run recorded epochs into another target, exactly once.

The rerun is a pipeline with its own fence, markers and records. Each of its epochs names the recorded ones that it ran
again, by their chain. So the target itself has the position from which an interrupted rerun resumes.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Literal

from onceonly.api.arguments import Arguments, Storage, check_name, check_transform
from onceonly.api.wrapper import ExactlyOnce
from onceonly.errors.options import checks_arguments, misused
from onceonly.machine.facts import Replays
from onceonly.machine.publish import standing_since
from onceonly.protocol import ReadsRows, Sink
from onceonly.protocol.capabilities import EPOCH
from onceonly.reading.epoch_rows import read_at
from onceonly.reading.points import opened
from onceonly.replay import rerun_request
from onceonly.replay.rerun_request import RerunRequest
from onceonly.replay.rerun_windows import windowed
from onceonly.replay.spark_replay import Replay
from onceonly.spark.detect import engine_for
from onceonly.spark.digest import quote
from onceonly.windows.rules.spec import Windows
from onceonly_checkpoints.digests import WINDOWS, Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs
from onceonly_checkpoints.ledger import LedgerPlace
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from onceonly.protocol import SparkSession
    from onceonly.replay.rerun_windows import Windowed
    from onceonly.replay.spark_replay import Each, Job

# ---- Diff the rows of two targets as bags, by recorded epoch.

SHOWN = 10
"""Rows of each side that are brought to the driver."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences of the rows of a range.

    ``less`` counts rows of the first side only, ``more`` those of the second. ``examples`` follow ``-`` or ``+``.
    """

    columns: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    less: int
    more: int
    examples: tuple[tuple[str, Row], ...]


def difference(
    before: DataFrame, after: DataFrame, old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]
) -> Difference:
    """Compare rows of epochs. Both frames have the column of ``protocol.EPOCH``.

    ``old`` are the first and last epochs of each range in ``before``, and ``new`` those of the same ranges in
    ``after``.
    """
    return compared(_of(before, old), _of(after, new))


def compared(before: DataFrame, after: DataFrame) -> Difference:
    """Compare all rows of both."""
    columns = [name for name in after.columns if name in before.columns]
    left, right = before.select(list(map(quote, columns))), after.select(list(map(quote, columns)))
    gone, come = left.exceptAll(right), right.exceptAll(left)
    examples = [("-", row) for row in gone.limit(SHOWN).collect()] + [("+", row) for row in come.limit(SHOWN).collect()]
    return Difference(
        columns=tuple(columns),
        only_before=tuple(name for name in before.columns if name not in after.columns),
        only_after=tuple(name for name in after.columns if name not in before.columns),
        less=gone.count(),
        more=come.count(),
        examples=tuple(examples),
    )


def _of(rows: DataFrame, epochs: Sequence[tuple[int, int]]) -> DataFrame:
    from pyspark.sql import functions as f

    number = f.col(quote(EPOCH))
    condition = f.lit(False)
    for first, last in epochs:
        condition |= number.between(first, last)
    return rows.where(condition).drop(EPOCH)


# ---- ``replay.rerun``: run recorded epochs into another target, exactly once.


@dataclass(frozen=True, slots=True)
class Rerun:
    """Rows of a rerun in its target.

    Attributes:
        held: each of its epochs with those that it ran again, oldest first.
        recorded: digest on record of each. With windows it is that of their results.
        written: number of epochs that this call wrote.
        sink: the target, not open.
        is_complete: it begins with the first epoch whose rows were not replaced.
    """

    name: str
    held: tuple[tuple[Epoch, ReplayedEpochs], ...]
    recorded: tuple[Digest, ...]
    written: int
    sink: Sink = field(repr=False)
    ledger: LedgerPlace = field(repr=False)
    is_complete: bool

    @property
    def rows(self) -> int:
        """Number of rows in the target."""
        return sum(epoch.rows for epoch, _ in self.held)

    @property
    def different(self) -> tuple[tuple[Epoch, ReplayedEpochs], ...]:
        """Epochs whose digest differs from the record."""
        both = zip(self.held, self.recorded, strict=True)
        return tuple(pair for pair, recorded in both if _result_digest(pair[0]) != recorded)

    @property
    def same(self) -> int:
        """Number of epochs with the recorded digest."""
        return len(self.held) - len(self.different)

    def diff(self, spark: SparkSession, against: Sink) -> Difference | None:
        """Return the differing rows, compared as bags. ``None`` without a read if no digest differs.

        Compares the rows of the differing epochs. If a sink replaces rows by key, it compares the rows after the last
        of these epochs, and a changed row appears on both sides. ``against`` is the sink of the original pipeline. It
        is not open, and stays so.

        Raises:
            ConfigurationError: E110, either sink does not attribute rows to epochs, or the rerun lacks earlier epochs.
            IdentityError: E243, E244, the pipeline's rows as of then cannot be read.
        """
        if not self.different:
            return None
        original, own = copy.copy(against), copy.copy(self.sink)
        with closing(original), closing(own):
            original.open(self.held[0][1].pipeline)
            own.open(self.name)
            before, after = _rows(spark, original), _rows(spark, own)
            if before is None or after is None:
                return self._left(spark, against)
            old = [(ran.first, ran.last) for _, ran in self.different]
            return difference(before, after, old, [(epoch.number, epoch.number) for epoch, _ in self.different])

    def _left(self, spark: SparkSession, against: Sink) -> Difference:
        (_, first), (newest, last) = self.held[0], self.held[-1]
        if not self.is_complete:
            raise misused(
                f"{self.sink.id} holds rows from epoch {first.first} of {first.pipeline} on, replaced by key.",
                "rows that were written under other keys before are in only one of the two",
                "run all epochs again, from the first on, into a target that holds nothing",
            )
        before = read_at(first.pipeline, last.last, against, ledger=self.ledger, spark=spark)
        after = read_at(self.name, newest.number, self.sink, ledger=self.ledger, spark=spark)
        return compared(before.drop(*_location_columns(against)), after.drop(*_location_columns(self.sink)))


def _location_columns(sink: Sink) -> tuple[str, ...]:
    return sink.location_columns if isinstance(sink, ReadsRows) else ()


@checks_arguments
def rerun(
    pipeline: str,
    epochs: range | None = None,
    *,
    job: Job,
    into: Sink,
    ledger: LedgerPlace,
    spark: SparkSession,
    name: str | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    windows: Windows | None = None,
    state: Literal["copied", "beginning"] = "copied",
    coalesce: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Rerun:
    """Run recorded epochs again into a target of their own. The original query is neither read nor fenced.

    After a crash, the same call resumes at the position in the target.

    Args:
        pipeline: of the epochs.
        epochs: dense numbers. ``None`` for all on record whose rows no full refresh has replaced.
        job: ``function(spark)`` that returns the query, not started, with the original or other code.
        into: the target, not open. It holds nothing else.
        ledger: of the pipeline. The rerun is recorded there too.
        spark: a classic session.
        name: of the rerun's pipeline. ``None`` for ``NAME~v2``.
        transform: as for :func:`onceonly.exactly_once`.
        windows: windows over the rows, whose results are written: the original ``windows=`` or others. They use the
            recorded clock and times. Their state is kept beside the target, which is a table of Postgres. Their
            ``state=`` and ``late_rows=`` are not used.
        state: origin of a query's state: ``"copied"`` from its checkpoint, or the ``"beginning"``.
        coalesce: write up to this number of epochs as one, if rows depend only on the input.
        checkpoint: the query's, if it was moved.

    Raises:
        ConfigurationError: E110 there are no such epochs, the name or the target is the pipeline's own, ``job`` gives
            no stream, or the epochs have no windows or begin in the middle of some. E140, E141, E143 windows cannot be
            used.
        IdentityError: E230, E234, E235, E236 epochs cannot be run again, as for :func:`onceonly.replay.recompute`. E239
            the target holds something else.
        OnceOnlyError: errors of any query that writes into the target.
    """
    own = name or f"{pipeline}~v2"
    _check_name(own, pipeline)
    check_transform(transform)
    with opened(ledger) as open_ledger:
        epoch_records, address = open_ledger.epochs(pipeline), open_ledger.address
        places = {entry.name: dict(entry.sinks) for entry in open_ledger.pipelines() if entry.epoch}
    by_number = {record.epoch.number: record.epoch for record in epoch_records}
    begun = standing_since(epoch_records[-1].epoch, by_number) if epoch_records else None
    requested = rerun_request.demanded(pipeline, epoch_records, epochs, begun or 1)
    # An open sink cannot be copied, and the query opens the given one.
    unopened = copy.copy(into)
    request = RerunRequest(pipeline, own, requested, epoch_records, unopened, address, transform is not None)
    request.demand_target(places, panes=windows is not None)
    if windows and coalesce != 1:
        raise misused(
            "Windows cannot be stepped over several epochs as one.",
            "each epoch is a moment, at which they fire and close",
            "leave coalesce out: one batch for each epoch",
        )
    over = windowed(request, windows, places.get(pipeline, {})) if windows else None
    replay = Replay(spark, job, epoch_records, rerun_request.checkpoint(epoch_records, checkpoint), address)
    done = request.held()
    start, after = request.next(done)
    arguments = Arguments((into,), name=own, transform=transform, storage=Storage(ledger=ledger), replaying=True)
    if over:
        over.demand(request, replay.plan, arguments.shaped(replay.stream), done)
        arguments = replace(arguments, sinks=(into, *over.chosen.sinks), windows=over.chosen, event_time=over.time)
    each = _writer(ExactlyOnce(arguments), pipeline, over, after)
    replay.run(range(start, requested.stop), each, state=StateFrom(state), coalesce=coalesce)
    held = request.held()
    recorded = tuple(_recorded(by_number[number] for number in range(ran.first, ran.last + 1)) for _, ran in held)
    is_complete = _begins(requested.start, by_number[requested.stop - 1], by_number)
    return Rerun(own, held, recorded, len(held) - len(done), unopened, ledger, is_complete)


def _check_name(own: str, pipeline: str) -> None:
    check_name(own)
    if own == pipeline:
        raise misused(
            f'A backfill of "{pipeline}" cannot have its name.',
            "it is a pipeline of its own, with its own fence, markers and records",
            f"leave the name out, or give another one: {pipeline}~v2",
        )


def _writer(once: ExactlyOnce, pipeline: str, over: Windowed | None, after: str | None) -> Each:
    """Return what writes each replayed batch as an epoch that names the recorded ones. ``after``: the chain so far."""
    chains = [after]

    def write(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
        first, last = ran[0].epoch, ran[-1].epoch
        replays = Replays(ReplayedEpochs(pipeline, first.number, last.number, last.chain), chains[-1])
        if over:
            over.go_to(last)
            replays = replace(replays, previous_clock=over.previous_clock)
        once.replay(rows, engine_for(rows).caller(rows).batch_id, replays)
        chains.append(last.chain)

    return write


def _begins(first: int, last: Epoch, epochs: Mapping[int, Epoch]) -> bool:
    """Return whether no batch whose rows are still current comes before epoch ``first``."""
    begun = standing_since(last, epochs)
    if begun is None or first < begun:
        return False
    return not any(epoch.lineage and begun <= epoch.number < first for epoch in epochs.values())


def _result_digest(epoch: Epoch) -> Digest:
    """Digest of an epoch's result: of its windows, or of the rows of its plan."""
    return next((output.digest for output in epoch.outputs if output.name == WINDOWS), epoch.computed)


def _recorded(ran: Iterable[Epoch]) -> Digest:
    digests = [_result_digest(epoch) for epoch in ran if epoch.lineage]
    return reduce(add, digests[1:], digests[0]) if digests else Digest(0)


def _rows(spark: SparkSession, sink: Sink) -> DataFrame | None:
    """Read rows with their epoch, or return ``None`` if the sink does not store it."""
    return sink.read_with_spark(spark) if isinstance(sink, ReadsRows) else None
