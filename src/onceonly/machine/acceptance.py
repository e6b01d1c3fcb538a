"""What an operator can accept, as one table for all readers. Pure.

An acceptance names its kind, and the sinks, epochs or versions that it is about. It lets pass what it names and nothing
else; whatever else stands in the way still refuses.
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
from onceonly.protocol import ExternalChange
from onceonly_checkpoints.model import Adoption, AdoptionKind, Slice, SourceOffsets, canonical, known, present

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that can be accepted.

    Attributes:
        covers: codes of the refusals that it lets pass, where they name no more than it does.
        words: what is accepted, in a sentence.
        epochs: whether it names epochs.
        sinks: whether it names sinks, where the refusal does.
        version: whether it names the version of a sink.
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
    AdoptionKind.ACCEPT_STATE_LOSS: Kind(("E206",), "the query's windows and seen keys start empty"),
    AdoptionKind.ACCEPT_CHANGE: Kind(
        ("E209",), "external changes to the sink up to this version are accepted", False, True, True
    ),
    AdoptionKind.KEEP_RECOMPUTED_STATE: Kind(
        ("E215",), "the state stays as this epoch's batch, run again, has made it", True
    ),
    AdoptionKind.SAME_DATA: Kind(("E208",), "the sink has moved and holds what it held, which is checked", False, True),
    AdoptionKind.CONTINUE: Kind(
        ("E211", "E212", "E216", "E250"), "the source now starts exactly where the last epoch ended"
    ),
    AdoptionKind.START: Kind(
        ("E203", "E204", "E211", "E212", "E216", "E220", "E229", "E250"), "the next batch starts at these offsets"
    ),
}
"""What ``queries adopt`` takes, by the name of its option."""

GAPS = ("E204", "E229")
"""Codes of batches that start past the newest epoch: what lies between becomes an epoch when it is given up."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a pipeline stopped, as far as that can be accepted.

    Attributes:
        code: of the refusal.
        sinks: the sinks that it names.
        first: the first epoch that it names; 0 for none.
        last: the last epoch that it names; 0 for none.
        versions: of each of these sinks, up to which others changed it; empty where that is not meant.
        offered: the range of the batch that was refused; ``None`` if there was no batch.
        head: the newest epoch of the ledger at that time; the stop is past when there is another.
        repeats: whether the batch is proven to hold rows of epochs, although its offsets do not tell.
        doubtful: whether it is not known that it holds none.
        then: what stops the pipeline once this is accepted, since one and the same batch needs two decisions; ``None``
            for nothing that is known.
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
        value: Mapping[str, Any] = json.loads(text)
        known(value, "code", "sinks", "epochs", "versions", "offered", "head", "repeats", "then", "doubtful")
        first, last = value.get("epochs", (0, 0))
        return cls(
            value["code"],
            tuple(value.get("sinks", ())),
            first,
            last,
            tuple(value.get("versions", ())),
            Slice.from_json(value["offered"]) if "offered" in value else None,
            value.get("head", 0),
            value.get("repeats", False),
            cls.parse(value["then"]) if "then" in value else None,
            value.get("doubtful", False),
        )

    @property
    def text(self) -> str:
        """Canonical spelling, as the ledger keeps it."""
        return canonical(
            present(
                code=self.code,
                sinks=list(self.sinks),
                epochs=[self.first, self.last] if self.last else None,
                versions=list(self.versions),
                offered=self.offered and self.offered.to_json(),
                head=self.head,
                repeats=self.repeats or None,
                then=self.then and self.then.text,
                doubtful=self.doubtful or None,
            )
        )

    @property
    def start(self) -> SourceOffsets | None:
        """Where the batch starts that was refused."""
        return self.offered.start if self.offered and self.offered.start.sources else None


def stop_of(refusal: Refusal, offered: Slice | None = None, head: int = 0) -> Stop:
    """What a refusal names, by its details."""
    said: dict[str, Any] = dict(refusal.details)
    one = (said["sink"],) if refusal.code in _OF_SINKS else ()
    sinks = said.get("lacking") or one
    return Stop(
        refusal.code, tuple(sinks), said.get("first", 0), said.get("last", 0), said.get("versions", ()), offered, head
    )


_OF_SINKS = ("E207", "E208", "E209")
"""Codes that are about the sink which they name. Others name it only to show where the pipeline stands."""


def covers(accepted: Adoption | None, stop: Stop) -> bool:
    """Whether an acceptance names all that a refusal names."""
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
    """Whether it names epochs: those it is about, or those of which it is not known that they do not come again."""
    return KINDS[kind].epochs or (kind is AdoptionKind.CONTINUE and stop.doubtful)


def _within(version: str, accepted: str | None) -> bool:
    if accepted and version.isdigit() and accepted.isdigit():
        return int(version) <= int(accepted)
    return version == accepted


def version_of(changes: Iterable[ExternalChange]) -> str:
    """Up to where others changed a sink: the newest version, or a name for what was seen where nothing is counted."""
    found = tuple(changes)
    counted = [event.at for event in found if event.at is not None]
    if len(counted) == len(found):
        return str(max(counted, default=0))
    seen = "\n".join(event.detail for event in found)
    return "seen-" + hashlib.sha256(seen.encode()).hexdigest()[:8]


