"""``repair.rerun``: recorded epochs run again, with the same or other code, into a target of their own, exactly once.

The rerun is a pipeline: its own fence, markers and records. Each of its epochs names the recorded ones that it ran
again, by their chain; so the target itself says where a rerun that was cut off goes on.
"""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from onceonly.api.arguments import Arguments, check_before, check_name
from onceonly.api.wrapper import ExactlyOnce
from onceonly.errors import refuse
from onceonly.machine.facts import Replays
from onceonly.protocol import Sink
from onceonly.protocol.optional import Legible
from onceonly.repair import records
from onceonly.spark.choose import engine_for
from onceonly.spark.differences import Difference, difference
from onceonly.spark.replay import Replay
from onceonly_checkpoints.content import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.replayed import Replayed
from onceonly_checkpoints.spark.replay import StateFrom

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession
    from onceonly.spark.replay import Job


@dataclass(frozen=True, slots=True)
class Rerun:
    """What a target holds of a rerun.

    Attributes:
        name: of the rerun's pipeline.
        held: each of its epochs, with what it ran again; oldest first.
        recorded: digest on record of what each ran again.
        written: how many of them this call wrote.
        sink: the target, not opened.
    """

    name: str
    held: tuple[tuple[Epoch, Replayed], ...]
    recorded: tuple[Digest, ...]
    written: int
    sink: Sink = field(repr=False)

    @property
    def rows(self) -> int:
        """Rows that the target holds."""
        return sum(epoch.digest.rows for epoch, _ in self.held)

    @property
    def different(self) -> tuple[tuple[Epoch, Replayed], ...]:
        """Epochs whose rows are not those on record, by their digests."""
        both = zip(self.held, self.recorded, strict=True)
        return tuple(one for one, recorded in both if one[0].digest != recorded)

    @property
    def same(self) -> int:
        """How many epochs have the rows on record."""
        return len(self.held) - len(self.different)

    def diff(self, spark: SparkSession, against: Sink) -> Difference | None:
        """Which rows differ, compared as bags; ``None`` where no digest differs: then nothing is read.

        Args:
            spark: a session.
            against: the sink of the pipeline whose epochs were run again; not opened yet, and left so.

        Raises:
            ConfigurationError: E110, one of the two cannot tell its rows by their epoch.
        """
        if not self.different:
            return None
        stands, own = copy.copy(against), copy.copy(self.sink)
        with closing(stands), closing(own):
            stands.open(self.held[0][1].pipeline)
            own.open(self.name)
            before, after = _rows(spark, stands), _rows(spark, own)
            old = [(ran.first, ran.last) for _, ran in self.different]
            return difference(before, after, old, [(epoch.number, epoch.number) for epoch, _ in self.different])


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
    state: str = "copied",
    coalesce: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Rerun:
    """Run recorded epochs again into a target of their own. The query whose they are is neither asked nor fenced.

    Called again after a crash, with the same arguments, it goes on where the target stands.

    Args:
        pipeline: whose epochs.
        epochs: their numbers, dense; ``None``: all that are on record.
        job: ``function(spark)`` that returns the query, not started, as it was or with other code.
        into: the target, which holds nothing else; not opened yet.
        ledger: where the pipeline is recorded, and the rerun will be.
        spark: a classic session.
        name: of the rerun's pipeline; ``None``: ``NAME~v2``.
        before: as for :func:`onceonly.exactly_once`.
        state: where a query with state gets it from: ``"copied"`` from its checkpoint, or the ``"beginning"``.
        coalesce: write up to so many epochs as one, where rows hang on nothing but the input.
        checkpoint: the query's, where it lies elsewhere than it is recorded.

    Raises:
        ConfigurationError: E110 there are no such epochs, the name or the target is the pipeline's own, or ``job``
            gives no stream.
        IdentityError: E230, E234, E235, E236 as :func:`onceonly.repair.recompute` says why epochs cannot be run again;
            E239 the target holds something else.
        OnceOnlyError: what any query that writes into the target raises.
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
        taken = {sink for entry in known.pipelines() if entry.name == pipeline for _, sink in entry.sinks}
    if into.address in taken:
        raise refuse(
            "E110",
            problem=f'A rerun of "{pipeline}" cannot write into {into.address}.',
            cause="that is one of the pipeline's own sinks, and every row would stand there twice",
            next="name a target that holds nothing",
        )
    wanted = records.demanded(pipeline, found, epochs)
    # Of a sink that was opened no other handle can be made: the query opens the one that was given.
    unopened = copy.copy(into)
    rest = _Rest(pipeline, own, wanted, found, unopened, address)
    done = rest.held()
    start, after = rest.next(done)
    once = ExactlyOnce(Arguments((into,), name=own, ledger=ledger, before=before, replaying=True))
    chains = [after]

    def each(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
        first, last = ran[0].epoch, ran[-1].epoch
        replays = Replays(Replayed(pipeline, first.number, last.number, last.chain), chains[-1])
        once.replay(rows, engine_for(rows).caller(rows).batch_id, replays)
        chains.append(last.chain)

    replay = Replay(spark, job, found, records.checkpoint(found, checkpoint), address)
    replay.run(range(start, wanted.stop), each, state=StateFrom(state), coalesce=coalesce)
    held = rest.held()
    by_number = {record.epoch.number: record for record in found}
    recorded = tuple(_recorded(by_number[number] for number in range(ran.first, ran.last + 1)) for _, ran in held)
    return Rerun(own, held, recorded, len(held) - len(done), unopened)


_Held = tuple[tuple[Epoch, Replayed], ...]


@dataclass(frozen=True, slots=True)
class _Rest:
    """What a target still lacks.

    Attributes:
        pipeline: whose epochs are run again.
        own: the rerun's name.
        wanted: numbers of the epochs.
        found: what is on record.
        into: the target, not opened.
        ledger: address of the ledger.
    """

    pipeline: str
    own: str
    wanted: range
    found: Sequence[EpochRecord]
    into: Sink
    ledger: str

    def held(self) -> _Held:
        """Epochs of the rerun in the target, oldest first."""
        reading = copy.copy(self.into)
        with closing(reading):
            reading.open(self.own)
            epochs = [marker.epoch for marker, _ in reading.history()]
        return tuple((epoch, epoch.replays or self._refuse(epoch)) for epoch in epochs)

    def next(self, held: _Held) -> tuple[int, str | None]:
        """The first epoch that the target lacks, and the chain of what it holds before; ``None`` for nothing."""
        if not held:
            return self.wanted.start, None
        epoch, stands = held[-1]
        chains = {record.epoch.number: record.epoch.chain for record in self.found}
        same = stands.pipeline == self.pipeline and chains.get(stands.last) == stands.chain
        if not same or held[0][1].first != self._first() or stands.last >= self.wanted.stop:
            self._refuse(epoch)
        return stands.last + 1, stands.chain

    def _first(self) -> int:
        """The first epoch that has a batch: adoptions are not run again."""
        batches = (record.epoch for record in self.found if record.epoch.lineage)
        return next((epoch.number for epoch in batches if epoch.number in self.wanted), self.wanted.start)

    def _refuse(self, epoch: Epoch) -> Replayed:
        stands = epoch.replays.text if epoch.replays else "no recorded epoch run again"
        offered = f"epochs {self.wanted.start}..{self.wanted.stop - 1} of {self.pipeline}"
        raise refuse(
            "E239",
            pipeline=self.own,
            sink=self.into.id,
            epoch=epoch.number,
            stands=stands,
            offered=offered,
            ledger=shlex.quote(self.ledger),
        )


def _recorded(ran: Iterable[EpochRecord]) -> Digest:
    digests = [record.epoch.computed for record in ran if record.epoch.lineage]
    return reduce(add, digests[1:], digests[0]) if digests else Digest(0)


def _rows(spark: SparkSession, sink: Sink) -> DataFrame:
    rows = sink.read_back(spark) if isinstance(sink, Legible) else None
    if rows is None:
        raise refuse(
            "E110",
            problem=f"{sink.id} does not tell its rows by their epoch.",
            cause="the destination keeps no epoch with a row, or the sink has a key",
            next="compare the two targets with the destination's own means",
        )
    return rows
