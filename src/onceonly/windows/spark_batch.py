"""Spark's micro-batch with windows over its rows, or its good ones.

In the second case outputs, ``quality=`` or ``dedupe=`` divide it first, and it is staged as any divided batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly.protocol import Batch, Estimate
from onceonly.protocol.batch import Bound, Notes, Trim
from onceonly.protocol.row_times import Clock, RowTimes
from onceonly.quality.spark_outputs import DividedBatch
from onceonly.spark import frames
from onceonly.spark.batch import SparkBatch
from onceonly.windows import late_rows
from onceonly.windows.epoch_step import WindowResultBatch, WindowStepper, nullable, records_of, struct_of, union
from onceonly.windows.rules import state as state_rules
from onceonly.windows.spark_partials import Action
from onceonly_checkpoints.digests import LATE, RECORDS, STATE, WINDOWS, Digest, OutputDigest, column_of
from onceonly_checkpoints.epoch import OutputColumns
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.storage import file_system


class WindowedBatch(SparkBatch):
    """Spark's micro-batch with windows. Nothing is executed until it is bound to the state of its windows.

    ``rows`` are as a query without panes would write them. ``without`` makes the same rows without those that a trim
    leaves out.
    """

    def __init__(
        self,
        rows: DataFrame,
        stepping: WindowStepper,
        estimate: Estimate,
        without: Callable[[Trim], DataFrame] | None = None,
    ) -> None:
        super().__init__(rows, estimate, without=without)
        self._stepping = stepping

    def bound(self, to: Bound, clock: Clock | None, notes: Notes) -> WindowResultBatch:
        """Run the batch's one action, and step the state by its result. See ``protocol.batch.Bindable``.

        Raises:
            IdentityError: E226, the state is not as the epoch before left it.
            DestinationError: the sink of state does not answer.
            TooLargeForDriver: there are more partial results than Spark brings to a driver.
        """
        horizon = clock.horizon if clock else None
        stepping, late = self._stepping, self._stepping.targets.late is not None
        action = Action(self._df, stepping.definition, to, horizon, late, self._brought, self._tasks)
        return stepping.stepped(to, action.counted(few=self._few), notes, self)

    def trimmed(self, trim: Trim) -> WindowedBatch:
        """Return the batch without the rows that are left out. Raises as the base class."""
        return WindowedBatch(super().trimmed(trim)._df, self._stepping, self._estimate)


_FILE = "part-windows.parquet"


class ChainedBatch:
    """The rows of a divided batch, and behind them those of its windows, each with the structure of its own output.

    Windows are stepped while the rows are staged. Until then there are neither times nor results.
    """

    def __init__(
        self, stepping: WindowStepper, divided: DividedBatch, to: Bound, clock: Clock | None, notes: Notes
    ) -> None:
        self._stepping, self._divided = stepping, divided
        self._to, self._clock, self._notes = to, clock, notes
        self._made: WindowResultBatch | None = None
        self._result_columns = pa.schema(_result_columns(stepping, divided))
        self._schema = pa.schema([*map(nullable, divided.schema), *self._result_columns])

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of both kinds of rows. Each lacks the columns of the other."""
        return self._schema

    @property
    def estimate(self) -> Estimate:
        """Expected size of the divided rows."""
        return self._divided.estimate

    @property
    def dataframe(self) -> DataFrame:
        """Not available (``TypeError``): rows of windows are made while the others are staged."""
        raise TypeError("a batch with windows is read once it is staged")

    def on_executors(self, task: Any) -> Any:
        """Not available (``TypeError``), as ``dataframe``."""
        raise TypeError("a batch with windows is read once it is staged")

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Yield the divided rows as they arrive, and behind the last one those of windows. Raises as ``bound``."""
        # Windows take the staged rows and not the plan's: what was counted is what is aggregated.
        pick, good = self._divided.good, list[pa.RecordBatch]()
        for piece in self._divided.arrow():
            good.append(pick(piece))
            yield self._widened(piece)
        rows = pa.Table.from_batches(good, pick.schema(self._divided.schema))
        size = Estimate(rows.num_rows, rows.nbytes)
        yield from self._stepped(frames.of_arrow(self._divided.session, rows), size)

    def write(self, directory: str) -> None:
        """Write the divided rows by Spark, and then those of windows. Raises as ``bound``."""
        self._divided.write(directory, self._with_nulls)
        # Only the files are read again. The plan runs once, and a second look-up of ids could answer otherwise.
        files, path = file_system(directory)
        names = [name.rpartition("/")[2] for name in files.ls(path, detail=False) if name.endswith(".parquet")]
        staged = self._divided.reread(tuple(f"{directory}/{name}" for name in names), self._divided.schema)
        good = self._divided.good.frame(staged.dataframe)
        rows = pa.Table.from_batches(list(self._stepped(good, self.estimate)), self._schema)
        with files.open(f"{path}/{_FILE}", "wb") as file:
            pq.write_table(rows, file)

    def reread(self, paths: tuple[str, ...], schema: pa.Schema) -> Batch:
        """Return a batch over staged files."""
        return self._divided.reread(paths, schema)

    def digest(self) -> Digest:
        """Digest of the good rows."""
        return self._divided.digest()

    def outputs(self) -> tuple[OutputDigest, ...]:
        """The outputs that divide the rows, and those of windows, which leave no row out."""
        of_windows = (replace(output, filtered=0) for output in self._results.outputs())
        return (*self._divided.outputs(), *of_windows)

    def times(self) -> RowTimes:
        """Event times of the good rows, and the user's answer."""
        return self._results.times()

    def panes(self) -> EpochWindows:
        """The epoch's record of its windows."""
        return self._results.panes()

    def columns(self) -> tuple[OutputColumns, ...]:
        """Columns of results and late rows."""
        return self._results.columns()

    @property
    def _results(self) -> WindowResultBatch:
        if self._made is None:
            raise RuntimeError("the batch was not read to its end, so its windows are not known")
        return self._made

    def _stepped(self, good: DataFrame, size: Estimate) -> Iterator[pa.RecordBatch]:
        windowed = WindowedBatch(good, self._stepping, size)
        self._made = windowed.bound(self._to, self._clock, self._notes)
        yield from map(self._widened, self._made.arrow())

    def _widened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that they lack."""
        there = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns = [
            there[field.name] if field.name in there else pa.nulls(rows.num_rows, field.type) for field in self._schema
        ]
        named = pa.RecordBatch.from_arrays(columns, names=self._schema.names)
        return frames.cast(named, self._schema)

    def _with_nulls(self, rows: DataFrame) -> DataFrame:
        # All files of an epoch have the same columns, since Spark takes those of one for all.
        lacking = struct_of(self._result_columns).fields
        return rows.select("*", *[f.lit(None).cast(field.dataType).alias(field.name) for field in lacking])


def _result_columns(stepping: WindowStepper, divided: DividedBatch) -> pa.Schema:
    definition = stepping.definition
    none = {WINDOWS: state_rules.pane_table(definition, [])}
    if stepping.targets.records:
        none[RECORDS] = records_of(definition, none[WINDOWS], divided.session)
    none[STATE] = state_rules.state_table([], [])
    if stepping.targets.late is not None:
        setting = late_rows.LateRowContext(definition, divided.own_columns, None)
        none[LATE] = late_rows.of_rows(setting, [], [], [])
    return union({column_of(name): rows for name, rows in none.items()}).schema
