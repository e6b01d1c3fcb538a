"""``onceonly watch`` and ``metrics``: pipelines as the ledger knows them, live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceonly.cli.connect import choose, no_ledger, open_ledger
from onceonly.cli.errors import give_up
from onceonly.cli.options import EveryOption, LedgerOption, LimitOption, OnlyArgument, QueryOption, one_name
from onceonly.cli.output import console, talk
from onceonly.machine.in_doubt import InDoubtEpoch, Progress
from onceonly.protocol.registry import is_ours
from onceonly.runtime.remedies import open_epoch
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger, Pipeline

# ---- ``onceonly metrics``: serves a ledger's pipelines to Prometheus.


def metrics(
    *,
    ledger: LedgerOption = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")] = 9464,
    address: Annotated[str, typer.Option("--address", help="Address to listen on.")] = "127.0.0.1",
    every: EveryOption = 5.0,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the Grafana dashboard and end.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus and end.")] = False,
) -> None:
    """Serve epochs by outcome, rows, phase times, lag and the age of epochs in doubt to Prometheus; reads the ledger.

    Counters start at 0 with this command. Ctrl-C ends it.
    """
    for wanted, file in ((dashboard, "dashboard.json"), (alerts, "alerts.yml")):
        if wanted:
            print(files("onceonly.metrics").joinpath(file).read_text(encoding="utf-8"), end="")
            return
    if ledger is None:
        raise no_ledger()
    try:
        _serve(ledger, address, port, every)
    except ModuleNotFoundError as missing:
        if is_ours(missing):
            raise
        give_up(f"Metrics need {missing.name}: pip install 'onceonly[metrics]'")
    except KeyboardInterrupt:
        return


def _serve(location: str, address: str, port: int, every: float) -> None:
    from prometheus_client import start_http_server

    from onceonly.metrics import Exporter

    opened = open_ledger(location)
    try:
        exporter = Exporter(opened)
        exporter.look(now_ms())
        server, _ = start_http_server(port, addr=address, registry=exporter.registry)
        talk(f"http://{address}:{server.server_port}/metrics")
        while True:
            time.sleep(every)
            exporter.look(now_ms())
    finally:
        opened.close()


# ---- ``onceonly watch``: the newest epochs of every pipeline, live, as the ledger knows them.

_PHASES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """One pipeline at one moment.

    Attributes:
        pipeline: its row in the ledger.
        records: its newest epochs, oldest first.
        begun: an epoch that was begun and is not recorded.
        now_ms: the moment, milliseconds since 1970.
    """

    pipeline: Pipeline
    records: tuple[EpochRecord, ...]
    begun: InDoubtEpoch | None
    now_ms: int

    @property
    def headline(self) -> str:
        """Name, generation, how long ago the newest epoch was recorded, how long one is in doubt."""
        said = [f"{self.pipeline.name}  generation {self.pipeline.generation}"]
        newest = self.records[-1].recorded_ms if self.records else 0
        said.append(f"last epoch {spell(self.now_ms - newest)} ago" if newest else "no epoch yet")
        if self.begun is not None and self.begun.overdue:
            said.append(f"epoch {self.begun.epoch} IN DOUBT for {spell(self.begun.age_ms(self.now_ms))}")
        elif self.begun is not None and self.begun.state is Progress.WRITING:
            said.append(f"epoch {self.begun.epoch} being written for {spell(self.begun.age_ms(self.now_ms))}")
        return "  ".join(said)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """One row per epoch: number, rows, sinks, lag, phase times."""
        return tuple(map(_watched_row, self.records))


def glance(ledger: Ledger, entry: Pipeline, limit: int, now_ms: int) -> PipelineStatus:
    """Read one pipeline."""
    found = open_epoch(ledger, entry, now_ms)
    head = ledger.head(entry.name)
    newest = head.epoch.number if head else 0
    records = tuple(ledger.epochs(entry.name, max(1, newest - limit + 1))) if newest else ()
    return PipelineStatus(entry, records, found if found and found.epoch > newest else None, now_ms)


def now_ms() -> int:
    """This moment, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def spell(milliseconds: int) -> str:
    """A length of time in one unit: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    seconds = max(0, milliseconds) / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _watched_row(record: EpochRecord) -> tuple[str, ...]:
    epoch = record.epoch
    planned = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
    lag = f"{(record.recorded_ms - planned) / 1000:.1f} s" if planned and record.recorded_ms else "-"
    longest = sorted(record.phases, key=lambda phase: -phase[1])[:_PHASES_SHOWN]
    phases = "  ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in record.phases if (name, seconds) in longest)
    rows = "adopted" if epoch.adoption is not None else f"{epoch.rows:,}"
    return str(epoch.number), rows, ", ".join(receipt.sink for receipt in record.receipts), lag, phases


def watch(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    limit: LimitOption = 8,
    every: EveryOption = 2.0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many polls.")] = None,
) -> None:
    """Watch pipelines: epochs, sinks, rows, lag and phase times, and how long an epoch is in doubt. Ctrl-C ends it.

    Reads the ledger alone, which is cheap; the verdict over the sinks is that of onceonly audit.
    """
    query = one_name(context, name, query)
    if ledger is None:
        raise no_ledger()
    opened = open_ledger(ledger)
    try:
        if query is not None:
            choose(opened, query, named=False)
        _watch(opened, query, limit, every, count)
    except KeyboardInterrupt:
        return
    finally:
        opened.close()


def _watch(ledger: Ledger, query: str | None, limit: int, every: float, count: int | None) -> None:
    looks = 0
    with Live(console=console(), auto_refresh=False, transient=False) as live:
        while True:
            live.update(picture(_look(ledger, query, limit)), refresh=True)
            looks += 1
            if looks == count:
                return
            time.sleep(every)


def _look(ledger: Ledger, query: str | None, limit: int) -> list[PipelineStatus]:
    now = now_ms()
    return [glance(ledger, entry, limit, now) for entry in ledger.pipelines() if query in (None, entry.name)]


def picture(glances: Sequence[PipelineStatus]) -> Group:
    """What stands on the screen."""
    if not glances:
        return Group(Text("The ledger knows no such pipeline yet."))
    return Group(*(part for glance in glances for part in (_headline(glance), _table(glance), Text())))


def _headline(one: PipelineStatus) -> Text:
    return Text(one.headline, style="bold yellow" if one.begun and one.begun.overdue else "bold")


def _table(one: PipelineStatus) -> Table:
    table = Table("epoch", "rows", "sinks", "lag", "longest phases, ms", box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for row in one.rows:
        table.add_row(*map(Text, row))
    return table
