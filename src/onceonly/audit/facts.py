"""Gather facts of an audit: markers, rows, ledger. Its only I/O."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly.audit.certificate import Certificate
from onceonly.errors import mask
from onceonly.machine.in_doubt import GRACE_S
from onceonly.protocol import DetectsChanges, Inspectable, ReadsRows, ReplacesRows, Sink
from onceonly.protocol.capabilities import WindowStore, implements
from onceonly.protocol.row_times import RowTimes
from onceonly.protocol.values import ExpiredRows, ExternalChange, Leaves, PrunedEpochs, ToleratedChanges, Total
from onceonly.runtime.sink_refusals import UNREADABLE, reason_of
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
    """Hashes of a sink's current rows.

    Attributes:
        digests: per epoch, over the columns of its own digest. Without epochs whose rows or types cannot be separated.
        why: why epochs are missing, or empty for none.
        times: event times per epoch, if the epoch names the time column and the sink has all its columns.
    """

    digests: Mapping[int, Digest]
    why: str = ""
    times: Mapping[int, RowTimes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """Markers, counts and changes of one sink.

    Attributes:
        address: without secrets.
        history: markers with receipts, oldest first.
        rows: rows per epoch counted in the destination, or ``None`` if it cannot count by epoch.
        counted: newest epoch committed before the count. Later ones may or may not be in ``rows``.
        disturbances: changes by others to the target since the newest epoch, if the sink can detect them.
        content: hashes of its rows, or ``None`` if not requested.
        state: state of windows, or ``None`` if not requested, or if the sink keeps none.
        results: results of windows, or ``None`` if not requested, or if the sink gets none.
        milestone: summary of the epochs whose markers were pruned, or ``None`` if the sink prunes none.
        allowed: changes by others that ``external_changes=`` permits.
        expired: rows that its retention removed, or ``None`` for none.
        total: all current rows, if they can be counted and ``rows`` is ``None`` or the oldest markers are gone. For the
            state of windows, the open ones.
        absent: listed files that do not exist, in words, or empty for none.
        holds: number of the epoch whose rows the target holds. Read only if others changed the target or the newest
            rows are incomplete. ``None`` if unknown.
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
        """Count rows of an epoch that retention removed, or 0 where the epoch's own clock rules that out."""
        return self.expired.gone(epoch, epoch.digest_in(self.id).rows) if self.expired else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Epochs of the markers, oldest first."""
        return tuple(marker.epoch for marker, _ in self.history)

    @property
    def head(self) -> Epoch | None:
        """Epoch of the newest marker."""
        return self.history[-1][0].epoch if self.history else None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """The ledger's records of the pipeline. Compared with the sinks, never believed alone.

    Attributes:
        address: without secrets.
        records: recorded epochs, oldest first.
        intent: newest intent for the epoch after the newest known one.
        events: everything besides ordinary epochs, oldest first. Shown, never judged.
        superseded: epochs that a rewind cut off, oldest cut first.
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
    """Spark's progress in the recorded checkpoint.

    ``batch`` is the newest in Spark's commit log, or -1. ``end`` are its end offsets, or ``None`` if its entry is gone.
    """

    checkpoint: str
    query_id: str
    batch: int
    end: SourceOffsets | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All inputs of the rules.

    Attributes:
        ledger: ``None`` where no ledger was given or found.
        since: epochs before this one are not judged.
        now_ms: when this was read, milliseconds since 1970. By default long after everything.
        grace_s: seconds for which an epoch may be in progress, however long earlier epochs took.
        engine: the checkpoint that the newest record names, or ``None`` if it cannot be read.
        unstaged: why the newest epoch's staged bytes cannot be read here. Empty if they can, or if every sink has that
            epoch.
        elsewhere: whether another machine may read them, because their store does not answer this one.
        recomputed: result of computing epochs again, or ``None`` if not requested.
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
    """Read the ledger first, then the checkpoint, then the sinks.

    In this order a running driver cannot make ledger or checkpoint appear ahead of the sinks. Opens the sinks for
    reading. The caller closes them. Only with ``spark`` are rows read and hashed again. An epoch may be in progress for
    ``grace_s`` seconds.
    """
    recorded = None if ledger is None else _read_ledger(ledger, pipeline)
    engine = read_engine(recorded.records[-1].epoch.resume_point.lineage) if recorded and recorded.records else None
    sink_facts = _levelled(tuple(read_sink(sink, pipeline) for sink in sinks), sinks)
    now_ms = time.time_ns() // 1_000_000
    if spark is not None:
        pairs = zip(sink_facts, sinks, strict=True)
        sink_facts = with_windows(tuple(_with_content(*pair, spark, since) for pair in pairs), sinks)
    unstaged, elsewhere = _unstaged(sink_facts)
    return Facts(pipeline, sink_facts, recorded, since, now_ms, grace_s, engine, unstaged, elsewhere)


