"""Rules over history: code versions, recomputed epochs, epochs set aside. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from onceonly.audit.certificate import RecomputedRange
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.sink_history import SinkHistory
from onceonly.machine.undone_epochs import became, unread
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch

_SHOWN = 8
"""How many of the newest ranges of epochs are told one by one."""


def code_changed(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A183: more than one code version wrote the epochs, as far as they record it."""
    records = facts.ledger.records if facts.ledger else ()
    noted = [(record.epoch.number, record.epoch.lineage.code) for record in records if record.epoch.lineage]
    ranges = [
        (code.text, [number for number, _ in those])
        for code, those in groupby((one for one in noted if one[1].known), lambda one: one[1])
    ]
    if len(ranges) < 2:
        return
    told = [f"epochs {numbers[0]}..{numbers[-1]}: {text}" for text, numbers in ranges[-_SHOWN:]]
    earlier = [f"{len(ranges) - _SHOWN} ranges before"] if len(ranges) > _SHOWN else []
    yield found("A183", facts.pipeline, None, ranges[-1][1][0], "; ".join([*earlier, *told]))


_CODES = {RecomputedRange.DIFFERS: "A185", RecomputedRange.CANNOT: "A186", RecomputedRange.EQUAL: "A187"}


def computed_again(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A185, A186, A187: each range of epochs is different, cannot be computed, or is equal."""
    certificate = facts.recomputed
    for span in certificate.spans if certificate else ():
        # Epochs of which nothing is said disagree with nothing.
        at = None if span.answer is RecomputedRange.CANNOT else span.first
        yield found(_CODES[span.answer], facts.pipeline, None, at, span.text, last=span.last)


def read_again(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A181: epochs were set aside. Compares their rows with those of their successors."""
    ledger = facts.ledger
    if ledger is None:
        return
    known = [record.epoch for record in ledger.records]
    for (_, why), cut in groupby(ledger.superseded, lambda one: (one.at_ms, one.why)):
        aside = [one.epoch for one in cut]
        first, last = aside[0].number, aside[-1].number
        evidence = f"epochs {first}..{last}, {_summed(aside).rows} rows, set aside when {why}: {_became(aside, known)}"
        yield found("A181", facts.pipeline, None, first, evidence, last=last)


def published_no_more(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A196: rows that no batch of the query brings were set aside, and no later epoch has replaced all rows."""
    ledger = facts.ledger
    if ledger is None:
        return
    for one in unread(one.epoch for one in ledger.superseded):
        since = (record for record in ledger.records if record.epoch.number >= one.number)
        if not any(record.epoch.replaces for record in since):
            yield found("A196", facts.pipeline, None, one.number, f"{became(one)}, was set aside")


def _became(aside: Sequence[Epoch], known: Sequence[Epoch]) -> str:
    since = [epoch for epoch in known if epoch.number >= aside[0].number]
    alone = unread(aside)
    aside = [epoch for epoch in aside if epoch not in alone] or aside
    upto = next((at for at, epoch in enumerate(since) if epoch.written.end == aside[-1].written.end), None)
    if upto is None:
        return "no epoch ends yet where they ended"
    again = since[: upto + 1]
    told = f"epochs {again[0].number}..{again[-1].number} have taken their place"
    if _summed(again) == _summed(aside):
        return f"{told}, with the same rows"
    return f"{told}, with {_summed(again).rows} rows, not all of them the same"


def _summed(epochs: Sequence[Epoch]) -> Digest:
    return sum((epoch.digest for epoch in epochs), Digest(0))
