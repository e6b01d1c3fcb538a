"""Epochs as commands show them: what the sinks hold first, what only the ledger knows beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace

from onceonly.audit.facts import reason_of
from onceonly.cli.output import talk
from onceonly.cli.places import Place
from onceonly.errors import OnceOnlyError, refuse
from onceonly.protocol import OutcomeUnknown, Sink
from onceonly.recovery import not_ours
from onceonly_checkpoints.epoch import EpochRecord, Marker, Receipt
from onceonly_checkpoints.jsonform import UnreadableMarker


def merged(
    pipeline: str, recorded: Iterable[EpochRecord], held: Iterable[tuple[Marker, Receipt]]
) -> tuple[EpochRecord, ...]:
    """Put markers and records together, oldest first. Where they disagree the marker stands.

    A record keeps its files and phase times; receipts of the sinks replace those of the ledger.
    """
    records = {record.epoch.number: record for record in recorded}
    for marker, receipt in held:
        number = marker.epoch.number
        known = records.get(number)
        if known is None or known.epoch.chain != marker.epoch.chain:
            known = EpochRecord(pipeline, marker.fence, marker.epoch, ())
        others = tuple(one for one in known.receipts if one.sink != receipt.sink)
        records[number] = replace(known, receipts=(*others, receipt))
    return tuple(records[number] for number in sorted(records))


def read(place: Place, first: int = 1, last: int | None = None) -> tuple[EpochRecord, ...]:
    """Epochs ``first..last`` of a pipeline; a sink that does not answer is named on stderr and left out."""
    recorded = place.ledger.epochs(place.pipeline, first, last) if place.ledger else ()
    held = [pair for sink in place.sinks for pair in _held(sink, place.pipeline, first)]
    wanted = (pair for pair in held if last is None or pair[0].epoch.number <= last)
    return merged(place.pipeline, recorded, wanted)


def _held(sink: Sink, pipeline: str, first: int) -> list[tuple[Marker, Receipt]]:
    try:
        return history(sink, pipeline, first)
    except (OnceOnlyError, OutcomeUnknown, UnreadableMarker, OSError) as error:
        talk(f"{sink.id} cannot be read ({reason_of(error)}); its epochs are shown as the ledger knows them")
        return []


def history(sink: Sink, pipeline: str, first: int = 1) -> list[tuple[Marker, Receipt]]:
    """The markers of a pipeline in a sink, from epoch ``first`` on.

    Raises:
        DestinationError: E508, one of them names another pipeline or another sink.
    """
    sink.open(pipeline)
    held = list(sink.history(first - 1))
    if refusal := not_ours(pipeline, sink.id, (marker for marker, _ in held)):
        raise refuse(refusal.code, **dict(refusal.details))
    return held


def newest(place: Place, count: int) -> tuple[EpochRecord, ...]:
    """The newest ``count`` epochs, oldest first."""
    head = place.ledger.head(place.pipeline) if place.ledger else None
    first = max(1, head.epoch.number - count + 1) if head else 1
    return read(place, first)[-count:]


def one(place: Place, number: int | None) -> EpochRecord:
    """One epoch; ``None`` means the newest.

    Raises:
        ConfigurationError: E110, neither the sinks nor the ledger know it.
    """
    found = newest(place, 1) if number is None else read(place, number, number)
    if not found:
        head = newest(place, 1)
        raise refuse(
            "E110",
            problem=f'Neither the ledger nor a sink knows epoch {number or 1} of "{place.pipeline}".',
            cause=f"the newest is epoch {head[-1].epoch.number}" if head else "the pipeline has no epoch yet",
            next=f"onceonly epochs list --query {shlex.quote(place.pipeline)}",
        )
    return found[-1]
