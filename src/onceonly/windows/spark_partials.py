"""The Spark action over a batch: partial results by key and window.

The driver aggregates a few rows itself and fetches only the needed columns, because Spark takes longer to shuffle than
to read them. Spark aggregates many rows, and only partial results reach the driver. Both give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from onceonly.protocol.batch import Bound
from onceonly.protocol.row_times import RowTimes
from onceonly.quality.spark_outputs import beyond_a_row
from onceonly.spark import expression_check, frames
from onceonly.spark.digest import of_batch, quote
from onceonly.windows import late_rows, spark_groups
from onceonly.windows.epoch_step import EpochAggregates
from onceonly.windows.rules.assigners import wrong
from onceonly.windows.rules.spec import INGEST, Definition, Windows
from onceonly.windows.rules.step import Row, partials_of
from onceonly_checkpoints.epoch_time import END

Bring = Callable[["DataFrame"], Iterator["pa.RecordBatch"]]
"""Brings the rows of a DataFrame to the driver."""

_INPUT, _TIME, _MARK = "onceonly input ", "onceonly moment", "onceonly mark"
_TASKS = "spark.sql.shuffle.partitions"
_FARTHEST = END // 2


def kinds_of(pipeline: str, rows: DataFrame, panes: Windows) -> dict[str, str]:
    """Return the kinds of the expressions in panes that are no column names.

    ``rows`` are as a query without panes would write them, of a stream as well. Raises E121: an expression is not one
    on a row; E140: a condition is none.
    """
    expressions = [*panes.expressions, *panes.bounds, *([panes.marks] if panes.marks else [])]
    texts = [text for text in expressions if text not in rows.columns]
    kinds = _resolved(pipeline, rows, texts) if texts else {}
    if panes.marks and {**dict(rows.dtypes), **kinds}[panes.marks] != "boolean":
        remedy = f'say when a row is one: AtMark("{panes.marks} IS NOT NULL")'
        raise wrong(f"AtMark({panes.marks!r}) is no condition", "it is not true or false", remedy)
    return kinds


@expression_check.quietly()
def _resolved(pipeline: str, rows: DataFrame, texts: Sequence[str]) -> dict[str, str]:
    try:
        wide = rows.selectExpr("*", *[f"({text}) AS `onceonly {at}`" for at, text in enumerate(texts)])
        added_columns = wide.dtypes[len(rows.columns) :]
    except Exception as error:  # of Spark's many classes: what it says is what the user needs
        raise expression_check.unread("Windows(...)", pipeline, rows, error) from error
    if reason := beyond_a_row(rows, wide):
        raise expression_check.not_row_by_row("Windows(...)", pipeline, reason)
    return {text: kind for text, (_, kind) in zip(texts, added_columns, strict=True)}


@dataclass(frozen=True, slots=True)
class Action:
    """The one action over a batch.

    Attributes:
        rows: the batch, as a query without panes would write it.
        to: state that the windows continue from.
        horizon: rows before it are late, or ``None`` if nothing was noted yet.
        keeps_late: whether rows of closed windows are wanted whole.
        tasks: of the shuffle, or ``None`` for the session's number.
    """

    rows: DataFrame
    definition: Definition
    to: Bound
    horizon: int | None
    keeps_late: bool
    bring: Bring
    tasks: int | None = None

    def counted(self, *, few: bool) -> EpochAggregates:
        """Run it. With ``few`` the driver aggregates the rows.

        Raises ``TooLargeForDriver``: there are more rows, or partial results, than Spark brings to a driver.
        """
        return self._aggregate_in_driver() if few and not self.definition.by_spark else self._there()

    # ---- what is taken of a row, in SQL

    def _selected_columns(self) -> list[str]:
        panes = self.definition.panes
        keys = [f"{quote(name)} AS {own}" for name, own in zip(panes.keys, self._keys, strict=True)]
        inputs = [f"{self._sql(text)} AS {own}" for text, own in self._inputs.items()]
        marks = [f"coalesce({self._sql(panes.marks)}, false) AS {quote(_MARK)}"] if panes.marks else []
        row = [f"struct(*) AS {quote(spark_groups.ROW)}"] if self.keeps_late else []
        named = (spark_groups.OWN_START, spark_groups.OWN_END)
        own = [f"{self._moment(text)} AS {quote(name)}" for text, name in zip(panes.bounds, named, strict=False)]
        return [*keys, *inputs, *marks, *row, *own]

    def _time(self) -> str:
        panes = self.definition.panes
        moment = self._moment(panes.time) if self._stamp is None else of_batch(self._stamp, quote(self.rows.columns[0]))
        if panes.bounds:
            start, end = map(self._moment, panes.bounds)
            moment = f"IF({moment} >= {start} AND {moment} < {end}, {moment}, NULL)"
        return f"{moment} AS {quote(_TIME)}"

    def _moment(self, text: str) -> str:
        value = self._sql(text)
        # Numbers so far out stand for no time, and a window around them would not fit a number.
        number = f"IF({value} BETWEEN -{_FARTHEST}L AND {_FARTHEST}L, CAST({value} AS BIGINT), NULL)"
        return f"unix_millis({value})" if self.definition.unit == "ms" else number

    @property
    def _stamp(self) -> int | None:
        """The time of every row, if it is that of the batch."""
        stamped = self.definition.panes.time == INGEST and INGEST not in self.rows.columns
        return self.to.clock if stamped else None

    def _sql(self, text: str) -> str:
        return quote(text) if text in self.rows.columns else f"({text})"

    @property
    def _keys(self) -> list[str]:
        return [quote(f"{spark_groups.KEY}{at}") for at in range(len(self.definition.key_kinds))]

    @property
    def _inputs(self) -> dict[str, str]:
        return {text: quote(f"{_INPUT}{at}") for at, text in enumerate(self.definition.panes.expressions)}

    # ---- few rows

    def _aggregate_in_driver(self) -> EpochAggregates:
        rows: list[Row] = []
        structs: list[pa.Array[Any]] = []
        # A literal that is another in each epoch would have Spark compile the plan anew for each.
        time = [self._time()] if self._stamp is None else []
        for piece in self.bring(self.rows.selectExpr(*self._selected_columns(), *time)):
            rows += self._rows_of(piece)
            structs += [piece.column(spark_groups.ROW)] if self.keeps_late else []
        partials = partials_of(self.definition, rows)
        late = late_rows.of_rows(self._late_setting(), rows, structs, partials) if self.keeps_late else None
        return EpochAggregates(partials, len(rows), _row_times(rows, self.horizon), late)

    def _rows_of(self, piece: pa.RecordBatch) -> Iterator[Row]:
        panes, count = self.definition.panes, piece.num_rows
        keys = spark_groups.side_by_side(
            [spark_groups.cells(piece.column(f"{spark_groups.KEY}{at}")) for at in range(len(panes.keys))], count
        )
        inputs = spark_groups.side_by_side(
            [spark_groups.cells(piece.column(f"{_INPUT}{at}")) for at in range(len(panes.expressions))], count
        )
        times = spark_groups.cells(piece.column(_TIME)) if self._stamp is None else [self._stamp] * count
        marks = spark_groups.cells(piece.column(_MARK)) if panes.marks else [False] * count
        return map(Row, keys, times, inputs, marks, spark_groups.own_windows(panes, piece))

    def _late_setting(self) -> late_rows.LateRowContext:
        return late_rows.LateRowContext(self.definition, self.rows.schema, self.to.noted_before)

    # ---- any number of rows

    def _there(self) -> EpochAggregates:
        values = self._aggregated()
        groups = spark_groups.Groups(self.definition, values)
        late: list[late_rows.RowGroup] = []
        with nullcontext() if self.tasks is None else frames.setting(self.rows, _TASKS, str(self.tasks)):
            for piece in self.bring(self._grouped(values)):
                groups.join(piece)
                if self.keeps_late:
                    late.append(groups.late(piece))
        late_table = late_rows.of_pieces(self._late_setting(), late) if self.keeps_late else None
        return EpochAggregates(groups.partials(), groups.rows, groups.times, late_table)

    def _grouped(self, values: Sequence[spark_groups.Aggregated]) -> DataFrame:
        # Aggregates of the user's own may ask for any column.
        all_columns = ["*"] if self.definition.by_spark else []
        selected = self.rows.selectExpr(*all_columns, *self._selected_columns(), self._time())
        parted, by = spark_groups.sliced(self.definition.panes.window, selected, quote(_TIME), self._keys)
        return parted.groupBy(*self._keys, *by).agg(*map(f.expr, self._sums()), *_columns(values))

    def _sums(self) -> list[str]:
        """Sums over rows, not windows, after the shuffle: before it, a task that ran twice would count twice."""
        time = quote(_TIME)
        marks = f"count_if({quote(_MARK)})" if self.definition.panes.marks else "0L"
        aggregates = {
            spark_groups.ROWS: "count(1)",
            spark_groups.MARKS: marks,
            spark_groups.FIRST: f"min({time})",
            spark_groups.LAST: f"max({time})",
            spark_groups.LATE: "0L" if self.horizon is None else f"count_if({time} < {of_batch(self.horizon, time)})",
        }
        if self.keeps_late:
            before = spark_groups.late_before(self.definition, self.to.noted_before)
            closed = "" if before is None else f" OR {time} < {of_batch(before, time)}"
            aggregates[spark_groups.ROW] = (
                f"collect_list(CASE WHEN {time} IS NULL{closed} THEN {quote(spark_groups.ROW)} END)"
            )
        return [f"{text} AS {quote(name)}" for name, text in aggregates.items()]

    def _aggregated(self) -> list[spark_groups.Aggregated]:
        own, of = self._inputs, self.definition.input_kinds
        return [
            spark_groups.aggregated(value, [own[text] for text in value.inputs], [of[text] for text in value.inputs])
            for value in self.definition.panes.aggregates.values()
        ]


def _columns(values: Sequence[spark_groups.Aggregated]) -> list[Column]:
    columns = [column for value in values for column in value.columns]
    spark_columns = [f.expr(column) if isinstance(column, str) else column for column in columns]
    return [column.alias(f"{spark_groups.VALUE}{at}") for at, column in enumerate(spark_columns)]


def _row_times(rows: Sequence[Row], horizon: int | None) -> RowTimes:
    times = [row.time for row in rows if row.time is not None]
    late = 0 if horizon is None else sum(time < horizon for time in times)
    return RowTimes(min(times, default=None), max(times, default=None), late, len(rows) - len(times))
