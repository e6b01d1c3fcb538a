"""Publication rules of a rerun, as shipped and with each off.

One rule is off at a time. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from onceonly.machine import publish
from onceonly.machine.facts import Refusal
from onceonly.machine.publish import PublishFacts
from onceonly_checkpoints.epoch import Epoch
from onceonly_lab.checker import Anomaly

Decide = Callable[[PublishFacts], Epoch | Refusal]


@dataclass(frozen=True, slots=True)
class Design:
    """How a rerun is published.

    Attributes:
        id: ``shipped``, or the number of a mutant.
        broken: what is, in words; empty for what ships.
        called: what that leads to; ``None`` for what ships.
        decide: as :func:`onceonly.machine.publish.decide`.
        chained: whether it is decided once more under the fence, and the sink demands the chain of the epoch before.
        at_once: whether rows leave in the transaction that brings those of the rerun.
    """

    id: str = "shipped"
    broken: str = ""
    called: Anomaly | None = None
    decide: Decide = publish.decide
    chained: bool = True
    at_once: bool = True


SHIPPED = Design()

AGAIN = "+"
"""What is appended to the name of a rerun, so that nobody sees that it is published already."""


def _by_number(facts: PublishFacts) -> Epoch | Refusal:
    last_epoch = facts.epochs.get(facts.held[-1][1].last) if facts.held else None
    if last_epoch is None:
        return publish.decide(facts)
    *before, (epoch, ran) = facts.held
    return publish.decide(replace(facts, held=(*before, (epoch, replace(ran, chain=last_epoch.chain)))))


def _once_more(facts: PublishFacts) -> Epoch | Refusal:
    return publish.decide(replace(facts, name=facts.name + AGAIN * (1 + len(facts.epochs))))


def _whatever_came_since(facts: PublishFacts) -> Epoch | Refusal:
    last = facts.held[-1][1].last if facts.held else 0
    epochs = {number: epoch for number, epoch in facts.epochs.items() if number <= last or epoch.lineage is None}
    return publish.decide(replace(facts, epochs=epochs))


def _a_part(facts: PublishFacts) -> Epoch | Refusal:
    if facts.last is None or not facts.held:
        return publish.decide(facts)
    return publish.decide(replace(facts, last=replace(facts.last, series=facts.held[0][1].first)))


MUTANTS = (
    Design("MP1", "what was run again is compared by number", Anomaly.DUP, _by_number),
    Design("MP2", "no chain is demanded: the plan is carried out whatever stands", Anomaly.DUP, chained=False),
    Design("MP3", "what is published already is published again", Anomaly.DUP, _once_more),
    Design("MP4", "nobody asks what the pipeline has written since", Anomaly.LOSS, _whatever_came_since),
    Design("MP5", "a part of what stands is published for all of it", Anomaly.LOSS, _a_part),
    Design("MP6", "rows leave before others come", Anomaly.LOSS, at_once=False),
)
"""Each must be called what it is."""
