"""Epochs that a sink lacks when it leaves its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import Sink
from onceonly.runtime import staging
from onceonly.runtime.remedies import content
from onceonly.runtime.unreadable_markers import naming
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.manifest import UnreadableManifest

_BACK = 256
"""Records that are looked through for a sink's newest receipt."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Position of a sink that leaves.

    Attributes:
        epoch: the newest that it holds. 0 for none, or if neither sink nor ledger knows.
        confirmed: the newest with its receipt in the ledger, or 0.
        unread: reason why the sink was not read. Empty if it was.
    """

    epoch: int
    confirmed: int
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Rows that a sink lacks and no other sink holds.

    ``epochs`` are oldest first. ``reason`` is why the sink is not healed before it leaves. Empty if it is.
    """

    epochs: tuple[int, ...] = ()
    rows: int = 0
    reason: str = ""

    @property
    def words(self) -> str:
        """Epochs and rows: ``epoch 2 (7 rows)``."""
        first, last = self.epochs[0], self.epochs[-1]
        span = f"epoch {first}" if first == last else f"epochs {first}..{last}"
        return f"{span} ({self.rows} row{'' if self.rows == 1 else 's'})"

    def given_up(self, first: int, last: int) -> bool:
        """Return whether a range covers all of them."""
        return not self.reason or all(first <= number <= last for number in self.epochs)


def stand(going: Sink | None, ledger: Ledger, pipeline: str, sink: str) -> Stand:
    """Read the position of a sink that leaves, from its newest receipt if the sink does not answer.

    ``going`` is ``None`` if the sink cannot be found.
    """
    head = ledger.head(pipeline)
    records = ledger.epochs(pipeline, max(1, head.epoch.number - _BACK)) if head else ()
    confirmed = max(
        (receipt.epoch for record in records for receipt in record.receipts if receipt.sink == sink), default=0
    )
    if going is None:
        return Stand(confirmed, confirmed, "its address is not known here")
    try:
        going.open(pipeline)
        with naming(going):
            told, held = going.look().epoch, content(going)
        return Stand(told if held is None else min(told, held), confirmed)
    except OnceOnlyError as error:
        return Stand(confirmed, confirmed, error.what)


def lacking(sink: str, at: Stand, epochs: Mapping[int, Epoch]) -> Lacking:
    """Return the rows that a sink lacks of known epochs and no other sink holds."""
    newest = epochs[max(epochs)]
    joined = dict(newest.sinks).get(sink, 1)
    first = max(joined, at.epoch + 1)
    alone = {number: rows for number, epoch in epochs.items() if number >= first and (rows := epoch.only_in(sink))}
    missing = [number for number in range(first, newest.number) if number not in epochs]
    if not alone and not missing:
        return Lacking()
    return Lacking(tuple(sorted((*alone, *missing))), sum(alone.values()), _unhealed(at, first, newest))


def _unhealed(at: Stand, first: int, newest: Epoch) -> str:
    """Reason why a sink is not brought to the newest epoch. Empty if it is."""
    if at.unread:
        return at.unread
    if first < newest.number:
        return "it lacks more than one epoch"
    if newest.manifest is None:
        return "its bytes were not staged"
    try:
        staging.fetch(newest.manifest, None)
    except UnreadableManifest as error:
        return mask(str(error))
    return ""
