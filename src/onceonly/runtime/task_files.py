"""Files of tasks before their commit, and their sweeping.

An epoch's staging takes the files over by another name, so what lies here is garbage as soon as the batch is committed,
and for ever if its run died before. Their names hold no generation: a run that is older than the one that sweeps is
told by the ledger, which knows who wrote an epoch before it. Of a run that it does not know, nobody can say whether it
is dead; its files go when they have been left alone for a day.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from onceonly.errors import refuse
from onceonly.runtime.staged_files import Directory, LocalDirectory, directory, hindrance
from onceonly.runtime.staging import folder_of
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.manifest import NAME

ALONE_S = 24 * 3600.0
"""Seconds after which files of a run that nobody knows are garbage."""

_LOOKS_BACK = 1000
"""Epochs in which older runs are looked for: each opening sweeps, so what it finds is of the run before it."""


class TaskFiles:
    """The files of tasks of one pipeline.

    Args:
        root: where epochs are staged; path or URL.
        pipeline: its name.

    Raises:
        ConfigurationError: E114, rows cannot be staged there.
    """

    def __init__(self, root: str, pipeline: str) -> None:
        self._place = directory(root).child(f"{folder_of(pipeline)}tasks")

    @property
    def address(self) -> str:
        """Where tasks write."""
        return self._place.address

    def make(self) -> None:
        """Have a place for the tasks before they begin: what hinders this process hinders them, too.

        Raises:
            ConfigurationError: E114, it cannot be made.
        """
        try:
            self._place.make()
        except OSError as error:
            cause, next_ = hindrance(error)
            raise refuse("E114", place=self._place.address, cause=cause, next=next_) from error

    def drop(self, run_id: str, batch_id: int) -> None:
        """Remove what the tasks of a batch wrote; what cannot be removed stays for the next opening."""
        self._place.child(run_id).child(str(batch_id)).remove(NAME)

    def sweep(self, own: str, older: Collection[str]) -> None:
        """Remove what other runs left.

        Args:
            own: id of the run that sweeps.
            older: ids of runs that are known to be older.
        """
        for name in self._place.names():
            run = self._place.child(name)
            if name != own and (name in older or _left_alone(run) > ALONE_S):
                run.remove(NAME)


def older_runs(ledger: Ledger, pipeline: str, newest: int, generation: int) -> frozenset[str]:
    """Ids of runs that wrote an epoch under a lower generation.

    Args:
        ledger: the pipeline's index.
        pipeline: its name.
        newest: number of its newest epoch.
        generation: of the opening that asks.
    """
    records = ledger.epochs(pipeline, max(1, newest - _LOOKS_BACK), newest)
    found = (record.epoch.lineage for record in records if record.fence.generation < generation)
    return frozenset(lineage.run_id for lineage in found if lineage is not None)


def _left_alone(run: Directory) -> float:
    """Seconds since anything in it was changed; none where the store does not say it."""
    if not isinstance(run, LocalDirectory):
        return 0.0
    return time.time() - max((_changed(path) for path in (run.path, *run.path.rglob("*"))), default=time.time())


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # a task that has just tidied up
        return time.time()
