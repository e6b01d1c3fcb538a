"""Digests of recorded epochs, computed again through the user's own query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from onceonly.protocol import Estimate
from onceonly.replay.replay_windows import Take, WindowReplay
from onceonly.replay.spark_replay import Replay
from onceonly.spark.batch import SparkBatch
from onceonly.windows.result_batch import WindowResultBatch
from onceonly.windows.rules.spec import Panes
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
"""Settings that values depend on and that Spark does not keep with a batch."""


@dataclass(frozen=True, slots=True)
class Digests:
    """Digests of a replay.

    ``panes`` is ``None`` for rows without windows. ``shows`` gets every epoch with windows, and their present results.
    """

    replay: Replay
    state: StateFrom = StateFrom.COPIED
    panes: Panes | None = None
    shows: Take | None = None

    def together(self, epochs: range, left_out: frozenset[str]) -> Digest:
        """Return the digest of all rows of epochs, with consecutive epochs run as one batch.

        ``epochs`` are dense numbers. The digest excludes the columns ``left_out``.

        Raises:
            OnceOnlyError: as :meth:`Replay.run`.
        """
        found: list[Digest] = []
        self.replay.run(epochs, lambda _, rows: found.append(_digest(rows, left_out)), coalesce=len(epochs))
        return reduce(add, found, Digest(0, left_out=tuple(sorted(left_out))))

    def apart(self, epochs: range, take: Callable[[int, Digest], None]) -> None:
        """Pass number and digest of each epoch to ``take``, oldest first. Epochs without a batch are left out.

        Raises:
            OnceOnlyError: as :meth:`Replay.run`.
        """
        if self.panes:

            def stepped(epoch: Epoch, made: WindowResultBatch) -> None:
                take(epoch.number, made.digest())
                if self.shows:
                    self.shows(epoch, made)

            WindowReplay(self.replay, self.panes).run(epochs, stepped)
            return

        def each(ran: tuple[EpochRecord, ...], rows: DataFrame) -> None:
            epoch = ran[-1].epoch
            take(epoch.number, _digest(rows, frozenset(epoch.digest.left_out)))

        self.replay.run(epochs, each, state=self.state)

    def settings(self) -> tuple[tuple[str, str], ...]:
        """Settings of the session that values depend on."""
        return tuple((name, str(self.replay.spark.conf.get(name))) for name in SETTINGS)


def _digest(rows: DataFrame, left_out: frozenset[str]) -> Digest:
    return SparkBatch(rows, Estimate(None, None), left_out).execute()
