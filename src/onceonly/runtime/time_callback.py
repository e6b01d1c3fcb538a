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
"""The user's callback: returns an integer in the pipeline's unit, a datetime with a zone, or ``None`` for no change."""

_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)


def trimmed(batch: Batch, trim: Trim | None) -> Batch:
    """Return the batch without the trimmed rows.

    Raises:
        TypeError: the batch cannot be trimmed.
    """
    if trim is None:
        return batch
    if not isinstance(batch, Trimmable):
        raise TypeError(f"{type(batch).__name__} cannot be trimmed")
    return batch.trimmed(trim)


def with_row_times(batch: Batch, clock: Clock | None) -> Batch:
    """Return the batch with an action that also collects event times.

    Raises:
        TypeError: the batch has no event times.
    """
    if clock is None:
        return batch
    if not isinstance(batch, Timeable):
        raise TypeError(f"{type(batch).__name__} has no times")
    return batch.timed(clock)


def call_time_callback(state: State, found: RowTimes, digest: Digest, says: TimeCallback | None) -> RowTimes | None:
    """Return event times of the epoch's rows with the user's answer, or ``None`` if the pipeline notes no event time.

    ``says`` is the user's callback, if there is one. ``found`` and ``digest`` are of the epoch's action.

    Raises:
        ConfigurationError: E133, the callback failed or returned no time.
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
    """Return event times and the noted completeness of the epoch, before it closes windows.

    The machine computes the same value afterwards. An epoch that is healed keeps its noted value, without another call.
    ``rows`` is their number.

    Raises:
        ConfigurationError: E133, the callback failed or returned no time.
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
