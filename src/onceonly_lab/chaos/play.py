"""Play one fault schedule on a real Spark job.

Drivers start and die, checkpoints are damaged, and every sink is read.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from onceonly.faults import Point
from onceonly_lab.chaos.destinations import Destination, Destinations, Wires
from onceonly_lab.chaos.environment import Task
from onceonly_lab.chaos.monitor import DriverMonitor
from onceonly_lab.chaos.pipeline import source_entries, write_source
from onceonly_lab.chaos.pool import Played, Stage, unpolled
from onceonly_lab.chaos.program import lose_ledger
from onceonly_lab.driver import Driver
from onceonly_lab.history import LEDGER, RESTORE, Entry, Header, History, Kind, Op, load
from onceonly_lab.history.recorder import Poller, Recorder, Seen, SinkUnreachable
from onceonly_lab.model.parts import Kind as SinkKind
from onceonly_lab.model.spark import OTHERS, REFUSALS, SHARED, Damage
from onceonly_lab.model.world import ALLOWED
from onceonly_lab.schedule import LEDGER as LEDGER_ACTION
from onceonly_lab.schedule import Action, Fault, Schedule

# ---- What happens to a real checkpoint and ledger between two drivers: the damage that simulated ones know, on
# files.

OPERABLE = frozenset(Damage) - SHARED - OTHERS
"""Damage that one directory can suffer; a copy is used by somebody else."""


def operate(checkpoint: Path, what: str) -> bool:
    """Damage a checkpoint, or lose the ledger beside it.

    Args:
        checkpoint: directory of the query.
        what: as a schedule says it.

    Returns:
        Whether there was something to damage in this way.
    """
    if what == LEDGER_ACTION:
        return lose_ledger(str(checkpoint))
    planned = _batches(checkpoint, "offsets")
    return bool(planned) and _OPERATIONS[Damage(what)](checkpoint)


def _deleted(checkpoint: Path) -> bool:
    shutil.rmtree(checkpoint)
    return True


def _commit_removed(checkpoint: Path) -> bool:
    planned, done = _batches(checkpoint, "offsets"), _batches(checkpoint, "commits")
    return planned[-1:] == done[-1:] and _remove(checkpoint, "commits", done[-1])


def _cut_off(checkpoint: Path) -> bool:
    newest = _batches(checkpoint, "offsets")[-1]
    _remove(checkpoint, "commits", newest)
    return _remove(checkpoint, "offsets", newest)


def _rolled_back(commits: int) -> Callable[[Path], bool]:
    """As it was when the last of the batches that are kept had been planned, and was not yet committed."""

    def operation(checkpoint: Path) -> bool:
        done = _batches(checkpoint, "commits")
        if len(done) < commits:
            return False
        last_batch = done[-commits]
        for log, first in (("offsets", last_batch + 1), ("commits", last_batch)):
            for batch in _batches(checkpoint, log):
                if batch >= first:
                    _remove(checkpoint, log, batch)
        return True

    return operation


def _emptied(checkpoint: Path) -> bool:
    newest = _batches(checkpoint, "offsets")[-1]
    _forget_checksum(checkpoint, "offsets", newest)
    (checkpoint / "offsets" / str(newest)).write_bytes(b"")
    return True


def _robbed_of(name: str) -> Callable[[Path], bool]:
    def operation(checkpoint: Path) -> bool:
        path = checkpoint / name
        if path.is_dir():
            shutil.rmtree(path)
            return True
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed

    return operation


_OPERATIONS: dict[Damage, Callable[[Path], bool]] = {
    Damage.DELETED: _deleted,
    Damage.COMMIT_REMOVED: _commit_removed,
    Damage.CUT_OFF: _cut_off,
    Damage.ROLLED_BACK: _rolled_back(1),
    Damage.ROLLED_BACK_TWO: _rolled_back(2),
    Damage.EMPTIED: _emptied,
    Damage.OFFSETS_REMOVED: _robbed_of("offsets"),
    Damage.METADATA_REMOVED: _robbed_of("metadata"),
    Damage.SOURCES_REMOVED: _robbed_of("sources"),
}


def _batches(checkpoint: Path, log: str) -> list[int]:
    return sorted(int(path.name) for path in (checkpoint / log).glob("*") if path.name.isdigit())


def _remove(checkpoint: Path, log: str, batch: int) -> bool:
    _forget_checksum(checkpoint, log, batch)
    path = checkpoint / log / str(batch)
    existed = path.exists()
    path.unlink(missing_ok=True)
    return existed


def _forget_checksum(checkpoint: Path, log: str, batch: int) -> None:
    (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)


# ---- Plays one schedule on a real job: drivers start, die as planned and start again, and every sink is looked at.

_CLEARS_S = 10.0
"""How long a database may take to notice that the client of a transaction is dead."""

_ENGINE = "StreamingQueryException"
"""Code of a refusal that is Spark's own, where its checkpoint cannot be read any more."""


