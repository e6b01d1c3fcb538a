"""Writes the history of a run on real stores: what the driver announces before an effect, and the answer it got."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onceonly import commands as c
from onceonly.errors import OnceOnlyError
from onceonly.state import State
from onceonly_checkpoints.epoch import Digest, Epoch
from onceonly_lab.history import LEDGER, RESTORE, Entry, Header, History, Kind, Mark, Op, Range
from onceonly_lab.pollers import Look, SinkUnreachable
from onceonly_lab.stores.source import PARTITION, Source

_ANSWERS: dict[type, Kind] = {
    c.Installed: Kind.OK,
    c.Committed: Kind.OK,
    c.Staged: Kind.OK,
    c.Done: Kind.OK,
    c.Absent: Kind.FAIL,
    c.Overtaken: Kind.FAIL,
    c.Unknown: Kind.INFO,
}


class Scribe:
    """Collects the entries of one run; drivers take turns, so the order of calls is the order of lines.

    Args:
        header: what is promised.
        source: what the input is.
    """

    def __init__(self, header: Header, source: Source) -> None:
        self._header = header
        self._source = source
        self._entries: list[Entry] = []
        for record in range(source.records):
            taken = Range(PARTITION, record, record + 1)
            self.append(Entry("source", Kind.OK, Op.INPUT, slice=(taken,), rows=source.told(taken)))

    @property
    def history(self) -> History:
        """Everything so far."""
        return History(self._header, tuple(self._entries))

    @property
    def ledger_was_lost(self) -> bool:
        """Whether what the ledger holds at the end proves nothing."""
        return any(entry.fault == RESTORE and entry.sink == LEDGER for entry in self._entries)

    def append(self, entry: Entry) -> None:
        """Write an entry."""
        self._entries.append(entry)

    def fault(self, words: str, sink: str | None = None) -> None:
        """Something goes wrong."""
        self.append(Entry("nemesis", Kind.FAULT, fault=words, sink=sink))

    def kill(self, number: int, where: str) -> None:
        """A driver is killed."""
        self.fault(f"{where}:kill")
        self.append(Entry("driver", Kind.KILL, incarnation=number))

    def ledger_lost(self) -> None:
        """The ledger is gone, with what it held."""
        self.fault(RESTORE, LEDGER)

    # ---- commands

    def announce(self, number: int, state: State, command: c.Command) -> Entry | None:
        """Write down what a driver is about to do; ``None`` where nobody outside can see it."""
        announced = self._announced(number, state, command)
        if announced is not None:
            self.append(announced)
        return announced

    def answer(self, announced: Entry | None, outcome: c.Outcome) -> None:
        """Write down what it was told. Being overtaken leaves it open what became of an earlier request."""
        if announced is None:
            return
        kind = _ANSWERS[type(outcome)]
        if isinstance(outcome, c.Overtaken) and announced.op is Op.LOOK_UP:
            kind = Kind.INFO
        said = _asked(announced, kind)
        if isinstance(outcome, c.Staged):
            said = replace(said, manifest=outcome.manifest, digest=outcome.digest.text)
        self.append(said)

    def failed(self, announced: Entry | None, error: Exception) -> None:
        """Write down that it was refused: a refusal by a commit is certain, one by a look-up is none."""
        if announced is not None:
            certain = isinstance(error, OnceOnlyError) and announced.op is not Op.LOOK_UP
            self.append(_asked(announced, Kind.FAIL if certain else Kind.INFO))

    def _announced(self, number: int, state: State, command: c.Command) -> Entry | None:
        match command:
            case c.Commit(marker):
                return self._epoch(number, Op.COMMIT, marker.epoch, marker.fence.generation, marker.sink)
            case c.LookUp(marker):
                return self._epoch(number, Op.LOOK_UP, marker.epoch, marker.fence.generation, marker.sink)
            case c.Record(epoch, _) if not state.skipped and state.fence:
                return self._epoch(number, Op.RECORD, epoch, state.fence.generation, LEDGER)
            case c.Stage(epoch):
                return Entry("driver", Kind.INVOKE, Op.STAGE, number, epoch=epoch)
            case c.Install(sink, fence):
                return Entry("driver", Kind.INVOKE, Op.INSTALL, number, sink=sink, generation=fence.generation)
            case _:
                return None

    def _epoch(self, number: int, op: Op, epoch: Epoch, generation: int, sink: str) -> Entry:
        taken = self._source.taken(epoch)
        return Entry(
            "driver",
            Kind.INVOKE,
            op,
            number,
            sink=sink,
            epoch=epoch.number,
            slice=(taken,),
            rows=self._source.brought(taken),
            digest=epoch.digest.text,
            generation=generation,
            manifest=epoch.manifest,
        )

    # ---- readers

    def read(self, sink: str, look: Look, *, final: bool = False) -> None:
        """A reader looks at a sink."""
        self.append(Entry("reader", Kind.INVOKE, Op.READ, sink=sink))
        try:
            seen = look()
        except SinkUnreachable as silent:
            self.append(Entry("reader", Kind.FAIL, Op.READ, sink=sink, note=silent.reason))
            return
        leaks = seen.leaks if final else ()
        self.append(
            Entry("reader", Kind.READ, sink=sink, rows=seen.rows, markers=seen.markers, final=final, leaks=leaks)
        )

    def read_ledger(self, records: Iterable[tuple[int, Digest]]) -> None:
        """What the ledger holds at the end."""
        marks = tuple(Mark(number, digest=digest.text) for number, digest in records)
        self.append(Entry("reader", Kind.READ, sink=LEDGER, markers=marks, final=True))


def _asked(announced: Entry, kind: Kind) -> Entry:
    return Entry("driver", kind, announced.op, announced.incarnation, sink=announced.sink, epoch=announced.epoch)
