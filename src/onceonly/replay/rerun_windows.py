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
from onceonly.event_time import event_time_argument
from onceonly.machine.event_time import EventTimeConfig
from onceonly.machine.facts import PreviousClock
from onceonly.protocol import KeepsState, Sink
from onceonly.protocol.row_times import TimedEpoch
from onceonly.replay.replay_windows import began
from onceonly.replay.rerun_request import Held, RerunRequest
from onceonly.runtime import shared_transaction
from onceonly.windows import windows_argument as paning
from onceonly.windows.rules.spec import INGEST, Panes
from onceonly_checkpoints.digests import STATE
from onceonly_checkpoints.epoch import Epoch

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame
    from onceonly.spark.engine import QueryPlan


@dataclass
class Windowed:
    """Windows over the epochs of a rerun.

    Attributes:
        chosen: as for ``exactly_once(panes=)``, with the sink of their state.
        time: recorded completeness as ``note_time=``. ``None`` if none is on record.
        stood: clock and time before the first epoch, if any.
    """

    chosen: paning.WindowsArgument
    time: event_time_argument.EventTimeArgument | None
    stood: PreviousClock | None
    _at: _At = field(repr=False)

    def go_to(self, epoch: Epoch) -> None:
        """Use the noted time of this recorded epoch from now on."""
        self._at.noted = epoch.time.noted if epoch.time else None

    def demand(self, asked: RerunRequest, plan: QueryPlan, rows: DataFrame, held: Held) -> None:
        """Refuse a query that windows cannot be used with, and a target with other windows.

        ``rows`` are the query's stream as written without windows. ``held`` are the epochs in the target.

        Raises:
            ConfigurationError: E121, E130, E140, E141, E144: the rows do not fit the windows.
            IdentityError: E239, the target's epochs have other windows.
        """
        paning.refuse_state(plan, asked.own)
        event_time_argument.check_columns(self.time, asked.own, rows.dtypes)
        definition = self.chosen.defined(asked.own, rows, self.time)
        for epoch, _ in held[-1:]:
            if epoch.panes is None or epoch.panes.definition != definition.fingerprint:
                asked.refuse(epoch, " by other windows" if epoch.panes else " without windows")


@dataclass
class _At:
    """The recorded epoch that is run again."""

    noted: int | None = None

    def says(self, _: TimedEpoch) -> int | None:
        """Return its noted time."""
        return self.noted


def windowed(asked: RerunRequest, panes: Panes, taken: Mapping[str, str]) -> Windowed:
    """Check windows over recorded epochs.

    ``state=`` and ``late_rows=`` of ``panes`` are the query's tables and are not used. State is kept beside the target,
    and late rows are counted. ``taken`` are addresses of the pipeline's own sinks, by id.

    Raises:
        ConfigurationError: E110 the epochs have no windows, or begin in the middle of some. E140 their time does not
            fit these windows. E143 the target holds no state.
        IdentityError: E234 epochs before them are not on record.
    """
    first = _begun(asked)
    keeper = _keeper(asked, taken)
    if asked.among(keeper, taken.values()):
        raise _stateless(asked, taken, f"the table of state beside {asked.into.id} is the query's own")
    at = _At()
    time = _time(asked, panes, at)
    chosen = paning.check_windows(replace(panes, state=None, late_rows="count"), (asked.into,), time)
    assert chosen is not None
    return Windowed(chosen, time, _stood(asked, first), at)


# ---- beginnings of windows


def _begun(asked: RerunRequest) -> Epoch:
    """Return the first epoch, before which no window is open."""
    batches = asked.batches
    first = batches[0] if batches else None
    if first is None or any(epoch.panes is None for epoch in batches):
        raise refuse(
            "E110",
            problem=f"There are no windows in {asked.text}.",
            cause="its query has no panes=, or had none then; and what is on record is no time for others",
            next=f"run its rows again: {asked.command(panes=False)}",
        )
    known = {record.epoch.number: record.epoch for record in asked.found}
    since = began(known, first.number, pipeline=asked.pipeline, ledger=asked.ledger)
    begins = next(number for number in sorted(known) if number >= since and known[number].lineage)
    anew = next((epoch.windows_since for epoch in batches if epoch.windows_since != since), None)
    if begins < first.number:
        raise _in_the_middle(asked, begins, anew, f"windows of epoch {first.number} go on from epoch {begins} on")
    if anew is not None:
        raise _in_the_middle(asked, begins, anew, f"windows began anew with epoch {anew}")
    return first


def _in_the_middle(asked: RerunRequest, begins: int, anew: int | None, cause: str) -> OnceOnlyError:
    return refuse(
        "E110",
        problem=f"The windows of {asked.text} are not those of one beginning.",
        cause=cause,
        next=f"run all of them again: {asked.command(first=begins, last=None if anew is None else anew - 1)}",
    )


def _stood(asked: RerunRequest, first: Epoch) -> PreviousClock | None:
    """Clock and time before the first epoch. They continue after windows were given up, but not in a new series."""
    if first.windows_since == first.series:
        return None
    before = next(record.epoch for record in asked.found if record.epoch.number == first.number - 1)
    return PreviousClock(before.panes.clock if before.panes else None, before.time.noted if before.time else None)


# ---- sinks of state


def _keeper(asked: RerunRequest, taken: Mapping[str, str]) -> Sink:
    into = asked.into
    if not isinstance(into, KeepsState):
        raise _stateless(asked, taken, f"{into.id} holds none")
    keeper = into.state_keeper(beside=True)
    if shared_transaction.transaction_groups((into, keeper)) != ((into.id, keeper.id),):
        raise _stateless(asked, taken, f"{into.id} does not commit it together with results")
    return keeper


def _stateless(asked: RerunRequest, taken: Mapping[str, str], problem: str) -> OnceOnlyError:
    outputs = (output for epoch in asked.batches for output in epoch.outputs)
    keeper = next((sink for output in outputs if output.name == STATE for sink in output.sinks), "")
    database, _, _ = taken.get(keeper, "").rpartition("#")
    table = quote(asked.own.replace(".", "_"), safe="~")
    kind, _, _ = database.partition(":")
    into = f"{database}#{table}" if kind == "postgres" else "postgres:DSN#TABLE"
    return refuse("E143", problem=problem, next=f"take a table of Postgres: {asked.command(into=into)}")


# ---- recorded times of epochs


def _time(asked: RerunRequest, panes: Panes, at: _At) -> event_time_argument.EventTimeArgument | None:
    batches = asked.batches
    said = next((epoch.time for epoch in reversed(batches) if epoch.time), None)
    if said is None and not panes.needs_time and panes.time != INGEST:
        return None
    if said is None or (panes.time == INGEST and not _by_ingest(batches)):
        what = "up to when all was there" if said is None else "the moments at which they were planned"
        problem, cause = f"{asked.text} do not note {what}", "the query has another note_time=, or none"
        way = "give Panes whose trigger and time need none: AtPeriod or AtCount, and a column of the rows for time="
        raise refuse("E140", problem=problem, cause=cause, next=way)
    if panes.time == INGEST:
        return event_time_argument.check_event_time("ingest")
    words = f"what {asked.text} noted"
    return event_time_argument.EventTimeArgument(EventTimeConfig("function", said.unit, said.column), at.says, words)


def _by_ingest(batches: Sequence[Epoch]) -> bool:
    """Return whether each of them noted the engine's clock."""
    times = [epoch.time for epoch in batches]
    clocks = accumulate((time.ingest if time and time.ingest else 0 for time in times), max)
    return all(one is not None and one.noted == clock for one, clock in zip(times, clocks, strict=True))
