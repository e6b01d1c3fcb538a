"""Read markers from sink or ledger, without fence or write."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from onceonly.errors import refuse
from onceonly.event_time.positions import Found
from onceonly.machine.completeness import newest_of
from onceonly.machine.writer_progress import TimedMarker
from onceonly.protocol import Peered, Shared, Sink, Witness
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_checkpoints.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest epoch of one pipeline.

    Attributes:
        timed: the epoch, or ``None`` if there is none or it has no event time.
        taken: the target shows that newer epochs were removed from the sink.
    """

    timed: TimedMarker | None
    taken: bool = False


class Source(Protocol):
    """A sink or ledger from which markers are read."""

    @property
    def sink(self) -> str | None:
        """Sink id, or ``None`` for a ledger."""
        ...

    def neighbours(self, name: str) -> Sequence[str]:
        """Return pipelines that may write to the same dataset, with the named one."""
        ...

    def newest(self, name: str) -> Newest:
        """Return the newest epoch of a pipeline."""
        ...

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """Return the newest epochs of all neighbours as of one moment. Empty if they have to be read one by one."""
        ...

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[Found], bool]:
        """Return every known epoch after ``after``, oldest first, and whether newer ones were removed.

        Nothing beyond version ``until`` of the target is read, and later changes of it are ignored.
        """
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


def newest_of_all(source: Source, name: str, known: Sequence[str] = ()) -> Mapping[str, Newest]:
    """Return the newest epoch of each pipeline that may write the same dataset as ``name``.

    ``known`` are names of others that the source itself may not show.
    """
    if whole := source.at_once(name):
        return {one.writer: Newest(one) for one in whole}
    wanted = list(dict.fromkeys((*source.neighbours(name), *known)))
    found: dict[str, Newest] = {}
    while left := [each for each in wanted if each not in found]:
        for each in left:
            found[each] = source.newest(each)
            timed = found[each].timed
            wanted += [mark.writer for mark in timed.observed] if timed else []
    return found


class OfSink:
    """Markers in a sink, with one handle on the target for each pipeline.

    The sink must not be open: a sink of a running query has a fence and a transaction.

    Raises:
        ConfigurationError: E110, the sink is in use.
    """

    def __init__(self, sink: Sink) -> None:
        if used := getattr(sink, "pipeline", ""):
            raise refuse(
                "E110",
                problem=f'{sink.id} is in use by pipeline "{used}", and cannot be read by a TimeReader beside that.',
                cause="a sink object holds the connections of one pipeline",
                next="TimeReader(name, ...) with a sink of its own, made as the query's was",
            )
        self._made_by = sink
        self._opened: dict[str, Sink] = {}

    @property
    def sink(self) -> str:
        """Id of the sink."""
        return self._made_by.id

    def neighbours(self, name: str) -> Sequence[str]:
        """Return pipelines with an epoch in the target, as far as the sink shows them."""
        found = self._handle(name)
        return [name, *(found.writers() if isinstance(found, Shared) else ())]

    def newest(self, name: str) -> Newest:
        """Return the epoch of a look, or the newest one left if the target shows that others removed epochs."""
        handle = self._handle(name)
        marker = handle.look().marker
        timed = TimedMarker.of(marker)
        if marker is None or timed is None or not isinstance(handle, Witness):
            return Newest(timed)
        newer = list(handle.history(marker.epoch.number - 1))
        if newer and not _fatal(handle, newer[-1][1]):
            return Newest(TimedMarker.of(newer[-1][0]))
        known = list(handle.history())
        left = _standing(handle, known)
        return Newest(TimedMarker.of(left[-1][0]) if left else None, taken=len(left) < len(known))

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """Return the epochs of the sink's own single read, if it has one. Empty if the pipeline is not among them."""
        handle = self._handle(name)
        markers = handle.peers() if isinstance(handle, Peered) else ()
        found = newest_of(timed for marker in markers if (timed := TimedMarker.of(marker)))
        return found if any(one.writer == name for one in found) else ()

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[Found], bool]:
        """Return the epochs that are left, as far back as the target remembers."""
        handle = self._handle(name)
        known = [pair for pair in handle.history(after) if until is None or _version(pair[1]) <= until]
        left = _standing(handle, known, until) if isinstance(handle, Witness) else known
        found = ((TimedMarker.of(marker), receipt) for marker, receipt in left)
        return [(timed, receipt) for timed, receipt in found if timed], len(left) < len(known)

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
    found = receipt.at("version")
    return found if isinstance(found, int) else 0


Pair = tuple[Marker, Receipt]


def _standing(witness: Witness, known: Sequence[Pair], until: int | None = None) -> Sequence[Pair]:
    """Return the epochs up to the newest one since which no rows were removed."""
    for count in range(len(known), 0, -1):
        if not _fatal(witness, known[count - 1][1], until):
            return known[:count]
    return ()


def _fatal(witness: Witness, since: Receipt, until: int | None = None) -> bool:
    happened = witness.disturbances(since)
    return any(one.fatal and (until is None or one.at is None or one.at <= until) for one in happened)


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
        known = self._ledger.pipelines()
        ours = {address for entry in known if entry.name == name for _, address in entry.sinks}
        return [name, *(entry.name for entry in known if ours & {address for _, address in entry.sinks})]

    def newest(self, name: str) -> Newest:
        """Return the newest recorded epoch."""
        head = self._ledger.head(name)
        time = head.epoch.time if head else None
        return Newest(TimedMarker(name, head.epoch.number, time) if head and time else None)

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """Return nothing."""
        return ()

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[Found], bool]:
        """Return every recorded epoch with its first receipt."""
        return [
            (TimedMarker(name, record.epoch.number, record.epoch.time), record.receipts[0])
            for record in self._ledger.epochs(name, after + 1)
            if record.epoch.time and record.receipts
        ], False
