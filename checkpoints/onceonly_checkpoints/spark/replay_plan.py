"""Plan the Spark starts that replay recorded batches exactly.

Pure. ``replay_files`` writes their checkpoints. Spark replays an entry of its offset log without a commit unchanged:
rows, clock, watermark. It replays only the newest of several such entries, so each batch takes a start of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from onceonly_checkpoints.epoch import EpochRecord, Lineage
from onceonly_checkpoints.model import InputFile, Slice, SourceOffsets
from onceonly_checkpoints.spark import offsets as spark_offsets
from onceonly_checkpoints.strenum import StrEnum


class StateFrom(StrEnum):
    """Origin of a query's state before the first wanted batch."""

    COPIED = "copied"
    """From the query's own checkpoint, in the version with which the batch began."""
    BEGINNING = "beginning"
    """From all batches before it, which are run again into nothing."""


class MissingInput(StrEnum):
    """Kind of missing data that prevents a replay."""

    INPUT = "input"
    """What they read is not on record."""
    STATE = "state"
    """The state with which they began is not kept."""


class CannotReplay(Exception):
    """Records or checkpoint are not enough to run epochs ``first..last`` again.

    ``lacking`` is the kind of missing data, and ``reason`` describes it in words.
    """

    def __init__(self, lacking: MissingInput, first: int, last: int, reason: str) -> None:
        super().__init__(reason)
        self.lacking = lacking
        self.first = first
        self.last = last
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Step:
    """One start of Spark: one batch, which reads the input of one epoch again, or of several consecutive ones.

    Attributes:
        records: the epochs, oldest first.
        batch_id: number of the batch in the replay checkpoint.
        slice: its input, in that checkpoint's own count.
        is_requested: whether its rows are wanted. ``False`` if only its state is.
        fresh: whether it begins a replay checkpoint of its own. Otherwise it goes on in that of the step before it.
    """

    records: tuple[EpochRecord, ...]
    batch_id: int
    slice: Slice
    files: tuple[InputFile, ...]
    before: Lineage
    is_requested: bool = True
    fresh: bool = True
    stateful: bool = False

    @property
    def first(self) -> int:
        """Number of its first epoch."""
        return self.records[0].epoch.number

    @property
    def last(self) -> int:
        """Number of its last epoch."""
        return self.records[-1].epoch.number

    @property
    def lineage(self) -> Lineage:
        """The engine's names for the recorded batch whose clock and watermark it has."""
        return _lineage(self.records[-1])

    @property
    def copies_state(self) -> bool:
        """Whether it begins with state of the query's own checkpoint."""
        return self.stateful and self.fresh and self.batch_id > 0


def plan_steps(
    records: Sequence[EpochRecord],
    first: int,
    last: int,
    *,
    stateful: bool = False,
    state: StateFrom = StateFrom.COPIED,
    coalesce: int = 1,
) -> tuple[Step, ...]:
    """The starts of Spark that run epochs ``first..last`` again, in their order. Epochs without a batch have none.

    ``records`` are the pipeline's epochs, with those before ``first``. ``stateful`` is true if the query keeps state,
    and ``state`` is its origin. ``coalesce`` is the most consecutive epochs to run as one batch, under the clock of the
    last. It is refused (``ValueError``) for queries with state. Raises :class:`CannotReplay` if an epoch, its files or
    the way to its state is not on record.
    """
    if coalesce != 1 and stateful:
        raise ValueError("epochs of a query with state cannot be coalesced")
    ordered_records = sorted(records, key=lambda record: record.epoch.number)
    selected_records = [record for record in ordered_records if first <= record.epoch.number <= last]
    if lacking := sorted(set(range(first, last + 1)) - {record.epoch.number for record in selected_records}):
        reason = f"the ledger holds no epoch {lacking[0]}"
        raise CannotReplay(MissingInput.INPUT, lacking[0], lacking[-1], reason)
    batches = [record for record in selected_records if record.epoch.lineage is not None]
    if stateful:
        return tuple(_with_state(ordered_records, batches, state))
    return _coalesced(tuple(_alone(ordered_records, batches)), coalesce)


def _alone(records: Sequence[EpochRecord], batches: Sequence[EpochRecord]) -> Iterator[Step]:
    for record in batches:
        slice_ = _read_again(record)
        files = _files(record, _held_before(records, record) if record.epoch.offered else frozenset())
        # A source has no start before batch 0 only, so that what it reads from there is no batch's after another.
        batch_id = 0 if slice_.start.unset else record.epoch.number
        yield Step((record,), batch_id, slice_, files, _lineage(record))


def _coalesced(steps: tuple[Step, ...], most: int) -> tuple[Step, ...]:
    made: list[Step] = []
    for step in steps:
        if made and len(made[-1].records) < most and _follows(made[-1], step):
            made[-1] = _joined(made[-1], step)
        else:
            made.append(step)
    return tuple(made)


