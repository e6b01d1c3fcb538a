"""Simulated sinks: steps of the sink contract on a frozen target.

They keep the promises of the three real sinks in ``onceonly.protocol``.

Postgres checks and writes under the lock of its head row: one step, and whoever takes the lock ends what was in flight.
Delta reads a version on a handle and commits on that handle: the commit holds only where no other came between. Kafka
makes a new producer, which ends the transactions of older ones, waits for hidden ends, reads, and commits: it holds
only where nobody made a producer since. So for all three a write holds exactly if the state that was checked is the
state that is written to, and checking and writing are one step here. ``fine`` takes the two apart for Delta and Kafka,
as do the rules that are broken on purpose. A fourth kind is no real sink: it takes rows one by one, each in a step of
its own, and the marker last (``transactional=False``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onceonly.machine.commands import Absent, Committed, Installed, Outcome, Overtaken, RolledBack, Unknown
from onceonly.machine.facts import Reading
from onceonly.protocol import Peek, Position
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Fence, Marker, Receipt
from onceonly_lab.model.parts import (
    KEYS,
    Flight,
    Harm,
    Held,
    Kind,
    Target,
    cleared,
    fenced,
    newest_of_each_key,
    receipt,
    records_in,
)
from onceonly_lab.model.rules import Rule
from onceonly_lab.strenum import StrEnum

_LOST, _INSTALLED, _ABSENT = Unknown("no answer"), Installed(), Absent()
_AGAIN = RolledBack("deadlock detected", "another writer")


REFUSED_ROW = "E503"
"""The code with which the lab's targets refuse rows; real ones have several."""


class Fate(StrEnum):
    """What becomes of a change that is sent."""

    ANSWERED = "answered"
    ANSWER_LOST = "answer lost"
    REQUEST_LOST = "request lost"
    IN_FLIGHT = "in flight"
    HIDDEN = "hidden"
    TAKEN_BACK = "taken back"


