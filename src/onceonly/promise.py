"""What is said of a run once it writes: the promise, the warnings that weaken it, and rows that came too late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations

from onceonly import engine
from onceonly.errors import caution
from onceonly.facts import Happening
from onceonly.protocol import Sink
from onceonly.written import Written
from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.ledger import Event, EventKind


def kept(text: str) -> Happening:
    """The promise as one line of the pipeline's log."""
    return Happening(EventKind.PROMISED, "; ".join(line.strip() for line in text.splitlines()))


def warned(
    pipeline: str, plan: engine.Plan, written: Written, sinks: Sequence[Sink], receipts: Sequence[Receipt]
) -> Iterator[Happening]:
    """Warnings of a run: two sinks on one target, columns outside of the digest, sources that cannot replay."""
    addresses = {sink.id: sink.address for sink in sinks}
    for one, other in combinations(receipts, 2):
        if one.identity and one.identity == other.identity:
            target = f"{addresses.get(one.sink, one.sink)} and {addresses.get(other.sink, other.sink)}"
            yield _warning("W701", target=target, pipeline=pipeline)
    if written.left_out:
        yield _warning("W702", columns=", ".join(sorted(written.left_out)))
    for source in plan.sources:
        if source.lossy:
            yield _warning("W706", pipeline=pipeline, source=source.origin)


def _warning(code: str, **details: object) -> Happening:
    return Happening(EventKind.WARNED, caution(code, **details))


def late(rows: int, watermark_ms: int, epoch: int) -> Happening:
    """Rows that Spark dropped from the batch of an epoch, since they were too old.

    It goes by the watermark that the batch before had, so that what one stateful step sends late to the next is kept;
    its counter counts rows as they reach a step: several rows of one group that were aggregated on the way are one.
    """
    watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC).isoformat(timespec="milliseconds")
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
        one
        for one in happenings
        if (one.reason != promise if one.kind is EventKind.PROMISED else (one.kind, one.reason, one.epoch) not in said)
    ]
