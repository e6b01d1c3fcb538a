"""Rules over outputs that must add up, and bad rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.sink_history import SinkHistory, ranges
from onceonly.machine.output_rules import unbalanced
from onceonly_checkpoints.epoch import Epoch


def outputs_add_up(facts: Facts, lines: tuple[SinkHistory, ...]) -> Iterator[Finding]:
    """A160: held and unwanted rows of an output do not sum to the good rows of its epoch."""
    judged: set[str] = set()
    for line in lines:
        for epoch in line.epochs:
            wrong = unbalanced(epoch.digest, epoch.outputs) if epoch.chain not in judged else None
            judged.add(epoch.chain)
            if wrong is not None:
                name, told, good = wrong
                evidence = f"output {name} accounts for {told} rows, and {good} are good"
                yield found("A160", facts.pipeline, line.sink, epoch.number, evidence)


def bad_rows(pipeline: str, line: SinkHistory) -> Iterator[Finding]:
    """A163: bad rows that this sink keeps, with those that expired."""
    aside = [one for one in line.epochs if one.number >= line.series and _bad_in(one, line.sink.id)]
    if not aside:
        return
    rows, reasons = 0, Counter[str]()
    for epoch in aside:
        rows += _bad_in(epoch, line.sink.id)
        reasons.update(dict(epoch.bad.reasons) if epoch.bad else {})
    named = ", ".join(f"{name} {count}" for name, count in reasons.most_common())
    numbers = tuple(one.number for one in aside)
    brought = f"{'epoch' if len(numbers) == 1 else 'epochs'} {ranges(numbers)} set {rows} rows aside ({named})"
    expired = line.sink.expired
    gone = f"; {expired.total} rows of epochs up to {expired.epoch} were removed after their time" if expired else ""
    yield found("A163", pipeline, line.sink, numbers[0], f"{brought}{gone}", last=numbers[-1])


def _bad_in(epoch: Epoch, sink: str) -> int:
    return epoch.bad.digest.rows if epoch.bad and sink in epoch.bad.sinks else 0