def _unstaged(sink_facts: tuple[SinkFacts, ...]) -> tuple[str, bool]:
    """Return why the newest epoch's bytes cannot be read, and whether another machine may read them.

    Empty if no sink needs them.
    """
    heads = [facts.head for facts in sink_facts if facts.unreadable is None]
    newest = max((head for head in heads if head), key=lambda head: head.number, default=None)
    if newest is None or not newest.manifest or all(head and head.number == newest.number for head in heads):
        return "", False
    from onceonly.runtime import staging

    try:
        staging.fetch(newest.manifest, None)
    except UnreadableManifest as error:
        return mask(str(error)), isinstance(error, UnreachableManifest)
    return "", False


def _levelled(sink_facts: tuple[SinkFacts, ...], sinks: Sequence[Sink]) -> tuple[SinkFacts, ...]:
    """Read again the sinks that were read before others, up to the same epoch: a driver may be running."""
    newest = max((facts.head.number for facts in sink_facts if facts.head), default=0)
    return tuple(_up_to(newest, facts, sink) for facts, sink in zip(sink_facts, sinks, strict=True))


def _up_to(newest: int, facts: SinkFacts, sink: Sink) -> SinkFacts:
    head_number = facts.head.number if facts.head else 0
    if facts.unreadable is not None or head_number >= newest:
        return facts
    try:
        later = tuple(pair for pair in sink.history(head_number) if pair[0].epoch.number <= newest)
    except UNREADABLE as error:
        return replace(facts, unreadable=reason_of(error))
    return replace(facts, history=facts.history + later)


def _with_content(facts: SinkFacts, sink: Sink, spark: SparkSession, since: int) -> SinkFacts:
    if facts.unreadable is not None:
        return facts
    return replace(facts, content=read_content(sink, spark, [epoch for epoch in facts.epochs if epoch.number >= since]))


def with_windows(sink_facts: tuple[SinkFacts, ...], sinks: Sequence[Sink]) -> tuple[SinkFacts, ...]:
    """Add state and results of windows, the state first: results of later epochs are not compared."""
    states = [
        read_state(sink, facts.epochs) if facts.unreadable is None else None
        for facts, sink in zip(sink_facts, sinks, strict=True)
    ]
    state = next((candidate for candidate in states if candidate and candidate.windows is not None), None)
    window_facts: list[SinkFacts] = []
    for facts, sink, sink_state in zip(sink_facts, sinks, states, strict=True):
        results = read_results(sink, facts.epochs, state, _unjudged(facts)) if facts.unreadable is None else None
        window_facts.append(replace(facts, state=sink_state, results=results))
    return tuple(window_facts)


def _unjudged(facts: SinkFacts) -> int:
    """Newest epoch whose rows in a sink an operator accepted as they were, or that came before the sink joined."""
    joined = dict(facts.epochs[-1].sinks).get(facts.id, 1) if facts.epochs else 1
    return max([joined - 1, *(epoch.number for epoch in facts.epochs if epoch.accepts(facts.id))])


