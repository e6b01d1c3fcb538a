"""What happens to a real checkpoint and ledger between two drivers: the damage that simulated ones know, on files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from onceonly_lab.chaos.points import lose_ledger
from onceonly_lab.model.spark import OTHERS, SHARED, Damage
from onceonly_lab.schedule import LEDGER

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
    if what == LEDGER:
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
        kept = done[-commits]
        for log, first in (("offsets", kept + 1), ("commits", kept)):
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
        place = checkpoint / name
        if place.is_dir():
            shutil.rmtree(place)
            return True
        existed = place.exists()
        place.unlink(missing_ok=True)
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
