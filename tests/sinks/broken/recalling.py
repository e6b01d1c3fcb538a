"""Broken sinks that give back or show other state of windows than was committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.sinks.broken.registry import caught_by

from onceonly.protocol import Batch
from onceonly.protocol.batch import ArrowRows, AsOf
from onceonly.protocol.capabilities import OpenWindow, StateRow, StateWanted
from onceonly_checkpoints.epoch import Fence
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import StoreEntry, select_current


class _Keeping(MemorySink):
    """Its sink of state is broken as it is itself."""

    def window_store(self, *, separate: bool) -> MemorySink:
        made = super().window_store(separate=separate)
        return type(self)(made.id, made.store, key=made._merge.key, delete_flag=made._merge.delete)

    def _stands(self, wanted: StateWanted, as_of: AsOf) -> list[StateRow]:
        """What the reference answers."""
        return super().read_windows(wanted, as_of)

    def _rows(self) -> list[dict[str, Any]]:
        return self.store.table().to_pylist()


@caught_by("windows_are_recalled_by_key_and_bounds")
class ForgetsWhereAWindowEnds(_Keeping):
    """Of windows that begin at one time it gives all."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        begin = {place[:2] for place in request.places}
        places = [
            (row["key"], row["start"], row["stop"]) for row in self._rows() if (row["key"], row["start"]) in begin
        ]
        return self._stands(replace(request, places=places), as_of)


@caught_by("all_windows_of_a_key_are_recalled")
class ReadsKeysWithoutCase(_Keeping):
    """A collation in which two keys are one."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        folded = {key.casefold() for key in request.keys}
        keys = [row["key"] for row in self._rows() if row["key"].casefold() in folded]
        return self._stands(replace(request, keys=keys), as_of)


@caught_by("windows_are_recalled_once_they_are_due")
class WakesALittleLate(_Keeping):
    """Reads *before* where *at or before* is asked."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        late = None if request.wake_time is None else request.wake_time - 1
        return self._stands(replace(request, wake_time=late), as_of)


@caught_by("windows_are_recalled_once_they_are_due", "windows_that_are_gone_are_not_recalled")
class WakesByNoClock(_Keeping):
    """Has timers of rows alone."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        return self._stands(replace(request, wake_clock=None), as_of)


@caught_by("a_window_is_recalled_once_however_often_it_is_asked_for", and_others=True)
class TellsAWindowForEachQuestion(_Keeping):
    """Puts together what four queries answer."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        asked = [
            StateWanted(places=request.places),
            StateWanted(keys=request.keys),
            StateWanted(wake_clock=request.wake_clock),
            StateWanted(wake_time=request.wake_time),
        ]
        return [row for one in asked for row in self._stands(one, as_of)]


@caught_by("windows_that_are_gone_are_not_recalled")
class RecallsWhatIsGone(_Keeping):
    """Reads what was written, and not what stands."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        found = {(row.key, row.start, row.stop): row for row in self._stands(request, as_of)}
        for entry in select_current(self.store._log):
            for row in entry.rows.to_pylist() if entry.rows is not None else []:
                place = row["key"], row["start"], row["stop"]
                if place in request.places and as_of.series <= entry.epoch < as_of.epoch:
                    found.setdefault(place, StateRow(*place, row["body"], entry.epoch))
        return list(found.values())


@caught_by("what_is_only_prepared_is_not_recalled")
class RecallsWhatIsPrepared(_Keeping):
    """Answers from what it was about to write."""

    prepared: pa.Table | None = None

    def prepare(self, batch: Batch, epoch: int) -> ArrowRows:
        made = super().prepare(batch, epoch)
        self.prepared = made.table
        return made

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        found = self._stands(request, as_of)
        rows = self.prepared.to_pylist() if self.prepared is not None else []
        bodies = {(row["key"], row["start"], row["stop"]): row["body"] for row in rows if not row["gone"]}
        return [replace(one, body=bodies.get((one.key, one.start, one.stop), one.body)) for one in found]


@caught_by("windows_of_an_older_series_are_not_recalled")
class RecallsEverySeries(_Keeping):
    """Gives what stands, whatever series it is of."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        return self._stands(request, replace(as_of, series=1))


@caught_by("windows_of_a_later_epoch_are_refused")
class RecallsWhateverStands(_Keeping):
    """Does not ask which epoch wants to know."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        return self._stands(request, replace(as_of, epoch=as_of.epoch + 1000))


@caught_by("windows_of_a_later_epoch_are_refused")
class HidesWhatIsLater(_Keeping):
    """Leaves out what the asking epoch should not see, as if it were not there."""

    def read_windows(self, request: StateWanted, as_of: AsOf) -> list[StateRow]:
        found = self._stands(request, replace(as_of, epoch=as_of.epoch + 1000))
        return [one for one in found if one.epoch < as_of.epoch]


@caught_by("what_a_zombie_recalled_is_of_no_use_to_it")
class CommitsStateUnderAnyFence(_Keeping):
    """Its head is moved by whoever knows where it stands."""

    def _newest_entry(self, fence: Fence | None) -> StoreEntry:
        found = self.store.newest(self._writer)
        return replace(found, fence=fence) if found and fence and self._merge.key else super()._newest_entry(fence)


@caught_by("windows_that_are_open_are_shown_without_a_fence")
class ShowsWindowsByTheirKey(_Keeping):
    """In another order than that in which they have something to do."""

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        found = list(super().open_windows(since, key=key))
        return iter(sorted(found, key=lambda one: one.state.key)[:limit])


@caught_by("windows_that_are_open_are_shown_without_a_fence")
class LimitsWindowsBeforeItLooksAtTheKey(_Keeping):
    """A limit in the wrong query."""

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        return (
            open_window
            for open_window in super().open_windows(since, limit=limit)
            if key in (None, open_window.state.key)
        )


@caught_by("windows_that_are_open_are_shown_without_a_fence")
class ShowsNoTimers(_Keeping):
    """Leaves out the clock at which a window has something to do."""

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        return (
            replace(open_window, wake_clock=None) for open_window in super().open_windows(since, key=key, limit=limit)
        )


@caught_by("windows_that_are_open_are_shown_without_a_fence")
class CountsWindowsThatAreGone(_Keeping):
    """Counts what was written."""

    def count_windows(self, since: int) -> int:
        entries = [
            entry for entry in select_current(self.store._log) if entry.rows is not None and entry.epoch >= since
        ]
        return len({(row["key"], row["start"]) for entry in entries for row in entry.rows.to_pylist()})


@caught_by("windows_that_were_given_up_are_not_shown")
class ShowsWhatWasGivenUp(_Keeping):
    """Does not ask since when."""

    def count_windows(self, since: int) -> int:
        return super().count_windows(1)

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        return super().open_windows(1, key=key, limit=limit)
