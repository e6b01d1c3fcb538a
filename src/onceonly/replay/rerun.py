"""``replay.rerun``: run recorded epochs into another target, exactly once.

The rerun is a pipeline with its own fence, markers and records. Each of its epochs names the recorded ones that it ran
again, by their chain. So the target itself has the position from which an interrupted rerun resumes.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from onceonly.api.arguments import Arguments, check_before, check_name
from onceonly.api.wrapper import ExactlyOnce
from onceonly.errors import refuse
from onceonly.machine.facts import Replays
from onceonly.machine.publish import standing_since
from onceonly.protocol import Locates, Sink
from onceonly.protocol.capabilities import Legible
from onceonly.reading.read_at import read_at
from onceonly.replay import records
from onceonly.replay.diff import Difference, compared, difference
from onceonly.replay.rerun_request import RerunRequest
from onceonly.replay.rerun_windows import windowed
from onceonly.replay.spark_replay import Replay
from onceonly.spark.detect import engine_for
from onceonly.windows.rules.spec import Panes
from onceonly_checkpoints.digests import PANES, Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, ReplayedEpochs
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession
    from onceonly.replay.spark_replay import Job


@dataclass(frozen=True, slots=True)
class Rerun:
    """Rows of a rerun in its target.

    Attributes:
        held: each of its epochs with those that it ran again, oldest first.
        recorded: digest on record of each. With windows it is that of their results.
        written: number of epochs that this call wrote.
        sink: the target, not open.
        whole: it begins with the first epoch whose rows were not replaced.
    """

    name: str
    held: tuple[tuple[Epoch, ReplayedEpochs], ...]
    recorded: tuple[Digest, ...]
    written: int
    sink: Sink = field(repr=False)
    ledger: records.Place = field(repr=False)
    whole: bool

    @property
    def rows(self) -> int:
        """Number of rows in the target."""
        return sum(epoch.rows for epoch, _ in self.held)

    @property
    def different(self) -> tuple[tuple[Epoch, ReplayedEpochs], ...]:
        """Epochs whose digest differs from the record."""
        both = zip(self.held, self.recorded, strict=True)
        return tuple(one for one, recorded in both if _given(one[0]) != recorded)

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
        stands, own = copy.copy(against), copy.copy(self.sink)
        with closing(stands), closing(own):
            stands.open(self.held[0][1].pipeline)
            own.open(self.name)
            before, after = _rows(spark, stands), _rows(spark, own)
            if before is None or after is None:
                return self._left(spark, against)
            old = [(ran.first, ran.last) for _, ran in self.different]
            return difference(before, after, old, [(epoch.number, epoch.number) for epoch, _ in self.different])

    def _left(self, spark: SparkSession, against: Sink) -> Difference:
        """Compare the rows of both sinks as of the last epoch."""
        (_, first), (newest, last) = self.held[0], self.held[-1]
        if not self.whole:
            raise refuse(
                "E110",
                problem=f"{self.sink.id} holds rows from epoch {first.first} of {first.pipeline} on, replaced by key.",
                cause="what was written under other keys before stands in one of the two alone",
                next="run all epochs again, from the first on, into a target that holds nothing",
            )
        before = read_at(first.pipeline, last.last, against, ledger=self.ledger, spark=spark)
        after = read_at(self.name, newest.number, self.sink, ledger=self.ledger, spark=spark)
        return compared(before.drop(*_location_columns(against)), after.drop(*_location_columns(self.sink)))


def _location_columns(sink: Sink) -> tuple[str, ...]:
    return sink.location_columns if isinstance(sink, Locates) else ()


def rerun(
    pipeline: str,
    epochs: range | None = None,
    *,
    job: Job,
    into: Sink,
    ledger: records.Place,
    spark: SparkSession,
    name: str | None = None,
    before: Callable[[DataFrame], DataFrame] | None = None,
    panes: Panes | None = None,
    state: str = "copied",
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
        before: as for :func:`onceonly.exactly_once`.
        panes: windows over the rows, whose results are written: the original ``panes=`` or others. They use the
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
    check_name(own)
    check_before(before)
    if own == pipeline:
        raise refuse(
            "E110",
            problem=f'A rerun of "{pipeline}" cannot have its name.',
            cause="it is a pipeline of its own, with its own fence, markers and records",
            next=f"leave the name out, or give another one: {pipeline}~v2",
        )
    with records.opened(ledger) as known:
        found, address = known.epochs(pipeline), known.address
        places = {entry.name: dict(entry.sinks) for entry in known.pipelines() if entry.epoch}
    by_number = {record.epoch.number: record.epoch for record in found}
    begun = standing_since(found[-1].epoch, by_number) if found else None
    wanted = records.demanded(pipeline, found, epochs, begun or 1)
    # An open sink cannot be copied, and the query opens the given one.
    unopened = copy.copy(into)
    asked = RerunRequest(pipeline, own, wanted, found, unopened, address, before is not None)
    asked.demand_target(places, panes=panes is not None)
    if panes and coalesce != 1:
        raise refuse(
            "E110",
            problem="Windows cannot be stepped over several epochs as one.",
            cause="each epoch is a moment, at which they fire and close",
            next="leave coalesce out: one batch for each epoch",
        )
    over = windowed(asked, panes, places.get(pipeline, {})) if panes else None
    replay = Replay(spark, job, found, records.checkpoint(found, checkpoint), address)
    done = asked.held()
    start, after = asked.next(done)
    given = Arguments((into,), name=own, ledger=ledger, before=before, replaying=True)
    if over:
        over.demand(asked, replay.plan, given.shaped(replay.stream), done)
        given = replace(given, sinks=(into, *over.chosen.sinks), panes=over.chosen, time=over.time)
    once = ExactlyOnce(given)
    chains = [after]

    def each(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
        first, last = ran[0].epoch, ran[-1].epoch
        replays = Replays(ReplayedEpochs(pipeline, first.number, last.number, last.chain), chains[-1])
        if over:
            over.go_to(last)
            replays = replace(replays, stood=over.stood)
        once.replay(rows, engine_for(rows).caller(rows).batch_id, replays)
        chains.append(last.chain)

    replay.run(range(start, wanted.stop), each, state=StateFrom(state), coalesce=coalesce)
    held = asked.held()
    recorded = tuple(_recorded(by_number[number] for number in range(ran.first, ran.last + 1)) for _, ran in held)
    whole = _begins(wanted.start, by_number[wanted.stop - 1], by_number)
    return Rerun(own, held, recorded, len(held) - len(done), unopened, ledger, whole)


def _begins(first: int, last: Epoch, epochs: Mapping[int, Epoch]) -> bool:
    """Return whether no batch whose rows are still current comes before epoch ``first``."""
    begun = standing_since(last, epochs)
    if begun is None or first < begun:
        return False
    return not any(epoch.lineage and begun <= epoch.number < first for epoch in epochs.values())


def _given(epoch: Epoch) -> Digest:
    """Digest of an epoch's result: of its windows, or of the rows of its plan."""
    return next((output.digest for output in epoch.outputs if output.name == PANES), epoch.computed)


def _recorded(ran: Iterable[Epoch]) -> Digest:
    digests = [_given(epoch) for epoch in ran if epoch.lineage]
    return reduce(add, digests[1:], digests[0]) if digests else Digest(0)


def _rows(spark: SparkSession, sink: Sink) -> DataFrame | None:
    """Read rows with their epoch, or return ``None`` if the sink does not store it."""
    return sink.read_back(spark) if isinstance(sink, Legible) else None
