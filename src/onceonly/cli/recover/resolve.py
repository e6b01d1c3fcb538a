"""``onceonly txn``: lists and settles epochs in doubt without Spark."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from onceonly.audit.catalogue import FINDINGS
from onceonly.cli.connect import Connection, no_ledger, open_ledger, place
from onceonly.cli.options import LedgerOption, OutputOption, QueryOption, SinkOption, YesOption, confirmed
from onceonly.cli.output import Output, emit_json, emit_pairs, emit_table, say
from onceonly.cli.watch import now_ms, spell
from onceonly.machine.in_doubt import InDoubtEpoch
from onceonly.protocol import Sink
from onceonly.runtime.remedies import open_epoch

app = typer.Typer(no_args_is_help=True, help="Epochs in doubt: list, resolve.")


@app.callback()
def group() -> None:
    """Epochs in doubt."""


@app.command("list")
def list_(query: QueryOption = None, ledger: LedgerOption = None, output: OutputOption = Output.TABLE) -> None:
    """List epochs that were begun and are not in every sink. Reads only; fences nobody out.

    Being written: its driver is at work. Begun and dead: it can no longer be committed; there is nothing to do.
    Outcome unknown: somebody must look after it. Exit code: 0 nothing to do, 1 an outcome is unknown.
    """
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        names, address = [query] if query else [entry.name for entry in opened.pipelines()], shlex.quote(opened.address)
    finally:
        opened.close()
    found: list[tuple[str, InDoubtEpoch]] = []
    for name in names:
        with place(ledger, name) as here:
            begun = _begun(here)
        found += [(name, begun)] if begun else []
    if output is Output.JSON:
        emit_json({"doubts": [_to_json(name, begun) for name, begun in found]})
    else:
        _show(found, address)
    if any(begun.overdue for _, begun in found):
        raise typer.Exit(FINDINGS)


def _show(found: Sequence[tuple[str, InDoubtEpoch]], address: str) -> None:
    if not found:
        say("Every epoch that was begun is in every sink.")
        return
    now = now_ms()
    rows = (
        (name, one.epoch, one.state, spell(one.age_ms(now)), one.fence.who or one.fence.text, ", ".join(one.behind))
        for name, one in found
    )
    emit_table(("pipeline", "epoch", "state", "since", "begun by", "not in"), rows)
    for name, one in found:
        say(f"{name}: {one.why}")
        if one.overdue:
            say(f"next: restart the query, or: onceonly txn resolve --query {shlex.quote(name)} --ledger {address}")


def _to_json(name: str, one: InDoubtEpoch) -> dict[str, Any]:
    return {
        "pipeline": name,
        "epoch": one.epoch,
        "state": str(one.state),
        "overdue": one.overdue,
        "behind": list(one.behind),
        "generation": one.fence.generation or None,
        "by": one.fence.who or None,
        "since_ms": one.since_ms or None,
        "why": one.why,
    }


def _begun(here: Connection) -> InDoubtEpoch | None:
    """What was begun; a sink that is behind is read twice, since a driver that runs goes from one to the next."""
    assert here.entry is not None
    head = here.certain_ledger.head(here.pipeline)
    known = head.epoch.number if head else 0
    stands = {sink.id: _newest(sink, here.pipeline, known) for sink in here.sinks}
    newest = max(stands.values(), default=0)
    for sink in here.sinks:
        if stands[sink.id] < newest:
            stands[sink.id] = min(newest, _newest(sink, here.pipeline, known))
    return open_epoch(here.certain_ledger, here.entry, now_ms(), stands)


def _newest(sink: Sink, pipeline: str, known: int) -> int:
    """Number of the newest epoch in a sink, which the ledger knows up to ``known``."""
    sink.open(pipeline)
    return max((marker.epoch.number for marker, _ in sink.history(max(0, known - 2))), default=0)


@app.command()
def resolve(
    *,
    query: QueryOption = None,
    sink: SinkOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    yes: YesOption = False,
) -> None:
    """Open a pipeline as a restart would: fence out older drivers, settle what is in doubt, update the ledger.

    Sinks that a crash left behind receive the missing epoch from its staged bytes; no new epoch is begun. A driver
    that is still running stops at its next write.
    """
    from onceonly.runtime.operator import resolve as settle

    with place(ledger, query, sink) as here:
        plan = list(_plan(here))
        if output is not Output.JSON:
            emit_pairs(plan)
        if not confirmed(yes, plan):
            return
        found = settle(here.sinks, here.certain_ledger, here.pipeline)
        name = here.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": name, "epoch": found.epoch, "generation": found.generation, "said": list(found.said)})
        return
    for sentence in found.said:
        say(sentence)


def _plan(here: Connection) -> Iterator[tuple[str, object]]:
    yield "pipeline", here.pipeline
    yield "sinks", here.sinks_in_words
    yield "ledger", here.certain_ledger.address
    begun = _begun(here) if here.entry is not None else None
    yield "begun", f"epoch {begun.epoch}: {begun.state}; {begun.why}" if begun else "nothing"
    fences = {sink.fence() for sink in _opened(here)}
    owners = sorted({fence.text for fence in fences if fence})
    yield "fences out", ", ".join(owners) or "nobody"
    yield "does", "installs the next generation in every sink; whoever is named above writes nothing more"


def _opened(here: Connection) -> Iterator[Sink]:
    for sink in here.sinks:
        sink.open(here.pipeline)
        yield sink
