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
        timed: the epoch; ``None`` where there is none, or it says nothing of time.
        taken: whether newer ones are gone from the sink, by what its target shows.
    """

    timed: TimedMarker | None
    taken: bool = False


class Source(Protocol):
    """Where markers are read."""

    @property
    def sink(self) -> str | None:
        """Id of the sink; ``None`` for a ledger."""
        ...

    def neighbours(self, name: str) -> Sequence[str]:
        """Pipelines that may write to the same dataset, the named one among them."""
        ...

    def newest(self, name: str) -> Newest:
        """The newest epoch of a pipeline."""
        ...

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """The newest epochs of all neighbours as of one moment; empty where they are to be looked at one by one."""
        ...

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[Found], bool]:
        """Every epoch that is remembered, oldest first, and whether newer ones were there and are gone.

        Args:
            name: of the pipeline.
            until: version of the target up to which is read; what happened to it later does not matter.
            after: number of the epoch down to which is read, itself left out.
        """
        ...

    def close(self) -> None:
        """Release connections. May repeat."""
        ...


def newest_of_all(source: Source, name: str, known: Sequence[str] = ()) -> Mapping[str, Newest]:
    """The newest epoch of whoever may write the same dataset, by the name of its pipeline.

    Args:
        source: where to look.
        name: of one pipeline.
        known: names of others that nothing in the source may lead to.
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
    """Markers in a sink: one handle on the target for each pipeline that is asked for.

    Args:
        sink: not opened yet: one that a query writes with has a fence and a transaction.

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
        """Pipelines with an epoch in the target, as far as the sink can tell."""
        found = self._handle(name)
        return [name, *(found.writers() if isinstance(found, Shared) else ())]

    def newest(self, name: str) -> Newest:
        """By a look; where the target shows that others took epochs away, the newest one that was left."""
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
        """By the sink's own statement, where it has one; empty where the pipeline is not among what it found."""
        handle = self._handle(name)
        markers = handle.peers() if isinstance(handle, Peered) else ()
        found = newest_of(timed for marker in markers if (timed := TimedMarker.of(marker)))
        return found if any(one.writer == name for one in found) else ()

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[Found], bool]:
        """Those that stand, as far back as the target remembers."""
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
    """The epochs up to the newest one since which nobody took rows away."""
    for count in range(len(known), 0, -1):
        if not _fatal(witness, known[count - 1][1], until):
            return known[:count]
    return ()


def _fatal(witness: Witness, since: Receipt, until: int | None = None) -> bool:
    happened = witness.disturbances(since)
    return any(one.fatal and (until is None or one.at is None or one.at <= until) for one in happened)


class OfLedger:
    """Epochs as a ledger has recorded them: as of the last one that every sink confirmed there.

    Args:
        ledger: opened.
        close: what is to be done at the end.
    """

    def __init__(self, ledger: Ledger, close: Callable[[], None]) -> None:
        self._ledger = ledger
        self.close = close

    @property
    def sink(self) -> None:
        """None."""
        return

    def neighbours(self, name: str) -> Sequence[str]:
        """Pipelines with a sink at the same address."""
        known = self._ledger.pipelines()
        ours = {address for entry in known if entry.name == name for _, address in entry.sinks}
        return [name, *(entry.name for entry in known if ours & {address for _, address in entry.sinks})]

    def newest(self, name: str) -> Newest:
        """The head of its record."""
        head = self._ledger.head(name)
        time = head.epoch.time if head else None
        return Newest(TimedMarker(name, head.epoch.number, time) if head and time else None)

    def at_once(self, name: str) -> Sequence[TimedMarker]:
        """Never."""
        return ()

    def all(self, name: str, until: int | None, after: int = 0) -> tuple[Sequence[Found], bool]:
        """Every recorded epoch with its first receipt."""
        return [
            (TimedMarker(name, record.epoch.number, record.epoch.time), record.receipts[0])
            for record in self._ledger.epochs(name, after + 1)
            if record.epoch.time and record.receipts
        ], False
