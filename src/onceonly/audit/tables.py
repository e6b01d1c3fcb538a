"""Plain rows for a table of epochs; how they are drawn is the caller's business. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceonly.audit.result import AuditResult, EpochLine
from onceonly.sources import describe


@dataclass(frozen=True, slots=True)
class Table:
    """Column titles and rows of text, all of one length."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def epoch_table(result: AuditResult, newest: int | None = None) -> Table:
    """One row per epoch: number, rows, end of the slice, then one column per sink.

    Args:
        result: the audit.
        newest: show only this many epochs, the newest; ``None`` shows all.
    """
    sinks = [sink for sink, _ in result.sinks]
    shown = result.epochs if newest is None else result.epochs[-newest:] if newest else ()
    return Table(("epoch", "rows", "up to", *sinks, "findings"), tuple(_row(line, sinks) for line in shown))


def _row(line: EpochLine, sinks: Sequence[str]) -> tuple[str, ...]:
    epoch = line.epoch
    cells = {cell.sink: _cell(cell.marker, cell.counted) for cell in line.cells}
    named = (cells.get(sink, "not read") for sink in sinks)
    rows = "adopted" if epoch.adoption is not None else str(epoch.digest.rows)
    return (str(epoch.number), rows, describe(epoch.slice.end), *named, " ".join(line.codes))


def _cell(marker: bool, counted: int | None) -> str:
    rows = "cannot tell" if counted is None else f"{counted} row{'s' if counted != 1 else ''}"
    return rows if marker else f"no marker, {rows}"
