"""World of a rerun: pipeline, rerun and publisher.

The pipeline is killed, restored and cut back. The publisher of the rerun is killed, too.

Pure, by a seeded source of chance. What a table holds decides, as in a real sink: fence and chain stand in it, and the
ledger is told afterwards, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from onceonly.machine.facts import Refusal
from onceonly.machine.publish import PublishFacts
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch, Lineage, ReplayedEpochs
from onceonly_checkpoints.model import Slice
from onceonly_lab.model.parts import PIPELINE, offsets, record_at
from onceonly_lab.reruns.designs import Design

SINK = "table"
RECORDS = 40
"""Records of the source."""

Rows = tuple[int, ...]
"""Records, counted from 0."""


@dataclass(frozen=True, slots=True)
class Held:
    """An epoch in a table.

    Attributes:
        epoch: what its marker says.
        rows: those of it that stand.
    """

    epoch: Epoch
    rows: Rows


@dataclass(slots=True)
class Table:
    """What the pipeline writes to.

    Attributes:
        generation: of the newest fence.
        versions: what it held after each commit, the newest last.
    """

    generation: int = 0
    versions: list[tuple[Held, ...]] = field(default_factory=lambda: [()])

    @property
    def line(self) -> tuple[Held, ...]:
        """What it holds."""
        return self.versions[-1]

    @property
    def newest(self) -> Epoch | None:
        """Its newest epoch."""
        return self.line[-1].epoch if self.line else None

    @property
    def rows(self) -> Rows:
        """All rows that stand."""
        return tuple(row for held in self.line for row in held.rows)

    def commit(self, generation: int, epoch: Epoch, rows: Rows, *, chained: bool = True) -> bool:
        """Rows and marker in one transaction, and out with what they replace; returns whether they are in."""
        before = self.newest.chain if self.newest else chain.GENESIS
        if generation != self.generation or (chained and epoch.previous_chain != before):
            return False
        self.versions.append((*self._without(epoch.replaces), Held(epoch, rows)))
        return True

    def clear(self, epoch: Epoch) -> None:
        """Take out what an epoch replaces, and bring nothing yet."""
        self.versions.append(self._without(epoch.replaces))

    def _without(self, span: tuple[int, int] | None) -> tuple[Held, ...]:
        first, last = span or (0, -1)
        return tuple(replace(held, rows=()) if first <= held.epoch.number <= last else held for held in self.line)


@dataclass(slots=True)
class Rerun:
    """A rerun and its target.

    Attributes:
        name: its pipeline.
        held: its epochs, with what they ran again.
        rows: of all of them.
    """

    name: str
    held: list[tuple[Epoch, ReplayedEpochs]] = field(default_factory=list)
    rows: Rows = ()


@dataclass(slots=True)
class Driver:
    """A running query: its fence, and the epoch after which it goes on."""

    generation: int
    last: Epoch | None


@dataclass(slots=True)
class Publisher:
    """Who publishes: the plan that was shown, and the fence once it stands."""

    epoch: Epoch
    generation: int = 0
    committed: bool = False


class World:
    """Both pipelines, their ledger, and whoever acts.

    Args:
        design: how it is published.
        chance: where everything random comes from.

    Attributes:
        happened: codes of refusals, and what was done in words.
    """

    def __init__(self, design: Design, chance: Random) -> None:
        self.design, self.chance = design, chance
        self.table = Table()
        self.ledger: dict[int, Epoch] = {}
        self.reruns = 1
        self.rerun = Rerun(f"{PIPELINE}~v2")
        self.happened: set[str] = set()
        self._brought: dict[str, Rows] = {}
        self._batches = 0
        self._driver: Driver | None = None
        self._publisher: Publisher | None = None

    def step(self) -> None:
        """Let one thing happen."""
        what = self.chance.random()
        if what < 0.35:
            self._write()
        elif what < 0.65:
            self._run_again()
        elif what < 0.92:
            self._publish()
        elif what < 0.98:
            self._restore()
        else:
            self._prune()

    # ---- the pipeline

    def _write(self) -> None:
        """The query commits a batch, and may die before it has told the ledger."""
        driver = self._driver or Driver(self._fence(), self.table.newest)
        self._driver = driver
        begin = record_at(driver.last.written.end) if driver.last else 0
        end = min(begin + self.chance.randint(1, 2), RECORDS)
        if end == begin:
            return
        epoch, rows = self._next(driver.last, begin, end), tuple(range(begin, end))
        if not self.table.commit(driver.generation, epoch, rows):
            self._driver = None
            return
        self._brought[epoch.chain] = rows
        driver.last = epoch
        if self.chance.random() < 0.2 or not self._recorded(epoch):
            self._driver = None

    def _next(self, last: Epoch | None, begin: int, end: int) -> Epoch:
        self._batches += 1
        return chain.linked(
            Epoch(
                number=last.number + 1 if last else 1,
                written=Slice(offsets(begin), offsets(end)),
                chain="",
                previous_chain=last.chain if last else chain.GENESIS,
                digest=_digest(tuple(range(begin, end))),
                schema="columns",
                sinks=((SINK, 1),),
                lineage=Lineage("query", "run", "checkpoint", self._batches, self._batches, 0),
                series=last.series if last else 1,
            )
        )

    def _fence(self) -> int:
        """A new opening: fences everybody else out, and has the ledger learn what the table holds.

        Where they tell different stories it stops (E207, E210), and what it prints makes the ledger the table's.
        """
        self.table.generation += 1
        table_epochs = {held.epoch.number: held.epoch for held in self.table.line}
        if any(
            number not in table_epochs or table_epochs[number].chain != epoch.chain
            for number, epoch in self.ledger.items()
        ):
            self.happened.add("stopped")
            self.ledger = table_epochs
        head = max(self.ledger, default=0)
        self.ledger |= {number: epoch for number, epoch in table_epochs.items() if number > head}
        return self.table.generation

    def _recorded(self, epoch: Epoch) -> bool:
        """Tell the ledger of an epoch; it takes none under the number of another one (E511)."""
        return self.ledger.setdefault(epoch.number, epoch).chain == epoch.chain

    def _restore(self) -> None:
        """The table is restored, and the pipeline is cut back to where it stands."""
        back = self.chance.randint(1, 3)
        if len(self.table.versions) <= back + 1:
            return
        del self.table.versions[-back:]
        self._driver = None
        newest_number = self.table.newest.number if self.table.newest else 0
        self.ledger = {number: epoch for number, epoch in self.ledger.items() if number <= newest_number}
        self._fence()
        self.happened.add("cut back")

    def _prune(self) -> None:
        """The ledger forgets its oldest epochs."""
        for number in sorted(self.ledger)[: self.chance.randint(0, 1)]:
            del self.ledger[number]

    # ---- the rerun

    def _run_again(self) -> None:
        """The rerun goes on where its target stands, or another one begins where that one does not fit any more."""
        recorded = [epoch for _, epoch in sorted(self.ledger.items()) if epoch.lineage]
        chains = [epoch.chain for epoch in recorded]
        held = self.rerun.held
        if held and held[-1][1].chain not in chains:
            if self.chance.random() < 0.1:
                self.reruns += 1
                self.rerun = Rerun(f"{PIPELINE}~v{self.reruns + 1}")
            return
        begin = chains.index(held[-1][1].chain) + 1 if held else int(self.chance.random() < 0.1)
        those = recorded[begin : begin + self.chance.randint(1, 3)]
        if not those:
            return
        rows = tuple(row for epoch in those for row in self._brought[epoch.chain])
        ran = ReplayedEpochs(PIPELINE, those[0].number, those[-1].number, those[-1].chain)
        number, before = len(held) + 1, held[-1][0].chain if held else chain.GENESIS
        made = replace(those[-1], number=number, previous_chain=before, digest=_digest(rows), series=1, replays=ran)
        held.append((chain.linked(made), ran))
        self.rerun.rows += rows

    # ---- whoever publishes

    def _publish(self) -> None:
        """The next step of a publication; each may be the last one that is taken."""
        by = self._publisher
        if by is None:
            planned = self._decided()
            self._publisher = Publisher(planned) if isinstance(planned, Epoch) else None
        elif not by.generation:
            self._open(by)
        elif self.chance.random() < 0.15:
            self._publisher = None
            self.happened.add("killed")
        elif not by.committed:
            self._commit(by)
        else:
            self._recorded(by.epoch)
            self._publisher = None

    def _open(self, by: Publisher) -> None:
        by.generation = self._fence()
        if not self.design.chained:
            return
        decision = self._decided()
        if not isinstance(decision, Epoch) or decision.chain != by.epoch.chain:
            self._publisher = None
            self.happened.add("went on")

    def _commit(self, by: Publisher) -> None:
        epoch, rows = by.epoch, self.rerun.rows
        by.committed = True
        if _digest(rows) != epoch.digest or by.generation != self.table.generation:
            self._publisher = None
            return
        if not self.design.at_once and any(self.table.rows):
            self.table.clear(epoch)
            by.committed = False
            return
        if self.table.commit(by.generation, epoch, rows, chained=self.design.chained):
            self.happened.add("published")
        else:
            self._publisher = None

    def _decided(self) -> Epoch | Refusal:
        held = tuple(self.rerun.held)
        last, ledger_epochs = self.table.newest, dict(self.ledger)
        decision = self.design.decide(
            PublishFacts(PIPELINE, SINK, last, ledger_epochs, self.rerun.name, held, "", "", "")
        )
        if isinstance(decision, Refusal):
            self.happened.add(decision.code)
        return decision

    # ---- what is true

    @property
    def end(self) -> int:
        """How many records the pipeline has taken."""
        return record_at(self.table.newest.written.end) if self.table.newest else 0

    def published(self) -> Iterator[tuple[int, ReplayedEpochs]]:
        """Number of each epoch that published a rerun, and which."""
        for held in self.table.line:
            if held.epoch.replays:
                yield held.epoch.number, held.epoch.replays


def _digest(rows: Rows) -> Digest:
    return Digest(len(rows), sum(1 << row for row in rows))