def applicable(kind: AdoptionKind, stop: Stop | None, end: SourceOffsets | None = None) -> Adoption | None:
    """The acceptance of a kind that lets a stop pass, with all that it names.

    Args:
        kind: one of :data:`KINDS`.
        stop: the newest refusal; ``None`` if there was none since the newest epoch.
        end: where the last epoch ended; ``None`` where nothing says it.

    Returns:
        The acceptance, without a reason; ``None`` where this kind does not apply.
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
    """Whether a batch that repeats rows also starts past others: to take it would lose those without a word."""
    return bool(stop.start and end and _ahead(stop.start, end))


def _ahead(start: SourceOffsets, end: SourceOffsets) -> bool:
    """Whether ``start`` lies past ``end`` anywhere. What an end does not name was at its beginning."""
    held = dict(end.entries)
    for source, text in start.entries:
        place, stood = place_in_log(text), place_in_log(held.get(source))
        if place and stood:
            if place[0] != stood[0] or place > stood:
                return True
            continue
        there, here = numbers(text), numbers(held.get(source))
        if there is not None and here is not None and any(at > here.get(path, 0) for path, at in there.items()):
            return True
    return False


def _range(kind: AdoptionKind, stop: Stop, end: SourceOffsets | None) -> Slice | None:
    """What of the source is spoken of: what lies between, is read with holes or offered again, or where it starts."""
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
    """How much is given up, in words; ``None``: how many rows it is, is not known."""
    told = f"{epochs} epoch{'' if epochs == 1 else 's'}"
    return told if rows is None else f"{told}, {rows} row{'' if rows == 1 else 's'}"


def option(accepted: Adoption) -> str:
    """An acceptance as options of ``queries adopt``, quoted for a shell."""
    words = [f"--{accepted.kind}"]
    if accepted.first and accepted.kind is AdoptionKind.KEEP_RECOMPUTED_STATE:
        words.append(str(accepted.first))
    elif accepted.first:
        words += ["--may-repeat"] if accepted.kind is AdoptionKind.CONTINUE else []
        words.append(f"{accepted.first}..{accepted.last}")
    return " ".join(words) + named(accepted.sinks, accepted.versions)


def named(sinks: Iterable[str], versions: Iterable[str] = ()) -> str:
    """Sinks as options of ``queries adopt``, each with a leading blank."""
    pairs = zip_longest(sinks, versions, fillvalue="")
    return "".join(f" --sink {shlex.quote(f'{sink}@{version}' if version else sink)}" for sink, version in pairs)


def same(given: Adoption, wanted: Adoption) -> bool:
    """Whether what was typed names what applies: the same epochs, sinks and version."""
    told = (given.kind, sorted(_pairs(given)), given.first, given.last)
    return told == (wanted.kind, sorted(_pairs(wanted)), wanted.first, wanted.last)


def _pairs(accepted: Adoption) -> Iterator[tuple[str, str]]:
    return zip_longest(accepted.sinks, accepted.versions, fillvalue="")


def complete(given: Adoption, wanted: Adoption) -> Adoption:
    """What was typed, with the range of the source that it speaks of."""
    return replace(given, offsets=wanted.offsets)


def misses_input(accepted: tuple[Adoption, ...], offered: Slice) -> bool:
    """Whether it was accepted that input of exactly this range is gone."""
    return any(one.kind is AdoptionKind.ACCEPT_LOSS and one.offsets == offered for one in accepted)


def gives_up_range(accepted: Adoption) -> bool:
    """Whether epochs are given up that no sink holds: what lies between two positions of the source."""
    if accepted.kind is not AdoptionKind.ACCEPT_LOSS or accepted.sinks or accepted.offsets is None:
        return False
    return accepted.offsets.start != accepted.offsets.end


def batches_given_up(accepted: Iterable[Adoption]) -> int:
    """How many batches of the engine were given up, of those that became no epoch."""
    return sum(one.last - one.first + 1 for one in accepted if gives_up_range(one))


def moved(accepted: tuple[Adoption, ...], end: SourceOffsets) -> bool:
    """Whether an operator said, after the last rows, that the next batch comes from where the position is now."""
    for one in accepted:
        if one.kind in {
            AdoptionKind.START,
            AdoptionKind.CONTINUE,
            AdoptionKind.FROM_CHECKPOINT,
            AdoptionKind.ACCEPT_DUPLICATES,
        }:
            return True
        if one.kind is AdoptionKind.ACCEPT_LOSS and (end.unset or (one.offsets and one.offsets.end == end)):
            return True  # a position that is unset has nothing before it that could come again
    return False


def duplicates_from(start: SourceOffsets, slices: Mapping[int, Slice]) -> int:
    """The first epoch of which a batch that starts there offers rows again.

    Args:
        start: where the batch starts.
        slices: of recorded epochs, by number.

    Returns:
        The number; 1 where it may be one that is not recorded any more.
    """
    before = 0
    for number in sorted(slices):
        if order(slices[number].end, start) not in {Order.SAME, Order.BEFORE}:
            within = order(slices[number].start, start) in {Order.SAME, Order.BEFORE}
            return number if within else before + 1  # what is not recorded in between is repeated, too
        before = number
    return max(slices, default=1)
