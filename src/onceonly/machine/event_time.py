"""Event time of an epoch, from the previous epoch and its rows.

Noted time never goes back except by a new series: a lower value is ignored. Idea: Pravega's noteTime (PDP-33), whose
marks refer to rows that were read. These are committed with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal

from onceonly.machine import writer_progress
from onceonly.machine.facts import Happening, Offer, Refusal
from onceonly.machine.writer_progress import RewoundPosition, TimedMarker, WriterSet, greatest
from onceonly.protocol.row_times import NO_TIMES, Clock, RowTimes
from onceonly_checkpoints.epoch import Epoch, EpochRecord, Lineage
from onceonly_checkpoints.epoch_time import END, EpochTime, Unit, WriterProgress
from onceonly_checkpoints.ledger import EventKind, RemovedEpoch
from onceonly_checkpoints.model import SourceKind

By = Literal["rows", "ingest", "watermark", "function", "upstream"]
"""Whose word is noted: that of the rows' greatest time, of the engine's recorded clock or watermark, of the user, or of
the dataset that is read."""


@dataclass(frozen=True, slots=True)
class EventTimeConfig:
    """How a pipeline notes that rows are complete: ``event_time=``, as the machine takes it.

    Attributes:
        unit: of the noted time, and of the column.
        delay: by ``rows``: how far behind the greatest time a row may come, in the unit.
        writers: other writers of the dataset, or ``None`` if the pipeline notes for itself alone.
        idle: by ``rows``: milliseconds without input after which time follows the recorded clock. ``None`` for never.
        ahead: how many milliseconds a row may be ahead of the recorded clock of its batch. ``None`` for any number.
    """

    by: By
    unit: Unit = "ms"
    column: str | None = None
    delay: int = 0
    writers: WriterSet | None = None
    idle: int | None = None
    ahead: int | None = None


@dataclass(frozen=True, slots=True)
class TimeDecision:
    """Time of an epoch, with events for the pipeline's log."""

    time: EpochTime | None
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class PreviousTime:
    """Known time before the rows of an epoch are read.

    Attributes:
        begins: whether a new series begins. It replaces the rows of all epochs before, and their noted time.
        polled: newest epochs of the dataset's other writers, as far as they answered.
        cut: rewind that moved the position back, or ``None`` for no known one.
    """

    pipeline: str
    number: int
    last: Epoch | None
    begins: bool = False
    polled: tuple[TimedMarker, ...] = ()
    cut: RewoundPosition | None = None

    @property
    def recorded_time(self) -> EpochTime | None:
        """Time of the epoch before, even if its rows are replaced."""
        return self.last.time if self.last else None

    @property
    def effective_time(self) -> EpochTime | None:
        """Time of the epoch before that counts for the next one: none if its rows are replaced."""
        return None if self.begins else self.recorded_time

    @property
    def own_marker(self) -> TimedMarker | None:
        """The epoch before, as other writers see it."""
        return TimedMarker(self.pipeline, self.last.number, self.last.time) if self.last and self.last.time else None

    @property
    def forgotten(self) -> WriterProgress | None:
        """Our newest epoch that others or the ledger have seen and that was removed since, or ``None``."""
        own = [mark for marker in self.polled for mark in marker.observed if mark.writer == self.pipeline]
        newest = max((*own, *(self.cut.aside if self.cut else ())), key=writer_progress.age, default=None)
        current = (self.recorded_time.resets, self.last.number) if self.recorded_time and self.last else (0, 0)
        return newest if newest and (newest.resets, newest.epoch) > current else None

    @property
    def cut_back(self) -> bool:
        """Whether a rewind came after the epoch before, and no epoch has followed the rewind yet."""
        return bool(self.cut and self.recorded_time and self.last and self.cut.to == self.last.number)

    @property
    def turn(self) -> int:
        """Number of position resets, as of the epoch that is written."""
        if not self.forgotten and not self.cut_back and not (self.begins and self.recorded_time):
            return self.recorded_time.resets if self.recorded_time else 0
        own_observed = (self.own_marker.observed,) if self.own_marker else ()
        aside = self.cut.aside if self.cut else ()
        return writer_progress.next_reset(
            self.pipeline, *own_observed, aside, *(marker.observed for marker in self.polled)
        )