def play(stage: Stage, schedule: Schedule, name: str, *, plain: bool | None) -> Played:
    """Play a schedule.

    Args:
        stage: where.
        schedule: what.
        name: of the run: a folder, and a part of names of databases and topics.
        plain: whether the job uses nothing of ours; ``None``: nobody knows yet.

    Raises:
        ConfigurationError: E117 the job starts no query; E118 a sink cannot be polled.
        DriverEnded: a driver died of something else.
    """
    return _Run(stage, schedule, name, plain).played()


class _Run:
    def __init__(self, stage: Stage, schedule: Schedule, name: str, plain: bool | None) -> None:
        self._stage, self._schedule, self._plain = stage, schedule, plain
        self._folder = stage.folder / name
        self._files, self._checkpoint = self._folder / "input", stage.checkpoint(name)
        write_source(stage.job, self._files, schedule.records, schedule.rows)
        self._destinations = Destinations(stage.servers, stage.job, self._folder)
        self._played = Played(schedule, self._folder / "history.jsonl")
        self._pollers: dict[str, Poller] = {}
        self._open = ExitStack()
        self._asleep: list[tuple[Driver, int]] = []
        self._wires = Wires(self._destinations.answers, self._met)

    def played(self) -> Played:
        began = time.monotonic()
        with Recorder(self._played.file, self._header()) as self._record:
            for entry in source_entries(self._stage.job, self._schedule.records, self._schedule.rows):
                self._record.append(entry)
            with self._open:
                self._open.callback(self._wires.close)
                self._incarnate()
            # A poller at work would be an open transaction in the last look.
            self._settled()
        self._played.seconds = time.monotonic() - began
        self._finish()
        return self._played

    # ---- drivers

    def _incarnate(self) -> None:
        """Start drivers until one reaches the end; the one after the last fault is given nothing to die of."""
        last = self._schedule.incarnations + 1
        for number in range(1, last + 1):
            self._lose(number)
            if number == last:
                self._record.append(Entry("judge", Kind.INVOKE, Op.SETTLE))
            self._played.ended = self._live(number)
            if self._played.ended == "done":
                break
        for driver, number in self._asleep:
            self._wake(driver, number)

    def _live(self, number: int) -> str:
        faults = tuple(fault for fault in self._schedule.faults if fault.incarnation == number)
        task = Task(
            self._stage.job.name,
            str(self._files),
            str(self._checkpoint),
            str(self._destinations.answers),
            self._record.address,
            number,
            faults,
            self._plain,
        )
        self._record.append(Entry("driver", Kind.START, incarnation=number))
        driver = self._stage.pool.start(task)
        self._played.drivers += 1
        ended = DriverMonitor(self, driver, number, self).attend()
        self._wires.gone()
        if ended == "paused":
            self._asleep.append((driver, number))
            return ended
        self._stage.pool.dismiss(driver)
        if ended == "orphaned":
            self._look_after_a_kill()
        if ended == "killed":
            self._record.append(Entry("driver", Kind.KILL, incarnation=number))
            self._played.kills += 1
            self._look_after_a_kill()
        return ended

    def _wake(self, driver: Driver, number: int) -> None:
        """Let a driver go on that others take for dead, and wait for what it does."""
        self._record.append(Entry("nemesis", Kind.FAULT, fault="continued", note=f"driver {number} wakes up"))
        driver.resume()
        DriverMonitor(self, driver, number, self).attend()
        self._played.woken += 1
        self._stage.pool.dismiss(driver)

    def _lose(self, before: int) -> None:
        for loss in self._schedule.losses:
            if loss.before != before or not operate(self._checkpoint, loss.what):
                continue
            self._played.operated.add(loss)
            of_ledger = loss.what == LEDGER
            fault = RESTORE if of_ledger else "checkpoint"
            self._record.append(
                Entry("nemesis", Kind.FAULT, sink=LEDGER if of_ledger else None, fault=fault, note=loss.what)
            )

    # ---- what drivers say

    def waits(self) -> None:
        """Pollers look by themselves."""

    def told(self, event: dict[str, Any], number: int) -> None:
        """Take note of an event that needs no more than that."""
        if event["event"] == "pass":
            self._played.passed[Point(event["point"])] += 1
            self._wires.passed()
        elif event["event"] == "wants":
            self._give(SinkKind(event["kind"]), event["name"])
        elif event["event"] == "done":
            self._played.callbacks = max(self._played.callbacks, event["callbacks"])
        elif event["event"] == "failed":
            self._played.words = event["text"]
            self._record.append(Entry("driver", Kind.INFO, Op.EXECUTE, number, code=event["code"]))

    def strike(self, number: int, at: int) -> Action:
        """A fault of a driver comes to act."""
        fault = self._fault(number, at)
        self._met(fault)
        return fault.action

    def arm(self, number: int, at: int) -> None:
        """A driver is about to send a request, and waits until a fault is in force on the wire."""
        self._wires.arm(self._fault(number, at), at, (sink.wire for sink in self._played.sinks if sink.wire))

    def over(self, at: int) -> None:
        """The request was answered or given up, and the driver waits until the fault is out of force."""
        self._wires.over(at)

    def _fault(self, number: int, at: int) -> Fault:
        return [fault for fault in self._schedule.faults if fault.incarnation == number][at]

    def _met(self, fault: Fault) -> None:
        self._played.struck.add(self._schedule.faults.index(fault))
        words = f"{fault.point}:{fault.action}"
        self._record.append(Entry("nemesis", Kind.FAULT, fault=words, note=fault.line))

    def _give(self, kind: SinkKind, name: str) -> None:
        made = self._destinations.make(kind, name)
        self._played.sinks.append(made)
        self._pollers[made.sink] = self._open.enter_context(Poller(self._record, made.sink, made.look, every=0.5))

    @property
    def patience(self) -> float:
        """Seconds for one driver."""
        return self._stage.job.patience

    @property
    def name(self) -> str:
        """Of the job."""
        return self._stage.job.name

    # ---- readers

    def _look_after_a_kill(self) -> None:
        snapshots = [self._read(sink) for sink in self._played.sinks]
        held = {frozenset(row.identity for row in snapshot.rows) for snapshot in snapshots}
        self._played.split = self._played.split or len(held) > 1

    def _settled(self) -> None:
        ended = self._played.ended
        if ended == "done":
            self._record.append(Entry("judge", Kind.OK, Op.SETTLE))
        else:
            kind = Kind.INFO if ended == "silent" else Kind.FAIL
            self._record.append(Entry("judge", kind, Op.SETTLE, code=ended))
        for sink in self._played.sinks:
            self._last_look(sink)

    def _last_look(self, destination: Destination) -> None:
        """Read a sink for the verdict, once the database has noticed who is dead."""
        deadline = time.monotonic() + _CLEARS_S
        while self._read(destination).leaks and time.monotonic() < deadline:
            time.sleep(0.1)
        self._read(destination, final=True)

    def _read(self, destination: Destination, *, final: bool = False) -> Seen:
        try:
            return self._pollers[destination.sink].read(final=final)
        except SinkUnreachable as silent:
            raise unpolled(self.name, destination.sink, silent.reason) from silent

    def _header(self) -> Header:
        """What is judged is known once the job has asked for it; see :meth:`_finish`."""
        damaged = [loss.what for loss in self._schedule.losses if loss.what != LEDGER]
        engine = {_ENGINE} if any(what in REFUSALS for what in damaged) else set[str]()
        # A checkpoint that is lost takes the state of the query along.
        state = {"E206"} if self._schedule.stateful else set[str]()
        refusals = tuple(sorted({*ALLOWED, *engine, *state})) if damaged else ()
        return Header((), f"{self.name}: {self._schedule.line}", self._schedule.seed, False, refusals=refusals)

    def _finish(self) -> None:
        history = load(self._played.file)
        promises = tuple(sink.promise for sink in self._played.sinks)
        self._played.history = History(replace(history.header, sinks=promises), history.entries)
        self._played.file.write_text(self._played.history.text, encoding="utf-8")
