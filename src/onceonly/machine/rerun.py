"""Rerun rules: another pipeline's epochs into an own target (RR).

Pure. Neither offsets nor the engine's names say what is written already: they are those of a checkpoint that was made
for one batch. The target says it: its newest epoch names what it ran again, by its chain.
"""

from __future__ import annotations

from onceonly.machine.facts import BatchFacts, NewEpoch, Refusal, Skip


def replayed(facts: BatchFacts) -> NewEpoch | Skip | Refusal | None:
    """What a batch is that runs epochs again; ``None``: it runs none."""
    wanted, last = facts.offer.replays, facts.last
    if wanted is None:
        return None
    if last is None:
        return NewEpoch(1)
    stands = last.replays
    if stands == wanted.replayed:
        return Skip(last, facts.offer.stateful)
    if stands is not None and stands.chain == wanted.after:
        return NewEpoch(last.number + 1)
    return Refusal.of(
        "E239",
        pipeline=facts.pipeline,
        sink=facts.sink,
        epoch=last.number,
        stands=stands.text if stands else "no recorded epoch run again",
        offered=wanted.replayed.text,
    )
