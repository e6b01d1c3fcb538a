"""``replay.recompute``: whether a query still gives the rows that its epochs recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal

from onceonly.audit.certificate import NAMED, Certificate, Query, Unreadable, certify
from onceonly.errors import OnceOnlyError
from onceonly.errors.options import checks_arguments
from onceonly.protocol import Estimate, Sink
from onceonly.reading.points import opened
from onceonly.replay import rerun_request
from onceonly.replay.replay_windows import Take, WindowReplay
from onceonly.replay.spark_replay import Replay
from onceonly.spark.batch import SparkBatch
from onceonly.windows.epoch_step import WindowResultBatch
from onceonly.windows.read_results import read_differing
from onceonly.windows.results import named
from onceonly.windows.rules.spec import Windows
from onceonly_checkpoints.digests import STATE, WINDOWS, Digest
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.ledger import LedgerPlace
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from onceonly.protocol import SparkSession
    from onceonly.replay.spark_replay import Job

# ---- Digests of recorded epochs, computed again through the user's own query.

SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
"""Settings that values depend on and that Spark does not keep with a batch."""


_UNREADABLE = ("E230", "E234", "E235")
"""Codes of epochs that cannot be run again, for the certificate."""


@contextmanager
def _unreadable() -> Generator[None]:
    try:
        yield
    except OnceOnlyError as error:
        if error.code not in _UNREADABLE:
            raise
        first: Any = error.details["first"]
        last: Any = error.details.get("last", first)
        raise Unreadable(first, last, f"{error.details['reason']} ({error.code})") from error


@dataclass(frozen=True, slots=True)
class Digests:
    """``Recomputing`` through Spark. ``shows`` gets every epoch with windows, and their present results."""

    replay: Replay
    state: StateFrom = StateFrom.COPIED
    panes: Windows | None = None
    shows: Take | None = None

    @_unreadable()
    def compute_combined(self, epochs: range, left_out: frozenset[str]) -> Digest:
        """Return the digest of all rows of dense epochs, run as one batch. Raises as :meth:`Replay.run`.

        The digest excludes the columns ``left_out``.
        """
        digests: list[Digest] = []
        self.replay.run(epochs, lambda _, rows: digests.append(_digest(rows, left_out)), coalesce=len(epochs))
        return reduce(add, digests, Digest(0, left_out=tuple(sorted(left_out))))

    @_unreadable()
    def apart(self, epochs: range, take: Callable[[int, Digest], None]) -> None:
        """Pass number and digest of each epoch with a batch, oldest first. Raises as :meth:`Replay.run`."""
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


# ---- ``replay.recompute``: whether a query still gives the rows that its epochs recorded.


@checks_arguments
def recompute(
    pipeline: str,
    epochs: range | None = None,
    *,
    job: Job,
    ledger: LedgerPlace,
    spark: SparkSession,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    windows: Windows | None = None,
    sinks: Sequence[Sink] = (),
    state: Literal["copied", "beginning"] = "copied",
    checkpoint: str | os.PathLike[str] | None = None,
) -> Certificate:
    """Recompute recorded epochs from their source, and compare the rows. Writes no sink.

    If rows depend only on the input, a thousand epochs are one batch. If they depend on state or on the time of the
    batch, each epoch runs by itself, about a second each.

    Args:
        pipeline: name.
        epochs: dense numbers. ``None`` for all that are on record.
        job: ``function(spark)`` that returns the query, not started: the DataFrame, or its ``writeStream`` with the
            output mode.
        ledger: an SQLAlchemy URL, the path of a SQLite file, or an open ledger.
        spark: a classic session, with the time zone and ANSI mode of the query.
        transform: the ``transform=`` of :func:`onceonly.exactly_once`.
        windows: its ``windows=``. Windows are stepped from their beginning, with the recorded clock and times.
        sinks: open sinks of results and state, which stay open. If windows of an epoch differ, the first are named.
        state: origin of a query's state: ``"copied"`` from its checkpoint, or the ``"beginning"``, which runs all
            batches before as well.
        checkpoint: the query's, if it was moved.

    Returns:
        The verdict on each epoch.

    Raises:
        ConfigurationError: E110 there are no such epochs, or ``job`` gives no stream. E116, E126 the query reads
            missing input as no rows.
        IdentityError: E236 Spark ran another batch: the query is not the one on record.
    """
    with opened(ledger) as open_ledger:
        epoch_records, address = open_ledger.epochs(pipeline), open_ledger.address
    requested = rerun_request.demanded(pipeline, epoch_records, epochs)
    replay = Replay(spark, job, epoch_records, rerun_request.checkpoint(epoch_records, checkpoint), address, transform)
    others = _Others()
    digests, plan = Digests(replay, StateFrom(state), windows, others.take if sinks else None), replay.plan
    query = Query(plan.stateful, replay.clock, plan.nondeterministic, digests.settings(), windows is not None)
    made = certify(pipeline, epoch_records, requested, query, digests)
    return made.naming(dict(others.named(pipeline, sinks)))


@dataclass(frozen=True, slots=True)
class _Others:
    """The first epochs whose windows differ from the record, each with its rows of results and of state."""

    differing: list[tuple[Epoch, list[Any], list[Any]]] = field(
        default_factory=list[tuple[Epoch, list[Any], list[Any]]]
    )

    def take(self, epoch: Epoch, made: WindowResultBatch) -> None:
        """Keep a differing epoch, up to the number of windows that are named."""
        if len(self.differing) < NAMED and made.digest() != epoch.computed:
            self.differing.append((epoch, made.rows_of(WINDOWS).to_pylist(), made.rows_of(STATE).to_pylist()))

    def named(self, pipeline: str, sinks: Sequence[Sink]) -> Iterator[tuple[int, list[str]]]:
        """Yield windows that differ in these sinks, by epoch number."""
        for epoch, results, state in self.differing:
            yield epoch.number, [named(window) for window in read_differing(pipeline, sinks, epoch, results, state)]
