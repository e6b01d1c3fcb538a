"""Claims: window state.

Committed state is recalled unchanged, and every reader can see it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly.protocol import HostsStores, Prepared, ReplacesRows, Sink, Superseded
from onceonly.protocol.batch import ArrowBatch, AsOf
from onceonly.protocol.capabilities import GONE, OpenWindow, StateRow, StateWanted, WindowStore
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_lab.conformance.harness import NotTested, SinkHarness, claims_of
from onceonly_lab.conformance.scenario import PIPELINE, PlannedEpoch, expect, plan, refused, refused_as

if TYPE_CHECKING:
    import pyarrow as pa


def windows_are_recalled_by_key_and_bounds(harness: SinkHarness) -> None:
    """Windows are recalled by key and both bounds, as they were committed, with their epoch; no others are."""
    with _state(harness) as state:
        driver = state.driver()
        first = [StateRowCase("a", 0, 10, "one"), StateRowCase("a", 0, 20, "two"), StateRowCase("b", 0, 10, "three")]
        second = [StateRowCase("a", 10, 20, 'ünï "x" %s \\'), StateRowCase("a", _LEAST, _END, "")]
        driver.writes(*first)
        driver.writes(*second)
        driver.recalls(StateWanted(places=[first[1].place, ("a", 0, 30), ("c", 0, 10)]), (first[1], 1))
        places = [window.place for window in (*first, *second)]
        driver.recalls(
            StateWanted(places=places), *((window, 1) for window in first), *((window, 2) for window in second)
        )


def all_windows_of_a_key_are_recalled(harness: SinkHarness) -> None:
    """All windows of a key are recalled, and none of a key that differs in case, in blanks or in its last letter."""
    with _state(harness) as state:
        driver = state.driver()
        keys = ['["a"]', '["A"]', '["a "]', '["aa"]', '["ä"]', '["%_\\""]', "[null]", ""]
        windows = [StateRowCase(key, start, start + 10, f"{key} {start}") for key in keys for start in (0, 10)]
        driver.writes(*windows)
        for key in keys:
            driver.recalls(StateWanted(keys=[key]), *((window, 1) for window in windows if window.key == key))
        driver.recalls(StateWanted(keys=['["b"]']))


def windows_are_recalled_once_they_are_due(harness: SinkHarness) -> None:
    """Windows are recalled by the clock and the time of rows at which they wake, bounds included; others are not."""
    with _state(harness) as state:
        driver = state.driver()
        early, late, asleep = (
            StateRowCase("a", 0, 10, "", clock=100, time=7),
            StateRowCase("a", 10, 20, "", clock=101, time=8),
            StateRowCase("a", 20, 30, "", clock=None, time=_END),
        )
        driver.writes(early, late, asleep)
        driver.recalls(StateWanted(wake_clock=99))
        driver.recalls(StateWanted(wake_clock=100), (early, 1))
        driver.recalls(StateWanted(wake_clock=_END), (early, 1), (late, 1))
        driver.recalls(StateWanted(wake_time=6))
        driver.recalls(StateWanted(wake_time=7), (early, 1))
        driver.recalls(StateWanted(wake_time=_END), (early, 1), (late, 1), (asleep, 1))


def a_window_is_recalled_once_however_often_it_is_asked_for(harness: SinkHarness) -> None:
    """A window that is asked for by place, twice, by key, by clock and by time is recalled once."""
    with _state(harness) as state:
        driver = state.driver()
        window = StateRowCase("a", 0, 10, "", clock=1, time=1)
        driver.writes(window)
        driver.recalls(StateWanted([window.place, window.place], ["a", "a"], 5, 5), (window, 1))


def windows_that_are_gone_are_not_recalled(harness: SinkHarness) -> None:
    """A window that comes again takes the place of what it was, and is recalled no more once it is gone."""
    with _state(harness) as state:
        driver = state.driver()
        first, other = (
            StateRowCase("a", 0, 10, "one", clock=1, time=1),
            StateRowCase("a", 10, 20, "stays", clock=1, time=1),
        )
        replacement = replace(first, body="again", clock=None, time=5)
        driver.writes(first, other)
        driver.writes(replacement)
        everything = StateWanted([first.place], ["a"], 9, 9)
        driver.recalls(everything, (replacement, 2), (other, 1))
        driver.recalls(StateWanted(wake_clock=9), (other, 1))
        driver.recalls(StateWanted(wake_time=4), (other, 1))
        driver.writes(gone=[replacement, StateRowCase("never", 0, 10, "")])
        driver.recalls(everything, (other, 1))


def what_is_only_prepared_is_not_recalled(harness: SinkHarness) -> None:
    """Nothing is recalled before the first epoch, and of an epoch that is only prepared nothing is."""
    with _state(harness) as state:
        driver = state.driver()
        window = StateRowCase("a", 0, 10, "one", clock=1, time=1)
        everything = StateWanted([window.place], ["a"], 9, 9)
        driver.recalls(everything)
        driver.prepares(driver.plan([window])).abandon()
        driver.recalls(everything)
        driver.writes(window)
        prepared = driver.prepares(driver.plan([replace(window, body="two")]))
        driver.recalls(everything, (window, 1))
        prepared.abandon()
        driver.recalls(StateWanted())


def windows_of_an_older_series_are_not_recalled(harness: SinkHarness) -> None:
    """A full refresh begins without windows: those of older epochs are not recalled, and its own are."""
    with _state(harness) as state:
        driver = state.driver()
        old, new = StateRowCase("a", 0, 10, "old", clock=1, time=1), StateRowCase("b", 0, 10, "new", clock=1, time=1)
        driver.writes(old)
        everything = StateWanted([old.place, new.place], ["a", "b"], 9, 9)
        driver.recalls(everything, series=2)
        if reason := _replaces(driver.sink).cannot_replace((1, 1)):
            raise NotTested(f"The sink says what keeps it from replacing rows: {reason}.")
        driver.commits(driver.plan([new], refresh=True))
        driver.recalls(everything, (new, 2), series=2)
        driver.recalls(everything, (new, 2), series=1)


def windows_of_a_later_epoch_are_refused(harness: SinkHarness) -> None:
    """State that the epoch which asks has written itself, or a later one, is refused with E226."""
    with _state(harness) as state:
        driver = state.driver()
        first, second = StateRowCase("a", 0, 10, "one"), StateRowCase("b", 0, 10, "two", time=1)
        driver.writes(first)
        driver.writes(second)
        for epoch in (1, 2):
            for request in (StateWanted([second.place]), StateWanted(keys=["b"]), StateWanted(wake_time=9)):
                refused_as("E226", f"Epoch {epoch} asking for state", lambda: driver.asks(request, epoch))  # noqa: B023
        driver.recalls(StateWanted([first.place]), (first, 1), epoch=2)


def what_a_zombie_recalled_is_of_no_use_to_it(harness: SinkHarness) -> None:
    """A driver recalls state and is fenced out: it commits nothing by it, whether its successor has written or not."""
    with _state(harness) as state:
        zombie = state.driver()
        window = StateRowCase("a", 0, 10, "one")
        zombie.writes(window)
        zombie.recalls(StateWanted([window.place]), (window, 1))
        planned = zombie.plan([replace(window, body="the zombie's")])
        owner = state.driver(2)
        refused("A commit by what a zombie recalled", lambda: zombie.commits(planned), Superseded)
        owner.recalls(StateWanted([window.place]), (window, 1))
        newer = replace(window, body="two")
        owner.writes(newer)
        refused("A commit by what a zombie recalled long ago", lambda: zombie.commits(planned), Superseded)
        owner.recalls(StateWanted([window.place]), (newer, 2))


def windows_that_are_open_are_shown_without_a_fence(harness: SinkHarness) -> None:
    """Whoever opens the sink and fences nobody is shown what is committed: first what waits for the least time."""
    with _state(harness) as state:
        driver, shows = state.driver(), state.viewer()
        shows.sees(1)
        late, soon = StateRowCase("a", 0, 10, "late", clock=7, time=30), StateRowCase("b", 0, 10, "soon", time=-5)
        gone, never = StateRowCase("a", 10, 20, "gone", time=20), StateRowCase("a", 20, 30, "never")
        driver.writes(late, gone, never)
        driver.writes(soon)
        shows.sees(1, (soon, 2), (gone, 1), (late, 1), (never, 1))
        shows.sees(1, (soon, 2), (gone, 1), limit=2)
        shows.sees(1, (gone, 1), (late, 1), (never, 1), key="a")
        shows.sees(1, (gone, 1), key="a", limit=1)
        shows.sees(1, key="A")
        replacement = replace(late, body="again", clock=None, time=10)
        driver.writes(replacement, gone=[gone])
        driver.prepares(driver.plan([replace(soon, body="only prepared")])).abandon()
        shows.sees(1, (soon, 2), (replacement, 3), (never, 1))
        driver.writes(replace(replacement, body="the fence stands"))


def windows_that_were_given_up_are_not_shown(harness: SinkHarness) -> None:
    """Of windows that an operator gave up at an epoch only those are shown and counted that were written since."""
    with _state(harness) as state:
        driver, shows = state.driver(), state.viewer()
        old, renewed, new = (StateRowCase(key, 0, 10, "", time=at) for at, key in enumerate("abc"))
        driver.writes(old, renewed)
        driver.writes(new)
        replacement = replace(renewed, body="again")
        driver.writes(replacement)
        shows.sees(2, (replacement, 3), (new, 2))
        shows.sees(3, (replacement, 3))
        shows.sees(4)


CLAIMS = claims_of(
    windows_are_recalled_by_key_and_bounds,
    all_windows_of_a_key_are_recalled,
    windows_are_recalled_once_they_are_due,
    a_window_is_recalled_once_however_often_it_is_asked_for,
    windows_that_are_gone_are_not_recalled,
    what_is_only_prepared_is_not_recalled,
    windows_of_an_older_series_are_not_recalled,
    windows_of_a_later_epoch_are_refused,
    what_a_zombie_recalled_is_of_no_use_to_it,
    windows_that_are_open_are_shown_without_a_fence,
    windows_that_were_given_up_are_not_shown,
    of=HostsStores,
)


# ---- a target of state, and a driver of it

_LEAST, _END = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class StateRowCase:
    """A row of state: the window, the rest of it, and when it wakes."""

    key: str
    start: int
    stop: int
    body: str
    clock: int | None = None
    time: int = _END

    @property
    def place(self) -> tuple[str, int, int]:
        """By which it is asked for."""
        return self.key, self.start, self.stop


def table_of(written: Sequence[StateRowCase], gone: Sequence[StateRowCase] = ()) -> pa.Table:
    """The batch of state in which some windows are written and others leave."""
    import pyarrow as pa

    windows = [*written, *gone]
    return pa.table(
        {
            "key": pa.array([window.key for window in windows], pa.string()),
            "start": pa.array([window.start for window in windows], pa.int64()),
            "stop": pa.array([window.stop for window in windows], pa.int64()),
            "body": pa.array([window.body for window in windows], pa.string()),
            "wake_clock": pa.array([window.clock for window in windows], pa.int64()),
            "wake_time": pa.array([window.time for window in windows], pa.int64()),
            "bucket": pa.array([0] * len(windows), pa.int16()),
            GONE: pa.array([False] * len(written) + [True] * len(gone), pa.bool_()),
        }
    )


class Holder:
    """A driver of a sink of state, which has fenced it.

    Attributes:
        last: the newest epoch that it has found or written.
    """

    def __init__(self, sink: Sink, generation: int) -> None:
        self.sink = sink
        self.fence = Fence(generation, f"owner-{generation}")
        sink.open(PIPELINE)
        sink.install(self.fence)
        marker = sink.position(None).marker
        self.last: Epoch | None = marker.epoch if marker else None

    def plan(
        self,
        written: Sequence[StateRowCase] = (),
        gone: Sequence[StateRowCase] = (),
        *,
        refresh: bool = False,
    ) -> PlannedEpoch:
        """The next epoch: windows that it writes, and those that leave; as ``refresh`` in place of all before."""
        table = table_of(written, gone)
        made = plan(self.last, self.sink.id, 0).epoch
        if refresh:
            made = replace(made, series=made.number, replaces=(1, made.number - 1))
        return PlannedEpoch(linked(replace(made, digest=ArrowBatch(table).digest())), table)

    def prepares(self, planned: PlannedEpoch) -> Prepared:
        """Run the action of an epoch."""
        batch, epoch = ArrowBatch(planned.table), planned.epoch
        if epoch.replaces:
            return _replaces(self.sink).prepare_replacement(batch, epoch.number, epoch.replaces)
        return self.sink.prepare(batch, epoch.number)

    def commits(self, planned: PlannedEpoch) -> None:
        """Prepare and commit an epoch."""
        prepared = self.prepares(planned)
        try:
            self.sink.commit(prepared, Marker(PIPELINE, self.sink.id, self.fence, planned.epoch))
        finally:
            prepared.abandon()
        self.last = planned.epoch

    def writes(self, *kept: StateRowCase, gone: Sequence[StateRowCase] = ()) -> None:
        """Plan, prepare and commit the next epoch."""
        self.commits(self.plan(kept, gone))

    def asks(self, request: StateWanted, epoch: int | None = None, series: int = 1) -> list[StateRow]:
        """What an epoch, by default the next one, is told; by key and bounds."""
        number = epoch or (self.last.number if self.last else 0) + 1
        assert isinstance(self.sink, WindowStore)
        rows = self.sink.read_windows(request, AsOf(series, number, 0, PIPELINE))
        return sorted(rows, key=lambda row: (row.key, row.start, row.stop))

    def recalls(
        self, request: StateWanted, *rows: tuple[StateRowCase, int], epoch: int | None = None, series: int = 1
    ) -> None:
        """Check that these windows are recalled, each of its epoch, and no others."""
        expected = [StateRow(window.key, window.start, window.stop, window.body, of) for window, of in rows]
        expected.sort(key=lambda row: (row.key, row.start, row.stop))
        actual = self.asks(request, epoch, series)
        expect(actual == expected, f"{request} is answered with {actual}; expected {expected}.")


class Viewer:
    """Looks at a sink of state and has fenced nobody."""

    def __init__(self, sink: WindowStore) -> None:
        sink.open(PIPELINE)
        self._sink = sink

    def sees(
        self, since: int, *rows: tuple[StateRowCase, int], key: str | None = None, limit: int | None = None
    ) -> None:
        """Check that these windows are shown, in this order, each of its epoch, and that all of them are counted."""
        windows = self._sink.open_windows(since, key=key, limit=limit)
        if windows is None:
            raise NotTested("The sink of state shows nobody what is open: it has no open_windows().")
        expected = [
            OpenWindow(StateRow(*window.place, window.body, of), window.clock, window.time) for window, of in rows
        ]
        actual = list(windows)
        question = f"What is open since epoch {since}, of key {key or 'any'}, at most {limit or 'all'}"
        expect(actual == expected, f"{question}, is told as {actual}; expected {expected}.")
        if key is None and limit is None:
            counted = self._sink.count_windows(since)
            expect(counted == len(rows), f"{counted} windows are counted since epoch {since}; expected {len(rows)}.")


@dataclass(slots=True)
class _State:
    """A fresh target of state. Drivers are numbered by generation; all their handles are closed at the end."""

    harness: SinkHarness
    sinks: list[Sink] = field(default_factory=list)

    def driver(self, generation: int = 1) -> Holder:
        return Holder(self._keeper(), generation)

    def viewer(self) -> Viewer:
        return Viewer(self._keeper())

    def _keeper(self) -> WindowStore:
        with closing(self.harness.connect()) as target:
            keeper = target.window_store(separate=True) if isinstance(target, HostsStores) else None
            if keeper is None:
                raise NotTested("No state of windows is held beside the target: the sink has no window_store().")
        self.sinks.append(keeper)
        return keeper


@contextmanager
def _state(harness: SinkHarness) -> Generator[_State]:
    state = _State(harness)
    try:
        yield state
    finally:
        for sink in state.sinks:
            sink.close()


def _replaces(sink: Sink) -> ReplacesRows:
    if not isinstance(sink, ReplacesRows):
        raise NotTested("The sink of state takes no rows away in the transaction that brings others: no ReplacesRows.")
    return sink