@dataclass(frozen=True, slots=True)
class Raised:
    """The sink refuses with a coded error: the query ends."""

    code: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One way in which a call of a sink can go.

    Attributes:
        words: what happened, after the driver's name.
        target: the target afterwards.
        outcome: the answer; ``None``: the call is not over.
        memory: what the sink object remembers while the call is not over.
        fate: what became of what was sent.
        beside: the targets of other sinks in the same transaction, afterwards.
    """

    words: str
    target: Target
    outcome: Outcome | Raised | None
    memory: int | None = None
    fate: Fate = Fate.ANSWERED
    beside: tuple[Target, ...] = ()


Replies = Iterator[Reply]


class Wire:
    """The calls of the contract, by the rules that are kept.

    Args:
        off: rules that are not.
        fine: whether Delta and Kafka check and write in two steps.
        conflicts: whether Postgres may take an epoch back for the sake of other writers.
    """

    def __init__(self, off: frozenset[Rule] = frozenset(), *, fine: bool = False, conflicts: bool = False) -> None:
        self._off = off
        self._conflicting = conflicts
        self._fine = fine

    # ---- opening

    def fence(self, target: Target) -> Fence | None:
        """The newest fence as anybody sees it."""
        if self._claimless(target):
            return target.newest.fence if target.newest else None
        return target.fence

    def look(self, target: Target) -> Peek:
        """The newest marker as anybody sees it."""
        newest = target.newest
        return Peek(newest, newest.epoch.number if newest else 0, strangers=bool(target.held) and newest is None)

    def install(self, target: Target, fence: Fence, memory: int | None) -> Replies:
        """Make a fence the newest."""
        words = f"installs generation {fence.generation} in sink '{target.name}'"
        if memory is None and self._looks_first(target, writes_epoch=False):
            yield from self._look(target, words)
            return
        target = self._settled(target, memory)
        newest_fence = self.fence(target)
        if newest_fence is not None and self._same(newest_fence, fence) and not self._claimless(target):
            yield Reply(f"finds generation {fence.generation} its own in sink '{target.name}'", target, _INSTALLED)
        elif newest_fence is not None and not self._lower(newest_fence, fence, target):
            yield Reply(
                f"finds generation {newest_fence.generation} in sink '{target.name}'", target, Overtaken(newest_fence)
            )
        elif self._conflicts(target, memory):
            yield Reply(f"is too late for {words}", target, _LOST)
        else:
            yield from self._fates(target, Flight(fence, None), _INSTALLED, words)

    def position(self, target: Target, fence: Fence, since: Receipt | None, after: int) -> Replies:
        """Where the target stands, under our fence."""
        settled_target = self._settled(target, None)
        if (refused := self._refused(settled_target, fence)) is not None:
            yield Reply(f"finds sink '{target.name}' fenced", settled_target, refused)
            return
        yield Reply(f"reads sink '{target.name}'", settled_target, reading(settled_target, fence, since, after))

    # ---- one epoch

    def commit(
        self, target: Target, marker: Marker, content: Digest, memory: int | None, *, healing: bool = False
    ) -> Replies:
        """Rows and marker; whether a healer brings them is only asked where that rule is off."""
        if Rule.CLEARED_WITH_MARKER in self._off and marker.epoch.replaces and memory is None:
            words = f"takes the rows of epochs {marker.epoch.replaces} out of sink '{target.name}'"
            refused = self._refused(target, marker.fence) or self._misplaced(target, marker)
            left = target if refused else cleared(target, marker.epoch.replaces)
            yield Reply(words, left, refused, None if refused else target.turn)
            return
        words = f"commits epoch {marker.epoch.number} to sink '{target.name}'"
        if target.kind is Kind.PUTS:
            yield from self._puts(target, marker, content, memory)
            return
        if memory is not None and self._parts(target):
            yield from self._second_part(target, marker, content, words)
            return
        if memory is None and self._looks_first(target, writes_epoch=True):
            looked = self._settled(target, None)
            refused = self._refused(looked, marker.fence) or self._misplaced(looked, marker)
            yield from [Reply(f"cannot: {words}", looked, refused)] if refused else self._look(looked, words)
            return
        clears = not (healing and Rule.HEALER_DELETES in self._off)
        yield from self._write(target, marker, content, memory, words, clears=clears)

    def _write(
        self, target: Target, marker: Marker, content: Digest, memory: int | None, words: str, *, clears: bool = True
    ) -> Replies:
        blind = memory is not None and self._unconditional(target)
        if not blind:
            target = self._settled(target, memory)
            refused = self._refused(target, marker.fence) or self._misplaced(target, marker)
            if refused is not None:
                yield Reply(f"cannot: {words}", target, refused)
                return
            if self._conflicts(target, memory):
                yield Reply(f"is too late: {words}", target, _LOST)
                return
        if self._parts(target):
            yield self._first_part(target, marker, content, words)
            return
        if target.harm == Harm.HOLLOW:
            yield Reply(f"{words}, which says yes and does not hold it", target, Committed(receipt(marker)))
            return
        if target.harm == Harm.PICKY and not marker.epoch.adoption:
            noticed = Raised(REFUSED_ROW) if Rule.REFUSED_ROW not in self._off else Unknown("a row is refused")
            yield Reply(f"{words}, which refuses a row", target, noticed)
            return
        held = Held(marker.epoch, marker, content)
        answer = Committed(receipt(marker, target.identity))
        yield from self._fates(target, Flight(marker.fence, held, clears=clears), answer, words)
        if self._conflicting and target.kind is Kind.POSTGRES:
            yield Reply(f"{words}; it is taken back for another writer", target, _AGAIN, fate=Fate.TAKEN_BACK)

    def commit_joined(
        self, targets: Sequence[Target], markers: Sequence[Marker], contents: Sequence[Digest], *, healing: bool
    ) -> Replies:
        """Rows and markers of several sinks in one transaction; each of them is what a commit of its own demands."""
        target_states = tuple(self._settled(target, None) for target in targets)
        listed = ", ".join(target.name for target in targets)
        words = f"commits epoch {markers[0].epoch.number} to sinks {listed} at once"
        looked = zip(target_states, markers, strict=True)
        for target, marker in list(looked)[: 1 if Rule.EVERY_HEAD in self._off else None]:
            if (refused := self._refused(target, marker.fence) or self._misplaced(target, marker)) is not None:
                yield _of_all(f"cannot: {words}", target_states, refused)
                return
        clears = not (healing and Rule.HEALER_DELETES in self._off)
        names = tuple(target.name for target in target_states)
        flights = [
            Flight(marker.fence, Held(marker.epoch, marker, content), clears=clears, beside=names)
            for marker, content in zip(markers, contents, strict=True)
        ]
        after = tuple(landed(target, flight) for target, flight in zip(target_states, flights, strict=True))
        first, *other_receipts = (
            receipt(marker, target.identity) for marker, target in zip(markers, target_states, strict=True)
        )
        yield _of_all(words, after, Committed(first, sibling_receipts=tuple(other_receipts)))
        yield _of_all(f"{words}; the answer is lost", after, _LOST, Fate.ANSWER_LOST)
        yield _of_all(f"{words}; the request is lost", target_states, _LOST, Fate.REQUEST_LOST)
        flying = tuple(_flying(target, flight) for target, flight in zip(target_states, flights, strict=True))
        yield _of_all(f"{words}; no answer, it is still in flight", flying, _LOST, Fate.IN_FLIGHT)
        if self._conflicting:
            yield _of_all(f"{words}; it is taken back for another writer", target_states, _AGAIN, Fate.TAKEN_BACK)

    def _puts(self, target: Target, marker: Marker, content: Digest, memory: int | None) -> Replies:
        """One put more of an epoch: its rows, and then its marker. What stands is looked at before the first one."""
        at, number = memory or 0, marker.epoch.number
        refused = self._refused(target, marker.fence) or self._misplaced(target, marker) if memory is None else None
        if refused is not None:
            yield Reply(f"cannot: puts epoch {number} into sink '{target.name}'", target, refused)
            return
        rows = [record for record in newest_of_each_key(records_in(content)) if record]
        puts = [None, *rows] if Rule.ROWS_WITH_MARKER in self._off else [*rows, None]
        record, last = puts[at], at + 1 == len(puts)
        if record is None:
            after = landed(target, Flight(marker.fence, Held(marker.epoch, marker, content)))
            words = f"puts the marker of epoch {number} into sink '{target.name}'"
        else:
            after = _put(target, record)
            words = f"puts record {record} of epoch {number} into sink '{target.name}'"
        answer = Committed(receipt(marker, target.identity)) if last else None
        yield Reply(words, after, answer, None if last else at + 1)
        yield Reply(f"{words}; the answer is lost", after, _LOST, fate=Fate.ANSWER_LOST)
        yield Reply(f"{words}; the request is lost", target, _LOST, fate=Fate.REQUEST_LOST)

    def _first_part(self, target: Target, marker: Marker, content: Digest, words: str) -> Reply:
        """Rows or marker, the other being left for a second transaction."""
        rows_first = Rule.MARKER_WITH_ROWS in self._off
        part = Held(marker.epoch, None, content) if rows_first else Held(marker.epoch, marker, None)
        if Rule.NEW_PRODUCER in self._off:
            half = Held(marker.epoch, None, content, whole=False)
            return Reply(f"{words}: the first half of the rows", replace(target, half=half), None, 0)
        what = "the rows" if rows_first else "the marker"
        return Reply(f"{words}: {what}", landed(target, Flight(marker.fence, part)), None, 0)

    def _second_part(self, target: Target, marker: Marker, content: Digest, words: str) -> Replies:
        held = Held(marker.epoch, marker, content)
        flight = Flight(marker.fence, held)
        if target.half is not None:
            yield from self._fates(replace(target, half=None), flight, Committed(receipt(marker)), words)
            return
        rest = target.held[-1] if target.held else None
        if rest is None or rest.epoch != marker.epoch or self._refused(target, marker.fence):
            yield Reply(f"cannot: {words}", target, Raised("E508"))
            return
        joined = replace(target, held=target.held[:-1])
        yield Reply(f"{words}: the rest", landed(joined, flight), Committed(receipt(marker)))

    def adopt(self, target: Target, marker: Marker) -> Replies:
        """A marker without rows, by a command that nobody interrupts."""
        settled_target = self._settled(target, None)
        words = f"writes the adoption {marker.epoch.number} to sink '{target.name}'"
        refused = self._refused(settled_target, marker.fence)
        if (
            refused is None
            and settled_target.newest is not None
            and settled_target.newest.epoch.number >= marker.epoch.number
        ):
            refused = Raised("E210")
        if refused is not None:
            yield Reply(f"cannot: {words}", settled_target, refused)
            return
        held = Held(marker.epoch, marker, marker.epoch.digest)
        answer = Committed(receipt(marker, settled_target.identity))
        yield Reply(words, landed(settled_target, Flight(marker.fence, held)), answer)

    def look_up(self, target: Target, marker: Marker) -> Replies:
        """Whether an epoch landed; afterwards it cannot land any more."""
        words = f"looks epoch {marker.epoch.number} up in sink '{target.name}'"
        if Rule.LOOKED_UP in self._off:
            yield Reply(f"takes the lost answer of sink '{target.name}' for a yes", target, Committed(receipt(marker)))
            return
        settled_target = self._settled(target, None, closing=True)
        if (refused := self._refused(settled_target, marker.fence)) is not None:
            yield Reply(f"{words}: fenced", settled_target, refused)
        elif settled_target.newest is not None and self._is(settled_target.newest, marker):
            yield Reply(f"{words}: it is there", settled_target, Committed(receipt(marker, target.identity)))
        else:
            yield Reply(f"{words}: it is not there", settled_target, _ABSENT)

    def look_up_beside(self, targets: Sequence[Target], markers: Sequence[Marker]) -> Replies:
        """Whether an epoch of several sinks landed; afterwards it cannot land any more."""
        settled_targets = tuple(self._settled(target, None, closing=True) for target in targets)
        words = f"looks epoch {markers[0].epoch.number} up in sinks {', '.join(sink.name for sink in targets)}"
        for target, marker in zip(settled_targets, markers, strict=True):
            if (refused := self._refused(target, marker.fence)) is not None:
                yield _of_all(f"{words}: fenced", settled_targets, refused)
                return
        receipts = [
            receipt(marker, target.identity)
            for target, marker in zip(settled_targets, markers, strict=True)
            if target.newest is not None and self._is(target.newest, marker)
        ]
        if len(receipts) == len(settled_targets):
            yield _of_all(
                f"{words}: it is there", settled_targets, Committed(receipts[0], sibling_receipts=tuple(receipts[1:]))
            )
        else:
            yield _of_all(f"{words}: it is not there", settled_targets, _ABSENT)

    # ---- what happens by itself

    def landings_beside(self, targets: Sequence[Target]) -> Iterator[tuple[str, tuple[Target, ...]]]:
        """Transactions of several sinks in flight that land now: those that nobody has ended in any of them."""
        for flight in targets[0].flights if targets else ():
            copies = [_copy(target, flight) for target in targets] if flight.beside else [None]
            if None in copies or flight.held is None:
                continue
            number, names = flight.held.epoch.number, ", ".join(flight.beside)
            words = f"late: epoch {number} in flight from generation {flight.fence.generation} lands in sinks {names}"
            pairs = zip(targets, copies, strict=True)
            yield words, tuple(landed(target, copy) for target, copy in pairs if copy is not None)

    def landings(self, target: Target) -> Replies:
        """Changes in flight that land now."""
        for flight in target.flights:
            if flight.beside:
                continue
            rest = tuple(other for other in target.flights if other is not flight)
            what = f"epoch {flight.held.epoch.number}" if flight.held else f"generation {flight.fence.generation}"
            words = f"late: {what} in flight from generation {flight.fence.generation} lands in sink '{target.name}'"
            if Rule.NEW_PRODUCER in self._off and target.kind is Kind.KAFKA and not flight.decided:
                if target.half is not None:
                    torn = replace(target, held=(*target.held, target.half), flights=rest, half=None)
                    yield Reply(
                        f"late: an end of transaction commits the half that is open in '{target.name}'", torn, None
                    )
                continue
            yield Reply(words, landed(replace(target, flights=rest), flight), None)

    # ---- helpers

    def _same(self, newest_fence: Fence, ours: Fence) -> bool:
        if Rule.OWNER in self._off:
            return newest_fence.generation == ours.generation
        return newest_fence == ours

    def _lower(self, newest_fence: Fence, ours: Fence, target: Target) -> bool:
        lenient = self._claimless(target)
        if Rule.HIGHEST in self._off:
            return newest_fence != ours
        return newest_fence.generation < ours.generation or (lenient and newest_fence.generation == ours.generation)

    def _claimless(self, target: Target) -> bool:
        return Rule.CLAIM in self._off and target.kind is Kind.KAFKA

    def _by_path(self, target: Target) -> bool:
        return Rule.ONE_HANDLE in self._off and target.kind is Kind.DELTA

    def _unconditional(self, target: Target) -> bool:
        return Rule.FENCED_COMMIT in self._off or self._by_path(target)

    def _parts(self, target: Target) -> bool:
        two = {Rule.MARKER_WITH_ROWS, Rule.ROWS_WITH_MARKER} & self._off
        return bool(two) or (Rule.NEW_PRODUCER in self._off and target.kind is Kind.KAFKA)

    def _looks_first(self, target: Target, *, writes_epoch: bool) -> bool:
        if self._by_path(target) or (writes_epoch and Rule.FENCED_COMMIT in self._off):
            return True
        if writes_epoch and self._parts(target):
            return False  # a call that is not over has written its first part, then
        return self._fine and target.kind is not Kind.POSTGRES

    def _look(self, target: Target, words: str) -> Replies:
        turn = target.turn + (self._fine and target.kind is Kind.KAFKA)
        looked = (
            replace(target, turn=turn)
            if target.kind is not Kind.KAFKA
            else self._settled(replace(target, turn=turn), None)
        )
        yield Reply(f"gets ready: {words}", looked, None, turn)

    def _conflicts(self, target: Target, memory: int | None) -> bool:
        return self._fine and memory is not None and memory != target.turn and not self._unconditional(target)

    def _settled(self, target: Target, memory: int | None, *, closing: bool = False) -> Target:
        """The target as it is once one may act on it: what was in flight has landed before, or never will."""
        if target.kind is Kind.POSTGRES and Rule.LOCKED in self._off:
            return target
        if target.kind is Kind.DELTA and not closing:
            return target  # a late commit is stopped by the next one, not by reading
        if target.kind is Kind.KAFKA and Rule.SETTLED not in self._off:
            for flight in target.flights:
                target = landed(target, flight) if flight.decided else target
        if self._lingers(target):
            return replace(target, flights=tuple(candidate for candidate in target.flights if not candidate.decided))
        hidden = Rule.SETTLED in self._off and target.kind is Kind.KAFKA
        return replace(target, flights=tuple(candidate for candidate in target.flights if candidate.decided and hidden))

    def _lingers(self, target: Target) -> bool:
        """Whether what is in flight survives what others do."""
        return {
            Kind.POSTGRES: Rule.LOCKED in self._off,
            Kind.DELTA: Rule.ONE_HANDLE in self._off,
            Kind.KAFKA: Rule.NEW_PRODUCER in self._off,
            Kind.PUTS: False,
        }[target.kind]

    def _refused(self, target: Target, fence: Fence) -> Overtaken | Raised | None:
        if self._claimless(target):
            newest = target.newest
            return Overtaken(newest.fence) if newest and newest.fence.generation > fence.generation else None
        newest_fence = target.fence
        if newest_fence is not None and self._same(newest_fence, fence):
            return None
        return (
            Overtaken(newest_fence)
            if newest_fence is not None and newest_fence.generation >= fence.generation
            else Raised("E508")
        )

    def _misplaced(self, target: Target, marker: Marker) -> Raised | None:
        """Whether the epoch does not continue what stands there."""
        if target.changed is not None and target.changed == marker.fence:
            return Raised("E209")  # who has read the position since was told
        if Rule.CHAIN in self._off:
            return None
        newest, epoch = target.newest, marker.epoch
        first = dict(epoch.sinks).get(target.name) == epoch.number
        if newest is None:
            return None if first and not target.held else Raised("E207")
        if first and newest.epoch.number < epoch.number:
            return None  # an adoption has it begin anew, above whatever it holds
        if (newest.epoch.number, newest.epoch.chain) == (epoch.number - 1, epoch.previous_chain):
            return None
        return Raised("E207" if newest.epoch.number < epoch.number - 1 else "E210")

    def _is(self, newest: Marker, marker: Marker) -> bool:
        return self._same(newest.fence, marker.fence) and newest.epoch.chain == marker.epoch.chain

    def _fates(self, target: Target, flight: Flight, answer: Outcome, words: str) -> Replies:
        """Every fate of a change that was sent."""
        after = landed(self._closed(target), flight)
        yield Reply(words, after, answer)
        if Rule.ONE_COPY in self._off and flight.held:
            yield Reply(
                f"{words}, the answer is lost, it is sent again", landed(after, flight), answer, fate=Fate.ANSWER_LOST
            )
            return
        yield Reply(f"{words}; the answer is lost", after, _LOST, fate=Fate.ANSWER_LOST)
        yield Reply(f"{words}; the request is lost", target, _LOST, fate=Fate.REQUEST_LOST)
        if target.kind is Kind.PUTS:
            return  # nothing is promised of what comes late
        late = replace(flight, turn=target.turn)
        yield Reply(f"{words}; no answer, it is still in flight", _flying(target, late), _LOST, fate=Fate.IN_FLIGHT)
        if target.kind is Kind.KAFKA:
            hidden = replace(late, decided=True)
            yield Reply(f"{words}; no answer, decided but hidden", _flying(target, hidden), _LOST, fate=Fate.HIDDEN)

    def _closed(self, target: Target) -> Target:
        """The target with its next turn: what was in flight for this one cannot land any more."""
        turn = target.turn + (self._fine and target.kind is Kind.DELTA)
        flights = (
            target.flights if self._lingers(target) else tuple(flight for flight in target.flights if flight.decided)
        )
        return replace(target, turn=turn, flights=flights)


def _of_all(
    words: str, targets: tuple[Target, ...], outcome: Outcome | Raised | None, fate: Fate = Fate.ANSWERED
) -> Reply:
    return Reply(words, targets[0], outcome, fate=fate, beside=targets[1:])


def _copy(target: Target, flight: Flight) -> Flight | None:
    """What is in flight to a target of the same transaction."""
    same = (
        candidate
        for candidate in target.flights
        if (candidate.fence, candidate.beside) == (flight.fence, flight.beside)
    )
    return next(
        (
            candidate
            for candidate in same
            if candidate.held and flight.held and candidate.held.epoch == flight.held.epoch
        ),
        None,
    )


def _put(target: Target, record: int) -> Target:
    """The target with a record under its key, whatever stood there."""
    key = (record - 1) % KEYS
    return replace(target, rows=(*target.rows[:key], record, *target.rows[key + 1 :]))


def _flying(target: Target, flight: Flight) -> Target:
    return replace(target, flights=(*target.flights, flight))


def landed(target: Target, flight: Flight) -> Target:
    """The target with a change in it; whether it should have been let in is not asked."""
    rest = tuple(other for other in target.flights if other is not flight)
    target = replace(target, flights=rest)
    if flight.held is None:
        return fenced(target, flight.fence)
    held = replace(flight.held, stale=flight.fence != target.fence)
    target = cleared(target, held.epoch.replaces if flight.clears else None)
    return replace(target, held=(*target.held, held), changed=None)


def reading(target: Target, fence: Fence, since: Receipt | None, after: int) -> Reading:
    """What a position and the history behind it say."""
    newest = target.newest
    number = newest.epoch.number if newest else 0
    position = Position(fence, newest, number, target.identity, bool(target.held), _disturbances(target))
    ahead = tuple(
        (marker, receipt(marker, target.identity)) for marker in target.markers if marker.epoch.number > after
    )
    return Reading(target.name, position, since, ahead)


def _disturbances(target: Target) -> tuple[ExternalChange, ...]:
    if target.changed is None:
        return ()
    version = max(at for at, held in enumerate(target.held, start=1) if held.back)
    return (ExternalChange("restored", f"RESTORE behind entry {version}", fatal=True, at=version),)