def cut(head: EpochRecord | None, aside: Iterable[RemovedEpoch], rewound: int) -> RewoundPosition | None:
    """Return the rewind that moved the position back to the newest epoch, or ``None`` if there was none.

    ``head`` is ``None`` if the ledger has no epoch that is still in place. ``rewound`` is the generation of the newest
    rewind that cut back, or 0 for none.
    """
    timed = (
        TimedMarker(removed_epoch.pipeline, removed_epoch.epoch.number, removed_epoch.epoch.time)
        for removed_epoch in aside
        if removed_epoch.epoch.time
    )
    marks = tuple(marker.mark for marker in timed)
    # A ledger that was set back with the sinks knows no epoch beyond, but who cut back to where it stands. One that was
    # pruned, or lost, may know of none that stands, but of those that were set aside.
    to = head.epoch.number if head and rewound > head.fence.generation else 0
    return RewoundPosition(to, marks) if to or marks else None


def clock(noting: EventTimeConfig | None, previous: PreviousTime) -> Clock | None:
    """Return the event times to read from an epoch's rows, or ``None`` without a time column."""
    if noting is None or noting.column is None:
        return None
    return Clock(noting.column, noting.unit, horizon(previous))


def horizon(previous: PreviousTime) -> int | None:
    """Return the time before which rows of the next epoch are late."""
    last_time = previous.effective_time
    alone = greatest((last_time.complete_until, last_time.dataset_complete_until)) if last_time else None
    if not previous.polled:
        return alone
    own = WriterProgress(previous.pipeline, previous.number, None, 0, previous.turn)
    return greatest(
        (
            last_time.complete_until if last_time else None,
            writer_progress.known_lower(own, previous.own_marker, previous.polled),
        )
    )


def refused(noting: EventTimeConfig | None, previous: PreviousTime) -> Refusal | None:
    """Refuse a unit that differs, as 10 minutes and block 600,000 have no order, and a writer whose time has ended."""
    if noting is None:
        return None
    writer, last_time = f'Pipeline "{previous.pipeline}"', previous.effective_time
    if previous.recorded_time and previous.recorded_time.complete_until == END:
        number = previous.last.number if previous.last else 0
        problem, remedy = f"{writer} was retired by epoch {number}: no time follows its last one", _ANEW
        cause = "it was started again, but its time had ended for good: by a drain, or onceonly recover retire-writer"
        return Refusal.of("E135", problem=problem, because=cause, next=remedy)
    if last_time and previous.last and last_time.unit != noting.unit:
        return Refusal.of(
            "E134",
            writer=writer,
            unit=noting.unit,
            other=f"its epochs up to {previous.last.number}",
            theirs=last_time.unit,
        )
    if strange := next((marker for marker in previous.polled if marker.time.unit != noting.unit), None):
        other = f"{strange.writer}, a writer of the same dataset,"
        return Refusal.of("E134", writer=writer, unit=noting.unit, other=other, theirs=strange.time.unit)
    marks = writer_progress.joined(*(marker.observed for marker in previous.polled))
    if len(marks) > MOST_WRITERS:
        return Refusal.of("E136", writers=len(marks), most=MOST_WRITERS)
    return None


MOST_WRITERS = 256
"""Writers of one dataset: each is in the marker of each."""

_ANEW = "give the query a new name: queryName(...), and a new checkpoint"


