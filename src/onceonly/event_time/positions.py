"""Reader positions by version, offset, entry or epoch. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onceonly.errors import refuse
from onceonly.machine.completeness import Cut, PlacedEpoch, after_all
from onceonly.machine.writer_progress import TimedMarker
from onceonly.reading.read_point import ReadPoint
from onceonly_checkpoints.epoch import Receipt

At = ReadPoint | Receipt | int | str | Mapping[str, Any]
"""A read point, a receipt, a Delta version, Kafka's next offsets (as Spark spells them), or an epoch by pipeline."""

Found = tuple[TimedMarker, Receipt]
"""An epoch with what its sink answered."""


def place_of(receipt: Receipt) -> Cut | None:
    """Return the position of a receipt's epoch in its sink, or ``None`` if the sink has no increasing count."""
    end = receipt.at("end")
    if isinstance(end, str):
        return _offsets(end, json.loads(end))
    counted = {name: found for name in ("version", "entry") if isinstance(found := receipt.at(name), int)}
    return counted or None


def placed(found: Sequence[Found], position: Cut) -> tuple[PlacedEpoch, ...]:
    """Return epochs, each with the position at which a reader has all that they have seen.

    ``found`` are epochs of all writers. Positions are counted as ``position``, that of the reader.

    Raises:
        ConfigurationError: E110, epochs are not counted as the position is.
    """
    if any(one.writer in position for one, _ in found):
        return tuple(PlacedEpoch(one, _epochs(one)) for one, _ in found)
    own = {(one.writer, one.epoch): place_of(receipt) or {} for one, receipt in found}
    made = tuple(PlacedEpoch(one, _behind(one, own)) for one, _ in found)
    if strange := next((one for one in made if not one.cut.keys() & position.keys()), None):
        counted = f"by {', '.join(sorted(strange.cut))}" if strange.cut else "by nothing but themselves"
        raise _no_place(dict(position), f"the epochs of {strange.timed.writer} are counted {counted}")
    return made


def _epochs(one: TimedMarker) -> Cut:
    return {mark.writer: mark.epoch for mark in one.observed if mark.epoch}


def _behind(one: TimedMarker, own: Mapping[tuple[str, int], Cut]) -> Cut:
    return after_all(own.get((mark.writer, mark.epoch), {}) for mark in one.observed)


def position_of(at: At, sink: str | None, found: Sequence[Found]) -> Cut:
    """Return a position as a cut.

    ``sink`` is the id of the sink that is read, or ``None`` for a ledger. ``found`` are epochs of all writers.

    Raises:
        ConfigurationError: E110, it is no position in this dataset.
    """
    if isinstance(at, ReadPoint):
        receipt = next((one for one in at.receipts if one.sink == sink), None)
        return (receipt and place_of(receipt)) or _as_of(at.pipeline, at.epoch, found)
    if isinstance(at, Receipt):
        cut = place_of(at)
        if cut is None:
            raise _no_place(at, "its sink counts neither versions nor offsets")
        return cut
    if isinstance(at, int):
        return {"version": at}
    return _offsets(at, json.loads(at) if isinstance(at, str) else at)


def _as_of(pipeline: str, epoch: int, found: Sequence[Found]) -> Cut:
    """Cut that one epoch had seen, with itself."""
    known = next((one for one, _ in found if (one.writer, one.epoch) == (pipeline, epoch)), None)
    return _epochs(known) if known else {pipeline: epoch}


def _offsets(said: object, value: Any) -> Cut:
    """``{"clicks": {"0": 5}}`` as ``{"clicks/0": 5}``. A number under a name stays."""
    if not isinstance(value, Mapping):
        raise _no_place(said, "it names no partition")
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        parts = inner.items() if isinstance(inner, Mapping) else ()
        flat |= {f"{name}/{part}": offset for part, offset in parts} if parts else {str(name): inner}
    if not all(isinstance(offset, int) for offset in flat.values()):
        raise _no_place(said, "an offset of it is no number")
    return flat


def _no_place(said: object, why: str) -> Exception:
    return refuse(
        "E110",
        problem=f"{said!r} is no place in a dataset.",
        cause=why,
        next='a read point, a Delta version, offsets as {"clicks": {"0": 5}}, or an epoch by pipeline as {"web": 7}',
    )
