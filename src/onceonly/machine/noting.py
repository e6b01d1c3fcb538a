"""What an epoch says of time, from what the epoch before said and what its own rows are. Pure.

Nothing here ever goes back but by a new series: what is said stays said, whoever says less. Idea: Pravega's noteTime
(PDP-33), whose marks are of what was read; these are committed with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal

from onceonly.machine.facts import Happening, Offer, Refusal
from onceonly.protocol.times import NO_TIMES, Clock, Times
from onceonly_checkpoints.epoch import Epoch, Lineage
from onceonly_checkpoints.epochtime import END, EpochTime, Unit
from onceonly_checkpoints.ledger import EventKind

By = Literal["rows", "ingest", "watermark", "function"]
"""Whose word is noted: that of the rows' greatest time, of the engine's recorded clock or watermark, or the user's."""


@dataclass(frozen=True, slots=True)
class Noting:
    """How a pipeline says up to when all is there: ``note_time=``, as the machine takes it.

    Attributes:
        by: whose word it is.
        unit: of it, and of the column.
        column: where a row says its time; ``None`` where none does.
        delay: by ``rows``: how far behind the greatest time a row may come, in the unit.
    """

    by: By
    unit: Unit = "ms"
    column: str | None = None
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Noted:
    """What an epoch says of time, and what of that is worth a line in the pipeline's log."""

    time: EpochTime | None
    happenings: tuple[Happening, ...] = ()


def clock(noting: Noting | None, previous: EpochTime | None) -> Clock | None:
    """What is asked of an epoch's rows; ``None`` where no column says their time.

    Args:
        noting: how time is said; ``None`` where nobody says it.
        previous: what the epoch before says; ``None`` where it says nothing, or a new series begins.
    """
    if noting is None or noting.column is None:
        return None
    return Clock(noting.column, noting.unit, horizon(previous))


def horizon(previous: EpochTime | None) -> int | None:
    """Before which the rows of the next epoch are late."""
    return _greatest(previous.noted, previous.lower) if previous else None


def mixed(pipeline: str, noting: Noting | None, last: Epoch | None) -> Refusal | None:
    """Why time cannot go on in another unit: 10 minutes and block 600,000 are on no common line."""
    said = last.time if last else None
    if noting is None or said is None or last is None or said.unit == noting.unit:
        return None
    return Refusal.of("E134", pipeline=pipeline, unit=noting.unit, was=said.unit, epoch=last.number)


def timed(
    noting: Noting | None, last: Epoch | None, number: int, offer: Offer, times: Times | None, *, begins: bool = False
) -> Noted:
    """What the epoch of a batch says of time.

    Args:
        noting: how time is said; ``None`` where nobody says it any more, or ever did.
        last: the epoch before.
        number: of the epoch.
        offer: the batch, with the clocks that the engine recorded for it: the same in a replay.
        times: what its rows, and the user's function, say.
        begins: whether it begins a new series: rows of all epochs before leave with it, and what they said.
    """
    before = last.time if last else None
    back: tuple[Happening, ...] = ()
    if before and begins:
        stood = "nothing" if before.noted is None else f"all before {text(before.noted, before.unit)}"
        what = f"a new series begins: that {stood} is complete is said no more"
        back = (Happening(EventKind.TIME_BACK, what, number),)
        unit = noting.unit if noting else before.unit
        before = EpochTime(unit, None, None, None, ingest=offer.lineage.batch_timestamp_ms, turn=before.turn + 1)
    if noting is None:
        return Noted(carried(before), back)
    time, wanted = _timed(noting, before, offer, times or NO_TIMES)
    return Noted(time, (*back, *_held(noting, before.noted if before else None, wanted, number)))


def carried(before: EpochTime | None, *, turned: bool = False) -> EpochTime | None:
    """What an epoch says that nobody noted time for: an operator's, or one of a query that notes it no more.

    Args:
        before: what stands.
        turned: whether its number was another epoch's before: what comes now is newer than that one.
    """
    if before is None:
        return None
    own = {"first": None, "last": None, "horizon": None, "late": 0, "untimed": 0, "silent": ()}
    return replace(before, turn=before.turn + turned, **own)  # type: ignore[arg-type]


def _timed(noting: Noting, before: EpochTime | None, offer: Offer, times: Times) -> tuple[EpochTime, int | None]:
    """What an epoch says, and what it would have noted if nothing had been before."""
    past = before or EpochTime(noting.unit, None, None, None)
    wanted = _wanted(noting, past, times, offer.lineage)
    noted = _noted(past, wanted)
    time = EpochTime(
        unit=noting.unit,
        noted=noted,
        lower=_greatest(past.lower, noted),
        high=_greatest(past.high, times.last if noting.column else noted),
        closed=noted if noting.by == "watermark" and offer.stateful else None,
        first=times.first,
        last=times.last,
        horizon=horizon(before),
        late=times.late,
        untimed=times.untimed,
        ingest=offer.lineage.batch_timestamp_ms,
        turn=past.turn,
    )
    return time, wanted


def _noted(past: EpochTime, wanted: int | None) -> int | None:
    """The writer's word: one that is less than the last one is not taken, as a replay would say it for ever."""
    return _greatest(past.noted, wanted)


def _wanted(noting: Noting, past: EpochTime, times: Times, lineage: Lineage) -> int | None:
    match noting.by:
        case "rows":
            greatest = _greatest(past.high, times.last)
            return None if greatest is None else max(greatest - noting.delay, -END - 1)
        case "ingest":
            return lineage.batch_timestamp_ms
        case "watermark":
            return lineage.watermark_ms or None
        case "function":
            return times.said


def _held(noting: Noting, stands: int | None, wanted: int | None, number: int) -> tuple[Happening, ...]:
    # That no row is later than those before it is nothing out of the ordinary.
    if noting.by == "rows" or stands is None or wanted is None or wanted >= stands:
        return ()
    said = f"{text(wanted, noting.unit)} was said, and all before {text(stands, noting.unit)} is noted: that stands"
    return (Happening(EventKind.TIME_HELD, said, number),)


def late(epoch: Epoch) -> tuple[Happening, ...]:
    """Rows that came after it was said that all before them was there."""
    time = epoch.time
    if time is None or not time.late or time.horizon is None:
        return ()
    first = "" if time.first is None else f"; the earliest is of {text(time.first, time.unit)}"
    if time.first is not None and time.unit == "ms":
        first += f", {timedelta(milliseconds=time.horizon - time.first)} before that"
    rows = "1 row" if time.late == 1 else f"{time.late} rows"
    said = f"{rows} came late: all before {text(time.horizon, time.unit)} was noted as complete{first}"
    return (Happening(EventKind.BEHIND, said, epoch.number),)


def complete_through(epoch: Epoch) -> str:
    """What an epoch says of time, behind what its line in the log says of rows; empty where it says nothing."""
    time = epoch.time
    if time is None or time.lower is None:
        return ""
    return f"; complete through {text(time.lower, time.unit)}{f', {time.late} late' if time.late else ''}"


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


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((said for said in (one, other) if said is not None), default=None)
