"""Event log of a pipeline: promises, happenings, ends of openings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from onceonly.errors import caution, refuse
from onceonly.machine import in_doubt
from onceonly.machine.admission import Pair
from onceonly.machine.facts import Happening
from onceonly.machine.state import Phase, State
from onceonly.protocol import Sink
from onceonly.spark.engine import QueryPlan
from onceonly.spark.fingerprint import Determinism
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Event, EventKind, KeptPlan, Ledger, LedgerUnavailable

log = logging.getLogger(__name__)

_LOUD = {EventKind.WARNED, EventKind.LATE, EventKind.QUARANTINED, EventKind.TIME_HELD, EventKind.BEHIND}
"""Events that are logged as warnings."""


class EventLog:
    """Logs events of a pipeline and notes them in its ledger."""

    def __init__(self, sinks: Sequence[Sink], ledger: Ledger) -> None:
        self._sinks = sinks
        self._ledger = ledger
        self._recorded_error: BaseException | None = None
        self.recovered: list[str] = []

    def begin(self) -> None:
        """Begin another call: an error that the call before raised is noted again if this one raises it too."""
        self._recorded_error, self.recovered = None, []

    def note(self, pipeline: str, happenings: Sequence[Happening], generation: int) -> None:
        """Log happenings and note them in the ledger (``LedgerUnavailable``). One with ``once`` is noted once."""
        past_events = self._ledger.events(pipeline) if any(happening.once for happening in happenings) else ()
        new = unsaid([happening for happening in happenings if happening.once], past_events)
        for event in (happening for happening in happenings if not happening.once or happening in new):
            level = logging.WARNING if event.kind in _LOUD else logging.INFO
            log.log(level, "pipeline %s: %s: %s", pipeline, event.kind.value, event.reason)
            self._ledger.note(Event(pipeline, event.kind, event.reason, event.epoch, generation))
            self.recovered += [event.reason] * (event.kind is EventKind.RESOLVED)

    def keep(self, pipeline: str, happenings: Sequence[Happening], generation: int) -> None:
        """Log findings about a batch and note them in the ledger, unless it has them already.

        Raises E511: the ledger is unavailable. The epoch is committed. Its batch repeats and is skipped.
        """
        try:
            new = unsaid(happenings, self._ledger.events(pipeline)) if happenings else ()
            self.note(pipeline, new, generation)
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error

    def keep_plan(self, plan: KeptPlan) -> None:
        """Record the plan behind a run's fingerprint. Raises as :meth:`keep`."""
        try:
            self._ledger.keep_plan(plan)
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error

    def failed(self, pipeline: str, error: BaseException, state: State | None = None) -> None:
        """Note in the ledger that an opening failed, once for each error. An unavailable ledger raises nothing."""
        previous, self._recorded_error = self._recorded_error, error
        # After other exceptions the process may not even survive.
        if (
            error is not previous
            and isinstance(error, Exception | KeyboardInterrupt | SystemExit)
            and self._reaches(error, state)
        ):
            self._end(in_doubt.failure(pipeline, error, state))

    def _reaches(self, error: BaseException, state: State | None) -> bool:
        """Whether the ledger may answer. One beside a sink does not if the probe of the sinks failed."""
        has_sink_ledger = any(sink.ledger_url for sink in self._sinks)
        silent = has_sink_ledger and state is not None and state.phase is Phase.PROBE
        return not silent and getattr(error, "code", "") != "E511"

    def ended(self, state: State) -> None:
        """Note in the ledger that the opening has ended and leaves nothing behind."""
        self._end(in_doubt.end(state))

    def _end(self, event: Event) -> None:
        try:
            self._ledger.open()
            self._ledger.note(event)
        except LedgerUnavailable as away:
            log.debug("pipeline %s: its end cannot be recorded: %s", event.pipeline, away)


def promise_event(text: str) -> Happening:
    """Return the promise as one event."""
    return Happening(EventKind.PROMISED, "; ".join(line.strip() for line in text.splitlines()))


def warned(
    pipeline: str, plan: QueryPlan, written: Determinism, shared: Sequence[Pair], further: Sequence[str]
) -> Iterator[Happening]:
    """Warnings of a run: two sinks on one target, columns outside of the digest, sources that cannot replay.

    ``shared`` are pairs of sinks on one target. ``further`` are ids of sinks in which a changed group adds a row.
    """
    for sink, other in shared:
        yield _warning("W701", target=f"{sink.address} and {other.address}", pipeline=pipeline)
    if written.left_out:
        yield _warning("W702", columns=", ".join(sorted(written.left_out)))
    if further:
        yield _warning("W717", pipeline=pipeline, sinks=", ".join(further))
    for source in plan.sources:
        if source.lossy:
            yield _warning("W706", pipeline=pipeline, source=source.origin)


def _warning(code: str, **details: object) -> Happening:
    return Happening(EventKind.WARNED, caution(code, **details))


def other_rows(pipeline: str, epoch: Epoch) -> Happening:
    """Warning for a stateless batch that gave other rows when recomputed. The visible rows stay."""
    return replace(_warning("W720", pipeline=pipeline, epoch=epoch.number), epoch=epoch.number)


def late(rows: int, watermark_ms: int, epoch: int) -> Happening:
    """Event for rows that Spark dropped from an epoch's batch as too late.

    Spark uses the watermark of the batch before, so that rows that one stateful step emits late reach the next. Its
    counter counts rows as they reach a step: several rows of one group that were aggregated before are one.
    """
    watermark = datetime.fromtimestamp(watermark_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    text = f"{rows} late rows were dropped by Spark, watermark of the batch {watermark}"
    return Happening(EventKind.LATE, text, epoch)


def late_rows(event: Event) -> int:
    """Count the rows that an event reports as dropped. Inverse of :func:`late`."""
    return int(event.reason.partition(" ")[0]) if event.kind is EventKind.LATE else 0


def unsaid(happenings: Sequence[Happening], events: Sequence[Event]) -> list[Happening]:
    """Return the happenings that the pipeline's log does not have yet.

    A promise is logged again if another one came in between. All else is logged once per epoch.
    """
    logged_keys = {(event.kind, event.reason, event.epoch) for event in events}
    promise = next((event.reason for event in reversed(events) if event.kind is EventKind.PROMISED), None)
    return [
        happening
        for happening in happenings
        if (
            happening.reason != promise
            if happening.kind is EventKind.PROMISED
            else (happening.kind, happening.reason, happening.epoch) not in logged_keys
        )
    ]