def read_engine(lineage: Lineage | None) -> EngineFacts | None:
    """Read Spark's progress from a checkpoint on a local disk, or ``None`` if that is not possible."""
    if lineage is None or not is_local(lineage.checkpoint):
        return None
    try:
        storage = LocalStorage(lineage.checkpoint)
        done = offsets.commit_ids(storage)
        batch = done[-1] if done else -1
        has_offsets = batch in offsets.offset_ids(storage)
        end = offsets.offset_entry(storage, batch).offsets if has_offsets else None
        return EngineFacts(lineage.checkpoint, offsets.query_id(storage), batch, end)
    except (UnreadableCheckpoint, OSError) as error:
        log.info("checkpoint %s cannot be read: %s", lineage.checkpoint, type(error).__name__)
        return None


def read_sink(sink: Sink, pipeline: str) -> SinkFacts:
    """Read markers and counted rows of one sink. A failure becomes ``unreadable``."""
    append_only = sink.capabilities.append_only
    try:
        sink.open(pipeline)
        fence = sink.fence()
        before = tuple(sink.history())
        counted = before[-1][0].epoch.number if before else 0
        rows, expired = _counted(sink)
        aged = bool(before) and before[0][0].epoch.number > 1 and not implements(sink, Inspectable, "pruned_epochs")
        total = _total(sink, [marker.epoch for marker, _ in before]) if before and (rows is None or aged) else None
        absent = sink.absent() if isinstance(sink, DetectsChanges) else ""
        # What a running driver committed while rows were counted has its marker here; it is not compared.
        history = before + tuple(sink.history(counted))
        # Read last: markers that went meanwhile are left out, as if they had gone before.
        milestone = sink.pruned_epochs() if isinstance(sink, Inspectable) else None
        history = tuple(pair for pair in history if milestone is None or pair[0].epoch.number > milestone.epoch)
        newest = history[-1][1] if history else None
        disturbances = tuple(sink.external_changes(newest)) if newest and isinstance(sink, DetectsChanges) else ()
        changed = any(disturbance.fatal for disturbance in disturbances)
        behind = changed or _short(sink.id, before, rows)
        holds = sink.content_epoch() if behind and isinstance(sink, ReplacesRows) else None
        allowed = sink.tolerated_changes() if newest and isinstance(sink, DetectsChanges) else ToleratedChanges()
        others = tuple(name for name in (sink.pipelines() if isinstance(sink, Inspectable) else ()) if name != pipeline)
    except UNREADABLE as error:
        log.info("sink %s of %s cannot be read: %s", sink.id, pipeline, type(error).__name__)
        return SinkFacts(sink.id, sink.address, append_only, unreadable=reason_of(error))
    facts = SinkFacts(sink.id, sink.address, append_only, fence, history, rows, counted, disturbances)
    transactional = sink.capabilities.transactional
    facts = replace(facts, milestone=milestone, allowed=allowed, others=others, transactional=transactional)
    return replace(facts, expired=expired, total=total, absent=absent, holds=holds)


def _short(sink: str, history: Sequence[tuple[Marker, Receipt]], rows: Mapping[int, int] | None) -> bool:
    """Check whether the newest epoch with rows has too few: the target may then hold older epochs only."""
    brought = (marker.epoch for marker, _ in reversed(history) if marker.epoch.digest_in(sink).rows)
    newest = next(brought, None)
    return newest is not None and rows is not None and rows.get(newest.number, 0) < newest.digest_in(sink).rows


def _total(sink: Sink, epochs: Sequence[Epoch]) -> Total | None:
    """Count all rows of a sink that cannot separate them by epoch."""
    panes = epochs[-1].windows
    if panes and gets(sink, STATE, epochs):
        counted = sink.count_windows(panes.since) if isinstance(sink, WindowStore) else None
        return None if counted is None else Total(counted, Leaves.ANY)
    return sink.total() if isinstance(sink, ReadsRows) else None


_COUNTS = 5
"""How often rows are counted while a running driver removes some."""


def _counted(sink: Sink) -> tuple[Mapping[int, int] | None, ExpiredRows | None]:
    """Return rows per epoch, and the expired rows at the time of that count."""
    if not isinstance(sink, ReplacesRows):
        return sink.recount(), None
    expired = sink.expired_rows()
    rows = sink.recount()
    for _ in range(_COUNTS):
        previous, expired = expired, sink.expired_rows()
        if previous == expired:
            break
        rows = sink.recount()
    return rows, expired


