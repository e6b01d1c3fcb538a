"""Event time of an epoch, from the previous epoch and its rows.

Nothing here ever goes back but by a new series: what is said stays said, whoever says less. Idea: Pravega's noteTime
(PDP-33), whose marks are of what was read. These are committed with the rows.
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

By = Literal["rows", "ingest", "watermark", "function", "upstream"]
"""Whose word is noted: that of the rows' greatest time, of the engine's recorded clock or watermark, of the user, or of
the dataset that is read."""


@dataclass(frozen=True, slots=True)
class EventTimeConfig:
    """How a pipeline says up to when all is there: ``note_time=``, as the machine takes it.

    Attributes:
        by: whose word it is.
        unit: of it, and of the column.
        column: where a row says its time; ``None`` where none does.
        delay: by ``rows``: how far behind the greatest time a row may come, in the unit.
        writers: who else writes the dataset; ``None`` where the pipeline speaks for itself alone.
    """

    by: By
    unit: Unit = "ms"
    column: str | None = None
    delay: int = 0
    writers: WriterSet | None = None


@dataclass(frozen=True, slots=True)
class TimeDecision:
    """What an epoch says of time, and what of that is worth a line in the pipeline's log."""

    time: EpochTime | None
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class PreviousTime:
    """What is known of time before the rows of an epoch are read.

    Attributes:
        pipeline: its name.
        number: of the epoch that is written.
        last: the epoch before; ``None`` for the first one.
        begins: whether a new series begins: rows of all epochs before leave with it, and what they said.
        polled: newest epochs of the dataset's other writers, as far as they answered.
        cut: that a rewind put the position back to some epoch; ``None`` where none is known.
    """

    pipeline: str
    number: int
    last: Epoch | None
    begins: bool = False
    polled: tuple[TimedMarker, ...] = ()
    cut: RewoundPosition | None = None

    @property
    def stood(self) -> EpochTime | None:
        """What the epoch before says, whatever became of it."""
        return self.last.time if self.last else None

    @property
    def said(self) -> EpochTime | None:
        """What of it counts for the next epoch: nothing where its rows leave."""
        return None if self.begins else self.stood

    @property
    def told(self) -> TimedMarker | None:
        """The epoch before, as other writers see it."""
        return TimedMarker(self.pipeline, self.last.number, self.last.time) if self.last and self.last.time else None

    @property
    def forgotten(self) -> WriterProgress | None:
        """Our newest epoch that others, or the ledger, have seen and that stands no longer; ``None`` without one."""
        own = [mark for one in self.polled for mark in one.observed if mark.writer == self.pipeline]
        newest = max((*own, *(self.cut.aside if self.cut else ())), key=writer_progress.age, default=None)
        stands = (self.stood.turn, self.last.number) if self.stood and self.last else (0, 0)
        return newest if newest and (newest.turn, newest.epoch) > stands else None

    @property
    def cut_back(self) -> bool:
        """Whether what the epoch before says was said before a rewind that no epoch has followed yet."""
        return bool(self.cut and self.stood and self.last and self.cut.to == self.last.number)

    @property
    def turn(self) -> int:
        """How often the position was put back, as of the epoch that is written."""
        if not self.forgotten and not self.cut_back and not (self.begins and self.stood):
            return self.stood.turn if self.stood else 0
        told = (self.told.observed,) if self.told else ()
        aside = self.cut.aside if self.cut else ()
        return writer_progress.next_reset(self.pipeline, *told, aside, *(one.observed for one in self.polled))


