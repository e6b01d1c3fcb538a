"""``replay.recompute``: whether a query still gives the rows that its epochs recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.audit.certificate import NAMED, Certificate, Query, Unreadable, certify
from onceonly.errors import OnceOnlyError
from onceonly.protocol import Sink
from onceonly.replay import records
from onceonly.replay.spark_digests import Digests
from onceonly.replay.spark_replay import Replay
from onceonly.windows.read_results import read_differing
from onceonly.windows.result_batch import WindowResultBatch
from onceonly.windows.results import named
from onceonly.windows.rules.spec import Panes
from onceonly_checkpoints.digests import PANES, STATE, Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.spark.replay_plan import StateFrom

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame, SparkSession
    from onceonly.replay.spark_replay import Job


def recompute(
    pipeline: str,
    epochs: range | None = None,
    *,
    job: Job,
    ledger: records.Place,
    spark: SparkSession,
    before: Callable[[DataFrame], DataFrame] | None = None,
    panes: Panes | None = None,
    sinks: Sequence[Sink] = (),
    state: str = "copied",
    checkpoint: str | os.PathLike[str] | None = None,
) -> Certificate:
    """Recompute recorded epochs from their source, and compare the rows with the record. Writes no sink.

    If rows depend only on the input, a thousand epochs are one batch. If they depend on state or on the time of the
    batch, each epoch runs by itself, about a second each.

    Args:
        pipeline: name.
        epochs: dense numbers. ``None`` for all that are on record.
        job: ``function(spark)`` that returns the query, not started: the DataFrame, or its ``writeStream`` with the
            output mode.
        ledger: an SQLAlchemy URL, the path of a SQLite file, or an open ledger.
        spark: a classic session, with the time zone and ANSI mode of the query.
        before: the ``before=`` of :func:`onceonly.exactly_once`.
        panes: its ``panes=``. Windows are stepped from their beginning, with the recorded clock and times.
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
    with records.opened(ledger) as known:
        found, address = known.epochs(pipeline), known.address
    wanted = records.demanded(pipeline, found, epochs)
    replay = Replay(spark, job, found, records.checkpoint(found, checkpoint), address, before)
    others = _Others()
    digests, plan = Digests(replay, StateFrom(state), panes, others.take if sinks else None), replay.plan
    query = Query(plan.stateful, replay.clock, plan.nondeterministic, digests.settings(), panes is not None)
    made = certify(pipeline, found, wanted, query, _Again(digests))
    return made.naming(dict(others.named(pipeline, sinks)))


@dataclass(frozen=True, slots=True)
class _Others:
    """The first epochs whose windows differ from the record, each with its rows of results and of state."""

    found: list[tuple[Epoch, list[Any], list[Any]]] = field(default_factory=list[tuple[Epoch, list[Any], list[Any]]])

    def take(self, epoch: Epoch, made: WindowResultBatch) -> None:
        """Keep a differing epoch, up to the number of windows that are named."""
        if len(self.found) < NAMED and made.digest() != epoch.computed:
            self.found.append((epoch, made.rows_of(PANES).to_pylist(), made.rows_of(STATE).to_pylist()))

    def named(self, pipeline: str, sinks: Sequence[Sink]) -> Iterator[tuple[int, list[str]]]:
        """Yield windows that differ in these sinks, by epoch number."""
        for epoch, results, state in self.found:
            yield epoch.number, [named(one) for one in read_differing(pipeline, sinks, epoch, results, state)]


_UNREADABLE = ("E230", "E234", "E235")
"""Codes of epochs that cannot be run again, for the certificate."""


@dataclass(frozen=True, slots=True)
class _Again:
    """``Recomputing`` through Spark."""

    digests: Digests

    def together(self, epochs: range, left_out: frozenset[str]) -> Digest:
        with _unreadable(epochs):
            return self.digests.together(epochs, left_out)

    def apart(self, epochs: range, take: Callable[[int, Digest], None]) -> None:
        with _unreadable(epochs):
            self.digests.apart(epochs, take)


@contextmanager
def _unreadable(epochs: range) -> Generator[None]:
    try:
        yield
    except OnceOnlyError as error:
        if error.code not in _UNREADABLE:
            raise
        first: Any = error.details["first"]
        last: Any = error.details.get("last", first)
        raise Unreadable(first, last, f"{error.details['reason']} ({error.code})") from error
