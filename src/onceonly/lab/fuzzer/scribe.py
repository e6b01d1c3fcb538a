"""Writes the history of a simulated run in the lab's one format, so that the checker judges it like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from onceonly import commands as c
from onceonly import coordinator
from onceonly.lab.history import LEDGER, RESTORE, Entry, Header, History, Kind, Mark, Op, Promise, Range, Row
from onceonly.lab.model.parts import Held, SimulatedLedger, Target, record_at
from onceonly.lab.model.sinks import Fate
from onceonly.lab.model.world import Bound, Driver, World
from onceonly.lab.schedule import Schedule
from onceonly.state import Phase, State
from onceonly_checkpoints.epoch import Epoch, Slice


class Scribe:
    """Collects the entries of one run.

    Args:
        schedule: what is run.
        bound: the layout of its worlds.
        refusals: codes that are a right answer to what goes wrong in it.
    """

    def __init__(self, schedule: Schedule, bound: Bound, refusals: frozenset[str]) -> None:
        self._schedule = schedule
        self._bound = bound
        self._refusals = tuple(sorted(refusals))
        self._entries: list[Entry] = []
        for record in range(schedule.records):
            rows = tuple(Row(one) for one in self._identities(record, record + 1))
            self._entries.append(Entry("source", Kind.OK, Op.INPUT, slice=(Range("0", record, record + 1),), rows=rows))

    @property
    def history(self) -> History:
        """Everything so far."""
        promises = tuple(Promise(sink) for sink in self._bound.sinks)
        header = Header(promises, self._schedule.line, self._schedule.seed, False, refusals=self._refusals)
        return History(header, tuple(self._entries))

    def start(self, number: int) -> None:
        """A driver is started."""
        self._entries.append(Entry("driver", Kind.START, incarnation=number))

    def kill(self, number: int, fault: str) -> None:
        """A driver is killed from outside."""
        self._entries.append(Entry("nemesis", Kind.FAULT, fault=fault))
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

    def settled(self, ended: Driver) -> None:
        """What became of the last driver."""
        kind = Kind.OK if ended.finished else Kind.FAIL
        self._entries.append(Entry("judge", kind, Op.SETTLE, code=ended.refusal or None))

    # ---- steps of drivers

    def before(self, driver: Driver) -> None:
        """A driver is about to take a step."""
        if driver.memory is None and driver.running and driver.state is not None:
            announced = self._announced(driver, driver.state)
            self._entries += [announced] if announced else []

    def after(self, was: Driver, now: Driver, fate: Fate) -> None:
        """A driver has taken a step."""
        if now.memory is not None and not now.over:
            return
        engine = Entry("engine", Kind.OK, Op.OFFER, incarnation=was.number)
        if not was.running or was.state is None:
            if now.running:
                self._entries.append(Entry("engine", Kind.INVOKE, Op.OFFER, incarnation=was.number))
        elif isinstance(command := coordinator.next(was.state), c.Return):
            self._entries.append(engine)
        elif announced := self._announced(was, was.state):
            kind = _answer(command, was.state, now, fate)
            answer = Entry("driver", kind, announced.op, was.number, sink=announced.sink, epoch=announced.epoch)
            self._entries.append(_with_bytes(answer, now) if announced.op is Op.STAGE else answer)
        if now.refusal:
            failed = Entry("engine", Kind.FAIL, Op.OFFER, incarnation=was.number, code=now.refusal)
            self._entries.append(failed)

    def _announced(self, driver: Driver, state: State) -> Entry | None:
        match coordinator.next(state):
            case c.Commit(marker):
                return self._epoch(driver, Op.COMMIT, marker.epoch, marker.fence.generation, marker.sink)
            case c.LookUp(marker):
                return self._epoch(driver, Op.LOOK_UP, marker.epoch, marker.fence.generation, marker.sink)
            case c.Record(epoch, _) if not state.skipped and state.fence:
                return self._epoch(driver, Op.RECORD, epoch, state.fence.generation, LEDGER)
            case c.Stage(number):
                return Entry("driver", Kind.INVOKE, Op.STAGE, driver.number, epoch=number)
            case c.Install(sink, fence):
                return Entry("driver", Kind.INVOKE, Op.INSTALL, driver.number, sink=sink, generation=fence.generation)
            case _:
                return None

    def _epoch(self, driver: Driver, op: Op, epoch: Epoch, generation: int, sink: str) -> Entry:
        return Entry(
            "driver",
            Kind.INVOKE,
            op,
            driver.number,
            sink=sink,
            epoch=epoch.number,
            slice=(Range("0", *_ends(epoch.slice)),),
            rows=tuple(Row(one) for one in self._identities(*_ends(epoch.slice))),
            digest=epoch.digest.text,
            generation=generation,
            manifest=epoch.manifest,
        )

    def _identities(self, start: int, end: int) -> tuple[str, ...]:
        rows = self._schedule.rows
        return tuple(f"{record}.{row}" for record in range(start, end) for row in range(rows))

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
        identities = self._identities(*_ends(held.epoch.slice))
        seen = identities if held.whole else identities[: len(identities) // 2]
        return tuple(Row(one, held.epoch.number, value=held.content.text) for one in seen)

    def final(self, world: World) -> None:
        """Every target at the end, and the ledger, unless it was lost: nobody promises that it is whole again then."""
        for target in world[: self._bound.staging]:
            self.read(cast(Target, target), final=True)
        if any(entry.fault == RESTORE for entry in self._entries):
            return
        ledger = cast(SimulatedLedger, world[self._bound.ledger])
        marks = tuple(Mark(one.epoch.number, digest=one.epoch.digest.text) for one in ledger.records)
        self._entries.append(Entry("reader", Kind.READ, sink=LEDGER, markers=marks, final=True))


def _with_bytes(answer: Entry, driver: Driver) -> Entry:
    """The answer of a stage, which says what was staged where."""
    epoch = driver.state.epoch if driver.state else None
    return replace(answer, digest=epoch.digest.text, manifest=epoch.manifest) if epoch else answer


def _ends(slice_: Slice) -> tuple[int, int]:
    return record_at(slice_.start), record_at(slice_.end)


def _answer(command: c.Command, was: State, now: Driver, fate: Fate) -> Kind:
    """What a driver was told: yes, no, or nothing that can be relied on."""
    looked = isinstance(command, c.LookUp)
    if fate is not Fate.ANSWERED:
        return Kind.INFO
    if now.refusal or now.state is None:
        return Kind.INFO if looked else Kind.FAIL
    if now.state.phase is Phase.PROBE:
        return Kind.FAIL
    asked_again = now.state.phase is Phase.LOOK_UP or (now.state.phase, now.state.index) == (was.phase, was.index)
    return Kind.INFO if asked_again and not isinstance(command, c.Record) else Kind.OK
