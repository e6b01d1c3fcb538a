"""Commits and what became of them: sent, answered, looked up, and the rows they bring. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onceonly_lab.checker.calls import Call
from onceonly_lab.history import Entry, Kind, Range


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit that was sent to one sink.

    Attributes:
        sink: sink id.
        epoch: number of the epoch.
        call: its invoke and answer; the outcome is the one that a later look-up found.
        known: line from which the outcome is certain; ``None`` if it never was.
        lost: its own answer did not come.
        rows: identities of what it brings; ``None`` where the history does not say.
    """

    sink: str
    epoch: int
    call: Call
    known: int | None
    lost: bool
    rows: frozenset[str] | None

    @property
    def at(self) -> int:
        """Line where it was sent."""
        return self.call.at

    @property
    def outcome(self) -> Kind:
        """``ok``, ``fail`` or ``info``."""
        return self.call.outcome

    @property
    def generation(self) -> int | None:
        """In whose name."""
        return self.call.said.generation

    @property
    def count(self) -> int | None:
        """How many rows it brings, where that is known."""
        return self.call.said.count if self.rows is None else len(self.rows)


def grouped(
    sent: Sequence[Call], look_ups: Sequence[Call], inputs: Sequence[Entry]
) -> dict[tuple[str, int], tuple[Commit, ...]]:
    """The commits that were sent, by sink and epoch.

    Args:
        sent: the calls that sent one.
        look_ups: the calls that looked for one whose answer was lost.
        inputs: rows of the source with their slices, for commits that do not name their rows.
    """
    found: dict[tuple[str, int], list[Commit]] = {}
    for call in sent:
        sink, epoch = call.said.sink, call.said.epoch
        if sink is not None and epoch is not None:
            resolved = _looked_up(call, sent, look_ups) if call.outcome is Kind.INFO else None
            rows = _brought(call.said, inputs)
            found.setdefault((sink, epoch), []).append(_commit((sink, epoch), call, resolved, rows))
    return {place: tuple(group) for place, group in found.items()}


def _commit(place: tuple[str, int], call: Call, resolved: Call | None, rows: frozenset[str] | None) -> Commit:
    lost = call.outcome is Kind.INFO
    if resolved is not None:
        call = Call(call.said, call.at, resolved.outcome, resolved.answered, call.announced)
    return Commit(*place, call, None if call.outcome is Kind.INFO else call.answered, lost, rows)


def _looked_up(call: Call, sent: Sequence[Call], look_ups: Sequence[Call]) -> Call | None:
    """The certain answer to the first look-up of the same driver before it sends the epoch to that sink again."""

    def about(other: Call) -> bool:
        return (other.who, other.said.sink, other.said.epoch) == (call.who, call.said.sink, call.said.epoch)

    until = min((other.at for other in sent if about(other) and other.at > call.at), default=None)
    return next(
        (
            one
            for one in look_ups
            if about(one) and one.outcome is not Kind.INFO and call.at < one.at and (until is None or one.at < until)
        ),
        None,
    )


def _brought(said: Entry, inputs: Sequence[Entry]) -> frozenset[str] | None:
    """What a commit brings: the rows it names, else those of the input that lie in its slice."""
    if said.rows is not None:
        return frozenset(row.identity for row in said.rows)
    if said.slice is None or not inputs:
        return None
    taken = {one.partition: one for one in said.slice}
    parts = [(entry, _part(entry.slice or (), taken)) for entry in inputs]
    if any(part is None for _, part in parts):
        return None
    return frozenset(row.identity for entry, part in parts if part for row in entry.rows or ())


def _part(inner: tuple[Range, ...], taken: Mapping[str, Range]) -> bool | None:
    """Whether a piece of the input lies in a slice; ``None`` if the slice cuts it."""
    ends = [(one, taken.get(one.partition)) for one in inner if one.start < one.end]
    if all(out is None or one.end <= out.start or out.end <= one.start for one, out in ends):
        return False
    within = all(out is not None and out.start <= one.start and one.end <= out.end for one, out in ends)
    return True if within else None
