"""``onceonly status``: pipelines of a ledger, their events, epochs in doubt."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from onceonly.audit.catalogue import FINDINGS
from onceonly.cli import records
from onceonly.cli.connect import Connection, choose, connect, open_ledger
from onceonly.cli.options import EveryOption, LedgerOption, OnlyArgument, OutputOption, QueryOption, one_name
from onceonly.cli.output import Output, console, emit_json, emit_line, emit_pairs, emit_table, say, spell
from onceonly.errors.options import misused
from onceonly.machine.event_time import text
from onceonly.machine.in_doubt import InDoubtEpoch, Progress
from onceonly.protocol import Sink
from onceonly.runtime.remedies import open_epoch
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.epoch_time import clock, now_ms
from onceonly_checkpoints.ledger import Event, Ledger, Pipeline

DoubtOption = Annotated[bool, typer.Option("--in-doubt", help="Epochs in doubt: begun, and not in all their sinks.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Their newest epochs, live, until Ctrl-C.")]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", min=1, help="Show this many of the newest events, or epochs. Default: 20; --watch 8."
    ),
]
CountOption = Annotated[int | None, typer.Option("--count", min=1, help="With --watch: end after this many polls.")]


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = Output.TABLE,
    in_doubt: DoubtOption = False,
    watch: WatchOption = False,
    limit: LimitOption = None,
    every: EveryOption = 2.0,
    count: CountOption = None,
) -> None:
    """List the pipelines of a ledger. With a name, show one and its newest events.

    Reads the ledger, --in-doubt also the sinks. Fences no driver out. With --in-doubt the exit code is 0 if there is
    nothing to do, 1 if an outcome is unknown.

    --watch shows a line an epoch: rows, sinks, until when event time is complete, lag from Spark's plan of the batch to
    the record, and its longest phases. Of the phases, "execute" runs your query, "stage" keeps rows for several sinks,
    "prepare" brings them to a sink, "commit" makes them visible, "record" writes the ledger. With --output json each
    line is an epoch, as in `onceonly epochs list --follow`.
    """
    query = one_name(context, name, query)
    if in_doubt and watch:
        raise misused(
            "status takes --in-doubt or --watch, not both.",
            "--in-doubt reads the sinks once, --watch polls the ledger",
            "leave one of them out",
        )
    if in_doubt:
        _in_doubt(ledger, query, output)
    elif watch:
        _watch(ledger, query, limit or 8, every=every, count=count, output=output)
    elif query is None:
        _list(ledger, output)
    else:
        _show(ledger, query, output, limit or 20)


def _list(ledger: str | None, output: Output) -> None:
    with closing(open_ledger(ledger)) as opened:
        pipelines = list(opened.pipelines())
    if output is Output.JSON:
        emit_json({"pipelines": [to_json(pipeline) for pipeline in pipelines]})
        return
    columns = ("name", "epoch", "generation", "opened", "query id", "sinks")
    emit_table(columns, map(_row, pipelines))


def _show(ledger: str | None, name: str, output: Output, limit: int) -> None:
    with connect(ledger, name) as connection:
        events = connection.certain_ledger.events(name, limit)
        entry = connection.entry
    assert entry is not None
    if output is Output.JSON:
        emit_json({"pipeline": to_json(entry), "events": [_event_json(event) for event in events]})
        return
    emit_pairs(_pairs(entry))
    say()
    rows = (
        (clock(event.at_ms), event.kind, event.epoch or "", event.generation or "", event.reason) for event in events
    )
    emit_table(("time", "event", "epoch", "generation", "reason"), rows)


def _watch(
    ledger: str | None, query: str | None, limit: int, *, every: float, count: int | None, output: Output
) -> None:
    with closing(open_ledger(ledger)) as opened, suppress(KeyboardInterrupt):
        if query is not None:
            choose(opened, query, named=False)
        show = _emit_epochs if output is Output.JSON else watch_pipelines
        show(opened, query, limit, every, count)


def _emit_epochs(ledger: Ledger, query: str | None, limit: int, every: float, count: int | None) -> None:
    """Print each epoch once, the newest ``limit`` of a pipeline at first."""
    newest: dict[str, int] = {}
    for status in itertools.chain.from_iterable(_looks(ledger, query, limit, every, count)):
        name = status.pipeline.name
        for record in status.records:
            if record.epoch.number > newest.get(name, 0):
                emit_line({"pipeline": name, **records.to_json(record)})
                newest[name] = record.epoch.number


def to_json(pipeline: Pipeline) -> dict[str, Any]:
    """The JSON form of a pipeline's row."""
    return {**asdict(pipeline), "sinks": dict(pipeline.sinks)}


