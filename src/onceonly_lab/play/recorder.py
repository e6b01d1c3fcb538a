"""Record the history of a run in this process.

Drivers take turns, so the order of calls is the order of lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from onceonly.machine import commands as c
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_lab.history import LEDGER, RESTORE, Entry, Header, History, Kind, Mark, Op, Part, Promise, Range, Row
from onceonly_lab.history.recorder import Look, SinkUnreachable
from onceonly_lab.schedule import Gets, Schedule

PARTITION = "0"
"""The source's only one."""


class Input(Protocol):
    """What the source of a run holds."""

    def told(self, span: Range) -> tuple[Row, ...]:
        """The rows of a range, in order."""
        ...

    def brought(self, epoch: Epoch) -> tuple[Range, tuple[Row, ...]]:
        """Where an epoch stands in the source, and the rows that it is."""
        ...


def promises_of(schedule: Schedule, sinks: Sequence[str], *, ordered: bool = False) -> tuple[Promise, ...]:
    """What is promised about each sink of a schedule."""
    outputs = ["" if gets is Gets.ALL else str(gets) for gets in schedule.gets] or [""] * len(sinks)
    once, pairs = bool(schedule.keys), zip(sinks, outputs, strict=True)
    return tuple(Promise(sink, ordered, output=output, once=once) for sink, output in pairs)


class HistoryRecorder:
    """Collects the entries of one run.

    Args:
        header: what is promised.
        source: what the input is.
        records: how many it has.
    """

    def __init__(self, header: Header, source: Input, records: int) -> None:
        self._header = header
        self._source = source
        self._entries: list[Entry] = []
        for record in range(records):
            span = Range(PARTITION, record, record + 1)
            self.append(Entry("source", Kind.OK, Op.INPUT, slice=(span,), rows=source.told(span)))

    @property
    def history(self) -> History:
        """Everything so far."""
        return History(self._header, tuple(self._entries))

    def append(self, entry: Entry) -> None:
        """Write an entry."""
        self._entries.append(entry)

    # ---- what befalls the run

    def start(self, number: int) -> None:
        """A driver is started."""
        self.append(Entry("driver", Kind.START, incarnation=number))

    def kill(self, number: int, where: str) -> None:
        """A driver is killed from outside."""
        self.fault(f"{where}:kill")
        self.append(Entry("driver", Kind.KILL, incarnation=number))

    def fault(self, words: str, sink: str | None = None) -> None:
        """Something else goes wrong."""
        self.append(Entry("nemesis", Kind.FAULT, fault=words, sink=sink))

    def ledger_lost(self) -> None:
        """The ledger is gone, with what it held."""
        self.fault(RESTORE, LEDGER)

    def settle(self) -> None:
        """From here on nothing goes wrong any more."""
        self.append(Entry("judge", Kind.INVOKE, Op.SETTLE))

    def settled(self, refusal: str, why: str) -> None:
        """What became of the last driver: why it stopped, both empty where it came to the end."""
        kind = Kind.FAIL if refusal else Kind.OK
        self.append(Entry("judge", kind, Op.SETTLE, code=refusal or None, note=why))

    # ---- steps of drivers

    def offers(self, number: int) -> None:
        """The engine hands a driver a batch."""
        self.append(Entry("engine", Kind.INVOKE, Op.OFFER, incarnation=number))

    def returned(self, number: int) -> None:
        """A driver has returned it, and the engine has logged that."""
        self.append(Entry("engine", Kind.OK, Op.OFFER, incarnation=number))

    def refused(self, number: int, code: str) -> None:
        """A driver's query has ended with an error."""
        self.append(Entry("engine", Kind.FAIL, Op.OFFER, incarnation=number, code=code))

    def asks(
        self,
        number: int,
        op: Op,
        sink: str | None = None,
        epoch: Epoch | int | None = None,
        generation: int | None = None,
    ) -> None:
        """A driver is about to call; an epoch that is there already is told with what it holds."""
        if not isinstance(epoch, Epoch):
            self.append(Entry("driver", Kind.INVOKE, op, number, sink=sink, epoch=epoch, generation=generation))
            return
        span, rows = self._source.brought(epoch)
        entry = Entry(
            "driver",
            Kind.INVOKE,
            op,
            number,
            sink=sink,
            epoch=epoch.number,
            slice=(span,),
            rows=rows,
            digest=epoch.digest.text,
            generation=generation,
            manifest=epoch.manifest,
            replaces=epoch.replaces,
        )
        self.append(entry)

    def answers(
        self, number: int, op: Op, kind: Kind, sink: str | None = None, epoch: Epoch | int | None = None
    ) -> None:
        """A driver was answered."""
        epoch_number = epoch.number if isinstance(epoch, Epoch) else epoch
        self.append(Entry("driver", kind, op, number, sink=sink, epoch=epoch_number))

    def staged(
        self,
        number: int,
        epoch: int,
        content: Digest,
        manifest: str | None,
        *,
        span: Range | None = None,
        outputs: tuple[Part, ...] | None = None,
    ) -> None:
        """A driver was told what is staged where.

        Args:
            number: of the driver.
            epoch: its number.
            content: digest of the rows.
            manifest: names the bytes; ``None`` for rows in the driver's memory.
            span: what of the source they are. Rows computed again must be the same for the same range only: on
                another checkpoint a batch may be cut otherwise. ``None`` where no plan promises the same rows.
            outputs: what some sinks get instead, as the program says.
        """
        answer = Entry(
            "driver",
            Kind.OK,
            Op.STAGE,
            number,
            epoch=epoch,
            slice=None if span is None else (span,),
            digest=content.text,
            manifest=manifest,
            outputs=outputs,
        )
        self.append(answer)

    # ---- readers

    def read(self, sink: str, look: Look, *, final: bool = False) -> None:
        """A reader looks at a sink."""
        self.append(Entry("reader", Kind.INVOKE, Op.READ, sink=sink))
        try:
            snapshot = look()
        except SinkUnreachable as silent:
            self.append(Entry("reader", Kind.FAIL, Op.READ, sink=sink, note=silent.reason))
            return
        leaks = snapshot.leaks if final else ()
        self.append(
            Entry(
                "reader", Kind.READ, sink=sink, rows=snapshot.rows, markers=snapshot.markers, final=final, leaks=leaks
            )
        )

    def read_ledger(self, records: Iterable[tuple[int, Digest]]) -> None:
        """What the ledger holds at the end, unless it was lost: nobody promises that it is whole again then."""
        if any(entry.fault == RESTORE and entry.sink == LEDGER for entry in self._entries):
            return
        marks = tuple(Mark(number, digest=digest.text) for number, digest in records)
        self.append(Entry("reader", Kind.READ, sink=LEDGER, markers=marks, final=True))


def kind_of(op: Op, outcome: object) -> Kind:
    """What an outcome is as an answer. Being overtaken leaves it open what became of a request that is looked up."""
    match outcome:
        case c.Installed() | c.Committed() | c.Staged() | c.Done():
            return Kind.OK
        case c.Absent():
            return Kind.FAIL
        case c.Unknown():
            return Kind.INFO
        case _:
            return Kind.INFO if op is Op.LOOK_UP else Kind.FAIL