def cut(head: EpochRecord | None, aside: Iterable[RemovedEpoch], rewound: int) -> RewoundPosition | None:
    """Whether the newest epoch is one to which a rewind has put the position back; ``None`` where it is not.

    Args:
        head: its record; ``None``: the ledger knows of no epoch that stands.
        aside: epochs beyond it that were set aside.
        rewound: generation of the newest rewind that cut back; 0 for none.
    """
    timed = (TimedMarker(one.pipeline, one.epoch.number, one.epoch.time) for one in aside if one.epoch.time)
    seen = tuple(one.mark for one in timed)
    # A ledger that was set back with the sinks knows no epoch beyond, but who cut back to where it stands. One that was
    # pruned, or lost, may know of none that stands, but of those that were set aside.
    to = head.epoch.number if head and rewound > head.fence.generation else 0
    return RewoundPosition(to, seen) if to or seen else None


def clock(noting: EventTimeConfig | None, known: PreviousTime) -> Clock | None:
    """What is asked of an epoch's rows; ``None`` where no column says their time.

    Args:
        noting: how time is said; ``None`` where nobody says it.
        known: what is known before they are read.
    """
    if noting is None or noting.column is None:
        return None
    return Clock(noting.column, noting.unit, horizon(known))


def horizon(known: PreviousTime) -> int | None:
    """Before which the rows of the next epoch are late."""
    said = known.said
    alone = greatest((said.noted, said.lower)) if said else None
    if not known.polled:
        return alone
    own = WriterProgress(known.pipeline, known.number, None, 0, known.turn)
    return greatest((said.noted if said else None, writer_progress.known_lower(own, known.told, known.polled)))


def refused(noting: EventTimeConfig | None, known: PreviousTime) -> Refusal | None:
    """Why time cannot go on: in another unit, as 10 minutes and block 600,000 are on no common line; after its end."""
    if noting is None:
        return None
    writer, said = f'Pipeline "{known.pipeline}"', known.said
    if known.stood and known.stood.noted == END:
        number = known.last.number if known.last else 0
        problem, way = f"{writer} was retired by epoch {number}: it noted that nothing follows", _ANEW
        cause = "its query was started again, and its time had been ended for good: by a drain, or onceonly time retire"
        return Refusal.of("E135", problem=problem, because=cause, next=way)
    if said and known.last and said.unit != noting.unit:
        return Refusal.of(
            "E134", writer=writer, unit=noting.unit, other=f"its epochs up to {known.last.number}", theirs=said.unit
        )
    if strange := next((one for one in known.polled if one.time.unit != noting.unit), None):
        other = f"{strange.writer}, a writer of the same dataset,"
        return Refusal.of("E134", writer=writer, unit=noting.unit, other=other, theirs=strange.time.unit)
    seen = writer_progress.joined(*(one.observed for one in known.polled))
    if len(seen) > MOST_WRITERS:
        return Refusal.of("E136", writers=len(seen), most=MOST_WRITERS)
    return None


MOST_WRITERS = 256
"""Writers of one dataset: each is in the marker of each."""

_ANEW = "give the query that goes on a name of its own: queryName(...) and a checkpoint that is new"


def timed(noting: EventTimeConfig | None, known: PreviousTime, offer: Offer, times: RowTimes | None) -> TimeDecision:
    """What the epoch of a batch says of time.

    Args:
        noting: how time is said; ``None`` where nobody says it any more, or ever did.
        known: what was known before its rows were read.
        offer: the batch, with the clocks that the engine recorded for it: the same in a replay.
        times: what its rows, and the user's function, say.
    """
    before = known.stood
    if noting is None and before is None:
        return TimeDecision(None)
    back = reset_time(known)
    if before and known.begins:
        unit = noting.unit if noting else before.unit
        ingest, observed = offer.lineage.batch_timestamp_ms, before.observed
        before = EpochTime(unit, None, None, None, ingest=ingest, observed=observed, turn=known.turn)
    if noting is None:
        return TimeDecision(carried(before, turn=known.turn), back)
    time, wanted = _timed(noting, known, before, offer, times or NO_TIMES)
    back = (*back, *_unsaid(times or NO_TIMES, known.number))
    if noting.writers or time.observed:
        view = _together(noting.writers or WriterSet(), known, time)
        time = replace(time, lower=view.lower, observed=view.observed, silent=view.silent)
        back = (*back, *_silenced(known, time))
    return TimeDecision(time, (*back, *_held(noting, before.noted if before else None, wanted, known.number)))


