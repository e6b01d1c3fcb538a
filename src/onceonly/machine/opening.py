"""Opening rules: compare sinks and ledger once.

Rules by name: R6 a target that is not as its marker says, R13 a sink that joins, R3 a sink without the newest epoch, R5
epochs that the ledger lacks. Pure decisions over frozen facts, tested in the order of this module. ``comparison.py``
decides on the engine's batch after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from onceonly.machine.acceptance import covers, stop_of, version_of
from onceonly.machine.facts import Happening, Heal, OpeningFacts, Proceed, Reading, Refusal
from onceonly.protocol.values import ExternalChange
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Marker, Receipt
from onceonly_checkpoints.ledger import EventKind


def not_ours(pipeline: str, sink: str, markers: Iterable[Marker]) -> Refusal | None:
    """Refuse the answer of a sink if one of its markers names another pipeline or sink."""
    for marker in markers:
        if (marker.pipeline, marker.sink) != (pipeline, sink):
            marker_text = f'epoch {marker.epoch.number} of sink {marker.sink} of pipeline "{marker.pipeline}"'
            return Refusal.of(
                "E508",
                sink=sink,
                reason=f'asked for markers of pipeline "{pipeline}", it answers with one of {marker_text}',
                cause="markers were copied by hand, or the sink mixes the markers of several writers",
                next="give each pipeline a place of its own for markers; run the conformance suite on your own sink",
            )
    return None


def _highest(facts: OpeningFacts) -> Marker | None:
    markers = [reading.position.marker for reading in facts.readings if reading.position.marker]
    return max(markers, key=lambda marker: marker.epoch.number, default=None)


def _newest_of(facts: OpeningFacts, reading: Reading) -> int:
    """Return the newest epoch that a sink held, or should hold, by any sink or the ledger."""
    highest = _highest(facts)
    others = highest.epoch.number if highest and reading.sink in dict(highest.epoch.sinks) else 0
    return max(others, reading.position.epoch, reading.receipt.epoch if reading.receipt else 0)


_REPLACED = ("recreated", "moved")
"""Kinds of disturbances after which a sink is another one; what was moved may hold all that it held."""


def _r6_replaced(facts: OpeningFacts) -> Iterator[Refusal]:
    for reading in facts.held:
        old_identity = _previous_identity(reading)
        replacements = [event for event in reading.position.disturbances if event.kind in _REPLACED]
        if old_identity != reading.position.identity or replacements:
            now = replacements[0].detail if replacements else reading.position.identity or "nothing there"
            yield _replaced(facts, reading, old_identity, now)


def is_moved(reading: Reading) -> bool:
    """Whether a sink under another identity may have all that it held: nothing was made anew in its place."""
    return all(event.kind != "recreated" for event in reading.position.disturbances)


def _previous_identity(reading: Reading) -> str:
    return reading.receipt.identity if reading.receipt else reading.position.identity


def _replaced(facts: OpeningFacts, reading: Reading, old_identity: str, now: str) -> Refusal:
    """Refuse another target. If it has the rows of the first epochs, as after a dump, only later ones are lost."""
    last, content, position = _newest_of(facts, reading), reading.content, reading.position
    is_complete = is_moved(reading) if content is None else content == last
    return Refusal.of(
        "E208",
        sink=reading.sink,
        pipeline=facts.pipeline,
        was=old_identity,
        now=now,
        first=1 if content is None or content >= last else content + 1,
        last=last,
        holds=is_complete and position.marker is not None and position.epoch == last,
        content=content,
    )


def _r6_behind_receipt(facts: OpeningFacts) -> Iterator[Refusal]:
    for reading in facts.held:
        heals = facts.heals and _staged(facts) is not None
        if reading.receipt and reading.position.epoch < reading.receipt.epoch and not heals:
            yield _set_back(facts, reading, reading.position.epoch, reading.receipt.epoch)


def _set_back(facts: OpeningFacts, reading: Reading, number: int, receipt: int) -> Refusal:
    from onceonly.machine.rewind import level

    return Refusal.of(
        "E207",
        sink=reading.sink,
        found=number,
        receipt=receipt,
        first=number + 1,
        last=_newest_of(facts, reading),
        level=level({sink_reading.sink: sink_reading.position.epoch for sink_reading in facts.readings}),
        staged=_staged(facts),
    )


def _staged(facts: OpeningFacts) -> str | None:
    """Return the manifest that heals all sinks. Empty: no rows. ``None``: no bytes, or one lacks more epochs."""
    highest = _highest(facts)
    if highest is None or not (highest.epoch.manifest or highest.epoch.adoption):
        return None
    number, first = highest.epoch.number, dict(highest.epoch.sinks)
    positions = [max(reading.position.epoch, first.get(reading.sink, number + 1) - 1) for reading in facts.readings]
    confirmed = [reading.receipt.epoch for reading in facts.readings if reading.receipt]
    if min(positions) < number - 1 or max(confirmed, default=0) > number:
        return None
    return highest.epoch.manifest or ""


def _r6_disturbed(facts: OpeningFacts) -> Iterator[Refusal]:
    for reading in facts.readings:
        # Made anew is E208 and set back is E207: whatever accepts these accepts what brought them about. One that is an
        # epoch behind the others is healed, and its markers may have stayed where its rows were set back.
        reported_kinds = {*_REPLACED, *(["restored"] if _is_behind(facts, reading) else [])}
        fatal = [event for event in reading.position.disturbances if event.fatal and event.kind not in reported_kinds]
        if fatal:
            epoch = reading.receipt.epoch if reading.receipt else reading.position.epoch
            yield Refusal.of(
                "E209",
                sink=reading.sink,
                epoch=epoch,
                event=fatal[0].detail,
                pipeline=facts.pipeline,
                versions=(version_of(fatal),),
            )


def _is_behind(facts: OpeningFacts, reading: Reading) -> bool:
    """Whether a sink lacks an epoch that it confirmed, or more than a crash leaves out."""
    confirmed = reading.receipt.epoch if reading.receipt else 0
    return reading.position.epoch < max(confirmed, _newest_of(facts, reading) - 1)


def _r6_other_history(facts: OpeningFacts) -> Iterator[Refusal]:
    by_number: dict[int, Epoch] = {facts.head.number: facts.head} if facts.head else {}
    for reading in facts.readings:
        epochs = [marker.epoch for marker, _ in reading.ahead]
        if reading.position.marker:
            epochs.append(reading.position.marker.epoch)
        for epoch in epochs:
            recorded = by_number.setdefault(epoch.number, epoch)
            before = by_number.get(epoch.number - 1)
            if (
                recorded.chain != epoch.chain
                or not chain.sound(epoch)
                or (before and epoch.previous_chain != before.chain)
            ):
                yield Refusal.of("E210", sink=reading.sink, epoch=epoch.number, pipeline=facts.pipeline)


def _r6_two_behind(facts: OpeningFacts) -> Iterator[Refusal]:
    highest = _highest(facts)
    for reading in facts.held:
        first = dict(highest.epoch.sinks).get(reading.sink) if highest else None
        number = max(reading.position.epoch, first - 1 if first else 0)
        if highest and first and number < highest.epoch.number - 1:
            yield _set_back(facts, reading, number, highest.epoch.number)


def _r13_joins(facts: OpeningFacts) -> Refusal | None:
    highest = _highest(facts)
    listed = dict(highest.epoch.sinks) if highest else {}
    called = {reading.sink for reading in facts.readings}
    for sink, first in listed.items():
        if sink not in called and sink != facts.dropped:
            newest = highest.epoch.number if highest else 0
            return Refusal.of("E213", sink=sink, first=first, epoch=newest, pipeline=facts.pipeline)
    for reading in facts.readings:
        # Without any marker, a number that outlived its text is no stranger's: R5 decides.
        stranger = reading.sink not in listed and (highest is not None or reading.position.epoch == 0)
        expected = facts.adopt or (facts.accepted and reading.sink in facts.accepted.sinks)
        if stranger and reading.position.has_rows and not expected:
            if highest:
                return Refusal.of("E202", sink=reading.sink, epoch=highest.epoch.number, pipeline=facts.pipeline)
            return _strangers(facts.pipeline, reading)
    return None


def _strangers(pipeline: str, reading: Reading) -> Refusal:
    """Refuse unknown rows. Rows of another pipeline may be this one's by its former name."""
    writers = [name for name in reading.position.writers if name != pipeline]
    cause = "the first run on a table that something else has filled"
    if writers:
        names = " and ".join(f'"{name}"' for name in writers)
        cause = f"another name= than last time: pipeline {names} wrote to this very table"
    resume = "".join(
        f'if this query had that name before, continue as it: exactly_once(..., name="{name}")\nor ' for name in writers
    )
    return Refusal.of("E201", sink=reading.sink, pipeline=pipeline, cause=cause, resume=resume)


