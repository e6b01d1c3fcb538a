"""Completeness of the source where an epoch's slice ends."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

from onceonly.errors import OnceOnlyError, refuse
from onceonly.errors.options import checks_arguments, meaningless, misused
from onceonly.event_time.reader import TimeReader
from onceonly.machine.completeness import TimeWindow
from onceonly.machine.source_order import name_origins, position_in, read_of
from onceonly.machine.writer_progress import least
from onceonly.protocol import Inspectable, Sink, StreamSource
from onceonly.protocol.capabilities import implements
from onceonly.protocol.row_times import NoEventTime, TimedEpoch
from onceonly.runtime.sink_refusals import UNREADABLE
from onceonly_checkpoints.epoch_time import END, Unit
from onceonly_checkpoints.model import SourceIdentity, SourceOffsets


class Upstream:
    """Reads the dataset of a query's source, beside the running query.

    ``sink`` is never opened itself. ``name`` is one of the writers, or ``None`` for those that the target shows.
    """

    def __init__(self, pipeline: str, sink: Sink, name: str | None, unit: Unit) -> None:
        self._pipeline, self._name, self._unit = pipeline, name, unit
        self._made_by = sink
        self._opened: Sink | None = None
        self._readers: dict[str, TimeReader] = {}
        self._known_as: str | None = None
        self._checked = False

    def check(self, sources: tuple[SourceIdentity, ...], end: SourceOffsets) -> None:
        """Refuse an upstream that no source reads (E132), once its target answers with its identity (E134: units)."""
        if self._checked:
            return
        try:
            target = self._target()
            read = read_of(target, sources, end) if target else None
            windows = [(reader, reader.time_window()) for reader in self._of_datasets()]
        except UNREADABLE:
            self.close()
            return  # the epoch says so
        if read == ():
            raise self._unread_target(sources)
        counted = [self._counted(reader, window) for reader, window in windows]
        self._checked = bool(read and any(window.unit for window in counted))

    def __call__(self, epoch: TimedEpoch) -> int | NoEventTime | None:
        """Return the completeness of the upstream at the end of an epoch's slice, or ``None`` if unknown."""
        try:
            return self._complete(epoch)
        except UNREADABLE as error:
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
        passed = [position for position in places if position is not None]
        if len(passed) < len(places):
            return None
        windows = self._windows(passed)
        if silent := next((name for name, window in windows if window.unit is None), None):
            return NoEventTime(f'pipeline "{silent}" records no time in {self._made_by.id}')
        lower = least([window.lower for _, window in windows])
        # The upstream's end is not this writer's: a writer that notes the end has retired.
        return lower if lower is None else min(lower, END - 1)

    def _windows(self, places: list[int | str]) -> list[tuple[str, TimeWindow]]:
        """Completeness of each dataset in the target at each position, with the name of one of its writers."""
        writers: set[str] = set()
        windows: list[tuple[str, TimeWindow]] = []
        for reader in self._of_datasets():
            if reader.name not in writers:
                own = [reader.time_window(position) for position in places]
                windows += [(reader.name, self._counted(reader, window)) for window in own]
                writers |= {mark.writer for window in own for mark in window.at}
        return windows

    def _counted(self, reader: TimeReader, window: TimeWindow) -> TimeWindow:
        """Check the unit of a window. Before the first epoch with a time, the newest epoch has the unit."""
        if window.unit is None:
            window = replace(window, unit=reader.time_window().unit)
        if window.unit in (None, self._unit):
            return window
        other, theirs = f'"{reader.name}", its upstream,', window.unit
        raise refuse("E134", writer=f'Pipeline "{self._pipeline}"', unit=self._unit, other=other, theirs=theirs)

    def _target(self) -> str | None:
        # Read until known: a target that is created anew is another one for the source too, which then stops.
        handle = self._handle()
        if self._known_as is None and isinstance(handle, StreamSource):
            self._known_as = handle.source_identity()
        return self._known_as

    def _of_datasets(self) -> list[TimeReader]:
        """Readers for each pipeline that may write there. Pipelines that know each other give the same answer."""
        handle = self._handle()
        if self._name is not None:
            names: tuple[str, ...] = (self._name,)
        else:
            # A known writer stays: a target may show only recent writers.
            names = (*self._readers, *(handle.pipelines() if isinstance(handle, Inspectable) else ()))
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
            cause=f"another table or topic was named, or it was created again; its sources: {name_origins(sources)}",
            next="name the target that the query reads: FromUpstream(DeltaSink(path)) with the path of the source",
        )


# ---- ``FromUpstream``: carry event time on from the dataset that is read.


@checks_arguments
@dataclass(frozen=True, slots=True)
class FromUpstream:
    """Event time from the table or topic that the query reads. Chained queries then declare ``max_delay`` once.

    Each epoch records how complete the upstream dataset is where the epoch's offsets end. Anything beyond that
    position counts for later epochs. It is read once for each epoch, from markers, without a fence. If the upstream
    cannot be read, the recorded time stays, and an event reports that. A replay may read more than the first attempt,
    never less. A committed epoch is not read again.

    The time covers rows that the query reads of the upstream. It does not cover rows before the query's start, rows
    that it filters out, or a second source.

    Args:
        sink: writer of the upstream on the target that the query's source reads: ``DeltaSink(path)``, or
            ``KafkaSink(servers, topic)``. Its own object, which no query writes with.
        pipeline: writes it, or any of them if they are one dataset. A Delta table shows its writers. Without
            one it is complete until the least that they recorded. A topic needs the name.
        unit: of the upstream's numbers, ``"ms"`` or ``"integer"``.

    Raises:
        ConfigurationError: E110, a topic without a name. E132, a sink whose target no stream reads.

    Example:
        ``exactly_once(sink, event_time=FromUpstream(DeltaSink("/tables/clicks")))``
    """

    sink: Sink
    pipeline: str | None = field(default=None, kw_only=True)
    unit: Unit = field(default="ms", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance]
            expected = 'a sink on what the query reads: FromUpstream(DeltaSink("/tables/clicks"))'
            raise meaningless("FromUpstream", "sink", self.sink, expected, required=True)
        if not isinstance(self.sink, StreamSource):
            raise refuse(
                "E132",
                problem=f"no stream reads what {type(self.sink).__name__} writes by offsets that its epochs lie at",
                cause="the upstream is written to several sinks, and another one of them is read",
                next='name the one that the query\'s source reads: FromUpstream(DeltaSink("/tables/clicks"))',
            )
        if self.pipeline is None and not implements(self.sink, Inspectable, "pipelines"):
            problem = f"FromUpstream({type(self.sink).__name__}(...)) has no pipeline=."
            cause = "it takes the pipeline that writes there, as such a sink does not show its writers"
            raise misused(problem, cause, 'write FromUpstream(sink, pipeline="clicks")')

    @property
    def words(self) -> str:
        """What is noted, as part of a sentence."""
        by = f", by the word of {self.pipeline}" if self.pipeline else ""
        return f"what {self.sink.id} was complete until, at the end of the epoch's offset range{by}"
