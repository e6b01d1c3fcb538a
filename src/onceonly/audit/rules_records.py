"""Rules over decisions, code versions, and epochs recomputed or undone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from onceonly.audit.certificate import RecomputedRange
from onceonly.audit.facts import Facts
from onceonly.audit.sink_history import Evidence, SinkHistory, ranges
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.model import AdoptionKind


def unread(epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return epochs whose rows Spark does not read again: of a publication, or read by a full refresh.

    A refresh reads from the source's beginning, and the checkpoint continues after that.
    """
    return tuple(epoch for epoch in epochs if epoch.digest.rows and (epoch.lineage is None or epoch.replaces))


def became(epoch: Epoch) -> str:
    """Describe an epoch of :func:`unread`: ``epoch 5, which published orders~v2 (40 rows)``."""
    rows = f"{epoch.digest.rows} row{'' if epoch.digest.rows == 1 else 's'}"
    if epoch.replays:
        return f"epoch {epoch.number}, which published {epoch.replays.pipeline} ({rows})"
    if epoch.replaces:
        return f"epoch {epoch.number}, a full refresh ({rows})"
    return f"epoch {epoch.number}, which an operator brought ({rows})"


# ---- Rules over operators' decisions: each must be on record. Pure.


def decisions_said(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A197: an epoch of no batch records neither a decision nor a publication."""
    for line in lines:
        for epoch in line.epochs:
            if epoch.lineage is None and epoch.adoption is None and epoch.replays is None:
                evidence = f"epoch {epoch.number} belongs to no batch and to no decision"
                yield Evidence("A197", epoch.number, evidence, sink=line.sink)


def sinks_that_left(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A195: rows of a removed sink are in no other sink, and no operator gave them up."""
    records = facts.ledger.records if facts.ledger else ()
    epochs = {record.epoch.number: record.epoch for record in records}
    epochs |= {epoch.number: epoch for line in lines for epoch in line.epochs}
    for number in sorted(epochs):
        before = epochs.get(number - 1)
        left = set(dict(before.sinks)) - set(dict(epochs[number].sinks)) if before else set[str]()
        for sink in sorted(left):
            reached = [receipt.epoch for record in records for receipt in record.receipts if receipt.sink == sink]
            yield from _left(sink, epochs, number, max(reached, default=0))


def _left(sink: str, epochs: Mapping[int, Epoch], number: int, reached: int) -> Iterator[Evidence]:
    decision = epochs[number].adoption
    if decision is None or decision.kind is not AdoptionKind.DROP_SINK or sink not in decision.sinks:
        evidence = f"epoch {number} does not list {sink} any more, and no decision took it out"
        yield Evidence("A195", number, evidence)
        return
    # A ledger that was made again from other sinks has no receipt of this one, and says nothing of it.
    missing = range(reached + 1, number) if reached else ()
    lost = {at: rows for at in missing if at in epochs and (rows := epochs[at].only_in(sink))}
    if unnamed := tuple(at for at in lost if not decision.first <= at <= decision.last):
        rows = sum(lost[at] for at in unnamed)
        evidence = f"{sink} left with epoch {number} and had not confirmed epochs {ranges(unnamed)}: {rows} rows"
        yield Evidence("A195", unnamed[0], evidence, last=unnamed[-1])


# ---- Rules over history: code versions, recomputed epochs, epochs set aside. Pure.


_SHOWN = 8
"""How many of the newest ranges of epochs are told one by one."""


def code_changed(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A183: more than one code version wrote the epochs, as far as they record it."""
    records = facts.ledger.records if facts.ledger else ()
    versions = [(record.epoch.number, record.epoch.lineage.code) for record in records if record.epoch.lineage]
    ranges = [
        (code.text, [number for number, _ in those])
        for code, those in groupby(
            (version for version in versions if version[1].is_recorded), lambda version: version[1]
        )
    ]
    if len(ranges) < 2:
        return
    descriptions = [f"epochs {numbers[0]}..{numbers[-1]}: {text}" for text, numbers in ranges[-_SHOWN:]]
    earlier = [f"{len(ranges) - _SHOWN} ranges before"] if len(ranges) > _SHOWN else []
    yield Evidence("A183", ranges[-1][1][0], "; ".join([*earlier, *descriptions]))


def columns_changed(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A188: an epoch changed columns of its rows or outputs."""
    changes = {epoch.number: epoch.changed_columns for line in lines for epoch in line.epochs}
    for number, what in sorted(changes.items()):
        if what:
            yield Evidence("A188", number, what)


_CODES = {RecomputedRange.DIFFERS: "A185", RecomputedRange.CANNOT: "A186", RecomputedRange.EQUAL: "A187"}


def computed_again(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A185, A186, A187: each range of epochs is different, cannot be computed, or is equal."""
    certificate = facts.recomputed
    for span in certificate.spans if certificate else ():
        # Epochs of which nothing is said disagree with nothing.
        at = None if span.answer is RecomputedRange.CANNOT else span.first
        yield Evidence(_CODES[span.answer], at, span.text, last=span.last)


def read_again(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A181: epochs were set aside. Compares their rows with those of their successors."""
    ledger = facts.ledger
    if ledger is None:
        return
    epochs = [record.epoch for record in ledger.records]
    for (_, why), cut in groupby(ledger.superseded, lambda removal: (removal.at_ms, removal.why)):
        aside = [removal.epoch for removal in cut]
        first, last = aside[0].number, aside[-1].number
        evidence = f"epochs {first}..{last}, {_summed(aside).rows} rows, set aside when {why}: {_became(aside, epochs)}"
        yield Evidence("A181", first, evidence, last=last)


def published_no_more(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Evidence]:
    """A196: rows that no batch of the query brings were set aside, and no later epoch has replaced all rows."""
    ledger = facts.ledger
    if ledger is None:
        return
    for epoch in unread(removal.epoch for removal in ledger.superseded):
        since = (record for record in ledger.records if record.epoch.number >= epoch.number)
        if not any(record.epoch.replaces for record in since):
            yield Evidence("A196", epoch.number, f"{became(epoch)}, was set aside")


def _became(aside: Sequence[Epoch], epochs: Sequence[Epoch]) -> str:
    since = [epoch for epoch in epochs if epoch.number >= aside[0].number]
    alone = unread(aside)
    read = [epoch for epoch in aside if epoch not in alone] or aside
    upto = next((at for at, epoch in enumerate(since) if epoch.written.end == read[-1].written.end), None)
    if upto is None:
        return "no epoch ends yet where they ended"
    successors = since[: upto + 1]
    text = f"epochs {successors[0].number}..{successors[-1].number} have taken their place"
    if _summed(successors) == _summed(read):
        missing = f", but for {', '.join(map(became, alone))}" if len(read) < len(aside) else ""
        return f"{text}, with the same rows{missing}"
    return f"{text}, with {_summed(successors).rows} rows, not all of them the same"


def _summed(epochs: Sequence[Epoch]) -> Digest:
    return sum((epoch.digest for epoch in epochs), Digest(0))
