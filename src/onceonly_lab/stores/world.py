"""World of one schedule on real stores.

It has places, checkpoints, ledger and staging, and plays the schedule.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceonly.errors import OnceOnlyError
from onceonly.faults import Point
from onceonly.machine import commands as c
from onceonly.machine.callback_rules import Call
from onceonly.machine.division_rules import WindowsConfig
from onceonly.machine.facts import Offer
from onceonly.protocol import Sink
from onceonly.protocol.batch import ArrowBatch
from onceonly.runtime.staging import StagedEpochs
from onceonly.windows.epoch_step import WindowStepper
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.fuzzer.draw import draw_alone
from onceonly_lab.history import Header, Part, Range
from onceonly_lab.history.recorder import Look
from onceonly_lab.model.parts import PIPELINE, keeper_of
from onceonly_lab.model.spark import Planned, Refused
from onceonly_lab.model.world import ALLOWED
from onceonly_lab.play.driver import Driver
from onceonly_lab.play.many import Report, play_all
from onceonly_lab.play.play import Played, play_in
from onceonly_lab.play.recorder import HistoryRecorder, promises_of
from onceonly_lab.play.world import Parts, Process, Running, World
from onceonly_lab.schedule import LEDGER, SENDING, SENT, Action, Fault, Level, Schedule
from onceonly_lab.servers.strikes import Strike
from onceonly_lab.stores.divided import parts_of
from onceonly_lab.stores.operator import Operator
from onceonly_lab.stores.places import Place, Servers
from onceonly_lab.stores.runner import RecordingRunner
from onceonly_lab.stores.source import Source
from onceonly_lab.stores.windowed import WINDOWS, WindowedTable, keeper_beside, stepping

# ---- Everything of one run on real stores that outlives its drivers: places, ledger, staging; and how it is all
# made.

READS = frozenset({Point.REINDEX_AFTER, Point.COMMIT_AFTER})
"""Where readers look while drivers are at work."""


def shipped_sink(store: Place) -> Sink:
    """The sink as it ships."""
    return store.sink()


def committed_rows(store: Place) -> Look:
    """The reader as it should be."""
    return store.look()


def shipped_staging(folder: str, sinks: Sequence[Sink]) -> StagedEpochs:
    """Staging as it ships."""
    return StagedEpochs(folder, PIPELINE, sinks)


@dataclass(frozen=True, slots=True)
class Making:
    """How the parts of a run are made. The defaults are the product; whoever breaks it replaces one.

    Attributes:
        sink: makes a sink on a place.
        runner: carries commands out.
        driver: what stands between engine and runner.
        look: makes a reader of a place.
        staging: makes the directory of staged epochs that belongs to some sinks.
        operator: obeys what is printed.
    """

    sink: Callable[[Place], Sink] = shipped_sink
    runner: type[RecordingRunner] = RecordingRunner
    driver: type[Driver] = Driver
    look: Callable[[Place], Look] = committed_rows
    staging: Callable[[str, Sequence[Sink]], StagedEpochs] = shipped_staging
    operator: type[Operator] = Operator


SHIPPED = Making()


@dataclass(frozen=True, slots=True)
class Terms:
    """What is run besides the schedule.

    Attributes:
        reads: points after which every sink is read.
        random: see :class:`Source`, as for ``files``.
        files: the same.
        ordered: whether rows of one key are promised to stand in the order of the input.
        speculative: executors write, and every task runs twice.
        begins: the source says where a checkpoint's first batch begins.
        parts: in how many calls the program hands each batch over.
        refusals: codes that are a right answer to what is done besides.
        before: what else goes wrong before an incarnation.
    """

    reads: Collection[Point] = READS
    random: bool = False
    files: bool = False
    ordered: bool = False
    speculative: bool = False
    begins: bool = False
    parts: int = 1
    refusals: frozenset[str] = frozenset()
    before: tuple[tuple[int, Callable[[Stores], None]], ...] = ()

    def source(self, schedule: Schedule) -> Source:
        """The input of a schedule."""
        parts = tuple(range(self.parts))
        return Source(schedule.records, schedule.rows, self.random, self.files, self.speculative, self.begins, parts)

    def header(self, schedule: Schedule, places: Sequence[Place]) -> Header:
        """What is promised."""
        damage = any(loss.what != LEDGER for loss in schedule.losses)
        allowed = self.refusals | (ALLOWED if damage else frozenset[str]())
        promises = promises_of(schedule, [store.id for store in places], ordered=self.ordered)
        refusals = tuple(sorted(allowed))
        # A result says at which clock it was written, and a batch has another one on another checkpoint.
        is_deterministic = not self.random and not (schedule.windows and damage)
        return Header(promises, schedule.line, schedule.seed, deterministic=is_deterministic, refusals=refusals)


ORDINARY = Terms()


class Stores(World):
    """The world of a schedule.

    Args:
        schedule: what is run.
        servers: the servers.
        making: how the parts are made.
        terms: the rest.

    Attributes:
        folder: a directory of its own.
        source: the input.
        places: by sink id, in commit order.
        ledgers: how often the ledger was made.
        printed: the message of the newest refusal.
    """

    def __init__(self, schedule: Schedule, servers: Servers, making: Making = SHIPPED, terms: Terms = ORDINARY) -> None:
        self.folder, places = servers.places(schedule.sinks, numbered=schedule.replaces, windowed=schedule.windows)
        self.source = terms.source(schedule)
        super().__init__(schedule, HistoryRecorder(terms.header(schedule, places), self.source, schedule.records))
        for store in places:
            store.executors = terms.speculative
        self.places = {sink_store.id: sink_store for sink_store in places}
        self._steppings: dict[int, WindowStepper] = {}
        self.making, self._terms = making, terms
        # Whoever keeps the state of windows has a table beside the one of a sink.
        keeper = keeper_of(schedule.sinks) if schedule.windows else None
        self._keeping = None if keeper is None else places[keeper]
        self._ids = tuple(sink.id for sink in self.handles())
        self.ledgers, self.printed = 1, ""
        self._points = 0
        self._strike: tuple[Fault, Strike] | None = None
        self._late: list[tuple[int, Strike]] = []

    def ledger(self) -> SqlLedger:
        """A connection to the ledger that stands now."""
        return SqlLedger(str(self.folder / f"ledger{self.ledgers}.db"))

    def staging(self, sinks: Sequence[Sink]) -> StagedEpochs:
        """The directory of staged epochs."""
        return self.making.staging(str(self.folder / "staging"), sinks)

    def operator(self) -> Operator:
        """Somebody who obeys what is printed."""
        return self.making.operator(self)

    def staged(self) -> list[Path]:
        """Data files of staged epochs."""
        return sorted((self.folder / "staging").glob("*/*/*.parquet"))

    # ---- what a driver asks

    @property
    def sinks(self) -> tuple[str, ...]:
        """Ids of the sinks, in commit order; who keeps the state of windows comes last."""
        return self._ids

    @property
    def windows(self) -> WindowsConfig | None:
        """Those that ship."""
        return WINDOWS if self.schedule.windows else None

    def wire(self, sink: str) -> Place:
        """The place whose wire a sink's requests go over: of state that of the table that it stands beside."""
        store = self.places.get(sink, self._keeping)
        assert store is not None, f"nobody knows {sink}"
        return store

    def handles(self, make: Callable[[Place], Sink] = shipped_sink) -> list[Sink]:
        """New handles of all sinks, as somebody who starts has them."""
        made = {name: make(store) for name, store in self.places.items()}
        keepers = [keeper_beside(made[self._keeping.id])] if self._keeping else []
        return [*made.values(), *keepers]

    def driver(self, process: Process) -> Running:
        """A driver in a process."""
        return self.making.driver(process, self)

    def parts(self, process: Process) -> Parts:
        """Handles of its own."""
        sinks, ledger = self.handles(self.making.sink), self.ledger()
        if self._keeping:
            keeper: Any = sinks[-1]
            self._steppings[process.number] = stepping(sinks, keeper)
        return Parts(sinks, ledger, self.making.runner(sinks, ledger, self.staging(sinks), process, self))

    def owner(self, process: Process) -> str:
        """Servers outlive runs, so it is drawn as the product draws it."""
        return secrets.token_hex(4)

    def calls(self, driver: Running, planned: Planned) -> Iterator[tuple[Call, int]]:
        """As many as the program makes of a batch."""
        for part in self.source.parts:
            yield Call(PIPELINE, planned.batch_id, planned.batch_id, driver.finished), part

    def offer(self, driver: Running, planned: Planned) -> Offer:
        """What the callback sees of a batch."""
        return self.source.offer(driver.checkpoint, planned)

    def batch(self, driver: Running, planned: Planned, handed: int, offer: Offer) -> ArrowBatch:
        """The rows of a call."""
        if self.schedule.windows:
            table = self.source.table(self.source.planned(planned), handed)
            return WindowedTable(table, self._steppings[driver.process.number])
        return self.source.batch(planned, handed, self.schedule.division(self.sinks, driver.process.number))

    def shares(self, number: int, span: Range) -> tuple[Part, ...] | None:
        """What the call of a driver makes of a range of the source; ``None`` where all sinks get all rows."""
        return parts_of(self.source.identities(span), self.schedule.division(self.sinks, number))

    def stopped(self, process: Process, error: Exception) -> str:
        """A query fails by whatever the callback raises, and so does this one."""
        name = type(error).__name__
        process.why, self.printed = f"{name}: {error}", str(error)
        if isinstance(error, OnceOnlyError):  # not whatever has a code: SQLAlchemy's errors have one, too
            return error.code
        return str(error) if isinstance(error, Refused) else name

    # ---- what who plays the schedule asks

    @property
    def now(self) -> int:
        """Points that were passed."""
        return self._points

    def passes(self, process: Process, point: Point) -> tuple[Fault, ...]:
        """Requests that were late land, readers look, and sleepers wake, before anything strikes."""
        hit_key = process.number, point
        self._points += 1
        self.struck.passed[hit_key] += 1
        if point not in SENT:
            self.struck.hits[hit_key] += 1
        self.land()
        if point in self._terms.reads:
            self.read()
        self.before_step(process)
        return tuple(
            fault for fault in self.struck.due(*hit_key) if fault.action not in SENDING or self._without_wire(fault)
        )

    def _without_wire(self, fault: Fault) -> bool:
        """Whether an answer is to be lost where there is no wire to lose it on: the process loses it then."""
        return fault.action is Action.LOSE_ANSWER and self._strike is None

    def tidy(self, last: Process) -> None:
        """What a look refuses installs no fence, so only a person ends what a dead driver left open before its time.

        Whoever has asked for a fence must have ended it himself.
        """
        fences = self.struck.hits[last.number, Point.INSTALL_SENT]
        if last.refusal and not fences and any(store.look()().leaks for store in self.places.values()):
            self.operator().resolve()

    def befalls(self, number: int) -> None:
        """What is done besides, before an incarnation starts."""
        for before, act in self._terms.before:
            if before == number:
                act(self)

    def lose_ledger(self) -> None:
        """The next connection finds an empty one."""
        self.ledgers += 1
        self.recorder.ledger_lost()
        self.steps.append("the ledger is lost")

    def read(self, *, final: bool = False) -> None:
        """Have every sink read."""
        for store in self.places.values():
            self.recorder.read(store.id, self.making.look(store), final=final)

    def read_all(self) -> None:
        """Have every sink read at the end, and the ledger."""
        self.read(final=True)
        ledger = self.ledger()
        ledger.open()
        names = [pipeline.name for pipeline in ledger.pipelines()]
        records = [(epoch.epoch.number, epoch.epoch.digest) for name in names for epoch in ledger.epochs(name)]
        ledger.close()
        self.recorder.read_ledger(records)

    # ---- requests

    def sending(self, process: Process, command: c.Install | c.Commit) -> None:
        """A request is about to be sent: what the schedule says of it is put in force on its wire."""
        if isinstance(command, c.Install):
            point, sink = Point.INSTALL_SENT, command.sink
        else:
            point, sink = Point.COMMIT_SENT, command.marker.sink
        self.struck.hits[process.number, point] += 1
        for fault in self.struck.due(process.number, point):
            strike = self.wire(sink).strike(fault.action) if fault.action in SENDING else None
            if strike is not None:
                self._strike = (fault, strike)
                self._late += [(self.now + fault.steps, strike)] if fault.action is Action.DELAY else []

    def sent(self) -> None:
        """It was answered, or the driver gave up."""
        struck, self._strike = self._strike, None
        if struck is None:
            return
        fault, strike = struck
        if strike.hit:
            self.struck.acted.add(fault)
            self.recorder.fault(f"{fault.point}:{fault.action}")
        if fault.action is not Action.DELAY or not strike.hit:
            strike.end()

    def land(self, *, everything: bool = False) -> None:
        """Let what was delayed land once its time has come."""
        for entry in [
            candidate for candidate in self._late if everything or (candidate[0] <= self.now and candidate[1].hit)
        ]:
            self._late.remove(entry)
            entry[1].end()


# ---- Plays schedules on real stores, by a clock that counts the points that are passed.


def play(schedule: Schedule, servers: Servers, making: Making = SHIPPED, terms: Terms = ORDINARY) -> Played:
    """Run a schedule. One at a time in a process: fault points are global.

    Args:
        schedule: what is run.
        servers: the servers.
        making: how the parts are made.
        terms: the rest.

    Raises:
        Stuck: a driver hangs.
    """
    world = Stores(schedule, servers, making, terms)
    try:
        return play_in(world)
    finally:
        world.land(everything=True)


def run(first: int, count: int, servers: Servers, tell: Callable[[Report], None] = lambda _: None) -> Report:
    """Play the schedules of seeds from ``first`` on, which level L1 draws, too, until one is not clean.

    Args:
        first: seed.
        count: how many.
        servers: the servers.
        tell: hears after each schedule what all of them showed so far.

    Raises:
        Stuck: a driver hangs; a note says with which seed.
    """
    schedules = (draw_alone(seed) for seed in range(first, first + count))
    return play_all(schedules, lambda schedule: play(schedule, servers), Report(Level.STORES), tell=tell)
