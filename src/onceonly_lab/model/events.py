"""World events: starts, kills, late landings, losses and damage.

They happen besides the steps of drivers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from onceonly.machine.overlap import compares_all
from onceonly_lab.model.bench import Bench, BenchLedger
from onceonly_lab.model.carrier import Carrier
from onceonly_lab.model.parts import RESTORING, Desk, Harm, Left, SimulatedLedger, StagingArea, Target, harmed
from onceonly_lab.model.sinks import Wire
from onceonly_lab.model.spark import SHARED, Checkpoint, damaged
from onceonly_lab.model.ways import reread
from onceonly_lab.model.world import Bound, Change, Driver, World


class Events:
    """Events within a bound. Each method tells what may happen to the parts it is given.

    A driver that is killed and one that is never given another step leave the same world. So a kill is told of only
    where it makes room: two drivers live at most, and a third takes the place of one of them. Nor can anybody tell a
    driver that was started from one that was not, until it has its first batch.

    Args:
        bound: sizes, and rules that are off.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._carrier = Carrier(bound)
        self._wire = Wire(bound.off, fine=bound.fine)

    def landings(self, parts: World) -> Iterator[Change]:
        """``(target)``: a change in flight lands."""
        for reply in self._wire.landings(cast(Target, parts[0])):
            yield Change(reply.words, (reply.target,))

    def landings_beside(self, parts: World) -> Iterator[Change]:
        """``(targets)``: a transaction of several sinks lands in all of them."""
        for words, targets in self._wire.landings_beside(cast(tuple[Target, ...], parts)):
            yield Change(words, targets)

    def starts(self, parts: World) -> Iterator[Change]:
        """``(checkpoint, checkpoint, desk, driver, driver, left)``: a driver is started, maybe in another's place."""
        first, second, desk, *drivers, times = cast(
            tuple[Checkpoint, Checkpoint | None, Desk, Driver | None, Driver | None, Left], parts
        )
        if not times.times:
            return
        left = times.less
        number = self._bound.drivers - left.times
        living = [driver for driver in drivers if driver is not None]
        for at, checkpoint in enumerate((first, second)):
            if checkpoint is None or checkpoint.gone or checkpoint.unreadable:
                continue
            for chosen in self._desks(desk):
                for words, fresh, after in self._fresh(Driver(number, at), checkpoint, chosen):
                    logs = (after, second) if at == 0 else (first, after)
                    if self._bound.alone:
                        ends = "".join(f"{killed.name} is killed; " for killed in living)
                        yield Change(f"{ends}{words}", (*logs, chosen, fresh, None, left))
                        continue
                    if len(living) < len(drivers):
                        slots = (*living, fresh, None)[: len(drivers)]
                        yield Change(words, (*logs, chosen, *slots, left))
                        continue
                    for killed, stays in ((living[0], living[1]), (living[1], living[0])):
                        yield Change(f"{killed.name} is killed; {words}", (*logs, chosen, stays, fresh, left))

    def _desks(self, desk: Desk) -> Iterator[Desk]:
        """With each program that the first driver may run; all others run the same."""
        programs = (desk.program,) if desk.program else self._bound.programs
        for program in programs:
            yield replace(desk, program=str(program))

    def _fresh(self, driver: Driver, checkpoint: Checkpoint, desk: Desk) -> Iterator[tuple[str, Driver, Checkpoint]]:
        words = f"{driver.name} starts on {checkpoint.name}"
        if not self._bound.whole_steps:
            yield words, driver, checkpoint
            return
        for change in self._carrier.plan(driver, checkpoint, desk):
            planned, after, _ = cast(tuple[Driver, Checkpoint, Desk], change.parts)
            yield f"{words}; {change.words}", planned, after

    def losses(self, parts: World) -> Iterator[Change]:
        """``(ledger, left)``: the ledger is lost."""
        ledger, left = cast(tuple[SimulatedLedger, Left], parts)
        if left.times and ledger != SimulatedLedger():
            yield Change("the ledger is lost", (SimulatedLedger(), left.less))

    def prunings(self, parts: World) -> Iterator[Change]:
        """``(ledger, left)``: an operator prunes the ledger, where that is not refused."""
        ledger, left = cast(tuple[SimulatedLedger, Left], parts)
        head = ledger.head
        if left.times and head and len(ledger.records) > 1 and not compares_all(head.epoch):
            pruned = replace(ledger, records=ledger.records[-1:])
            yield Change("all of the ledger but its newest epoch is pruned", (pruned, left.less))

    def rebuildings(self, parts: World) -> Iterator[Change]:
        """``(targets, ledger, left)``: an operator has the ledger filled from what the sinks tell, at any moment."""
        *targets, ledger, left = cast(tuple[Any, ...], parts)
        if not left.times:
            return
        bench = Bench(targets, ledger)
        reread(bench.sinks, BenchLedger(bench))
        if bench.ledger != ledger:
            yield Change("the ledger is rebuilt from the sinks", (*targets, bench.ledger, left.less))

    def leavings(self, parts: World) -> Iterator[Change]:
        """``(targets, desk, left)``: who starts the query from now on leaves a sink out of the call.

        A sink that has no epoch yet cannot know of the others, so nobody could tell before.
        """
        *targets, desk, left = cast(tuple[Any, ...], parts)
        begun = all(target.held for target in targets)
        for sink in self._bound.sinks if left.times and begun else ():
            words = f"the call leaves sink '{sink}' out from now on"
            yield Change(words, (*targets, replace(desk, left_out=sink), left.less))

    def damages(self, parts: World) -> Iterator[Change]:
        """``(checkpoint, checkpoint, left)``: the checkpoint is damaged; who runs on it does not notice."""
        first, second, left = cast(tuple[Checkpoint, Checkpoint | None, Left], parts)
        if not left.times or second is not None:
            return
        for damage in self._bound.damages:
            after = damaged(first, damage)
            # Where nothing is left to read, nobody is handed a batch that could tell.
            if after is not None and after.begin < self._bound.records:
                old = first if damage in SHARED else replace(first, gone=True)
                yield Change(f"{first.name} is {damage.value}", (old, after, left.less))

    def harms(self, parts: World) -> Iterator[Change]:
        """``(target, left)``: something befalls a target, which no driver is told."""
        target, left = cast(tuple[Target, Left], parts)
        for harm in self._bound.harms if left.times else ():
            after = harmed(target, harm)
            if after is not None and harm not in RESTORING:
                yield Change(f"sink '{target.name}' is {harm.value}", (after, left.less))

    def mends(self, parts: World) -> Iterator[Change]:
        """``(target)``: a target that refused a row takes it now."""
        target = cast(Target, parts[0])
        if target.harm == Harm.PICKY:
            yield Change(f"sink '{target.name}' takes the row now", (replace(target, harm=""),))

    def restores(self, parts: World) -> Iterator[Change]:
        """``(target, left, driver, driver)``: every driver is stopped, then a target is restored from a backup."""
        target, left, *drivers = cast(tuple[Target, Left, Driver | None, Driver | None], parts)
        for harm in RESTORING.intersection(self._bound.harms) if left.times else ():
            after = harmed(target, harm)
            if after is not None:
                words = f"every driver is stopped; sink '{target.name}' is {harm.value}"
                yield Change(words, (after, left.less, *(None for _ in drivers)))

    def vanishings(self, parts: World) -> Iterator[Change]:
        """``(checkpoint, desk, left)``: the file of a record that no batch holds is gone, or of one that some does."""
        checkpoint, desk, left = cast(tuple[Checkpoint, Desk, Left], parts)
        if not left.times or not self._bound.loses_files or checkpoint.gone:
            return
        for record in range(self._bound.records):
            gone = replace(desk, gone=desk.gone | 1 << record)
            yield Change(f"the file of record {record + 1} is gone", (checkpoint, gone, left.less))

    def power_failures(self, parts: World) -> Iterator[Change]:
        """``(staging, driver, driver)``: the power fails: every driver dies, and what was not flushed is torn."""
        staging, *drivers = cast(tuple[StagingArea, Driver | None, Driver | None], parts)
        torn = staging.after_power_failure()
        if torn != staging:
            yield Change(
                "the power fails; staged files that were not flushed are torn", (torn, *(None for _ in drivers))
            )