def timed(noting: EventTimeConfig | None, previous: PreviousTime, offer: Offer, times: RowTimes | None) -> TimeDecision:
    """Return the event time of a batch's epoch.

    The clocks in ``offer`` are those that the engine recorded, so that a replay has the same ones. Without ``noting``,
    the pipeline notes no time now, even if it did before.
    """
    before = previous.recorded_time
    if noting is None and before is None:
        return TimeDecision(None)
    back = reset_time(previous)
    if before and previous.begins:
        unit = noting.unit if noting else before.unit
        ingest, observed = offer.lineage.batch_timestamp_ms, before.writers
        before = EpochTime(unit, None, None, None, batch_timestamp_ms=ingest, writers=observed, resets=previous.turn)
    if noting is None:
        return TimeDecision(carried(before, turn=previous.turn), back)
    time, proposed_time = _timed(noting, previous, before, offer, times or NO_TIMES)
    back = (*back, *_unsaid(times or NO_TIMES, previous.number), *_idle(noting, before, time, previous.number))
    if noting.writers or time.writers:
        view = _conclude_dataset(noting.writers or WriterSet(), previous, time)
        time = replace(time, dataset_complete_until=view.lower, writers=view.observed, timed_out=view.silent)
        back = (*back, *_silenced(previous, time))
    return TimeDecision(
        time, (*back, *_held(noting, before.complete_until if before else None, proposed_time, previous.number))
    )


def _conclude_dataset(writers: WriterSet, previous: PreviousTime, time: EpochTime) -> writer_progress.DatasetView:
    own = WriterProgress(previous.pipeline, previous.number, time.complete_until, time.batch_timestamp_ms, time.resets)
    return writer_progress.concluded(own, previous.own_marker, previous.polled, writers)


def _silenced(previous: PreviousTime, time: EpochTime) -> tuple[Happening, ...]:
    """Note writers that are excluded from this epoch on, by the recorded clocks of the engines."""
    before = previous.recorded_time.timed_out if previous.recorded_time else ()
    marks = writer_progress.by_name(time.writers)
    new = [marks[name] for name in time.timed_out if name not in before]
    return tuple(Happening(EventKind.WRITER_TIMED_OUT, _why_timed_out(mark, time), previous.number) for mark in new)


def _why_timed_out(mark: WriterProgress, time: EpochTime) -> str:
    seconds = (time.batch_timestamp_ms - mark.batch_timestamp_ms) / 1000
    seen = f"its epoch {mark.epoch} was planned" if mark.epoch else "no epoch of it was seen, and it was declared"
    return f"{mark.writer} is waited for no more: {seen}, {seconds:g} s before"


def reset_time(previous: PreviousTime) -> tuple[Happening, ...]:
    """Note that earlier times are void after a reset of the position or at the start of a series."""
    last_time = previous.recorded_time
    if last_time and previous.begins:
        coverage = (
            "nothing"
            if last_time.complete_until is None
            else f"all before {text(last_time.complete_until, last_time.unit)}"
        )
        what = f"a new series begins: {coverage} is no longer complete"
    elif previous.forgotten or previous.cut_back:
        number = previous.last.number if previous.last else 0
        what = f"the position was reset to epoch {number}{_visibility_note(previous)}; turn {previous.turn}"
    else:
        return ()
    # A driver that dies between this line and the epoch leaves both to the next one.
    return (Happening(EventKind.TIME_BACK, what, previous.number, once=True),)


def _visibility_note(previous: PreviousTime) -> str:
    if gone := previous.forgotten:
        who = "others" if previous.polled else "readers"
        return f", and {who} {'have' if previous.polled else 'may have'} seen epoch {gone.epoch}"
    return ""


def given_up(decided: Epoch, newest: Epoch | None) -> tuple[Happening, ...]:
    """Note that numbers come again from which other writers may have drawn conclusions.

    ``decided`` is the epoch of an operator's decision. ``newest`` is the newest epoch that was ever committed.
    """
    if decided.time is None or newest is None or newest.number < decided.number:
        return ()
    first, last = decided.number, newest.number
    gone = f"epoch {first} is" if first == last else f"epochs {first} to {last} are"
    what = f"{gone} gone and will be numbered again: conclusions of other writers are void; turn {decided.time.resets}"
    return (Happening(EventKind.TIME_BACK, what, decided.number),)