def _event_json(event: Event) -> dict[str, Any]:
    return {
        "kind": str(event.kind),
        "reason": event.reason,
        "epoch": event.epoch or None,
        "generation": event.generation or None,
        "at_ms": event.at_ms,
    }


def _row(pipeline: Pipeline) -> tuple[object, ...]:
    return (
        pipeline.name,
        pipeline.epoch,
        pipeline.generation,
        clock(pipeline.opened_ms),
        pipeline.query_id,
        ", ".join(address for _, address in pipeline.sinks),
    )


def _pairs(pipeline: Pipeline) -> Iterator[tuple[str, object]]:
    yield "name", pipeline.name
    yield "epoch", pipeline.epoch
    yield "generation", pipeline.generation
    yield "opened", clock(pipeline.opened_ms)
    yield "query id", pipeline.query_id
    yield "checkpoint", pipeline.checkpoint
    for sink, address in pipeline.sinks:
        yield f"sink {sink}", address


# ---- Epochs in doubt: begun, and not in all their sinks.


def _in_doubt(ledger: str | None, query: str | None, output: Output) -> None:
    with closing(open_ledger(ledger)) as opened:
        names, address = [query] if query else [entry.name for entry in opened.pipelines()], shlex.quote(opened.address)
    doubts: list[tuple[str, InDoubtEpoch]] = []
    for name in names:
        with connect(ledger, name) as connection:
            begun = begun_epoch(connection)
        doubts += [(name, begun)] if begun else []
    if output is Output.JSON:
        emit_json({"doubts": [_doubt_json(name, begun) for name, begun in doubts]})
    else:
        _show_doubts(doubts, address)
    if any(begun.overdue for _, begun in doubts):
        raise typer.Exit(FINDINGS)


def _show_doubts(doubts: Sequence[tuple[str, InDoubtEpoch]], address: str) -> None:
    if not doubts:
        say("No epoch is in doubt: each is in all its sinks.")
        return
    now = now_ms()
    rows = (
        (
            name,
            doubt.epoch,
            doubt.state,
            spell(doubt.age_ms(now)),
            doubt.fence.who or doubt.fence.text,
            ", ".join(doubt.behind),
        )
        for name, doubt in doubts
    )
    emit_table(("pipeline", "epoch", "state", "since", "begun by", "not in"), rows)
    for name, doubt in doubts:
        say(f"{name}: {doubt.why}")
        if doubt.overdue:
            say(f"next: restart the query, or: onceonly recover resolve --query {shlex.quote(name)} --ledger {address}")


def _doubt_json(name: str, doubt: InDoubtEpoch) -> dict[str, Any]:
    return {
        "pipeline": name,
        "epoch": doubt.epoch,
        "state": str(doubt.state),
        "overdue": doubt.overdue,
        "behind": list(doubt.behind),
        "generation": doubt.fence.generation or None,
        "by": doubt.fence.who or None,
        "since_ms": doubt.since_ms or None,
        "why": doubt.why,
    }


def begun_epoch(connection: Connection) -> InDoubtEpoch | None:
    """The epoch that was begun. A sink that is behind is read twice: a running driver goes from one to the next."""
    assert connection.entry is not None
    head = connection.certain_ledger.head(connection.pipeline)
    newest_number = head.epoch.number if head else 0
    sink_epochs = {sink.id: _newest(sink, connection.pipeline, newest_number) for sink in connection.sinks}
    newest = max(sink_epochs.values(), default=0)
    for sink in connection.sinks:
        if sink_epochs[sink.id] < newest:
            sink_epochs[sink.id] = min(newest, _newest(sink, connection.pipeline, newest_number))
    return open_epoch(connection.certain_ledger, connection.entry, now_ms(), sink_epochs)