def _together(writers: WriterSet, known: PreviousTime, time: EpochTime) -> writer_progress.DatasetView:
    own = WriterProgress(known.pipeline, known.number, time.noted, time.ingest, time.turn)
    return writer_progress.concluded(own, known.told, known.polled, writers)


def _silenced(known: PreviousTime, time: EpochTime) -> tuple[Happening, ...]:
    """Writers that are left out from this epoch on, by the clocks that the engines recorded."""
    before = known.stood.silent if known.stood else ()
    seen = writer_progress.by_name(time.observed)
    new = [seen[name] for name in time.silent if name not in before]
    return tuple(
        Happening(
            EventKind.WRITER_SILENT,
            f"{mark.writer} is waited for no more: {_last_seen(mark)}, {(time.ingest - mark.ingest) / 1000:g} s before",
            known.number,
        )
        for mark in new
    )


def _last_seen(mark: WriterProgress) -> str:
    return f"its epoch {mark.epoch} was planned" if mark.epoch else "no epoch of it was seen, and it was declared"


def reset_time(known: PreviousTime) -> tuple[Happening, ...]:
    """That what was said of time counts no more, where a position was put back or begins anew."""
    said = known.stood
    if said and known.begins:
        stood = "nothing" if said.noted is None else f"all before {text(said.noted, said.unit)}"
        what = f"a new series begins: that {stood} is complete is said no more"
    elif known.forgotten or known.cut_back:
        number = known.last.number if known.last else 0
        what = f"the position was put back to epoch {number}{_seen(known)}; turn {known.turn}"
    else:
        return ()
    # A driver that dies between this line and the epoch leaves both to the next one.
    return (Happening(EventKind.TIME_BACK, what, known.number, once=True),)


def _seen(known: PreviousTime) -> str:
    if gone := known.forgotten:
        who = "others" if known.polled else "readers"
        return f", and {who} {'have' if known.polled else 'may have'} seen epoch {gone.epoch}"
    return ""


def given_up(decided: Epoch, newest: Epoch | None) -> tuple[Happening, ...]:
    """That numbers come again which others may have drawn conclusions from.

    Args:
        decided: the epoch of an operator's decision.
        newest: the newest epoch that was ever committed.
    """
    if decided.time is None or newest is None or newest.number < decided.number:
        return ()
    first, last = decided.number, newest.number
    gone = f"epoch {first} is" if first == last else f"epochs {first} to {last} are"
    what = (
        f"{gone} gone and will be numbered again: what others concluded from before is void; turn {decided.time.turn}"
    )
    return (Happening(EventKind.TIME_BACK, what, decided.number),)


def carried(before: EpochTime | None, *, turn: int | None = None) -> EpochTime | None:
    """What an epoch says that nobody noted time for: an operator's, or one of a query that notes it no more.

    Args:
        before: what stands.
        turn: of the epoch, where its number was another epoch's before: what comes now is newer than that one.
    """
    if before is None:
        return None
    own = {"first": None, "last": None, "horizon": None, "late": 0, "untimed": 0, "silent": (), "column": None}
    return replace(before, turn=before.turn if turn is None else turn, **own)  # type: ignore[arg-type]


def retire_writer(known: PreviousTime) -> EpochTime | None:
    """What the epoch says after which a writer writes nothing: that all is there, and nobody waits for it any more.

    Args:
        known: what stands; ``None`` is the answer where that says nothing of time.
    """
    stood = carried(known.stood)
    if stood is None:
        return None
    gone = replace(stood, noted=END, turn=known.turn)
    return replace(gone, lower=_together(WriterSet(), known, gone).lower if gone.observed else END)


