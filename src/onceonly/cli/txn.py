"""``onceonly txn``: lists and settles epochs in doubt without Spark."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import typer

from onceonly.cli.options import LedgerOption, OutputOption, QueryOption, SinkOption
from onceonly.cli.output import Output, emit_json, emit_table, say
from onceonly.cli.places import Place, no_ledger, open_ledger, place
from onceonly.protocol import Sink

app = typer.Typer(no_args_is_help=True, help="Epochs in doubt.")


@app.callback()
def group() -> None:
    """Epochs in doubt."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """An epoch that is not in every sink.

    Attributes:
        pipeline: its name.
        epoch: number.
        state: ``begun``: no sink holds it; ``partial``: some do.
        behind: ids of the sinks that lack it.
    """

    pipeline: str
    epoch: int
    state: str
    behind: tuple[str, ...]


@app.command("list")
def list_(query: QueryOption = None, ledger: LedgerOption = None, output: OutputOption = Output.TABLE) -> None:
    """List epochs that were begun and are not in every sink. Reads only; fences nobody out.

    An epoch that a running driver is writing at this moment is listed, too.
    """
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        names, address = [query] if query else [entry.name for entry in opened.pipelines()], shlex.quote(opened.address)
    finally:
        opened.close()
    found: list[Doubt] = []
    for name in names:
        with place(ledger, name) as here:
            found += _doubts(here)
    if output is Output.JSON:
        emit_json({"doubts": [asdict(doubt) for doubt in found]})
    elif found:
        rows = ((one.pipeline, one.epoch, one.state, ", ".join(one.behind)) for one in found)
        emit_table(("pipeline", "epoch", "state", "not in"), rows)
        for name in dict.fromkeys(one.pipeline for one in found):
            say(f"next: restart the query, or: onceonly txn resolve --query {shlex.quote(name)} --ledger {address}")
    else:
        say("Every epoch that was begun is in every sink.")


def _doubts(here: Place) -> Iterator[Doubt]:
    head = here.certain_ledger.head(here.pipeline)
    known = head.epoch.number if head else 0
    stands = {sink.id: _newest(sink, here.pipeline, known) for sink in here.sinks}
    newest = max(stands.values(), default=0)
    intent = here.certain_ledger.intent(here.pipeline, newest + 1)
    behind = tuple(sink for sink, number in stands.items() if number < newest)
    if behind:
        yield Doubt(here.pipeline, newest, "partial", behind)
    elif intent is not None:
        yield Doubt(here.pipeline, newest + 1, "begun", tuple(stands))


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
) -> None:
    """Open a pipeline as a restart would: fence out older drivers, settle what is in doubt, update the ledger.

    Sinks that a crash left behind get the epoch of the others from its staged bytes; no new epoch is begun. A driver
    that is still running stops at its next write.
    """
    from onceonly.resolve import resolve as settle

    with place(ledger, query, sink) as here:
        found = settle(here.sinks, here.certain_ledger, here.pipeline)
        name = here.pipeline
    if output is Output.JSON:
        emit_json({"pipeline": name, "epoch": found.epoch, "generation": found.generation, "said": list(found.said)})
        return
    for sentence in found.said:
        say(sentence)
