"""Find epochs and rows that a sink lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onceonly.errors import OnceOnlyError, mask
from onceonly.errors.options import misused
from onceonly.machine.acceptance import Stop, applicable
from onceonly.machine.facts import Reading
from onceonly.protocol import DetectsChanges, ReplacesRows, Sink
from onceonly.protocol.capabilities import implements
from onceonly.runtime import staging
from onceonly.runtime.remedies import CommandContext, emptied
from onceonly.runtime.sink_refusals import content, naming
from onceonly_checkpoints.epoch import Epoch, Receipt
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.manifest import UnreadableManifest
from onceonly_checkpoints.model import AdoptionKind


def stale_sinks(
    sinks: Sequence[Sink], sink_epochs: Mapping[str, int], recorded: Mapping[str, Receipt]
) -> dict[str, str]:
    """Return the present target in words, by id of each stale sink that can be detected without a fence.

    ``sink_epochs`` is the newest epoch of each sink's markers, and ``recorded`` the ledger's newest receipt of each.
    """
    targets: dict[str, str] = {}
    for sink in (candidate for candidate in sinks if sink_epochs[candidate.id]):
        with naming(sink):
            now = [
                _in_place_of(sink, receipt)
                for receipt in _target_receipts(sink, sink_epochs[sink.id], recorded.get(sink.id))
            ]
        if now and all(now):
            targets[sink.id] = now[0]
    return targets


def _target_receipts(sink: Sink, newest_epoch: int, recorded: Receipt | None) -> list[Receipt]:
    """Receipts of targets that the sink has had. Empty if its markers do not identify their target."""
    receipts = [receipt for _, receipt in sink.history(newest_epoch - 1)]
    if not receipts or not all(receipt.identity for receipt in receipts):
        return []
    return [*receipts, recorded] if recorded else receipts


def _in_place_of(sink: Sink, receipt: Receipt) -> str:
    """Target that replaced the one of a receipt. Empty if that still exists, or only a fence would show it."""
    if not isinstance(sink, DetectsChanges):
        return ""
    if (identity := sink.identity_now(receipt.identity)) is not None:
        return "" if identity == receipt.identity else identity or "nothing there"
    return next((event.detail for event in sink.external_changes(receipt) if event.kind == "recreated"), "")


def demand(sinks: Sequence[Sink], where: CommandContext, readings: Sequence[Reading]) -> None:
    """Refuse stale markers under the fence, which also reveals sinks that cannot be checked without one (E110)."""
    named = {sink.id: sink for sink in sinks}
    for reading in (candidate for candidate in readings if candidate.sink in named and candidate.position.epoch):
        sink, newest_epoch, now = named[reading.sink], reading.position.epoch, reading.position.identity
        with naming(sink):
            receipts = _target_receipts(sink, newest_epoch, reading.receipt)
        if receipts and all(receipt.identity != now for receipt in receipts):
            raise refused(sink, where, newest_epoch, now)


def refused(sink: Sink, where: CommandContext, newest_epoch: int, now: str) -> OnceOnlyError:
    """Error of a sink whose markers belong to a target that no longer exists. ``now``: present target, in words."""
    given_up = applicable(AdoptionKind.ACCEPT_LOSS, Stop("E208", (sink.id,), 1, newest_epoch))
    problem = f"{sink.id} was created again ({now}), and its markers, up to epoch {newest_epoch}, are of the old one"
    cause = "markers are kept apart from the rows, and stay if a table or a topic is dropped"
    remedy = "put the old one back"
    if implements(sink, ReplacesRows, "reset_to"):
        remedy += f"\nor {emptied(where, [sink.id])}"
    remedy += f"\nor give the rows up: {where.adopt(given_up)}" if given_up else ""
    return misused(f"{problem}.", cause, remedy)


# ---- Epochs that a sink lacks when it leaves its pipeline.


_BACK = 256
"""Records that are looked through for a sink's newest receipt."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Position of a sink that leaves.

    ``epoch`` is 0 for none or if unknown. ``confirmed`` is the newest with its receipt in the ledger. ``unread`` is why
    the sink was not read, or empty.
    """

    epoch: int
    confirmed: int
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Epochs whose rows a sink lacks and no other holds, oldest first. ``reason``: why it is not healed, or empty."""

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
    """Read the position of a leaving sink, from its newest receipt if the sink cannot be found or read."""
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
            marker_epoch, held = going.look().epoch, content(going)
        return Stand(marker_epoch if held is None else min(marker_epoch, held), confirmed)
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
