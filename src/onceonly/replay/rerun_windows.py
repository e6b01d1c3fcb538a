"""Windows over rerun epochs: possible beginnings and recorded clocks.

Clock and time are the recorded ones. State is kept beside the target and commits with it, so an interrupted rerun
resumes from the target. The query's own state is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING
from urllib.parse import quote

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import misused
from onceonly.event_time import event_time_argument
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import PreviousClock
from onceonly.protocol import HostsStores, Sink
from onceonly.protocol.row_times import TimedEpoch
from onceonly.replay.replay_windows import began, demand_undivided
from onceonly.replay.rerun_request import Held, RerunRequest
from onceonly.runtime import shared_transaction
from onceonly.windows import windows_argument as paning
from onceonly.windows.rules.spec import INGEST, Windows
from onceonly_checkpoints.digests import STATE
from onceonly_checkpoints.epoch import Epoch

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame
    from onceonly.spark.engine import QueryPlan


@dataclass
class Windowed:
    """Windows over the epochs of a rerun.

    ``chosen`` is as for ``exactly_once(windows=)``, with the sink of their state. ``time`` is recorded completeness as
    ``event_time=``, if any. ``previous_clock`` is clock and time before the first epoch, if any.
    """

    chosen: paning.WindowsArgument
    time: event_time_argument.EventTimeArgument | None
    previous_clock: PreviousClock | None
    _at: _At = field(repr=False)

    def go_to(self, epoch: Epoch) -> None:
        """Use the noted time of this recorded epoch from now on."""
        self._at.complete_until = epoch.time.complete_until if epoch.time else None

    def demand(self, request: RerunRequest, plan: QueryPlan, rows: DataFrame, held: Held) -> None:
        """Refuse a query that windows cannot be used with, and a target with other windows.

        Raises:
            ConfigurationError: E121, E130, E140, E141, E144: the rows do not fit the windows.
            IdentityError: E239, the target's epochs have other windows.
        """
        if self.time:
            self.time.check_columns(request.own, rows.dtypes)
        definition = self.chosen.resolve(plan, request.own, rows, self.time)
        for epoch, _ in held[-1:]:
            if epoch.windows is None or epoch.windows.definition != definition.fingerprint:
                request.refuse(epoch, " by other windows" if epoch.windows else " without windows")


@dataclass
class _At:
    """The recorded epoch that is run again."""

    complete_until: int | None = None

    def says(self, _: TimedEpoch) -> int | None:
        """Return its noted time."""
        return self.complete_until


def windowed(request: RerunRequest, panes: Windows, addresses: Mapping[str, str]) -> Windowed:
    """Check windows over recorded epochs.

    ``state_sink=`` and ``late_rows=`` of ``panes`` are the query's tables and are not used. State is kept beside the
    target, and late rows are counted. ``addresses`` are addresses of the pipeline's own sinks, by id.

    Raises:
        ConfigurationError: E110 the epochs have no windows, or begin in the middle of some. E140 their time does not
            fit these windows. E143 the target holds no state.
        IdentityError: E234 epochs before them are not on record.
    """
    first = _begun(request)
    keeper = _keeper(request, addresses)
    if request.among(keeper, addresses.values()):
        raise _stateless(request, addresses, f"the table of state beside {request.into.id} is the query's own")
    at = _At()
    time = _time(request, panes, at)
    chosen = paning.check_windows(replace(panes, state_sink=None, late_rows="count"), (request.into,), time)
    return Windowed(chosen, time, _previous_clock(request, first), at)


# ---- beginnings of windows


def _begun(request: RerunRequest) -> Epoch:
    """Return the first epoch, before which no window is open."""
    batches = request.batches
    first = batches[0] if batches else None
    if first is None or any(epoch.windows is None for epoch in batches):
        raise misused(
            f"There are no windows in {request.text}.",
            "its query has no windows=, or had none then; and the recorded time does not fit other windows",
            f"run its rows again: {request.command(panes=False)}",
        )
    for epoch in batches:
        demand_undivided(epoch, request.pipeline, f"run its rows again: {request.command(panes=False)}")
    epochs = {record.epoch.number: record.epoch for record in request.records}
    since = began(epochs, first.number, pipeline=request.pipeline, ledger=request.ledger)
    begins = next(number for number in sorted(epochs) if number >= since and epochs[number].lineage)
    anew = next((epoch.windows_since for epoch in batches if epoch.windows_since != since), None)
    if begins < first.number:
        raise _in_the_middle(request, begins, anew, f"windows of epoch {first.number} go on from epoch {begins} on")
    if anew is not None:
        raise _in_the_middle(request, begins, anew, f"windows began again with epoch {anew}")
    return first


def _in_the_middle(request: RerunRequest, begins: int, anew: int | None, cause: str) -> OnceOnlyError:
    return misused(
        f"The windows of {request.text} are not those of one beginning.",
        cause,
        f"run all of them again: {request.command(first=begins, last=None if anew is None else anew - 1)}",
    )


def _previous_clock(request: RerunRequest, first: Epoch) -> PreviousClock | None:
    """Clock and time before the first epoch. They continue after windows were given up, but not in a new series."""
    if first.windows_since == first.series:
        return None
    before = next(record.epoch for record in request.records if record.epoch.number == first.number - 1)
    return PreviousClock(
        before.windows.clock if before.windows else None, before.time.complete_until if before.time else None
    )


# ---- sinks of state


def _keeper(request: RerunRequest, addresses: Mapping[str, str]) -> Sink:
    into = request.into
    keeper = into.window_store(separate=True) if isinstance(into, HostsStores) else None
    if keeper is None:
        raise _stateless(request, addresses, f"{into.id} holds none")
    if shared_transaction.transaction_groups((into, keeper)) != ((into.id, keeper.id),):
        raise _stateless(request, addresses, f"{into.id} does not commit it together with results")
    return keeper


def _stateless(request: RerunRequest, addresses: Mapping[str, str], problem: str) -> OnceOnlyError:
    outputs = (output for epoch in request.batches for output in epoch.outputs)
    keeper = next((sink for output in outputs if output.name == STATE for sink in output.sinks), "")
    database, _, _ = addresses.get(keeper, "").rpartition("#")
    table = quote(request.own.replace(".", "_"), safe="~")
    kind, _, _ = database.partition(":")
    into = f"{database}#{table}" if kind == "postgres" else "postgres:DSN#TABLE"
    return refuse("E143", problem=problem, next=f"take a table of Postgres: {request.command(into=into)}")


# ---- recorded times of epochs


def _time(request: RerunRequest, panes: Windows, at: _At) -> event_time_argument.EventTimeArgument | None:
    batches = request.batches
    epoch_time = next((epoch.time for epoch in reversed(batches) if epoch.time), None)
    if epoch_time is None and not panes.needs_time and panes.time != INGEST:
        return None
    if epoch_time is None or (panes.time == INGEST and not _by_ingest(batches)):
        what = "up to when all was there" if epoch_time is None else "the moments at which they were planned"
        problem, cause = f"{request.text} do not note {what}", "the query has another event_time=, or none"
        remedy = (
            "give Windows whose trigger and time need none: AtPeriod or AtCount, and a column of the rows for time="
        )
        raise refuse("E140", problem=problem, cause=cause, next=remedy)
    if panes.time == INGEST:
        return event_time_argument.check_event_time("ingest")
    words = f"what {request.text} noted"
    return event_time_argument.EventTimeArgument(
        EventTimeConfig("function", epoch_time.unit, epoch_time.column), at.says, words
    )


def _by_ingest(batches: Sequence[Epoch]) -> bool:
    """Return whether each of them noted the engine's clock."""
    times = [epoch.time for epoch in batches]
    clocks = accumulate((time.batch_timestamp_ms if time and time.batch_timestamp_ms else 0 for time in times), max)
    return all(time is not None and time.complete_until == clock for time, clock in zip(times, clocks, strict=True))
