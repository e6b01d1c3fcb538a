"""What an operator can accept, as one table for all readers. Pure.

An acceptance names its kind, and the sinks, epochs or versions that it covers. Any other cause still refuses.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from onceonly.machine.facts import Refusal
from onceonly.machine.source_order import Order, numbers, order, place_in_log
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceOffsets, SpanRecord, canonical

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that can be accepted.

    ``covers`` has the codes of the refusals that it allows, if they name no more than it does. ``sinks``: whether it
    names sinks, if the refusal does. ``words`` is the accepted fact in a sentence.
    """

    covers: tuple[str, ...]
    words: str
    epochs: bool = False
    sinks: bool = False
    version: bool = False


KINDS: Mapping[AdoptionKind, Kind] = {
    AdoptionKind.ACCEPT_LOSS: Kind(
        ("E204", "E207", "E208", "E214", "E219", "E229"), "the rows of these epochs are given up", True, True
    ),
    AdoptionKind.ACCEPT_DUPLICATES: Kind(
        ("E203", "E211", "E220"), "the rows of these epochs are written again", epochs=True
    ),
    AdoptionKind.ACCEPT_STATE_LOSS: Kind(
        ("E206", "E248"), "the query goes on without its state, or with the state that is there"
    ),
    AdoptionKind.ACCEPT_CHANGE: Kind(
        ("E209",), "external changes to the sink up to this version are accepted", False, True, True
    ),
    AdoptionKind.KEEP_RECOMPUTED_STATE: Kind(
        ("E215",), "the state stays as the replay of this epoch has made it", True
    ),
    AdoptionKind.SAME_DATA: Kind(
        ("E208",), "the sink has moved and holds the same rows, which is checked (with key=, its markers)", False, True
    ),
    AdoptionKind.CONTINUE: Kind(
        ("E211", "E212", "E216", "E250"), "the source now starts exactly where the last epoch ended"
    ),
    AdoptionKind.START: Kind(
        ("E203", "E204", "E211", "E212", "E216", "E220", "E229", "E250"), "the next batch starts at these offsets"
    ),
}
"""What ``recover adopt`` takes, by the name of its option."""

GAPS = ("E204", "E229")
"""Codes of batches that start past the newest epoch: what lies between becomes an epoch when it is given up."""


