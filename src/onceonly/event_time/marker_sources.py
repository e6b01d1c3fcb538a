"""Read markers from sink or ledger, without fence or write."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceonly.errors.options import misused
from onceonly.machine.completeness import Cut, PlacedEpoch, after_all, newest_of
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol import DetectsChanges, Inspectable, Sink
from onceonly.reading.points import ReadPoint
from onceonly.runtime.sink_refusals import UNREADABLE
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_checkpoints.ledger import Ledger

# ---- Reader positions by version, offset, entry or epoch. Pure.

At = ReadPoint | Receipt | int | str | Mapping[str, Any]
"""A read point, a receipt, a Delta version, Kafka's next offsets (as Spark spells them), or an epoch by pipeline."""

MarkerWithReceipt = tuple[TimedMarker, Receipt]
"""An epoch with what its sink answered."""


def place_of(receipt: Receipt) -> Cut | None:
    """Return the position of a receipt's epoch in its sink, or ``None`` if the sink has no increasing count."""
    end = receipt.at("end")
    if isinstance(end, str):
        return _offsets(end, json.loads(end))
    counted = {name: count for name in ("version", "entry") if isinstance(count := receipt.at(name), int)}
    return counted or None


def placed(epochs: Sequence[MarkerWithReceipt], position: Cut) -> tuple[PlacedEpoch, ...]:
    """Return epochs, each with the position at which a reader has all that they have seen.

    Positions are counted as that of the reader, ``position``, else E110.
    """
    if any(marker.writer in position for marker, _ in epochs):
        return tuple(PlacedEpoch(marker, _epochs(marker)) for marker, _ in epochs)
    own = {(marker.writer, marker.epoch): place_of(receipt) or {} for marker, receipt in epochs}
    made = tuple(PlacedEpoch(marker, _behind(marker, own)) for marker, _ in epochs)
    if strange := next((placed_epoch for placed_epoch in made if not placed_epoch.cut.keys() & position.keys()), None):
        counted = f"by {', '.join(sorted(strange.cut))}" if strange.cut else "by nothing but themselves"
        raise _no_place(dict(position), f"the epochs of {strange.timed.writer} are counted {counted}")
    return made


def _epochs(marker: TimedMarker) -> Cut:
    return {mark.writer: mark.epoch for mark in marker.observed if mark.epoch}


def _behind(marker: TimedMarker, own: Mapping[tuple[str, int], Cut]) -> Cut:
    return after_all(own.get((mark.writer, mark.epoch), {}) for mark in marker.observed)


def position_of(at: At, sink: str | None, epochs: Sequence[MarkerWithReceipt]) -> Cut:
    """Return a position as a cut (E110: it is none in this dataset). ``sink`` is ``None`` for a ledger."""
    if isinstance(at, ReadPoint):
        receipt = next((candidate for candidate in at.receipts if candidate.sink == sink), None)
        return (receipt and place_of(receipt)) or _as_of(at.pipeline, at.epoch, epochs)
    if isinstance(at, Receipt):
        cut = place_of(at)
        if cut is None:
            raise _no_place(at, "its sink counts neither versions nor offsets")
        return cut
    if isinstance(at, int):
        return {"version": at}
    return _offsets(at, json.loads(at) if isinstance(at, str) else at)


def _as_of(pipeline: str, epoch: int, epochs: Sequence[MarkerWithReceipt]) -> Cut:
    """Cut that one epoch had seen, with itself."""
    marker = next(
        (candidate for candidate, _ in epochs if (candidate.writer, candidate.epoch) == (pipeline, epoch)), None
    )
    return _epochs(marker) if marker else {pipeline: epoch}


