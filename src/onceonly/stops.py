"""What a refusal leaves behind: the details that only the ledger can tell, and what ``queries adopt`` needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onceonly import acceptance
from onceonly.acceptance import Stop
from onceonly.facts import Offer, Refusal
from onceonly.remedies import Where, after_it, again, filled, moved, onward, put_back, set_back, tally
from onceonly.trim import plain
from onceonly_checkpoints.epoch import Epoch, Fence
from onceonly_checkpoints.ledger import Intent, Ledger
from onceonly_checkpoints.slices import Slice, SourceOffsets

REFUSED = 0
"""Epoch number under which the ledger keeps what was refused last."""

_OVERLAPS = ("E203", "E211", "E220")
"""Codes of batches that may offer rows of epochs again."""

_WINDOW = 256
"""How many records are read at a time on the way back to the first epoch that a batch repeats."""


@dataclass(frozen=True, slots=True)
class Told:
    """A refusal in full.

    Attributes:
        details: what its message needs beside what the rules know.
        stop: what it names, for the operator's answer.
    """

    details: Mapping[str, object]
    stop: Stop


def tell(refusal: Refusal, ledger: Ledger, where: Where, newest: Epoch | None, offer: Offer | None) -> Told:
    """Ask the ledger how much a refusal is about.

    Args:
        refusal: what the rules said.
        ledger: of the pipeline.
        where: what printed commands name.
        newest: the newest epoch of the sinks; ``None`` for none.
        offer: the batch; ``None`` where there is none.
    """
    head, said = ledger.head(where.pipeline), dict(refusal.details)
    stop = _stop(refusal, ledger, where.pipeline, newest, offer, head=head.epoch.number if head else 0)
    end = newest.slice.end if newest else None
    counted = _counted(ledger, where.pipeline, stop)
    named = acceptance.named(stop.sinks, stop.versions)
    details: dict[str, object] = {"first": stop.first, "last": stop.last, "lost": counted, "named": named}
    details["back"] = filled(where) if said.get("hole") else ""
    details["back"] = f"{details['back']}{'' if said.get('state_lost') else put_back(where)}"
    if refusal.code == "E206":
        after, gap = said.get("after"), ""
        if isinstance(after, Refusal) and newest:
            stop = replace(stop, then=_stop(after, ledger, where.pipeline, newest, offer, head=newest.number + 1))
            gap = str(dict(after.details).get("gap", ""))
        details["then"] = _then(ledger, where, stop.then, end, gap)
    if refusal.code in _OVERLAPS:
        details["onward"] = onward(where, acceptance.applicable("continue", stop, end), newest.number if newest else 0)
        details["again"] = again(where, acceptance.applicable("accept-duplicates", stop, end), counted)
    if refusal.code == "E207" and (lost := acceptance.applicable("accept-loss", stop, end)):
        behind, staged = not said.get("all_back"), said.get("staged") is not None
        gone = str(said.get("gone") or "")
        details["ways"] = set_back(where, lost, behind_others=behind, staged=staged, told=counted, gone=gone)
    if refusal.code == "E208":
        same = acceptance.applicable("same-data", stop) if said.get("holds") else None
        details["copy"] = moved(where, same)
    return Told(details, stop)


def _stop(
    refusal: Refusal, ledger: Ledger, pipeline: str, newest: Epoch | None, offer: Offer | None, *, head: int
) -> Stop:
    """What a refusal names, with the epochs that only the ledger can tell."""
    stop = acceptance.stop_of(refusal, offer.range if offer else None, head)
    if refusal.code not in _OVERLAPS or newest is None or offer is None:
        return stop
    first = _first(refusal, ledger, pipeline, newest, offer)
    repeats = refusal.code == "E211" and _repeats(ledger, pipeline, newest.number, offer)
    return replace(stop, first=first, last=newest.number, repeats=repeats)


_SECOND = ("accept-duplicates", "accept-loss", "continue")
"""What a batch may need beside the loss of its state; the first one that applies is printed."""


def _then(ledger: Ledger, where: Where, stop: Stop | None, end: SourceOffsets | None, gap: str) -> str:
    accepted = next((one for kind in _SECOND if (one := acceptance.applicable(kind, stop, end))), None)
    if stop is None or accepted is None:
        return ""
    told = f"{gap}, as epoch {stop.first}" if gap else _counted(ledger, where.pipeline, stop)
    return after_it(where, accepted, told)


def remember(ledger: Ledger, pipeline: str, fence: Fence, stop: Stop) -> None:
    """Keep what was refused, with all that it names, so that ``queries adopt`` can ask for it by name."""
    nothing = SourceOffsets(())
    offered = stop.offered or Slice(nothing, nothing)
    ledger.intend(Intent(pipeline, REFUSED, fence, offered, refused=stop.text))


def last(ledger: Ledger, pipeline: str) -> Stop | None:
    """The newest refusal; ``None`` if there was none, or the pipeline has gone on since."""
    intent, head = ledger.intent(pipeline, REFUSED), ledger.head(pipeline)
    stop = Stop.parse(intent.refused) if intent and intent.refused else None
    return stop if stop and stop.head == (head.epoch.number if head else 0) else None


def _first(refusal: Refusal, ledger: Ledger, pipeline: str, newest: Epoch, offer: Offer) -> int:
    if refusal.code == "E211" or offer.start.unset:
        return 1
    upto, slices = newest.number, dict[int, Slice]()
    while upto > 0:
        records = ledger.epochs(pipeline, max(1, upto - _WINDOW + 1), upto)
        slices |= {record.epoch.number: record.epoch.slice for record in records}
        found = acceptance.repeats_from(offer.start, slices) if slices else 1
        if not records or found > min(slices):
            return found
        upto -= _WINDOW
    return acceptance.repeats_from(offer.start, slices) if slices else 1


def _repeats(ledger: Ledger, pipeline: str, upto: int, offer: Offer) -> bool:
    """Whether a batch of files comes with one that an epoch holds: then it does not start where the last one ended."""
    offered = {plain(file.path) for file in offer.files}
    while offered and upto > 0:
        records = ledger.epochs(pipeline, max(1, upto - _WINDOW + 1), upto)
        if any(plain(file.path) in offered for record in records for file in record.files):
            return True
        upto -= _WINDOW
    return False


def _counted(ledger: Ledger, pipeline: str, stop: Stop) -> str:
    if not 0 < stop.first <= stop.last:
        return "nothing"
    wide = stop.last - stop.first >= _MANY
    return tally(() if wide else ledger.epochs(pipeline, stop.first, stop.last), stop.first, stop.last)


_MANY = 10_000
"""Epochs of which a message does not count the rows."""