def _read_ledger(ledger: Ledger, pipeline: str) -> LedgerFacts:
    try:
        entry = next((candidate for candidate in ledger.pipelines() if candidate.name == pipeline), None)
        records = tuple(ledger.epochs(pipeline))
        following = records[-1].epoch.number + 1 if records else 1
        intents = (ledger.intent(pipeline, number) for number in (following + 1, following))
        intent = next((candidate for candidate in intents if candidate is not None), None)
        events = tuple(ledger.events(pipeline))
        superseded = tuple(ledger.superseded(pipeline))
    except (LedgerUnavailable, UnreadableMarker) as error:
        return LedgerFacts(mask(ledger.address), unreadable=reason_of(error))
    return LedgerFacts(mask(ledger.address), entry, records, intent, events, superseded=superseded)


# ---- Hashes the rows that stand in a sink, with the expression that hashed them when they were written.


_NOT_TOLD = "the sink does not know the epoch of its rows, or replaces them"
_OTHER_TYPES = "the target gives back other types than were written, or mixed their rows with those of other epochs"


def read_content(sink: Sink, spark: SparkSession, epochs: Sequence[Epoch]) -> Content:
    """Read a sink's rows and hash them per epoch, by the fingerprint of its columns."""
    try:
        with reading():
            rows = sink.read_with_spark(spark) if isinstance(sink, ReadsRows) else None
    except UnreadableRows as error:
        return Content({}, str(error))
    except UNREADABLE as error:
        return Content({}, reason_of(error))
    if rows is None:
        return Content({}, _NOT_TOLD)
    return replace(_content(sink.id, rows, epochs), times=_times(sink.id, rows, epochs))


def _content(sink: str, rows: DataFrame, epochs: Sequence[Epoch]) -> Content:
    digests: dict[int, Digest] = {}
    try:
        for (schema, left_out), numbers in _alike(sink, epochs).items():
            columns = chain.written(rows.dtypes[:-1], schema)
            if columns:
                with reading():
                    digests.update(digest.by_epoch(rows, columns, frozenset(left_out), numbers))
    except UnreadableRows as error:
        log.info("rows cannot be read back: %s", error.__cause__)
        return Content(digests, str(error))
    return Content(digests, _OTHER_TYPES)


def _times(sink: str, rows: DataFrame, epochs: Sequence[Epoch]) -> Mapping[int, RowTimes]:
    """Read event times of epochs, if their column in the sink still has a suitable type."""
    kinds, times = dict(rows.dtypes), dict[int, RowTimes]()
    try:
        for (column, unit), horizons in _clocks(sink, epochs).items():
            if kinds.get(column) in _KINDS[unit]:
                with reading():
                    times.update(row_times.by_epoch(rows, column, unit, horizons))
    except UnreadableRows as error:
        log.info("times of rows cannot be read back: %s", error.__cause__)
    return times


_KINDS: Mapping[Unit, frozenset[str]] = {
    "ms": frozenset({"timestamp"}),
    "integer": frozenset({"tinyint", "smallint", "int", "bigint"}),
}
"""Types in which a column says time, by what is counted."""


def _clocks(sink: str, epochs: Sequence[Epoch]) -> Mapping[tuple[str, Unit], dict[int, int | None]]:
    """Group epochs whose rows the sink holds unchanged, with their horizons, by time column and unit."""
    horizons: dict[tuple[str, Unit], dict[int, int | None]] = {}
    for epoch in epochs:
        own = epoch.schema_in(sink) == epoch.schema and epoch.digest_in(sink).rows
        if epoch.time and epoch.time.column and own:
            horizons.setdefault((epoch.time.column, epoch.time.unit), {})[epoch.number] = epoch.time.late_before
    return horizons


def _alike(sink: str, epochs: Sequence[Epoch]) -> Mapping[tuple[str, tuple[str, ...]], list[int]]:
    """Group epochs by the columns' fingerprint and the columns that the digest left out."""
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for epoch in epochs:
        if (held := epoch.digest_in(sink)).rows:
            groups.setdefault((epoch.schema_in(sink), held.left_out), []).append(epoch.number)
    return groups
