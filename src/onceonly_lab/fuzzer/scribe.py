"""Writes the history of a simulated run in the lab's one format, so that the checker judges it like any other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onceonly_checkpoints.epoch import Epoch
from onceonly_lab.history import LEDGER, RESTORE, Entry, Header, History, Kind, Mark, Op, Promise, Range, Row
from onceonly_lab.model.parts import Held, Records, SimulatedLedger, StagedEpoch, Target, records_in
from onceonly_lab.schedule import Schedule


class Scribe:
    """Collects the entries of one run.

    Args:
        schedule: what is run.
        sinks: ids.
        refusals: codes that are a right answer to what goes wrong in it.
    """

    def __init__(self, schedule: Schedule, sinks: tuple[str, ...], refusals: frozenset[str]) -> None:
        self._schedule = schedule
        self._sinks = sinks
        self._refusals = tuple(sorted(refusals))
        self._entries: list[Entry] = []
        self._ends: dict[str, int] = {}
        for record in range(schedule.records):
            rows = tuple(Row(one) for one in self._identities(1 << record))
            self._entries.append(Entry("source", Kind.OK, Op.INPUT, slice=(Range("0", record, record + 1),), rows=rows))

    @property
    def history(self) -> History:
        """Everything so far."""
        promises = tuple(Promise(sink) for sink in self._sinks)
        header = Header(promises, self._schedule.line, self._schedule.seed, False, refusals=self._refusals)
        return History(header, tuple(self._entries))

    def start(self, number: int) -> None:
        """A driver is started."""
        self._entries.append(Entry("driver", Kind.START, incarnation=number))

    def kill(self, number: int, where: str) -> None:
        """A driver is killed from outside."""
        self._entries.append(Entry("nemesis", Kind.FAULT, fault=f"{where}:kill"))
        self._entries.append(Entry("driver", Kind.KILL, incarnation=number))

    def fault(self, words: str) -> None:
        """Something else goes wrong."""
        self._entries.append(Entry("nemesis", Kind.FAULT, fault=words))

    def ledger_lost(self) -> None:
        """The ledger is gone, with what it held."""
        self._entries.append(Entry("nemesis", Kind.FAULT, fault=RESTORE, sink=LEDGER))

    def settle(self) -> None:
        """From here on nothing goes wrong any more."""
        self._entries.append(Entry("judge", Kind.INVOKE, Op.SETTLE))

    def settled(self, refusal: str) -> None:
        """What became of the last driver: why it stopped, empty where it came to the end."""
        kind = Kind.FAIL if refusal else Kind.OK
        self._entries.append(Entry("judge", kind, Op.SETTLE, code=refusal or None))

    # ---- steps of drivers

    def offers(self, number: int) -> None:
        """The engine hands a driver a batch."""
        self._entries.append(Entry("engine", Kind.INVOKE, Op.OFFER, incarnation=number))

    def returned(self, number: int) -> None:
        """A driver has returned it, and the engine has logged that."""
        self._entries.append(Entry("engine", Kind.OK, Op.OFFER, incarnation=number))

    def refused(self, number: int, code: str) -> None:
        """A driver's query has ended with an error."""
        self._entries.append(Entry("engine", Kind.FAIL, Op.OFFER, incarnation=number, code=code))

    def asks(
        self,
        number: int,
        op: Op,
        sink: str | None = None,
        epoch: Epoch | int | None = None,
        generation: int | None = None,
    ) -> None:
        """A driver is about to call; an epoch is told with what it holds."""
        asked = Entry("driver", Kind.INVOKE, op, number, sink=sink, generation=generation)
        if isinstance(epoch, Epoch):
            brought = records_in(epoch.digest)
            asked = replace(
                asked,
                epoch=epoch.number,
                slice=(self._range(epoch),),
                rows=tuple(Row(one) for one in self._identities(brought)),
                digest=epoch.digest.text,
                manifest=epoch.manifest,
            )
        self._entries.append(replace(asked, epoch=epoch) if isinstance(epoch, int) else asked)

    def answers(self, number: int, op: Op, kind: Kind, sink: str | None = None, epoch: int | None = None) -> None:
        """A driver was answered."""
        self._entries.append(Entry("driver", kind, op, number, sink=sink, epoch=epoch))

    def staged(self, number: int, staged: StagedEpoch) -> None:
        """A driver was told what is staged where."""
        answer = Entry("driver", Kind.OK, Op.STAGE, number, epoch=staged.number)
        self._entries.append(replace(answer, digest=staged.content.text, manifest=staged.reference))

    def _range(self, epoch: Epoch) -> Range:
        """Where an epoch stands in the source."""
        brought, before = records_in(epoch.digest), self._ends.get(epoch.previous_chain, 0)
        begin = (brought & -brought).bit_length() - 1 if brought else before
        end = max(before, brought.bit_length())
        self._ends[epoch.chain] = end
        return Range("0", begin, end)

    def _identities(self, brought: Records) -> tuple[str, ...]:
        rows = self._schedule.rows
        found = (record for record in range(brought.bit_length()) if brought >> record & 1)
        return tuple(f"{record}.{row}" for record in found for row in range(rows))

    # ---- readers

    def read(self, target: Target, *, final: bool = False) -> None:
        """A reader looks at a target."""
        rows = tuple(row for held in target.held for row in self._rows(held))
        marks = tuple(
            Mark(held.epoch.number, held.marker.fence.generation, digest=held.epoch.digest.text)
            for held in target.held
            if held.marker
        )
        self._entries.append(Entry("reader", Kind.INVOKE, Op.READ, sink=target.name))
        self._entries.append(Entry("reader", Kind.READ, sink=target.name, rows=rows, markers=marks, final=final))

    def _rows(self, held: Held) -> tuple[Row, ...]:
        if held.content is None:
            return ()
        identities = self._identities(records_in(held.content))
        seen = identities if held.whole else identities[: len(identities) // 2]
        return tuple(Row(one, held.epoch.number, value=held.content.text) for one in seen)

    def final(self, targets: Iterable[Target], ledger: SimulatedLedger) -> None:
        """Every target at the end, and the ledger, unless it was lost: nobody promises that it is whole again then."""
        for target in targets:
            self.read(target, final=True)
        if any(entry.fault == RESTORE for entry in self._entries):
            return
        marks = tuple(Mark(one.epoch.number, digest=one.epoch.digest.text) for one in ledger.records)
        self._entries.append(Entry("reader", Kind.READ, sink=LEDGER, markers=marks, final=True))
