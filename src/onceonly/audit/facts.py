"""Gathers what an audit judges: reading halves, rows where asked for, and the ledger. The only I/O of the audit."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly.audit.certificate import Certificate
from onceonly.errors import mask
from onceonly.machine.in_doubt import GRACE_S
from onceonly.protocol import (
    ExpiredRows,
    Expires,
    ExternalChange,
    Filed,
    Forgets,
    Leaves,
    Legible,
    Permissive,
    PrunedEpochs,
    Settable,
    Shared,
    ShowsState,
    Sink,
    ToleratedChanges,
    Total,
    Totals,
    Witness,
)
from onceonly.protocol.row_times import RowTimes
from onceonly.runtime.read_errors import UNREADABLE, reason_of
from onceonly.spark import digest, row_times
from onceonly.spark.frames import UnreadableRows, reading
from onceonly.windows.read_results import Results, StateFacts, gets, read_results, read_state
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import STATE, Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Fence, Lineage, Marker, Receipt
from onceonly_checkpoints.epoch_time import Unit
from onceonly_checkpoints.ledger import Event, Intent, Ledger, LedgerUnavailable, Pipeline, RemovedEpoch
from onceonly_checkpoints.manifest import UnreachableManifest, UnreadableManifest
from onceonly_checkpoints.model import SourceOffsets, UnreadableMarker
from onceonly_checkpoints.spark import offsets
from onceonly_checkpoints.spark.logs import UnreadableCheckpoint
from onceonly_checkpoints.storage import LocalStorage, is_local

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession


# ---- Each sink's reading half, and the ledger beside it.

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Content:
    """What the rows that stand in a sink hash to.

    Attributes:
        digests: per epoch, of the columns that its own digest saw. An epoch whose rows or types cannot be told is not
            in it.
        why: why others are not in it; empty where none is missing.
        times: per epoch, what they say of time, where the epoch names their column and the sink has all of its columns.
    """

    digests: Mapping[int, Digest]
    why: str = ""
    times: Mapping[int, RowTimes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What one sink says of itself.

    Attributes:
        id: sink id.
        address: where it lies, without secrets.
        append_only: rows of an epoch are only ever added.
        fence: the newest fence; ``None`` if there is none.
        history: markers with receipts, oldest first.
        rows: rows per epoch counted in the destination; ``None`` where it cannot tell.
        counted: newest epoch committed before rows were counted; later ones may or may not be in ``rows``.
        disturbances: what others did to the target since the newest epoch, where the sink can say.
        unreadable: why it could not be read; ``None`` if it was.
        content: what its rows hash to; ``None`` where nobody asked.
        state: the state of windows in it; ``None`` where nobody asked, or it keeps none.
        results: what windows have written in it; ``None`` where nobody asked, or it gets none.
        milestone: what the epochs were whose markers it has let go; ``None`` if it keeps them.
        allowed: what others did to the target and was let pass.
        others: other pipelines that write to its target.
        expired: what it removed as it was told to, once rows were old enough; ``None`` if nothing.
        transactional: whether rows and marker land together.
        total: all rows that stand, where ``rows`` is ``None`` or the oldest markers are gone, and they can be counted;
            of the state of windows, those that are open.
        absent: files that it lists and that are not there, in words; empty for none.
        holds: number of the epoch whose rows it holds, asked where others changed the target or its newest rows are not
            all there; ``None`` where not known.
    """

    id: str
    address: str
    append_only: bool
    fence: Fence | None = None
    history: tuple[tuple[Marker, Receipt], ...] = ()
    rows: Mapping[int, int] | None = None
    counted: int = 0
    disturbances: tuple[ExternalChange, ...] = ()
    unreadable: str | None = None
    content: Content | None = None
    state: StateFacts | None = None
    results: Results | None = None
    milestone: PrunedEpochs | None = None
    allowed: ToleratedChanges = field(default_factory=ToleratedChanges)
    others: tuple[str, ...] = ()
    transactional: bool = True
    expired: ExpiredRows | None = None
    total: Total | None = None
    absent: str = ""
    holds: int | None = None

    def gone(self, epoch: Epoch) -> int:
        """Rows of an epoch that the sink removed once they were old enough; 0 where the epoch's own clock denies it."""
        return self.expired.gone(epoch, epoch.digest_in(self.id).rows) if self.expired else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs of the markers, oldest first."""
        return tuple(marker.epoch for marker, _ in self.history)

    @property
    def head(self) -> Epoch | None:
        """Epoch of the newest marker."""
        return self.history[-1][0].epoch if self.history else None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What the ledger says of the pipeline. Compared with the sinks, never believed alone.

    Attributes:
        address: where it lies, without secrets.
        pipeline: its row in the list of pipelines.
        records: recorded epochs, oldest first.
        intent: newest intent for the epoch after the newest known one.
        events: what happened besides ordinary epochs, oldest first; shown, never judged.
        unreadable: why it could not be read; ``None`` if it was.
        superseded: epochs that the pipeline was cut back behind, oldest cut first.
    """

    address: str
    pipeline: Pipeline | None = None
    records: tuple[EpochRecord, ...] = ()
    intent: Intent | None = None
    events: tuple[Event, ...] = ()
    unreadable: str | None = None
    superseded: tuple[RemovedEpoch, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the recorded checkpoint says of Spark's progress.

    Attributes:
        checkpoint: its root.
        query_id: of its query.
        batch: the newest batch that Spark took for done; -1 for none.
        end: where that batch ended; ``None`` where its entry is gone.
    """

    checkpoint: str
    query_id: str
    batch: int
    end: SourceOffsets | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is judged.

    Attributes:
        pipeline: the user's stable name.
        sinks: one entry per audited sink.
        ledger: ``None`` where no ledger was given or found.
        since: epochs before this one are not judged.
        now_ms: when this was read, milliseconds since 1970; by default long after everything.
        grace_s: seconds for which an epoch may be under way, whatever epochs before it took.
        engine: the checkpoint that the newest record names; ``None`` where it cannot be read.
        unstaged: why what was staged for the newest epoch cannot be read here; empty where it can, and where every
            sink has that epoch.
        elsewhere: whether another machine may be able to read it: its store gives this one no answer.
        recomputed: what computing epochs again has shown; ``None`` where nobody asked for it.
    """

    pipeline: str
    sinks: tuple[SinkFacts, ...]
    ledger: LedgerFacts | None = None
    since: int = 1
    now_ms: int = 1 << 62
    grace_s: float = GRACE_S
    engine: EngineFacts | None = None
    unstaged: str = ""
    elsewhere: bool = False
    recomputed: Certificate | None = None


def gather(
    ledger: Ledger | None,
    pipeline: str,
    sinks: Sequence[Sink],
    *,
    since: int = 1,
    spark: SparkSession | None = None,
    grace_s: float = GRACE_S,
) -> Facts:
    """Read the ledger first, then the checkpoint, then the sinks: a running driver can make neither look ahead.

    Args:
        ledger: an opened ledger, or ``None``.
        pipeline: the user's stable name.
        sinks: the pipeline's sinks; opened here for reading, closed by the caller.
        since: number of the first epoch to judge.
        spark: a session, to have the rows themselves read and hashed again.
        grace_s: seconds for which an epoch may be under way.
    """
    recorded = None if ledger is None else _read_ledger(ledger, pipeline)
    engine = read_engine(recorded.records[-1].epoch.standing.lineage) if recorded and recorded.records else None
    told = _levelled(tuple(read_sink(sink, pipeline) for sink in sinks), sinks)
    now_ms = time.time_ns() // 1_000_000
    if spark is not None:
        told = tuple(_with_content(facts, sink, spark, since) for facts, sink in zip(told, sinks, strict=True))
        told = with_windows(told, sinks)
    unstaged, elsewhere = _unstaged(told)
    return Facts(pipeline, told, recorded, since, now_ms, grace_s, engine, unstaged, elsewhere)


def _unstaged(told: tuple[SinkFacts, ...]) -> tuple[str, bool]:
    """Why the newest epoch's bytes cannot be read, and whether they may be elsewhere; empty where nobody needs them."""
    heads = [facts.head for facts in told if facts.unreadable is None]
    newest = max((head for head in heads if head), key=lambda head: head.number, default=None)
    if newest is None or not newest.manifest or all(head and head.number == newest.number for head in heads):
        return "", False
    from onceonly.runtime import staging

    try:
        staging.fetch(newest.manifest, None)
    except UnreadableManifest as error:
        return mask(str(error)), isinstance(error, UnreachableManifest)
    return "", False


def _levelled(told: tuple[SinkFacts, ...], sinks: Sequence[Sink]) -> tuple[SinkFacts, ...]:
    """Sinks that were read before others are asked once more, as far as those stood: a driver may be running."""
    newest = max((facts.head.number for facts in told if facts.head), default=0)
    return tuple(_up_to(newest, facts, sink) for facts, sink in zip(told, sinks, strict=True))


def _up_to(newest: int, facts: SinkFacts, sink: Sink) -> SinkFacts:
    stands = facts.head.number if facts.head else 0
    if facts.unreadable is not None or stands >= newest:
        return facts
    try:
        later = tuple(pair for pair in sink.history(stands) if pair[0].epoch.number <= newest)
    except UNREADABLE as error:
        return replace(facts, unreadable=reason_of(error))
    return replace(facts, history=facts.history + later)


def _with_content(facts: SinkFacts, sink: Sink, spark: SparkSession, since: int) -> SinkFacts:
    if facts.unreadable is not None:
        return facts
    return replace(facts, content=read_content(sink, spark, [epoch for epoch in facts.epochs if epoch.number >= since]))


def with_windows(told: tuple[SinkFacts, ...], sinks: Sequence[Sink]) -> tuple[SinkFacts, ...]:
    """The facts with what stands of windows: the state first, for results of later epochs are not looked at.

    Args:
        told: of each sink.
        sinks: the same, opened for reading.
    """
    states = [
        read_state(sink, facts.epochs) if facts.unreadable is None else None
        for facts, sink in zip(told, sinks, strict=True)
    ]
    state = next((one for one in states if one and one.windows is not None), None)
    found: list[SinkFacts] = []
    for (facts, sink), kept in zip(zip(told, sinks, strict=True), states, strict=True):
        results = read_results(sink, facts.epochs, state, _unjudged(facts)) if facts.unreadable is None else None
        found.append(replace(facts, state=kept, results=results))
    return tuple(found)


def _unjudged(facts: SinkFacts) -> int:
    """The newest epoch whose rows in a sink an operator took as they were, or that came before it joined."""
    joined = dict(facts.epochs[-1].sinks).get(facts.id, 1) if facts.epochs else 1
    return max([joined - 1, *(epoch.number for epoch in facts.epochs if epoch.accepts(facts.id))])


def read_engine(lineage: Lineage | None) -> EngineFacts | None:
    """Read how far Spark has come in a checkpoint on a disk of this machine; ``None`` where that cannot be told."""
    if lineage is None or not is_local(lineage.checkpoint):
        return None
    try:
        storage = LocalStorage(lineage.checkpoint)
        done = offsets.commit_ids(storage)
        batch = done[-1] if done else -1
        known = batch in offsets.offset_ids(storage)
        end = offsets.offset_entry(storage, batch).offsets if known else None
        return EngineFacts(lineage.checkpoint, offsets.query_id(storage), batch, end)
    except (UnreadableCheckpoint, OSError) as error:
        log.info("checkpoint %s cannot be read: %s", lineage.checkpoint, type(error).__name__)
        return None


def read_sink(sink: Sink, pipeline: str) -> SinkFacts:
    """Read markers and counted rows of one sink; a failure becomes ``unreadable``."""
    append_only = sink.capabilities.append_only
    try:
        sink.open(pipeline)
        fence = sink.fence()
        before = tuple(sink.history())
        counted = before[-1][0].epoch.number if before else 0
        rows, expired = _counted(sink)
        aged = bool(before) and before[0][0].epoch.number > 1 and not isinstance(sink, Forgets)
        total = _total(sink, [marker.epoch for marker, _ in before]) if before and (rows is None or aged) else None
        absent = sink.absent() if isinstance(sink, Filed) else ""
        # What a running driver committed while rows were counted has its marker here; it is not compared.
        history = before + tuple(sink.history(counted))
        # Read last: markers that went meanwhile are left out, as if they had gone before.
        milestone = sink.milestone() if isinstance(sink, Forgets) else None
        history = tuple(pair for pair in history if milestone is None or pair[0].epoch.number > milestone.epoch)
        newest = history[-1][1] if history else None
        disturbances = tuple(sink.disturbances(newest)) if newest and isinstance(sink, Witness) else ()
        changed = any(disturbance.fatal for disturbance in disturbances)
        behind = changed or _short(sink.id, before, rows)
        holds = sink.content() if behind and isinstance(sink, Settable) else None
        allowed = sink.allowed() if newest and isinstance(sink, Permissive) else ToleratedChanges()
        others = tuple(name for name in (sink.writers() if isinstance(sink, Shared) else ()) if name != pipeline)
    except UNREADABLE as error:
        log.info("sink %s of %s cannot be read: %s", sink.id, pipeline, type(error).__name__)
        return SinkFacts(sink.id, sink.address, append_only, unreadable=reason_of(error))
    told = SinkFacts(sink.id, sink.address, append_only, fence, history, rows, counted, disturbances)
    together = sink.capabilities.transactional
    told = replace(told, milestone=milestone, allowed=allowed, others=others, transactional=together)
    return replace(told, expired=expired, total=total, absent=absent, holds=holds)


def _short(sink: str, history: Sequence[tuple[Marker, Receipt]], rows: Mapping[int, int] | None) -> bool:
    """Whether the newest epoch that brought rows has fewer: then older ones may be all that the target holds."""
    brought = (marker.epoch for marker, _ in reversed(history) if marker.epoch.digest_in(sink).rows)
    newest = next(brought, None)
    return newest is not None and rows is not None and rows.get(newest.number, 0) < newest.digest_in(sink).rows


def _total(sink: Sink, epochs: Sequence[Epoch]) -> Total | None:
    """All rows that stand in a sink that does not tell them by epoch."""
    panes = epochs[-1].panes
    if panes and gets(sink, STATE, epochs):
        return Total(sink.count_windows(panes.since), Leaves.ANY) if isinstance(sink, ShowsState) else None
    return sink.total() if isinstance(sink, Totals) else None


_COUNTS = 5
"""How often rows are counted while a running driver removes some."""


def _counted(sink: Sink) -> tuple[Mapping[int, int] | None, ExpiredRows | None]:
    """Rows per epoch, and what had been removed when they were counted."""
    if not isinstance(sink, Expires):
        return sink.recount(), None
    expired = sink.expired()
    rows = sink.recount()
    for _ in range(_COUNTS):
        known, expired = expired, sink.expired()
        if known == expired:
            break
        rows = sink.recount()
    return rows, expired


def _read_ledger(ledger: Ledger, pipeline: str) -> LedgerFacts:
    try:
        entry = next((known for known in ledger.pipelines() if known.name == pipeline), None)
        records = tuple(ledger.epochs(pipeline))
        following = records[-1].epoch.number + 1 if records else 1
        intents = (ledger.intent(pipeline, number) for number in (following + 1, following))
        intent = next((found for found in intents if found is not None), None)
        events = tuple(ledger.events(pipeline))
        superseded = tuple(ledger.superseded(pipeline))
    except (LedgerUnavailable, UnreadableMarker) as error:
        return LedgerFacts(mask(ledger.address), unreadable=reason_of(error))
    return LedgerFacts(mask(ledger.address), entry, records, intent, events, superseded=superseded)


# ---- Hashes the rows that stand in a sink, with the expression that hashed them when they were written.


_NOT_TOLD = "the sink does not tell the rows of epochs apart, or replaces them"
_OTHER_TYPES = "the target gives back other types than were written, or mixed their rows with those of other epochs"


def read_content(sink: Sink, spark: SparkSession, epochs: Sequence[Epoch]) -> Content:
    """Read a sink's rows and hash them per epoch.

    Args:
        sink: opened for reading.
        spark: what reads and hashes.
        epochs: those to hash; the fingerprint of their columns says how.
    """
    try:
        with reading():
            rows = sink.read_back(spark) if isinstance(sink, Legible) else None
    except UnreadableRows as error:
        return Content({}, str(error))
    except UNREADABLE as error:
        return Content({}, reason_of(error))
    if rows is None:
        return Content({}, _NOT_TOLD)
    return replace(_content(sink.id, rows, epochs), times=_times(sink.id, rows, epochs))


def _content(sink: str, rows: DataFrame, epochs: Sequence[Epoch]) -> Content:
    found: dict[int, Digest] = {}
    try:
        for (schema, left_out), numbers in _alike(sink, epochs).items():
            columns = chain.written(rows.dtypes[:-1], schema)
            if columns:
                with reading():
                    found.update(digest.by_epoch(rows, columns, frozenset(left_out), numbers))
    except UnreadableRows as error:
        log.info("rows cannot be read back: %s", error.__cause__)
        return Content(found, str(error))
    return Content(found, _OTHER_TYPES)


def _times(sink: str, rows: DataFrame, epochs: Sequence[Epoch]) -> Mapping[int, RowTimes]:
    """What the rows of epochs say of time, as far as they lie in the sink as they were asked."""
    kinds, found = dict(rows.dtypes), dict[int, RowTimes]()
    try:
        for (column, unit), horizons in _clocks(sink, epochs).items():
            if kinds.get(column) in _KINDS[unit]:
                with reading():
                    found.update(row_times.by_epoch(rows, column, unit, horizons))
    except UnreadableRows as error:
        log.info("times of rows cannot be read back: %s", error.__cause__)
    return found


_KINDS: Mapping[Unit, frozenset[str]] = {
    "ms": frozenset({"timestamp"}),
    "integer": frozenset({"tinyint", "smallint", "int", "bigint"}),
}
"""Types in which a column says time, by what is counted."""


def _clocks(sink: str, epochs: Sequence[Epoch]) -> Mapping[tuple[str, Unit], dict[int, int | None]]:
    """Epochs whose rows a sink holds as they came, with their horizons, by where and how rows say their time."""
    found: dict[tuple[str, Unit], dict[int, int | None]] = {}
    for epoch in epochs:
        own = epoch.schema_in(sink) == epoch.schema and epoch.digest_in(sink).rows
        if epoch.time and epoch.time.column and own:
            found.setdefault((epoch.time.column, epoch.time.unit), {})[epoch.number] = epoch.time.horizon
    return found


def _alike(sink: str, epochs: Sequence[Epoch]) -> Mapping[tuple[str, tuple[str, ...]], list[int]]:
    """Epochs by what is hashed of their rows: the columns' fingerprint, and those that the digest left out."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for epoch in epochs:
        if (held := epoch.digest_in(sink)).rows:
            found.setdefault((epoch.schema_in(sink), held.left_out), []).append(epoch.number)
    return found
