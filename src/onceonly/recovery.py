"""The recovery table's first half: what sinks and ledger say of each other, once per opening (R6, R13, R3, R5, R2).

Pure decisions over frozen facts; the rules are tested in the order in which they stand here. What becomes of the
engine's batch is decided after that, in ``comparison.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from onceonly.facts import Happening, Heal, OpeningFacts, Proceed, Refusal
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Marker, Receipt
from onceonly_checkpoints.ledger import EventKind

_SAY_WHERE = ("start", "continue")
"""Kinds of adoption that say where the sinks stand when nothing else does any more."""


def _highest(facts: OpeningFacts) -> Marker | None:
    markers = [reading.position.marker for reading in facts.readings if reading.position.marker]
    return max(markers, key=lambda marker: marker.epoch.number, default=None)


def _r6_replaced(facts: OpeningFacts) -> Refusal | None:
    for reading in facts.readings:
        was = reading.receipt.identity if reading.receipt else reading.position.identity
        recreated = [event for event in reading.position.disturbances if event.kind == "recreated"]
        if was != reading.position.identity or recreated:
            now = recreated[0].detail if recreated else reading.position.identity or "nothing there"
            return Refusal.of("E208", sink=reading.sink, was=was, now=now, pipeline=facts.pipeline)
    return None


def _r6_behind_receipt(facts: OpeningFacts) -> Refusal | None:
    for reading in facts.readings:
        if reading.receipt and reading.position.epoch < reading.receipt.epoch:
            return Refusal.of(
                "E207",
                sink=reading.sink,
                found=reading.position.epoch,
                receipt=reading.receipt.epoch,
                pipeline=facts.pipeline,
            )
    return None


def _r6_disturbed(facts: OpeningFacts) -> Refusal | None:
    for reading in facts.readings:
        fatal = [event for event in reading.position.disturbances if event.fatal]
        if fatal:
            epoch = reading.receipt.epoch if reading.receipt else reading.position.epoch
            return Refusal.of("E209", sink=reading.sink, epoch=epoch, event=fatal[0].detail, pipeline=facts.pipeline)
    return None


def _r6_other_history(facts: OpeningFacts) -> Refusal | None:
    by_number: dict[int, Epoch] = {facts.head.number: facts.head} if facts.head else {}
    for reading in facts.readings:
        epochs = [marker.epoch for marker, _ in reading.ahead]
        if reading.position.marker:
            epochs.append(reading.position.marker.epoch)
        for epoch in epochs:
            known = by_number.setdefault(epoch.number, epoch)
            before = by_number.get(epoch.number - 1)
            if (
                known.chain != epoch.chain
                or not chain.sound(epoch)
                or (before and epoch.previous_chain != before.chain)
            ):
                return Refusal.of("E210", sink=reading.sink, epoch=epoch.number, pipeline=facts.pipeline)
    return None


def _r6_two_behind(facts: OpeningFacts) -> Refusal | None:
    highest = _highest(facts)
    for reading in facts.readings:
        first = dict(highest.epoch.sinks).get(reading.sink) if highest else None
        found = max(reading.position.epoch, first - 1 if first else 0)
        if highest and first and found < highest.epoch.number - 1:
            return Refusal.of(
                "E207", sink=reading.sink, found=found, receipt=highest.epoch.number, pipeline=facts.pipeline
            )
    return None


def _r13_joins(facts: OpeningFacts) -> Refusal | None:
    highest = _highest(facts)
    listed = dict(highest.epoch.sinks) if highest else {}
    called = {reading.sink for reading in facts.readings}
    for sink, first in listed.items():
        if sink not in called and sink != facts.dropped:
            return Refusal.of("E213", sink=sink, first=first, pipeline=facts.pipeline)
    for reading in facts.readings:
        # Without any marker, a number that outlived its text is no stranger's: R5 decides.
        stranger = reading.sink not in listed and (highest is not None or reading.position.epoch == 0)
        if stranger and reading.position.has_rows and not facts.adopt:
            if highest:
                return Refusal.of("E202", sink=reading.sink, epoch=highest.epoch.number, pipeline=facts.pipeline)
            return Refusal.of("E201", sink=reading.sink, pipeline=facts.pipeline, known="no pipeline of this name")
    return None


def _r13_elsewhere(facts: OpeningFacts) -> Refusal | None:
    """The ledger knows the name from other sinks only; as no sink here has a marker, epoch 1 would come again."""
    if facts.head is None or facts.accepted or _highest(facts) is not None:
        return None
    before = dict(facts.head.sinks)
    if not before or any(reading.sink in before for reading in facts.readings):
        return None
    sink, first = next(iter(before.items()))
    return Refusal.of("E213", sink=sink, first=first, pipeline=facts.pipeline)


def _r3_behind(facts: OpeningFacts) -> Heal | None:
    highest = _highest(facts)
    if highest is None or highest.epoch.number == facts.lost:
        return None
    first = dict(highest.epoch.sinks)
    behind = [
        reading.sink
        for reading in facts.readings
        if reading.sink in first and max(reading.position.epoch, first[reading.sink] - 1) == highest.epoch.number - 1
    ]
    return Heal(tuple(behind), highest) if behind else None


def _r5_forgotten(facts: OpeningFacts) -> Proceed | Refusal | None:
    highest = _highest(facts)
    for reading in facts.readings:
        if highest is None and reading.position.epoch:
            # The sink knows its number but the marker's text has aged out: only the ledger can say where that was.
            if facts.head and facts.head.number == reading.position.epoch:
                return Proceed(facts.head)
            if facts.accepted in _SAY_WHERE:
                what = f"{reading.sink} stands at epoch {reading.position.epoch}, whose text is gone: taken as said"
                return Proceed(None, (), (Happening(EventKind.RESOLVED, what, reading.position.epoch),))
            return Refusal.of("E216", sink=reading.sink, epoch=reading.position.epoch, pipeline=facts.pipeline)
    number = facts.head.number if facts.head else 0
    if highest is None or highest.epoch.number <= number:
        return None
    ahead = _ahead(facts)
    first = ahead[0][0].epoch.number if ahead else highest.epoch.number
    reason = f"{_span(first, highest.epoch.number)} read back from the markers in {highest.sink}"
    if first > number + 1:
        reason += f"; {_span(number + 1, first - 1)} aged out there"
    return Proceed(highest.epoch, ahead, (Happening(EventKind.REBUILT, reason, highest.epoch.number),))


def _span(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def _ahead(facts: OpeningFacts) -> tuple[tuple[Marker, tuple[Receipt, ...]], ...]:
    """Epochs that the ledger does not have, oldest first, each with the receipts of all sinks that tell of it."""
    told = [pair for reading in facts.readings for pair in reading.ahead]
    markers = {marker.epoch.number: marker for marker, _ in reversed(told)}
    return tuple(
        (markers[number], tuple(receipt for marker, receipt in told if marker.epoch.number == number))
        for number in sorted(markers)
    )


def _r2_equal(facts: OpeningFacts) -> Proceed:
    highest = _highest(facts)
    return Proceed(highest.epoch if highest else None)


_R6: tuple[Callable[[OpeningFacts], Refusal | None], ...] = (
    _r6_replaced,
    _r6_behind_receipt,
    _r6_disturbed,
    _r6_other_history,
    _r6_two_behind,
)


def decide_opening(facts: OpeningFacts) -> Proceed | Heal | Refusal:
    """What to do before any batch is looked at; the first rule that speaks decides."""
    for rule in () if facts.accepted else _R6:
        if refusal := rule(facts):
            return refusal
    joined = _r13_joins(facts) or _r13_elsewhere(facts)
    decision = joined or _r3_behind(facts) or _r5_forgotten(facts) or _r2_equal(facts)
    if isinstance(decision, Proceed):
        noted = tuple(
            Happening(EventKind.RESOLVED, event.detail, reading.position.epoch)
            for reading in facts.readings
            for event in reading.position.disturbances
            if not event.fatal
        )
        return Proceed(decision.last, decision.index, decision.happenings + noted)
    return decision