def carried(before: EpochTime | None, *, turn: int | None = None) -> EpochTime | None:
    """Carry time to an epoch that notes none. ``turn`` is given if another epoch had its number: this one is newer."""
    if before is None:
        return None
    return replace(
        before,
        earliest=None,
        latest=None,
        late_before=None,
        late_rows=0,
        rows_without_time=0,
        timed_out=(),
        column=None,
        resets=before.resets if turn is None else turn,
    )


def retire_writer(previous: PreviousTime) -> EpochTime | None:
    """Return the time of a writer's last epoch, after which others wait no longer. ``None``: it noted no time."""
    carried_time = carried(previous.recorded_time)
    if carried_time is None:
        return None
    gone = replace(carried_time, complete_until=END, resets=previous.turn)
    return replace(
        gone, dataset_complete_until=_conclude_dataset(WriterSet(), previous, gone).lower if gone.writers else END
    )


def _timed(
    noting: EventTimeConfig, previous: PreviousTime, before: EpochTime | None, offer: Offer, times: RowTimes
) -> tuple[EpochTime, int | None]:
    """Return the time of an epoch for its writer alone, and the value to note if there was no previous one."""
    past = before or EpochTime(noting.unit, None, None, None, batch_timestamp_ms=offer.lineage.batch_timestamp_ms)
    idle_since = _idle_since(noting, past, times, offer)
    proposed_time = _propose_time(noting, past, times, offer.lineage, idle_since)
    complete_time = _keep_latest(past, proposed_time)
    time = EpochTime(
        unit=noting.unit,
        complete_until=complete_time,
        dataset_complete_until=greatest((past.dataset_complete_until, complete_time)),
        max_time=greatest((past.max_time, times.last if noting.column else complete_time)),
        closed_until=complete_time if noting.by == "watermark" and offer.stateful else None,
        earliest=times.first,
        latest=times.last,
        late_before=horizon(previous),
        late_rows=times.late,
        rows_without_time=times.untimed,
        batch_timestamp_ms=offer.lineage.batch_timestamp_ms,
        writers=past.writers,
        resets=previous.turn,
        column=noting.column,
        idle_since=idle_since,
    )
    return time, proposed_time


def _keep_latest(past: EpochTime, proposed_time: int | None) -> int | None:
    """Keep the last noted time if the new one is lower, because a replay would note it for ever."""
    return writer_progress.clamped(proposed_time, past.complete_until)


def _idle_since(noting: EventTimeConfig, past: EpochTime, times: RowTimes, offer: Offer) -> int | None:
    """Return the clock since which no source gave input. Rows that were left out or are bad are input, too."""
    start, end = (dict(offsets.entries) for offsets in (offer.slice.start, offer.slice.end))
    # A heartbeat has no identity.
    named = (source.source for source in offer.sources if source.kind is not SourceKind.UNNAMED)
    if noting.idle is None or times.last is not None or any(start.get(name) != end.get(name) for name in named):
        return None
    return past.batch_timestamp_ms if past.idle_since is None else past.idle_since


def _followed(noting: EventTimeConfig, clock: int, idle_since: int | None) -> int | None:
    """Return the time that rows of an idle source would have by now, or ``None`` if it does not count as idle."""
    if noting.idle is None or idle_since is None or clock - idle_since < noting.idle:
        return None
    return clock - noting.idle


def _idle(noting: EventTimeConfig, before: EpochTime | None, time: EpochTime, number: int) -> tuple[Happening, ...]:
    """Note that time follows the recorded clock from this epoch on, because no rows come."""
    since, was_idle = time.idle_since, before and _followed(noting, before.batch_timestamp_ms, before.idle_since)
    if since is None or was_idle is not None or _followed(noting, time.batch_timestamp_ms, since) is None:
        return ()
    reason = f"no input came since {text(since, 'ms')}: time follows the recorded clock"
    return (Happening(EventKind.SOURCE_IDLE, reason, number),)


