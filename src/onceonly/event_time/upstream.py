"""Completeness of the source where an epoch's slice ends."""

from __future__ import annotations

import copy
from dataclasses import replace

from onceonly.errors import OnceOnlyError, refuse
from onceonly.event_time.other_writers import UNREAD
from onceonly.event_time.reader import TimeReader
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.source_order import name_origins, position_in, read_of
from onceonly.machine.writer_progress import least
from onceonly.protocol import Feeds, Shared, Sink
from onceonly.protocol.row_times import NoEventTime, TimedEpoch
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.model import SourceIdentity, SourceOffsets


class Upstream:
    """Reads the dataset of a query's source, beside the running query.

    ``sink`` writes the dataset and is never opened itself. ``name`` is one of its writers, or ``None`` for those that
    the target shows.
    """

    def __init__(self, pipeline: str, sink: Sink, name: str | None, unit: Unit) -> None:
        self._pipeline, self._name, self._unit = pipeline, name, unit
        self._made_by = sink
        self._opened: Sink | None = None
        self._readers: dict[str, TimeReader] = {}
        self._known_as: str | None = None
        self._checked = False

    def check(self, sources: tuple[SourceIdentity, ...], end: SourceOffsets) -> None:
        """Refuse an upstream that no source of the query reads, once its target answers with its identity.

        Raises:
            ConfigurationError: E132. E134, it counts time in another unit.
        """
        if self._checked:
            return
        try:
            target = self._target()
            read = read_of(target, sources, end) if target else None
            windows = [(reader, reader.time_window()) for reader in self._of_datasets()]
        except UNREAD:
            self.close()
            return  # the epoch says so
        if read == ():
            raise self._unread_target(sources)
        counted = [self._counted(reader, one) for reader, one in windows]
        self._checked = bool(read and any(one.unit for one in counted))

    def __call__(self, epoch: TimedEpoch) -> int | NoEventTime | None:
        """Return the completeness of the upstream at the end of an epoch's slice, or ``None`` if unknown."""
        try:
            return self._complete(epoch)
        except UNREAD as error:
            self.close()
            return NoEventTime(f"{self._made_by.id} could not be read: {str(error).splitlines()[0]}")

    def close(self) -> None:
        """Release connections. Idempotent. The next call opens them again."""
        for reader in self._readers.values():
            reader.close()
        if self._opened:
            self._opened.close()
        self._opened, self._known_as, self._readers = None, None, {}

    # ---- helpers

    def _complete(self, epoch: TimedEpoch) -> int | NoEventTime | None:
        target = self._target()
        read = read_of(target, epoch.sources, epoch.slice.end) if target else ()
        if read is None or (target and not read):
            return NoEventTime(f"whether a source reads {self._made_by.id} is not known: its brokers do not answer")
        places = [position_in(end) for end in read]
        passed = [place for place in places if place is not None]
        if len(passed) < len(places):
            return None
        windows = self._windows(passed)
        if silent := next((name for name, found in windows if found.unit is None), None):
            return NoEventTime(f'pipeline "{silent}" notes no time in {self._made_by.id}')
        lower = least([found.lower for _, found in windows])
        # The upstream's end is not this writer's: a writer that notes the end has retired.
        return lower if lower is None else min(lower, END - 1)

    def _windows(self, places: list[int | str]) -> list[tuple[str, TimeWindow]]:
        """Completeness of each dataset in the target at each position, with the name of one of its writers."""
        known: set[str] = set()
        found: list[tuple[str, TimeWindow]] = []
        for reader in self._of_datasets():
            if reader.name not in known:
                own = [reader.time_window(place) for place in places]
                found += [(reader.name, self._counted(reader, one)) for one in own]
                known |= {mark.writer for one in own for mark in one.at}
        return found

    def _counted(self, reader: TimeReader, found: TimeWindow) -> TimeWindow:
        """Check the unit of a window. Before the first epoch with a time, the newest epoch has the unit."""
        if found.unit is None:
            found = replace(found, unit=reader.time_window().unit)
        if found.unit in (None, self._unit):
            return found
        other, theirs = f'"{reader.name}", which it goes on from,', found.unit
        raise refuse("E134", writer=f'Pipeline "{self._pipeline}"', unit=self._unit, other=other, theirs=theirs)

    def _target(self) -> str | None:
        # Read until known: a target that is created anew is another one for the source too, which then stops.
        handle = self._handle()
        if self._known_as is None and isinstance(handle, Feeds):
            self._known_as = handle.feeds()
        return self._known_as

    def _of_datasets(self) -> list[TimeReader]:
        """Readers for each pipeline that may write there. Pipelines that know each other give the same answer."""
        handle = self._handle()
        if self._name is not None:
            names: tuple[str, ...] = (self._name,)
        else:
            # A known writer stays: a target may show only recent writers.
            names = (*self._readers, *(handle.writers() if isinstance(handle, Shared) else ()))
        for name in names:
            if name not in self._readers:
                self._readers[name] = TimeReader(name, copy.copy(self._made_by))
        return list(self._readers.values())

    def _handle(self) -> Sink:
        if self._opened is None:
            self._opened = copy.copy(self._made_by)
            self._opened.open(self._name or self._pipeline)
        return self._opened

    def _unread_target(self, sources: tuple[SourceIdentity, ...]) -> OnceOnlyError:
        return refuse(
            "E132",
            problem=f'no source of pipeline "{self._pipeline}" reads {self._made_by.address}',
            cause=f"another table or topic was named, or it was made anew since; its sources: {name_origins(sources)}",
            next="name what the query's source reads: FromUpstream(DeltaSink(path)) with the path of the source",
        )
