"""``onceonly watch``: the newest epochs of every pipeline, live, as the ledger knows them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceonly.cli.options import EveryOption, LedgerOption, LimitOption, OnlyArgument, QueryOption, one_name
from onceonly.cli.output import console
from onceonly.cli.places import choose, no_ledger, open_ledger
from onceonly.doubt import Begun, State
from onceonly.moment import open_epoch
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger, Pipeline

_PHASES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Glance:
    """One pipeline at one moment.

    Attributes:
        pipeline: its row in the ledger.
        records: its newest epochs, oldest first.
        begun: an epoch that was begun and is not recorded.
        now_ms: the moment, milliseconds since 1970.
    """

    pipeline: Pipeline
    records: tuple[EpochRecord, ...]
    begun: Begun | None
    now_ms: int

    @property
    def headline(self) -> str:
        """Name, generation, how long ago the newest epoch was recorded, how long one is in doubt."""
        said = [f"{self.pipeline.name}  generation {self.pipeline.generation}"]
        newest = self.records[-1].recorded_ms if self.records else 0
        said.append(f"last epoch {spell(self.now_ms - newest)} ago" if newest else "no epoch yet")
        if self.begun is not None and self.begun.overdue:
            said.append(f"epoch {self.begun.epoch} IN DOUBT for {spell(self.begun.age_ms(self.now_ms))}")
        elif self.begun is not None and self.begun.state is State.WRITING:
            said.append(f"epoch {self.begun.epoch} being written for {spell(self.begun.age_ms(self.now_ms))}")
        return "  ".join(said)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """One row per epoch: number, rows, sinks, lag, phase times."""
        return tuple(map(_row, self.records))


def glance(ledger: Ledger, entry: Pipeline, limit: int, now_ms: int) -> Glance:
    """Read one pipeline."""
    found = open_epoch(ledger, entry, now_ms)
    head = ledger.head(entry.name)
    newest = head.epoch.number if head else 0
    records = tuple(ledger.epochs(entry.name, max(1, newest - limit + 1))) if newest else ()
    return Glance(entry, records, found if found and found.epoch > newest else None, now_ms)


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


def _row(record: EpochRecord) -> tuple[str, ...]:
    epoch = record.epoch
    planned = epoch.lineage.batch_timestamp_ms if epoch.lineage else 0
    lag = f"{(record.recorded_ms - planned) / 1000:.1f} s" if planned and record.recorded_ms else "-"
    longest = sorted(record.phases, key=lambda phase: -phase[1])[:_PHASES_SHOWN]
    phases = "  ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in record.phases if (name, seconds) in longest)
    rows = "adopted" if epoch.adoption is not None else f"{epoch.digest.rows:,}"
    return str(epoch.number), rows, ", ".join(receipt.sink for receipt in record.receipts), lag, phases


def command(
    context: typer.Context,
    name: OnlyArgument = None,
    *,
    query: QueryOption = None,
    ledger: LedgerOption = None,
    limit: LimitOption = 8,
    every: EveryOption = 2.0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many looks.")] = None,
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


def _look(ledger: Ledger, query: str | None, limit: int) -> list[Glance]:
    now = now_ms()
    return [glance(ledger, entry, limit, now) for entry in ledger.pipelines() if query in (None, entry.name)]


def picture(glances: Sequence[Glance]) -> Group:
    """What stands on the screen."""
    if not glances:
        return Group(Text("The ledger knows no such pipeline yet."))
    return Group(*(part for one in glances for part in (_headline(one), _table(one), Text())))


def _headline(one: Glance) -> Text:
    return Text(one.headline, style="bold yellow" if one.begun and one.begun.overdue else "bold")


def _table(one: Glance) -> Table:
    table = Table("epoch", "rows", "sinks", "lag", "longest phases, ms", box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for row in one.rows:
        table.add_row(*map(Text, row))
    return table
