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
from onceonly.spark.determinism import Determinism
from onceonly.spark.engine import QueryPlan
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Event, EventKind, KeptPlan, Ledger, LedgerUnavailable

log = logging.getLogger(__name__)

_LOUD = {EventKind.WARNED, EventKind.LATE, EventKind.QUARANTINED, EventKind.TIME_HELD, EventKind.BEHIND}
"""What is logged as a warning."""


class EventLog:
    """Logs what happens to a pipeline and notes it in its ledger.

    Args:
        sinks: the pipeline's sinks.
        ledger: its index.
    """

    def __init__(self, sinks: Sequence[Sink], ledger: Ledger) -> None:
        self._sinks = sinks
        self._ledger = ledger
        self._told: BaseException | None = None

    def begin(self) -> None:
        """Another call begins: what the one before it raised is noted once more where this one raises it, too."""
        self._told = None

    def note(self, pipeline: str, happenings: Sequence[Happening], generation: int) -> None:
        """Log what happened and keep it with the pipeline; what is said once, unless its log says it already.

        Raises:
            LedgerUnavailable: it cannot be noted.
        """
        said = self._ledger.events(pipeline) if any(happening.once for happening in happenings) else ()
        new = unsaid([happening for happening in happenings if happening.once], said)
        for one in (happening for happening in happenings if not happening.once or happening in new):
            level = logging.WARNING if one.kind in _LOUD else logging.INFO
            log.log(level, "pipeline %s: %s: %s", pipeline, one.kind.value, one.reason)
            self._ledger.note(Event(pipeline, one.kind, one.reason, one.epoch, generation))

    def keep(self, pipeline: str, happenings: Sequence[Happening], generation: int) -> None:
        """Log what was found of a batch beside its rows and keep it with the pipeline, unless its log says it already.

        Raises:
            OnceOnlyError: E511, the ledger is away. The epoch stands; its batch comes again and is skipped.
        """
        try:
            new = unsaid(happenings, self._ledger.events(pipeline)) if happenings else ()
            self.note(pipeline, new, generation)
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error

    def keep_plan(self, plan: KeptPlan) -> None:
        """Keep what a run's fingerprint was made of.

        Raises:
            OnceOnlyError: E511, the ledger is away. The epoch stands; its batch comes again and is skipped.
        """
        try:
            self._ledger.keep_plan(plan)
        except LedgerUnavailable as error:
            raise refuse("E511", ledger=self._ledger.address, reason=str(error)) from error

    def failed(self, pipeline: str, error: BaseException, state: State | None = None) -> None:
        """Note in the ledger that an opening failed, once for each error. What is being raised is not replaced."""
        told, self._told = self._told, error
        # Of other exceptions nothing is known, not even that the process outlives them.
        if (
            error is not told
            and isinstance(error, Exception | KeyboardInterrupt | SystemExit)
            and self._reaches(error, state)
        ):
            self._end(in_doubt.failure(pipeline, error, state))

    def _reaches(self, error: BaseException, state: State | None) -> bool:
        """Whether the ledger need not be waited for in vain: it may lie where nobody answers."""
        beside = any(sink.ledger_url for sink in self._sinks)
        silent = beside and state is not None and state.phase is Phase.PROBE
        return not silent and getattr(error, "code", "") != "E511"

    def ended(self, state: State) -> None:
        """Note in the ledger that the opening is over and leaves nothing behind."""
        self._end(in_doubt.end(state))

    def _end(self, event: Event) -> None:
        try:
            self._ledger.open()
            self._ledger.note(event)
        except LedgerUnavailable as away:
            log.debug("pipeline %s: its end cannot be noted: %s", event.pipeline, away)


def kept(text: str) -> Happening:
    """The promise as one line of the pipeline's log."""
    return Happening(EventKind.PROMISED, "; ".join(line.strip() for line in text.splitlines()))


def warned(
    pipeline: str, plan: QueryPlan, written: Determinism, shared: Sequence[Pair], further: Sequence[str]
) -> Iterator[Happening]:
    """Warnings of a run: two sinks on one target, columns outside of the digest, sources that cannot replay.

    Args:
        pipeline: its name.
        plan: of the query.
        written: what is known of the rows.
        shared: pairs of sinks on one target.
        further: ids of sinks to which a group that changes is a further row.
    """
    for one, other in shared:
        yield _warning("W701", target=f"{one.address} and {other.address}", pipeline=pipeline)
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
    """A batch without state that gave other rows when it was computed again; what is visible stands."""
    return replace(_warning("W720", pipeline=pipeline, epoch=epoch.number), epoch=epoch.number)


def late(rows: int, watermark_ms: int, epoch: int) -> Happening:
    """Rows that Spark dropped from the batch of an epoch, since they were too old.

    It goes by the watermark that the batch before had, so that what one stateful step sends late to the next is kept;
    its counter counts rows as they reach a step: several rows of one group that were aggregated on the way are one.
    """
    watermark = datetime.fromtimestamp(watermark_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    told = f"{rows} late rows were dropped by Spark, watermark of the batch {watermark}"
    return Happening(EventKind.LATE, told, epoch)


def late_rows(event: Event) -> int:
    """How many rows a line of the log says were dropped; the inverse of :func:`late`."""
    return int(event.reason.partition(" ")[0]) if event.kind is EventKind.LATE else 0


def unsaid(happenings: Sequence[Happening], events: Sequence[Event]) -> list[Happening]:
    """Those that the pipeline's log does not say yet.

    A promise is said again where another one stood in between; all else once per epoch.
    """
    said = {(event.kind, event.reason, event.epoch) for event in events}
    promise = next((event.reason for event in reversed(events) if event.kind is EventKind.PROMISED), None)
    return [
        happening
        for happening in happenings
        if (
            happening.reason != promise
            if happening.kind is EventKind.PROMISED
            else (happening.kind, happening.reason, happening.epoch) not in said
        )
    ]
