"""Rules over the sinks of one pipeline together, and over what was begun and not finished. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onceonly import doubt
from onceonly.audit.facts import Facts
from onceonly.audit.finding import Finding, found
from onceonly.audit.line import Line
from onceonly.doubt import Moment, State
from onceonly.sources import describe
from onceonly_checkpoints.epoch import Epoch


def sinks_readable(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A101: sinks that did not answer."""
    for sink in facts.sinks:
        if sink.unreadable is not None:
            yield found("A101", facts.pipeline, sink, None, sink.unreadable)


def anything_written(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A102, A105: nothing to compare, known or unknown."""
    ledger = facts.ledger
    if any(line.held for line in lines) or len(lines) < len(facts.sinks) or (ledger and ledger.records):
        return
    if ledger is not None and ledger.pipeline is not None:
        yield found("A105", facts.pipeline, None, None, f'"{facts.pipeline}" was opened and has no epoch')
        return
    looked = ", ".join(sink.address for sink in facts.sinks) or "no sink was named"
    yield found("A102", facts.pipeline, None, None, f'no marker of "{facts.pipeline}" in: {looked}')


def anything_since(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A108: every epoch comes before the first one to judge."""
    newest = _newest(lines)
    if newest is not None and newest.number < facts.since:
        evidence = f"the newest is epoch {newest.number}, and epochs from {facts.since} on were asked for"
        yield found("A108", facts.pipeline, None, None, evidence)


def sinks_complete(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A107: a sink that the newest marker lists was not among the audited ones."""
    newest = _newest(lines)
    audited = {sink.id for sink in facts.sinks}
    for sink, _ in newest.sinks if newest else ():
        if sink not in audited:
            yield found(
                "A107",
                facts.pipeline,
                None,
                None,
                f"{sink} is listed by epoch {newest.number if newest else 0} and was not read",
            )


def batches_without_epochs(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A180: Spark took batches for done that neither a sink nor the ledger knows."""
    heads = [line.held[-1] for line in lines if line.held]
    heads += [record.epoch for record in facts.ledger.records[-1:]] if facts.ledger else []
    newest = max(heads, key=lambda epoch: epoch.number, default=None)
    engine, lineage = facts.engine, newest.standing.lineage if newest else None
    if newest is None or engine is None or lineage is None or engine.query_id != lineage.query_id:
        return
    if engine.batch > lineage.batch_id and engine.end is not None and engine.end != newest.reached:
        evidence = (
            f"the checkpoint has finished batch {engine.batch}, up to {describe(engine.end)}; epoch {newest.number} "
            f"came from batch {lineage.batch_id} and ends at {describe(newest.reached)}"
        )
        yield found("A180", facts.pipeline, None, newest.number, evidence)


def sinks_agree(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A140: the first epoch at which two sinks hold different chains."""
    seen: dict[int, tuple[str, Epoch]] = {}
    for line in lines:
        for epoch in line.held:
            other, known = seen.setdefault(epoch.number, (line.sink.id, epoch))
            if known.chain != epoch.chain:
                evidence = f"{other} has chain {known.chain[:12]}, {line.sink.id} has {epoch.chain[:12]}"
                yield found("A140", facts.pipeline, line.sink, epoch.number, evidence)
                break


def sinks_level(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A141, A142: a sink that lacks the newest epochs of the others."""
    newest = _newest(lines)
    for line in lines:
        first = dict(newest.sinks).get(line.sink.id) if newest else None
        stands = max(line.newest, (first or 1) - 1)
        if newest is None or first is None or stands >= newest.number:
            continue
        code = "A142" if stands < newest.number - 1 else "A143" if _under_way(facts, lines, newest.number) else "A141"
        evidence = f"{line.sink.id} stands at epoch {stands}, the newest is {newest.number}"
        yield found(code, facts.pipeline, line.sink, stands + 1, evidence, last=newest.number)


def begun(facts: Facts, lines: tuple[Line, ...]) -> Iterator[Finding]:
    """A143, A150, A151: an intent beyond every marker."""
    intent = facts.ledger.intent if facts.ledger else None
    newest = _newest(lines)
    if intent is None or (newest is not None and intent.epoch <= newest.number):
        return
    if facts.ledger and any(record.epoch.number >= intent.epoch for record in facts.ledger.records):
        return
    begun = doubt.begun(_moment(facts, lines, intent.epoch - 1))
    assert begun is not None
    range_ = f"{describe(intent.slice.start)} to {describe(intent.slice.end)}"
    evidence = f"{intent.fence.text} began epoch {intent.epoch}: {range_}; {begun.why}"
    yield found(_BEGUN[begun.state], facts.pipeline, None, intent.epoch, evidence)


_BEGUN = {State.WRITING: "A143", State.DEAD: "A151", State.UNKNOWN: "A150"}


def _under_way(facts: Facts, lines: tuple[Line, ...], newest: int) -> bool:
    stands = {line.sink.id: line.newest for line in lines}
    begun = doubt.begun(_moment(facts, lines, newest, stands))
    return begun is not None and begun.state is State.WRITING


def _moment(facts: Facts, lines: tuple[Line, ...], newest: int, stands: Mapping[str, int] | None = None) -> Moment:
    ledger = facts.ledger
    assert ledger is not None or stands is not None
    fences = [line.sink.fence.generation if line.sink.fence else 0 for line in lines]
    entered = ledger.pipeline.generation if ledger and ledger.pipeline else 0
    return Moment(
        generation=max(entered, min(fences, default=0)),
        newest=newest,
        intents=(ledger.intent if ledger else None,),
        events=ledger.events if ledger else (),
        records=ledger.records[-doubt.RECENT :] if ledger else (),
        now_ms=facts.now_ms,
        stands=stands or {},
        grace_s=facts.grace_s,
    )


def _newest(lines: tuple[Line, ...]) -> Epoch | None:
    heads = [line.held[-1] for line in lines if line.held]
    return max(heads, key=lambda epoch: epoch.number, default=None)