def too_far_ahead(
    noting: EventTimeConfig | None, pipeline: str, number: int, lineage: Lineage, times: RowTimes | None
) -> Refusal | None:
    """Refuse an epoch with a row that is further ahead of the recorded clock than allowed.

    Its time would never be taken back: all rows until then would be late, and windows would close without them.
    """
    latest, planned = times.last if times else None, lineage.batch_timestamp_ms
    if noting is None or noting.ahead is None or latest is None or latest <= planned + noting.ahead:
        return None
    return Refusal.of(
        "E530",
        pipeline=pipeline,
        epoch=number,
        column=noting.column,
        time=f"`{noting.column}`",
        latest=text(latest, "ms"),
        planned=text(planned, "ms"),
        ahead=timedelta(milliseconds=noting.ahead),
        seconds=noting.ahead // 1000,
    )


def _propose_time(
    noting: EventTimeConfig, past: EpochTime, times: RowTimes, lineage: Lineage, idle_since: int | None
) -> int | None:
    match noting.by:
        case "rows":
            followed = _followed(noting, lineage.batch_timestamp_ms, idle_since)
            latest = greatest((past.max_time, times.last, followed))
            return None if latest is None else max(latest - noting.delay, -END - 1)
        case "ingest":
            return lineage.batch_timestamp_ms
        case "watermark":
            return lineage.watermark_ms or None
        case "function" | "upstream":
            return times.callback_time


def _held(
    noting: EventTimeConfig, current_time: int | None, proposed_time: int | None, number: int
) -> tuple[Happening, ...]:
    # That no row is later than those before it is nothing out of the ordinary.
    if noting.by == "rows" or current_time is None or proposed_time is None or proposed_time >= current_time:
        return ()
    proposed, noted_time = text(proposed_time, noting.unit), text(current_time, noting.unit)
    reason = f"{proposed} was given, but all before {noted_time} is recorded already"
    return (Happening(EventKind.TIME_HELD, reason, number),)


def _unsaid(times: RowTimes, number: int) -> tuple[Happening, ...]:
    if not times.unsaid:
        return ()
    return (Happening(EventKind.UNPOLLED, f"the recorded time is kept: {times.unsaid}", number),)


def late(epoch: Epoch) -> tuple[Happening, ...]:
    """Note rows that were written although they came after their time was noted as complete."""
    time = epoch.time
    if time is None or not time.late_rows or time.late_before is None or _dropped(epoch):
        return ()
    first = "" if time.earliest is None else f"; the earliest is of {text(time.earliest, time.unit)}"
    if time.earliest is not None and time.unit == "ms":
        first += f", {timedelta(milliseconds=time.late_before - time.earliest)} before that"
    rows = "1 row" if time.late_rows == 1 else f"{time.late_rows} rows"
    reason = f"{rows} came late: all before {text(time.late_before, time.unit)} was recorded as complete{first}"
    return (Happening(EventKind.BEHIND, reason, epoch.number),)


def complete_until(epoch: Epoch) -> str:
    """Return the time part of an epoch's log line, which follows its rows. Empty without a time."""
    time = epoch.time
    if time is None or time.dataset_complete_until is None:
        return ""
    late = f", {time.late_rows} late" if time.late_rows and not _dropped(epoch) else ""
    return f"; complete until {text(time.dataset_complete_until, time.unit)}{late}"


def _dropped(epoch: Epoch) -> int:
    """Rows that windows dropped. They can be late ones, so it is unknown which late rows are in a result."""
    return epoch.windows.dropped if epoch.windows else 0


def text(value: int, unit: Unit) -> str:
    """Format a time for people: milliseconds as a moment in UTC, an integer as the number."""
    if value == END:
        return "the end"
    if unit == "integer":
        return str(value)
    try:
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=value)
    except OverflowError:
        return f"{value} ms"
    return moment.isoformat(timespec="milliseconds" if value % 1000 else "seconds").replace("+00:00", "Z")
