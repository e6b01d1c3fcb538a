"""Spark's micro-batch with windows.

Nothing is executed until the batch is bound to the state of its windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onceonly.protocol import Estimate
from onceonly.protocol.batch import Bound, Notes, Trim
from onceonly.protocol.row_times import Clock
from onceonly.spark.batch import SparkBatch
from onceonly.windows.epoch_step import WindowStepper
from onceonly.windows.result_batch import WindowResultBatch
from onceonly.windows.spark_partials import Action

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WindowedBatch(SparkBatch):
    """Spark's micro-batch with windows.

    ``rows`` are those without panes. ``without`` makes the same rows without those that a trim excludes.
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
        """Run the batch's one action and step the windows. See ``protocol.batch.Bindable``.

        Raises:
            IdentityError: E226, the state differs from the one that the epoch before left.
            DestinationError: the sink of state does not answer.
            TooLargeForDriver: there are more partial results than Spark brings to a driver.
        """
        horizon = clock.horizon if clock else None
        stepping, late = self._stepping, self._stepping.targets.late is not None
        action = Action(self._df, stepping.definition, to, horizon, late, self._brought, self._tasks)
        return stepping.stepped(to, action.counted(few=self._few), notes, self)

    def trimmed(self, trim: Trim) -> WindowedBatch:
        """The batch without the rows that the trim excludes.

        Raises:
            TypeError: its rows cannot be distinguished by position.
        """
        if self._without is None:
            raise TypeError("this batch cannot be trimmed")
        return WindowedBatch(self._without(trim), self._stepping, self._estimate)