@dataclass(frozen=True, slots=True)
class Stop(SpanRecord):
    """Reason why a pipeline stopped, as far as it can be accepted.

    Attributes:
        code: of the refusal.
        first: the first epoch that it names, or 0 for none.
        last: the last epoch that it names, or 0 for none.
        versions: newest version of each sink with changes by others. Empty if changes are not the cause.
        offered: the range of the refused batch, or ``None`` for no batch.
        head: the newest epoch of the ledger at that time. The stop is over when there is another.
        repeats: whether the batch is proven to hold rows of epochs, although its offsets do not show it.
        doubtful: whether it is unknown if the batch holds such rows.
        then: next stop once this is accepted, since one batch can need two decisions. ``None`` for no known one.
    """

    code: str
    sinks: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    versions: tuple[str, ...] = ()
    offered: Slice | None = None
    head: int = 0
    repeats: bool = False
    then: Stop | None = None
    doubtful: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Inverse of :attr:`text`."""
        return cls.from_json(json.loads(text))

    @property
    def text(self) -> str:
        """Canonical spelling, as the ledger keeps it."""
        return canonical(self.to_json())

    @property
    def start(self) -> SourceOffsets | None:
        """Start of the refused batch."""
        return self.offered.start if self.offered and self.offered.start.sources else None


def stop_of(refusal: Refusal, offered: Slice | None = None, head: int = 0) -> Stop:
    """Return the stop of a refusal, from its details."""
    details: dict[str, Any] = dict(refusal.details)
    named_sink = (details["sink"],) if refusal.code in _OF_SINKS else ()
    sinks = details.get("lacking") or named_sink
    return Stop(
        refusal.code,
        tuple(sinks),
        details.get("first", 0),
        details.get("last", 0),
        details.get("versions", ()),
        offered,
        head,
    )


_OF_SINKS = ("E207", "E208", "E209")
"""Codes that are about the sink which they name. Others name it only to show where the pipeline stands."""


def covers(accepted: Adoption | None, stop: Stop) -> bool:
    """Whether an acceptance names everything that a refusal names."""
    kind = KINDS.get(accepted.kind) if accepted else None
    if accepted is None or kind is None or stop.code not in kind.covers:
        return False
    if kind.sinks and not set(stop.sinks) <= set(accepted.sinks):
        return False
    if (
        _names_epochs(accepted.kind, stop)
        and stop.last
        and not accepted.first <= stop.first <= stop.last <= accepted.last
    ):
        return False
    upto = dict(zip(accepted.sinks, accepted.versions, strict=False))
    changed = zip(stop.sinks, stop.versions, strict=False)
    return not kind.version or all(_within(version, upto.get(sink)) for sink, version in changed)


def _names_epochs(kind: AdoptionKind, stop: Stop) -> bool:
    """Whether an acceptance names epochs: its subject, or those that may come again."""
    return KINDS[kind].epochs or (kind is AdoptionKind.CONTINUE and stop.doubtful)


def _within(version: str, accepted: str | None) -> bool:
    if accepted and version.isdigit() and accepted.isdigit():
        return int(version) <= int(accepted)
    return version == accepted


def version_of(changes: Iterable[ExternalChange]) -> str:
    """Return the newest changed version of a sink, or a hash of the changes if they have no numbers."""
    events = tuple(changes)
    counted = [event.at for event in events if event.at is not None]
    if len(counted) == len(events):
        return str(max(counted, default=0))
    details = "\n".join(event.detail for event in events)
    return "seen-" + hashlib.sha256(details.encode()).hexdigest()[:8]


def applicable(kind: AdoptionKind, stop: Stop | None, end: SourceOffsets | None = None) -> Adoption | None:
    """Return the acceptance of a kind that resolves a stop, with everything that it names.

    The acceptance has no reason. ``None``: the kind does not apply, or the newest epoch had no refusal after it.
    ``end`` is the end of the last epoch, or ``None`` if unknown.
    """
    about = KINDS[kind]
    if stop is None or stop.code not in about.covers:
        return None
    if (kind is AdoptionKind.ACCEPT_DUPLICATES and _also_skips(stop, end)) or (
        kind is AdoptionKind.CONTINUE and stop.repeats
    ):
        return None
    return Adoption(
        kind,
        sinks=stop.sinks if about.sinks else (),
        first=stop.first if _names_epochs(kind, stop) else 0,
        last=stop.last if _names_epochs(kind, stop) else 0,
        versions=stop.versions if about.version else (),
        offsets=_range(kind, stop, end),
    )


def _also_skips(stop: Stop, end: SourceOffsets | None) -> bool:
    """Whether a batch that repeats rows also starts past others, which would be lost silently."""
    return bool(stop.start and end and _ahead(stop.start, end))


def _ahead(start: SourceOffsets, end: SourceOffsets) -> bool:
    """Whether ``start`` is past ``end`` anywhere. Parts that an end does not name were at their beginning."""
    held = dict(end.entries)
    for source, text in start.entries:
        start_location, end_location = place_in_log(text), place_in_log(held.get(source))
        if start_location and end_location:
            if start_location[0] != end_location[0] or start_location > end_location:
                return True
            continue
        there, end_numbers = numbers(text), numbers(held.get(source))
        if (
            there is not None
            and end_numbers is not None
            and any(at > end_numbers.get(path, 0) for path, at in there.items())
        ):
            return True
    return False


def _range(kind: AdoptionKind, stop: Stop, end: SourceOffsets | None) -> Slice | None:
    """Return the source range of an acceptance: the gap, the batch with lost or repeated input, or its start."""
    if kind is AdoptionKind.CONTINUE and stop.start:
        return Slice(stop.start, stop.start)
    if kind is AdoptionKind.ACCEPT_LOSS and stop.code == "E214":
        return stop.offered  # known before the first epoch, too
    if stop.start is None or end is None or kind not in {AdoptionKind.ACCEPT_LOSS, AdoptionKind.ACCEPT_DUPLICATES}:
        return None
    if stop.code in GAPS:
        return Slice(end, stop.start)
    return Slice(stop.start, end) if kind is AdoptionKind.ACCEPT_DUPLICATES else None


def amount(epochs: int, rows: int | None) -> str:
    """Format the loss in words. With ``None`` the number of rows is unknown."""
    text = f"{epochs} epoch{'' if epochs == 1 else 's'}"
    return text if rows is None else f"{text}, {rows} row{'' if rows == 1 else 's'}"


def option(accepted: Adoption) -> str:
    """Format an acceptance as options of ``recover adopt``, quoted for a shell."""
    words = [f"--{accepted.kind}"]
    if accepted.first and accepted.kind is AdoptionKind.KEEP_RECOMPUTED_STATE:
        words.append(str(accepted.first))
    elif accepted.first:
        words += ["--may-repeat"] if accepted.kind is AdoptionKind.CONTINUE else []
        words.append(f"{accepted.first}..{accepted.last}")
    return " ".join(words) + named(accepted.sinks, accepted.versions)


def named(sinks: Iterable[str], versions: Iterable[str] = ()) -> str:
    """Format sinks as options of ``recover adopt``, each with a leading blank."""
    pairs = zip_longest(sinks, versions, fillvalue="")
    return "".join(f" --sink {shlex.quote(f'{sink}@{version}' if version else sink)}" for sink, version in pairs)


def same(requested: Adoption, expected: Adoption) -> bool:
    """Whether the typed acceptance names the wanted epochs, sinks and version."""
    key = (requested.kind, sorted(_pairs(requested)), requested.first, requested.last)
    return key == (expected.kind, sorted(_pairs(expected)), expected.first, expected.last)


def _pairs(accepted: Adoption) -> Iterator[tuple[str, str]]:
    return zip_longest(accepted.sinks, accepted.versions, fillvalue="")


def complete(requested: Adoption, expected: Adoption) -> Adoption:
    """Add the source range of the wanted acceptance to the typed one."""
    return replace(requested, offsets=expected.offsets)


def misses_input(accepted: tuple[Adoption, ...], offered: Slice) -> bool:
    """Whether an operator accepted that input of exactly this range is gone."""
    return any(adoption.kind is AdoptionKind.ACCEPT_LOSS and adoption.offsets == offered for adoption in accepted)


def gives_up_range(accepted: Adoption) -> bool:
    """Whether it gives up epochs that no sink holds: the input between two positions of the source."""
    if accepted.kind is not AdoptionKind.ACCEPT_LOSS or accepted.sinks or accepted.offsets is None:
        return False
    return accepted.offsets.start != accepted.offsets.end


def batches_given_up(accepted: Iterable[Adoption]) -> int:
    """Count the given-up batches of the engine that became no epoch."""
    return sum(adoption.last - adoption.first + 1 for adoption in accepted if gives_up_range(adoption))


def moved(accepted: tuple[Adoption, ...], end: SourceOffsets) -> bool:
    """Whether an operator set the position of the next batch after the last rows."""
    for adoption in accepted:
        if adoption.kind in {
            AdoptionKind.START,
            AdoptionKind.CONTINUE,
            AdoptionKind.FROM_CHECKPOINT,
            AdoptionKind.ACCEPT_DUPLICATES,
        }:
            return True
        if adoption.kind is AdoptionKind.ACCEPT_LOSS and (
            end.unset or (adoption.offsets and adoption.offsets.end == end)
        ):
            return True  # a position that is unset has nothing before it that could come again
    return False


def duplicates_from(start: SourceOffsets, slices: Mapping[int, Slice]) -> int:
    """Return the first epoch whose rows a batch with this start offers again, or 1 if it may be off record."""
    before = 0
    for number in sorted(slices):
        if order(slices[number].end, start) not in {Order.SAME, Order.BEFORE}:
            within = order(slices[number].start, start) in {Order.SAME, Order.BEFORE}
            return number if within else before + 1  # what is not recorded in between is repeated, too
        before = number
    return max(slices, default=1)
