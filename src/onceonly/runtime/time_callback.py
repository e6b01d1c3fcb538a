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
    """Return the batch without the trimmed rows. ``TypeError``: it cannot be trimmed."""
    if trim is None:
        return batch
    if not isinstance(batch, Trimmable):
        raise TypeError(f"{type(batch).__name__} cannot be trimmed")
    return batch.trimmed(trim)


def with_row_times(batch: Batch, clock: Clock | None) -> Batch:
    """Return the batch with an action that also collects event times. ``TypeError``: it has none."""
    if clock is None:
        return batch
    if not isinstance(batch, Timeable):
        raise TypeError(f"{type(batch).__name__} has no times")
    return batch.timed(clock)


def call_time_callback(state: State, times: RowTimes, digest: Digest, says: TimeCallback | None) -> RowTimes | None:
    """Return event times with the user's answer, or ``None`` if the pipeline notes none (E133: the callback failed)."""
    time_config, offer, last = state.job.noting, state.offered, state.opening.last
    if time_config is None or says is None:
        return times if time_config else None
    before = last.time if last and not state.work.replaces else None
    past, ingest = before.complete_until if before else None, offer.lineage.batch_timestamp_ms
    sources = carried(last.sources if last else (), offer.sources)
    epoch = TimedEpoch(state.work.number, state.written, digest.rows, times.first, times.last, ingest, past, sources)
    answer = _answer(state, says, epoch)
    if isinstance(answer, NoEventTime):
        return replace(times, unsaid=answer.reason)
    return replace(times, callback_time=_parse_answer(state, answer, time_config.unit))


def times_and_completeness(
    state: State, says: TimeCallback | None, times: RowTimes, rows: int
) -> tuple[RowTimes, int | None]:
    """Return event times and the noted completeness before windows close (E133: the callback failed or gave no time).

    The machine computes the same value afterwards. An epoch that is healed keeps its noted value, without another call.
    """
    if state.work.healing:
        time = state.current.time
        return times, time.complete_until if time else None
    epoch_times = call_time_callback(state, times, Digest(rows), says) or times
    time = event_time.timed(state.job.noting, state.previous_time, state.offered, epoch_times).time
    return epoch_times, time.complete_until if time else None


def _answer(state: State, says: TimeCallback, epoch: TimedEpoch) -> object:
    try:
        return says(epoch)
    except Exception as error:
        raise _no_time(state, f"raised {type(error).__name__}: {error}") from error


def _parse_answer(state: State, answer: object, unit: Unit) -> int | None:
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