def _newest(sink: Sink, pipeline: str, head_number: int) -> int:
    """Number of the newest epoch in a sink, which the ledger knows up to ``head_number``."""
    sink.open(pipeline)
    return max((marker.epoch.number for marker, _ in sink.history(max(0, head_number - 2))), default=0)


# ---- ``--watch``: the newest epochs, live.

_PHASES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """One pipeline at one moment. ``records``: its newest epochs, oldest first."""

    pipeline: Pipeline
    records: tuple[EpochRecord, ...]
    begun: InDoubtEpoch | None
    now_ms: int

    @property
    def headline(self) -> str:
        """Name, generation, how long ago the newest epoch was recorded, how long one is in doubt."""
        parts = [f"{self.pipeline.name}  generation {self.pipeline.generation}"]
        newest = self.records[-1].recorded_ms if self.records else 0
        parts.append(f"last epoch {spell(self.now_ms - newest)} ago" if newest else "no epoch yet")
        if self.begun is not None and self.begun.overdue:
            parts.append(f"epoch {self.begun.epoch} IN DOUBT for {spell(self.begun.age_ms(self.now_ms))}")
        elif self.begun is not None and self.begun.state is Progress.WRITING:
            parts.append(f"epoch {self.begun.epoch} being written for {spell(self.begun.age_ms(self.now_ms))}")
        return "  ".join(parts)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """One row per epoch: number, rows, sinks, event time, lag, phase times."""
        return tuple(map(_watched_row, self.records))


def glance(ledger: Ledger, entry: Pipeline, limit: int, now_ms: int) -> PipelineStatus:
    """Read one pipeline."""
    doubt = open_epoch(ledger, entry, now_ms)
    head = ledger.head(entry.name)
    newest = head.epoch.number if head else 0
    records = tuple(ledger.epochs(entry.name, max(1, newest - limit + 1))) if newest else ()
    return PipelineStatus(entry, records, doubt if doubt and doubt.epoch > newest else None, now_ms)


def _watched_row(record: EpochRecord) -> tuple[str, ...]:
    epoch = record.epoch
    planned = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
    lag = f"{(record.recorded_ms - planned) / 1000:.1f} s" if planned and record.recorded_ms else "-"
    longest = sorted(record.phases, key=lambda phase: -phase[1])[:_PHASES_SHOWN]
    phases = "  ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in record.phases if (name, seconds) in longest)
    rows = "adopted" if epoch.adoption is not None else f"{epoch.rows:,}"
    until = epoch.time.dataset_complete_until if epoch.time else None
    complete = text(until, epoch.time.unit) if epoch.time and until is not None else "-"
    return str(epoch.number), rows, ", ".join(receipt.sink for receipt in record.receipts), complete, lag, phases


def watch_pipelines(ledger: Ledger, query: str | None, limit: int, every: float, count: int | None) -> None:
    """Show one pipeline, or all, every ``every`` seconds, ``count`` times, or without end for ``None``."""
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, transient=False) as live:
        for glances in _looks(ledger, query, limit, every, count):
            live.update(picture(glances), refresh=True)


def _looks(
    ledger: Ledger, query: str | None, limit: int, every: float, count: int | None
) -> Iterator[list[PipelineStatus]]:
    for look in itertools.count(1):
        now = now_ms()
        yield [glance(ledger, entry, limit, now) for entry in ledger.pipelines() if query in (None, entry.name)]
        if look == count:
            return
        time.sleep(every)


def picture(glances: Sequence[PipelineStatus]) -> Group:
    """What stands on the screen."""
    if not glances:
        return Group(Text("The ledger knows no such pipeline yet."))
    parts: list[Text | Table] = []
    for status in glances:
        style = "bold yellow" if status.begun and status.begun.overdue else "bold"
        parts += [Text(status.headline, style=style), _table(status), Text()]
    return Group(*parts)


def _table(status: PipelineStatus) -> Table:
    heads = ("epoch", "rows", "sinks", "complete until", "lag", "longest phases, ms")
    table = Table(*heads, box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for row in status.rows:
        table.add_row(*map(Text, row))
    return table