def _timed(
    noting: EventTimeConfig, known: PreviousTime, before: EpochTime | None, offer: Offer, times: RowTimes
) -> tuple[EpochTime, int | None]:
    """What an epoch says for its writer alone, and what it would have noted if nothing had been before."""
    stood = before or EpochTime(noting.unit, None, None, None)
    wanted = _wanted(noting, stood, times, offer.lineage)
    noted = _noted(stood, wanted)
    time = EpochTime(
        unit=noting.unit,
        noted=noted,
        lower=greatest((stood.lower, noted)),
        high=greatest((stood.high, times.last if noting.column else noted)),
        closed=noted if noting.by == "watermark" and offer.stateful else None,
        first=times.first,
        last=times.last,
        horizon=horizon(known),
        late=times.late,
        untimed=times.untimed,
        ingest=offer.lineage.batch_timestamp_ms,
        observed=stood.observed,
        turn=known.turn,
        column=noting.column,
    )
    return time, wanted


def _noted(past: EpochTime, wanted: int | None) -> int | None:
    """The writer's word: one that is less than the last one is not taken, as a replay would say it for ever."""
    return greatest((past.noted, wanted))


def _wanted(noting: EventTimeConfig, past: EpochTime, times: RowTimes, lineage: Lineage) -> int | None:
    match noting.by:
        case "rows":
            latest = greatest((past.high, times.last))
            return None if latest is None else max(latest - noting.delay, -END - 1)
        case "ingest":
            return lineage.batch_timestamp_ms
        case "watermark":
            return lineage.watermark_ms or None
        case "function" | "upstream":
            return times.said


def _held(noting: EventTimeConfig, stands: int | None, wanted: int | None, number: int) -> tuple[Happening, ...]:
    # That no row is later than those before it is nothing out of the ordinary.
    if noting.by == "rows" or stands is None or wanted is None or wanted >= stands:
        return ()
    said = f"{text(wanted, noting.unit)} was said, and all before {text(stands, noting.unit)} is noted: that stands"
    return (Happening(EventKind.TIME_HELD, said, number),)


def _unsaid(times: RowTimes, number: int) -> tuple[Happening, ...]:
    if not times.unsaid:
        return ()
    return (Happening(EventKind.UNPOLLED, f"what was noted stands: {times.unsaid}", number),)


def late(epoch: Epoch) -> tuple[Happening, ...]:
    """Rows that came after it was said that all before them was there, and that are written all the same."""
    time = epoch.time
    if time is None or not time.late or time.horizon is None or _dropped(epoch):
        return ()
    first = "" if time.first is None else f"; the earliest is of {text(time.first, time.unit)}"
    if time.first is not None and time.unit == "ms":
        first += f", {timedelta(milliseconds=time.horizon - time.first)} before that"
    rows = "1 row" if time.late == 1 else f"{time.late} rows"
    said = f"{rows} came late: all before {text(time.horizon, time.unit)} was noted as complete{first}"
    return (Happening(EventKind.BEHIND, said, epoch.number),)


def complete_until(epoch: Epoch) -> str:
    """What an epoch says of time, behind what its line in the log says of rows; empty where it says nothing."""
    time = epoch.time
    if time is None or time.lower is None:
        return ""
    late = f", {time.late} late" if time.late and not _dropped(epoch) else ""
    return f"; complete through {text(time.lower, time.unit)}{late}"


def _dropped(epoch: Epoch) -> int:
    """What windows did not take: of such an epoch nobody knows which of its late rows are in a result."""
    return epoch.panes.dropped if epoch.panes else 0


def text(value: int, unit: Unit) -> str:
    """A time for people: of milliseconds the moment in UTC, of anything else the number."""
    if value == END:
        return "the end"
    if unit == "integer":
        return str(value)
    try:
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=value)
    except OverflowError:
        return f"{value} ms"
    return moment.isoformat(timespec="milliseconds" if value % 1000 else "seconds").replace("+00:00", "Z")