def _follows(step: Step, next_: Step) -> bool:
    same = step.lineage.query_id == next_.lineage.query_id  # another checkpoint counts its files anew
    return same and step.slice.end == next_.slice.start


def _joined(step: Step, next_: Step) -> Step:
    return replace(
        step,
        records=(*step.records, *next_.records),
        batch_id=next_.batch_id if step.batch_id else 0,
        slice=Slice(step.slice.start, next_.slice.end),
        files=(*step.files, *next_.files),
    )


def _with_state(records: Sequence[EpochRecord], batches: Sequence[EpochRecord], state: StateFrom) -> Iterator[Step]:
    before: EpochRecord | None = None
    for record in batches:
        if before is None or _lineage(before).query_id != _lineage(record).query_id:
            if state is StateFrom.BEGINNING:
                yield from _grown(records, record)
            else:
                yield _stateful(records, record, fresh=True)
        else:
            _demand_next(before, record)
            yield _stateful(records, record, fresh=False)
        before = record


def _grown(records: Sequence[EpochRecord], record: EpochRecord) -> Iterator[Step]:
    query_id, number = _lineage(record).query_id, record.epoch.number
    own = [candidate for candidate in records if candidate.epoch.number <= number and _is_of(candidate, query_id)]
    if _lineage(own[0]).batch_id != 0:
        reason = f"the first batch on record of its query is batch {_lineage(own[0]).batch_id}"
        raise CannotReplay(MissingInput.STATE, number, number, reason)
    for before, after in itertools.pairwise(own):
        _demand_next(before, after)
    for at, batch in enumerate(own):
        yield replace(_stateful(records, batch, fresh=at == 0), is_requested=batch is record)


def _is_of(record: EpochRecord, query_id: str) -> bool:
    return record.epoch.lineage is not None and record.epoch.lineage.query_id == query_id


def _demand_next(before: EpochRecord, after: EpochRecord) -> None:
    """Refuse batches with an unrecorded one between them, whose effect on the state is unknown."""
    old, new = _lineage(before).batch_id, _lineage(after).batch_id
    if new != old + 1:
        number = after.epoch.number
        raise CannotReplay(MissingInput.STATE, number, number, f"batch {old + 1} of its query is no epoch on record")


def _stateful(records: Sequence[EpochRecord], record: EpochRecord, *, fresh: bool) -> Step:
    lineage = _lineage(record)
    earlier = (_lineage(candidate) for candidate in records if _is_of(candidate, lineage.query_id))
    before = next((candidate for candidate in earlier if candidate.batch_id == lineage.batch_id - 1), lineage)
    # Versions of state are numbered as batches are.
    slice_, files = record.epoch.planned, _files(record, frozenset())
    return Step((record,), lineage.batch_id, slice_, files, before, fresh=fresh, stateful=True)


def _lineage(record: EpochRecord) -> Lineage:
    lineage = record.epoch.lineage
    if lineage is None:
        raise ValueError(f"no batch led to epoch {record.epoch.number}")
    return lineage


def _read_again(record: EpochRecord) -> Slice:
    """The written slice of a batch. A trimmed file source keeps the count of its own checkpoint."""
    planned, written = record.epoch.planned, record.epoch.written
    starts, ends = dict(written.start.entries), dict(written.end.entries)
    counted = {source for source, end in planned.end.entries if spark_offsets.log_offset(end) is not None}
    start = ((source, offset if source in counted else starts.get(source)) for source, offset in planned.start.entries)
    end = ((source, offset if source in counted else ends.get(source)) for source, offset in planned.end.entries)
    return Slice(SourceOffsets(tuple(start)), SourceOffsets(tuple(end)))


def _held_before(records: Sequence[EpochRecord], record: EpochRecord) -> frozenset[str]:
    """Paths of files that earlier epochs hold, which a trimmed batch left out."""
    return frozenset(
        unquote(file.path)
        for earlier in records
        if earlier.epoch.number < record.epoch.number
        for file in earlier.files
    )


def _files(record: EpochRecord, held: frozenset[str]) -> tuple[InputFile, ...]:
    planned, number = record.epoch.planned, record.epoch.number
    starts = dict(planned.start.entries)
    files: list[InputFile] = []
    for source, end in planned.end.entries:
        last = spark_offsets.log_offset(end)
        if last is None:
            continue
        before = spark_offsets.log_offset(starts.get(source))
        own = [file for file in record.files if file.source == source]
        log_offsets = range(0 if before is None else before + 1, last + 1)
        if lacking := set(log_offsets) - {file.log_offset for file in own}:
            reason = (
                f"the file lists of source {source} are not known ({len(lacking)} of {len(log_offsets)} log entries)"
            )
            raise CannotReplay(MissingInput.INPUT, number, number, reason)
        files += (file for file in own if file.log_offset in log_offsets and unquote(file.path) not in held)
    return tuple(files)