def _r13_elsewhere(facts: OpeningFacts) -> Refusal | None:
    """Refuse a name that the ledger has from other sinks only: without a marker here, epoch 1 would come again."""
    if facts.head is None or _highest(facts) is not None:
        return None
    before = dict(facts.head.sinks)
    if not before or any(reading.sink in before for reading in facts.readings):
        return None
    sink, first = next(iter(before.items()))
    return Refusal.of("E213", sink=sink, first=first, epoch=facts.head.number, pipeline=facts.pipeline)


def _r3_behind(facts: OpeningFacts) -> Heal | None:
    highest = _highest(facts)
    if highest is None or highest.epoch.number == facts.lost:
        return None
    first = dict(highest.epoch.sinks)
    behind = [
        reading.sink
        for reading in facts.held
        # Another target takes no epoch of the old one: that it is another was accepted, with what it lacks.
        if _previous_identity(reading) == reading.position.identity
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
            forgotten = Refusal.of("E216", sink=reading.sink, epoch=reading.position.epoch, pipeline=facts.pipeline)
            if covers(facts.accepted, stop_of(forgotten)):
                what = f"{reading.sink} is at epoch {reading.position.epoch}, whose text is gone: taken as given"
                return Proceed(None, (), (Happening(EventKind.RESOLVED, what, reading.position.epoch),))
            return forgotten
    number = facts.head.number if facts.head else 0
    if highest is None or highest.epoch.number <= number:
        return None
    ahead = by_epoch([pair for reading in facts.readings for pair in reading.ahead])
    first = ahead[0][0].epoch.number if ahead else highest.epoch.number
    reason = f"{_span(first, highest.epoch.number)} entered into the ledger from the markers in {highest.sink}"
    if first > number + 1:
        reason += f"; {_span(number + 1, first - 1)} aged out there"
    return Proceed(highest.epoch, ahead, (Happening(EventKind.REBUILT, reason, highest.epoch.number),))


def _span(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def by_epoch(answers: Sequence[tuple[Marker, Receipt]]) -> tuple[tuple[Marker, tuple[Receipt, ...]], ...]:
    """Return epochs that the ledger lacks, oldest first, each with the receipts of all sinks that have it."""
    markers = {marker.epoch.number: marker for marker, _ in reversed(answers)}
    return tuple(
        (markers[number], tuple(receipt for marker, receipt in answers if marker.epoch.number == number))
        for number in sorted(markers)
    )


_R6: tuple[Callable[[OpeningFacts], Iterator[Refusal]], ...] = (
    _r6_replaced,
    _r6_behind_receipt,
    _r6_disturbed,
    _r6_other_history,
    _r6_two_behind,
)


def newest(facts: OpeningFacts) -> Epoch | None:
    """Return the newest epoch in any sink, or ``None`` without a marker."""
    highest = _highest(facts)
    return highest.epoch if highest else None


def refused_as_behind(facts: OpeningFacts) -> Refusal:
    """Refuse an opening if a sink lacks a confirmed epoch: it was replaced or set back."""
    refusal = next(_r6_replaced(facts), None) or next(_r6_behind_receipt(facts))
    return _for_all(refusal, facts)


def forgotten(facts: OpeningFacts) -> Proceed | Refusal | None:
    """Decide an opening in which no sink has more than the number of its newest epoch."""
    return _r5_forgotten(facts)


def refused_by_sight(facts: OpeningFacts) -> Refusal | None:
    """Refuse an opening by markers alone, however old they are: another history, or other sinks than before."""
    return next(_r6_other_history(facts), None) or _r13_joins(facts) or _r13_elsewhere(facts)


def _for_all(refusal: Refusal, facts: OpeningFacts) -> Refusal:
    """Name every sink with the same fault, so that one acceptance resolves all of them."""
    like = {"E207": _LOSSES, "E208": _LOSSES, "E209": (_r6_disturbed,)}.get(refusal.code, ())
    others = [other for rule in like for other in rule(facts)]
    stops = [stop_of(other) for other in others]
    if len({stop.sinks for stop in stops}) < 2:
        return refusal
    merged = {
        "lacking": tuple(dict.fromkeys(sink for stop in stops for sink in stop.sinks)),
        "first": min(stop.first for stop in stops),
        "last": max(stop.last for stop in stops),
        "versions": tuple(version for stop in stops for version in stop.versions),
        # Same data lets no sink pass that was set back; a loss lets all of them.
        "holds": all(dict(other.details).get("holds", False) for other in others),
    }
    return Refusal.of(refusal.code, **{**dict(refusal.details), **merged})


_LOSSES = (_r6_replaced, _r6_behind_receipt, _r6_two_behind)


def _event_of_change(reading: Reading, event: ExternalChange) -> Happening:
    if event.allowed:
        return Happening(EventKind.EXTERNAL_CHANGE, f"{reading.sink}: {event.detail}", reading.position.epoch)
    return Happening(EventKind.RESOLVED, event.detail, reading.position.epoch)


def decide_opening(facts: OpeningFacts) -> Proceed | Heal | Refusal:
    """Decide an opening before any batch is compared. The first rule that applies decides."""
    for rule in _R6:
        refusals = [refusal for refusal in rule(facts) if not covers(facts.accepted, stop_of(refusal))]
        if refusals:
            return _for_all(refusals[0], facts)
    joined = _r13_joins(facts) or _r13_elsewhere(facts)
    decision = joined or _r3_behind(facts) or _r5_forgotten(facts) or Proceed(newest(facts))
    if isinstance(decision, Proceed):
        happenings = tuple(
            _event_of_change(reading, event)
            for reading in facts.readings
            for event in reading.position.disturbances
            if not event.fatal
        )
        return Proceed(decision.last, decision.index, decision.happenings + happenings)
    return decision