def _offsets(position: object, value: Any) -> Cut:
    """``{"clicks": {"0": 5}}`` as ``{"clicks/0": 5}``. A number under a name stays."""
    if not isinstance(value, Mapping):
        raise _no_place(position, "it names no partition")
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        parts = inner.items() if isinstance(inner, Mapping) else ()
        flat |= {f"{name}/{part}": offset for part, offset in parts} if parts else {str(name): inner}
    if not all(isinstance(offset, int) for offset in flat.values()):
        raise _no_place(position, "an offset of it is no number")
    return flat


def _no_place(position: object, why: str) -> Exception:
    return misused(
        f"{position!r} is no place in a dataset.",
        why,
        'a read point, a Delta version, offsets as {"clicks": {"0": 5}}, or an epoch by pipeline as {"web": 7}',
    )


# ---- Read markers from sink or ledger, without fence or write.


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest epoch of one pipeline.

    ``timed`` is ``None`` if the epoch has no event time. ``has_removed_epochs``: newer ones
    were removed from the sink.
    """

    timed: TimedMarker | None
    has_removed_epochs: bool = False


def newest_of_all(source: Source, name: str, writers: Sequence[str] = ()) -> Mapping[str, Newest]:
    """Return the newest epoch of each pipeline of ``name``'s dataset. The source may not show ``writers`` itself."""
    if markers := source.at_once(name):
        return {marker.writer: Newest(marker) for marker in markers}
    pipelines = list(dict.fromkeys((*source.neighbours(name), *writers)))
    newest: dict[str, Newest] = {}
    while left := [each for each in pipelines if each not in newest]:
        for each in left:
            newest[each] = source.newest(each)
            timed = newest[each].timed
            pipelines += [mark.writer for mark in timed.observed] if timed else []
    return newest


class OfSink:
    """Markers in a sink, with one handle on the target for each pipeline.

    The sink must not be open (E110): a sink of a running query has a fence and a transaction.
    """

    def __init__(self, sink: Sink) -> None:
        if used := getattr(sink, "pipeline", ""):
            raise misused(
                f'{sink.id} is in use by pipeline "{used}", and a TimeReader cannot read it at the same time.',
                "a sink object holds the connections of one pipeline",
                "TimeReader(name, ...) with a sink of its own, made as the query's was",
            )
        self._made_by = sink
        self._opened: dict[str, Sink] = {}

    @property
    def sink(self) -> str:
        """Id of the sink."""
        return self._made_by.id

    def neighbours(self, name: str) -> Sequence[str]:
        """Return pipelines with an epoch in the target, as far as the sink shows them."""
        handle = self._handle(name)
        return [name, *(handle.pipelines() if isinstance(handle, Inspectable) else ())]

    def newest(self, name: str) -> Newest:
        """Return the epoch of a look, or the newest one left if the target shows that others removed epochs."""
        handle = self._handle(name)
        marker = handle.look().marker
        timed = TimedMarker.of(marker)
        if marker is None or timed is None or not isinstance(handle, DetectsChanges):
            return Newest(timed)
        newer = list(handle.history(marker.epoch.number - 1))
        if newer and not _fatal(handle, newer[-1][1]):
            return Newest(TimedMarker.of(newer[-1][0]))
        history = list(handle.history())
        left = _epochs_with_rows(handle, history)
        return Newest(TimedMarker.of(left[-1][0]) if left else None, has_removed_epochs=len(left) < len(history))

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """Return the epochs of the sink's own single read, if it has one. Empty if the pipeline is not among them."""
        handle = self._handle(name)
        markers = handle.newest_markers() if isinstance(handle, Inspectable) else ()
        newest = newest_of(timed for marker in markers if (timed := TimedMarker.of(marker)))
        return newest if any(timed_marker.writer == name for timed_marker in newest) else ()

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[MarkerWithReceipt], bool]:
        """Return the epochs that are left after ``after``, oldest first, and whether newer ones were removed.

        They go as far back as the target remembers. Nothing beyond version ``until`` of the target is read, and later
        changes of it are ignored.
        """
        handle = self._handle(name)
        history = [pair for pair in handle.history(after) if until is None or _version(pair[1]) <= until]
        left = _epochs_with_rows(handle, history, until) if isinstance(handle, DetectsChanges) else history
        epochs = ((TimedMarker.of(marker), receipt) for marker, receipt in left)
        return [(timed, receipt) for timed, receipt in epochs if timed], len(left) < len(history)

    def close(self) -> None:
        """Close every handle."""
        for handle in self._opened.values():
            handle.close()
        self._opened.clear()

    def _handle(self, name: str) -> Sink:
        if name not in self._opened:
            handle = copy.copy(self._made_by)
            handle.open(name)
            self._opened[name] = handle
        return self._opened[name]


