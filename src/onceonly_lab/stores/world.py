"""Everything of one run that outlives its drivers: places, checkpoints, ledger, staging; and how it is all made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.protocol import Sink
from onceonly.staging import Staging
from onceonly_checkpoints.sqlledger import SqlLedger
from onceonly_lab.model.parts import PIPELINE
from onceonly_lab.model.spark import Checkpoint, Damage, damaged
from onceonly_lab.pollers import Look
from onceonly_lab.schedule import LEDGER
from onceonly_lab.stores.operator import Operator
from onceonly_lab.stores.places import Place
from onceonly_lab.stores.scribe import Scribe
from onceonly_lab.stores.source import Source
from onceonly_lab.stores.told import ToldRunner

if TYPE_CHECKING:
    from onceonly_lab.stores.driver import Driver


def shipped_sink(place: Place) -> Sink:
    """The sink as it ships."""
    return place.sink()


def committed_rows(place: Place) -> Look:
    """The reader as it should be."""
    return place.look()


def shipped_staging(folder: str, sinks: Sequence[Sink]) -> Staging:
    """Staging as it ships."""
    return Staging(folder, PIPELINE, sinks)


@dataclass(frozen=True, slots=True)
class Making:
    """How the parts of a run are made. The defaults are the product; whoever breaks it replaces one.

    Attributes:
        sink: makes a sink on a place.
        runner: carries commands out.
        driver: what stands between engine and runner; ``None``: the ordinary one.
        look: makes a reader of a place.
        staging: makes the directory of staged epochs that belongs to some sinks.
        operator: obeys what is printed.
    """

    sink: Callable[[Place], Sink] = shipped_sink
    runner: type[ToldRunner] = ToldRunner
    driver: type[Driver] | None = None
    look: Callable[[Place], Look] = committed_rows
    staging: Callable[[str, Sequence[Sink]], Staging] = shipped_staging
    operator: type[Operator] = Operator


@dataclass
class World:
    """One run.

    Attributes:
        folder: a directory of its own.
        source: the input.
        places: by sink id, in commit order.
        scribe: the history.
        making: how parts are made.
        checkpoints: the one that queries start on comes last; the others are still used by whoever has them.
        ledgers: how often the ledger was made.
        told: the message of the newest refusal.
    """

    folder: Path
    source: Source
    places: dict[str, Place]
    scribe: Scribe
    making: Making
    checkpoints: list[Checkpoint] = field(default_factory=lambda: [Checkpoint("the checkpoint", "q")])
    ledgers: int = 1
    told: str = ""

    def ledger(self) -> SqlLedger:
        """A connection to the ledger that stands now."""
        return SqlLedger(str(self.folder / f"ledger{self.ledgers}.db"))

    def staging(self, sinks: Sequence[Sink]) -> Staging:
        """The directory of staged epochs."""
        return self.making.staging(str(self.folder / "staging"), sinks)

    def operator(self) -> Operator:
        """Somebody who obeys what is printed."""
        return self.making.operator(self)

    def staged(self) -> list[Path]:
        """Data files of staged epochs."""
        return sorted((self.folder / "staging").glob("*/*/*.parquet"))

    def lose(self, what: str) -> bool:
        """Lose the ledger, or damage the checkpoint; whether there was anything to damage.

        Who has the old ledger open keeps it, as a driver on another machine does.
        """
        if what == LEDGER:
            self.ledgers += 1
            self.scribe.ledger_lost()
            return True
        after = damaged(self.checkpoints[-1], Damage(what))
        if after is None or len(self.checkpoints) > 1:
            return False
        self.checkpoints.append(after)
        self.scribe.fault(f"checkpoint: {what}")
        return True

    def read(self, *, final: bool = False) -> None:
        """Have every sink read."""
        for place in self.places.values():
            self.scribe.read(place.id, self.making.look(place), final=final)

    def read_ledger(self) -> None:
        """Have the ledger read, unless it was lost: nobody promises that it is whole again then."""
        if self.scribe.ledger_was_lost:
            return
        ledger = self.ledger()
        ledger.open()
        names = [pipeline.name for pipeline in ledger.pipelines()]
        records = [(one.epoch.number, one.epoch.digest) for name in names for one in ledger.epochs(name)]
        ledger.close()
        self.scribe.read_ledger(records)
