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
    """Where a sink stands that goes.

    Attributes:
        epoch: the newest that it holds: 0 for none, or where neither it nor the ledger says.
        confirmed: the newest of which the ledger has its receipt; 0 for none.
        unread: why it was not asked itself, in words; empty where it was.
    """

    epoch: int
    confirmed: int
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Rows that a sink lacks and no other sink holds.

    Attributes:
        epochs: their epochs, oldest first.
        rows: how many there are.
        reason: why it is not brought to them before it goes, in words; empty where it is.
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
        """Whether a range names all of them."""
        return not self.reason or all(first <= number <= last for number in self.epochs)


def stand(going: Sink | None, ledger: Ledger, pipeline: str, sink: str) -> Stand:
    """Ask a sink that goes where it stands; where it does not answer, by its newest receipt.

    Args:
        going: the sink; ``None`` where it cannot be found.
        ledger: of the pipeline.
        pipeline: its name.
        sink: id of the sink.
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
    """What a sink lacks of the epochs that are known, and nobody else holds.

    Args:
        sink: its id.
        at: where it stands.
        epochs: of the pipeline, by number.
    """
    newest = epochs[max(epochs)]
    joined = dict(newest.sinks).get(sink, 1)
    first = max(joined, at.epoch + 1)
    alone = {number: rows for number, epoch in epochs.items() if number >= first and (rows := epoch.only_in(sink))}
    missing = [number for number in range(first, newest.number) if number not in epochs]
    if not alone and not missing:
        return Lacking()
    return Lacking(tuple(sorted((*alone, *missing))), sum(alone.values()), _unhealed(at, first, newest))


def _unhealed(at: Stand, first: int, newest: Epoch) -> str:
    """Why a sink is not brought to the newest epoch; empty where it is."""
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