def _version(receipt: Receipt) -> int:
    version = receipt.at("version")
    return version if isinstance(version, int) else 0


Pair = tuple[Marker, Receipt]


def _epochs_with_rows(sink: DetectsChanges, history: Sequence[Pair], until: int | None = None) -> Sequence[Pair]:
    """Return the epochs up to the newest one since which no rows were removed."""
    for count in range(len(history), 0, -1):
        if not _fatal(sink, history[count - 1][1], until):
            return history[:count]
    return ()


def _fatal(sink: DetectsChanges, since: Receipt, until: int | None = None) -> bool:
    happened = sink.external_changes(since)
    return any(change.fatal and (until is None or change.at is None or change.at <= until) for change in happened)


class OfLedger:
    """Epochs in an open ledger, up to the last one that every sink confirmed there."""

    def __init__(self, ledger: Ledger, close: Callable[[], None]) -> None:
        self._ledger = ledger
        self.close = close

    @property
    def sink(self) -> None:
        """None."""
        return

    def neighbours(self, name: str) -> Sequence[str]:
        """Return pipelines with a sink at the same address."""
        entries = self._ledger.pipelines()
        ours = {address for entry in entries if entry.name == name for _, address in entry.sinks}
        return [name, *(entry.name for entry in entries if ours & {address for _, address in entry.sinks})]

    def newest(self, name: str) -> Newest:
        """Return the newest recorded epoch."""
        head = self._ledger.head(name)
        time = head.epoch.time if head else None
        return Newest(TimedMarker(name, head.epoch.number, time) if head and time else None)

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """Return nothing: they have to be read one by one."""
        return ()

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[MarkerWithReceipt], bool]:
        """Return every recorded epoch after ``after`` with its first receipt, oldest first."""
        return [
            (TimedMarker(name, record.epoch.number, record.epoch.time), record.receipts[0])
            for record in self._ledger.epochs(name, after + 1)
            if record.epoch.time and record.receipts
        ], False


Source = OfSink | OfLedger
"""A sink or ledger from which markers are read."""

# ---- Read the newest markers of a dataset's other writers, without a fence.


class Peers:
    """Reads the other writers of a pipeline's dataset in all of its sinks.

    A pipeline that notes event time for itself alone is no writer of the dataset. It knows no other writer and waits
    for none. The sinks are not open yet.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sources = [OfSink(copy.copy(sink)) for sink in sinks]

    def __call__(self, pipeline: str, writers: Sequence[str]) -> tuple[tuple[TimedMarker, ...], str]:
        """Return the newest epochs of other writers, and the sinks that could not be read."""
        markers: list[TimedMarker] = []
        unread: list[str] = []
        for source in self._sources:
            try:
                newest = newest_of_all(source, pipeline, writers)
            except UNREADABLE as error:
                # Older knowledge of writers lags, but is never wrong, so neither stop nor wait.
                unread.append(f"{source.sink}: {str(error).splitlines()[0]}")
                source.close()
            else:
                markers += [
                    newest_epoch.timed
                    for name, newest_epoch in newest.items()
                    if name != pipeline and newest_epoch.timed
                ]
        return newest_of(marker for marker in markers if marker.time.writers), "; ".join(unread)

    def close(self) -> None:
        """Release connections. Idempotent. The next call opens them again."""
        for source in self._sources:
            source.close()
