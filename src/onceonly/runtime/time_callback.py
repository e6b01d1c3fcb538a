"""Apply trims and the event-time callback to a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from onceonly.errors import OnceOnlyError, refuse
from onceonly.machine import event_time
from onceonly.machine.source_order import carried
from onceonly.machine.state import State
from onceonly.protocol import Batch
from onceonly.protocol.batch import Timeable, Trim, Trimmable
from onceonly.protocol.row_times import Clock, NoEventTime, RowTimes, TimedEpoch
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch_time import END, Unit

TimeCallback = Callable[[TimedEpoch], object]
"""The user's word: an integer in the pipeline's unit, a datetime with a time zone, or ``None`` for nothing new."""

_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)


def trimmed(batch: Batch, trim: Trim | None) -> Batch:
    """The batch without the rows that are left out.

    Raises:
        TypeError: its rows cannot be told apart.
    """
    if trim is None:
        return batch
    if not isinstance(batch, Trimmable):
        raise TypeError(f"{type(batch).__name__} cannot be trimmed")
    return batch.trimmed(trim)


def with_row_times(batch: Batch, clock: Clock | None) -> Batch:
    """The batch, whose action also tells what its rows say of time.

    Raises:
        TypeError: it cannot be asked that.
    """
    if clock is None:
        return batch
    if not isinstance(batch, Timeable):
        raise TypeError(f"{type(batch).__name__} has no times")
    return batch.timed(clock)


def call_time_callback(state: State, found: RowTimes, digest: Digest, says: TimeCallback | None) -> RowTimes | None:
    """What the rows of the epoch at hand say of time, and the user of it; ``None`` where nobody says anything.

    Args:
        state: where the machine stands.
        found: what the rows say.
        digest: of their action.
        says: the user's word; ``None`` where he gave none.

    Raises:
        ConfigurationError: E133, the user's function failed, or says what is no time.
    """
    wanted, offer, last = state.job.noting, state.offered, state.opening.last
    if wanted is None or says is None:
        return found if wanted else None
    before = last.time if last and not state.work.replaces else None
    past, ingest = before.noted if before else None, offer.lineage.batch_timestamp_ms
    sources = carried(last.sources if last else (), offer.sources)
    epoch = TimedEpoch(state.work.number, state.written, digest.rows, found.first, found.last, ingest, past, sources)
    answer = _answer(state, says, epoch)
    if isinstance(answer, NoEventTime):
        return replace(found, unsaid=answer.reason)
    return replace(found, said=_said(state, answer, wanted.unit))


def noted(state: State, says: TimeCallback | None, found: RowTimes, rows: int) -> tuple[RowTimes, int | None]:
    """What the epoch at hand notes, before its windows are closed by it: as the machine notes it afterwards.

    Of an epoch that sinks are brought to, what it noted; nobody is asked again.

    Args:
        state: where the machine stands.
        says: the user's word; ``None`` where he gave none.
        found: what the rows say.
        rows: how many there are.

    Raises:
        ConfigurationError: E133, the user's function failed, or says what is no time.
    """
    if state.work.healing:
        time = state.current.time
        return found, time.noted if time else None
    told = call_time_callback(state, found, Digest(rows), says) or found
    time = event_time.timed(state.job.noting, state.known, state.offered, told).time
    return told, time.noted if time else None


def _answer(state: State, says: TimeCallback, epoch: TimedEpoch) -> object:
    try:
        return says(epoch)
    except Exception as error:
        raise _no_time(state, f"raised {type(error).__name__}: {error}") from error


def _said(state: State, answer: object, unit: Unit) -> int | None:
    match answer:
        case None:
            return None
        case bool():
            pass
        case int() if -END - 1 <= answer <= END:
            return answer
        case datetime() if answer.tzinfo is not None and unit == "ms":
            return (answer - _1970) // timedelta(milliseconds=1)
        case _:
            pass
    raise _no_time(state, f"gave {answer!r}")


def _no_time(state: State, what: str) -> OnceOnlyError:
    return refuse("E133", pipeline=state.job.pipeline, epoch=state.work.number, what=what)
