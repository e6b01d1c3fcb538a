"""What goes wrong between two runs of a pipeline, and which rows are concerned."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from integration.waysout.world import CUT, WRITTEN, Shape, World

END = WRITTEN * CUT
"""Offset after the last written row."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Something that happens to a pipeline which stands at epoch 4.

    Attributes:
        happens: does it.
        cut: rows per batch from then on.
        starting: offset that a new checkpoint starts at, where the source takes one.
        hole: offsets of the input that are given up where the range between is.
        gone: offsets of the input that are no longer in the sink, by somebody else's hand.
        sources: those to which it can happen.
        sinks: those to which it can happen.
        states: those of queries to which it can happen.
        spoils: whether it changes the source, so that a world is needed that no other cell uses.
    """

    happens: Callable[[World], None]
    cut: int = CUT
    starting: int = 0
    hole: range = range(0)
    gone: range = range(0)
    sources: tuple[str, ...] = ("files", "Kafka")
    sinks: tuple[str, ...] = ("Postgres", "Delta", "three")
    states: tuple[str, ...] = ("stateless", "stateful")
    spoils: bool = False

    def fits(self, shape: Shape) -> bool:
        """Whether it can happen to such a pipeline."""
        return shape.source in self.sources and shape.sinks in self.sinks and shape.state in self.states


def _new_checkpoint(world: World) -> None:
    shutil.rmtree(world.checkpoint)


def _checkpoint_of(label: str) -> Callable[[World], None]:
    return lambda world: world.put_checkpoint_back(label)


def _entries_gone(*logs: str) -> Callable[[World], None]:
    def happens(world: World) -> None:
        for log in logs:
            (world.checkpoint / log / str(WRITTEN - 1)).unlink()
            (world.checkpoint / log / f".{WRITTEN - 1}.crc").unlink(missing_ok=True)

    return happens


def _sink_of(label: str, *, ledger: bool = False) -> Callable[[World], None]:
    def happens(world: World) -> None:
        world.first.put_back(label)
        if ledger:
            world.put_ledger_back(label)

    return happens


def _restored(world: World) -> None:
    world.first.restore(1)


def _input_gone(world: World) -> None:
    def dies(df: Any, batch_id: int) -> None:
        raise RuntimeError("the driver dies before it writes")

    assert world.start(dies)
    (world.source.folder / f"part-{WRITTEN:04d}.parquet").unlink()


SITUATIONS: Mapping[str, Situation] = {
    "new checkpoint, earliest": Situation(_new_checkpoint),
    "new checkpoint, latest": Situation(
        _new_checkpoint, starting=END + CUT, hole=range(END, END + CUT), sources=("Kafka",)
    ),
    "new checkpoint, other cut": Situation(_new_checkpoint, cut=2 * CUT),
    "checkpoint rolled back": Situation(_checkpoint_of("at1")),
    "checkpoint rolled back, other cut": Situation(_checkpoint_of("at1"), cut=2 * CUT),
    "commit entry removed": Situation(_entries_gone("commits")),
    "last batch cut anew": Situation(_entries_gone("commits", "offsets"), cut=2 * CUT),
    "sink set back by 1": Situation(_sink_of("at3")),
    "sink set back by 3": Situation(_sink_of("at1")),
    "sink and ledger set back by 1": Situation(_sink_of("at3", ledger=True), sinks=("Postgres", "Delta")),
    "sink and ledger set back by 3": Situation(_sink_of("at1", ledger=True), sinks=("Postgres", "Delta")),
    "RESTORE of the table": Situation(_restored, gone=range(3 * CUT, END), sinks=("Delta",)),
    "table replaced": Situation(lambda world: world.first.replace()),
    "topic made again": Situation(lambda world: world.source.make_again(), sources=("Kafka",), spoils=True),
    "input of a planned batch gone": Situation(
        _input_gone, hole=range(END, END + CUT), sources=("files",), spoils=True
    ),
    "ledger gone": Situation(World.lose_ledger),
}
"""By name, as the page lists them."""


# ---- What a seed draws from: two losses at once, and wrecks that look like something else.


def _staging_gone(world: World) -> None:
    shutil.rmtree(world.staging, ignore_errors=True)


def _state_gone(world: World) -> None:
    shutil.rmtree(world.checkpoint / "state", ignore_errors=True)


def _first_file_gone(world: World) -> None:
    (world.source.folder / "part-0000.parquet").unlink()


LOSSES: Mapping[str, Situation] = {
    "checkpoint gone": Situation(_new_checkpoint),
    "ledger gone": Situation(World.lose_ledger),
    "sink set back by 1": Situation(_sink_of("at3")),
    "sink set back by 3": Situation(_sink_of("at1")),
    "staging gone": Situation(_staging_gone, sinks=("three",)),
    "first input file gone": Situation(_first_file_gone, sources=("files",), spoils=True),
    "state gone": Situation(_state_gone, states=("stateful",)),
}
"""What one disk, or one mistake, takes away."""


def _both(one: Situation, other: Situation) -> Situation:
    def happens(world: World) -> None:
        one.happens(world)
        other.happens(world)

    return Situation(
        happens,
        sources=tuple(name for name in one.sources if name in other.sources),
        sinks=tuple(name for name in one.sinks if name in other.sinks),
        states=tuple(name for name in one.states if name in other.states),
        spoils=one.spoils or other.spoils,
    )


def _dumped(epoch: int, label: str = "") -> Callable[[World], None]:
    def happens(world: World) -> None:
        if label:
            world.first.put_back(label)
        world.first.dump(epoch)

    return happens


_POSTGRES = ("Postgres", "three")
_WRECKS: Mapping[str, Situation] = {
    "table restored from a dump": Situation(_dumped(2), sinks=_POSTGRES),
    "table restored from a dump of the newest epoch": Situation(_dumped(WRITTEN), sinks=_POSTGRES),
    "database restored from a dump": Situation(_dumped(3, "at3"), sinks=_POSTGRES),
    "rows restored alone": Situation(lambda world: world.first.keep_rows(2), gone=range(2 * CUT, END), sinks=_POSTGRES),
    "RESTORE to a moment": Situation(
        lambda world: world.first.restore(1, moment=True), gone=range(3 * CUT, END), sinks=("Delta",)
    ),
    "RESTORE over vacuumed files": Situation(
        lambda world: world.first.restore_vacuumed(), gone=range(END), sinks=("Delta",), states=("stateless",)
    ),
    "topic made again, sink set back by 1": _both(
        SITUATIONS["topic made again"], Situation(_sink_of("at3"), sinks=("Postgres",))
    ),
    "topic made again without its old rows, checkpoint gone": _both(
        Situation(lambda world: world.source.make_again(END), sources=("Kafka",), sinks=("Postgres",), spoils=True),
        Situation(_new_checkpoint, states=("stateless",)),
    ),
}
DRAWN: Mapping[str, Situation] = {
    **_WRECKS,
    **{
        f"{one}, {other}": _both(LOSSES[one], LOSSES[other])
        for one, other in itertools.combinations(LOSSES, 2)
        if not (one.startswith("sink") and other.startswith("sink"))
    },
}
"""By name; ``make ways-out`` walks some, ``make ways-out ARGS="--drawn 999"`` all."""
