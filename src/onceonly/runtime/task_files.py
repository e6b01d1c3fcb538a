"""Files of tasks before their commit, and their sweeping.

An epoch's staging renames the files. What stays here is garbage once the batch is committed, and for ever if its run
died before. Their names hold no generation. The ledger knows which run wrote an epoch under a lower one. Files of a run
that it does not know are removed after a day without a change.
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
"""Seconds after which files of an unknown run are garbage."""

_LOOKS_BACK = 1000
"""Epochs in which older runs are looked for: each opening sweeps, so what it finds is of the run before it."""


class TaskFiles:
    """Files of one pipeline's tasks, below the path or URL of its staged epochs (E114: cannot be staged there)."""

    def __init__(self, root: str, pipeline: str) -> None:
        self._directory = directory(root).child(f"{folder_of(pipeline)}tasks")

    @property
    def address(self) -> str:
        """Directory that tasks write to."""
        return self._directory.address

    def make(self) -> None:
        """Create the directory before tasks begin (E114): an obstacle for this process is one for them too."""
        try:
            self._directory.make()
        except OSError as error:
            cause, next_ = hindrance(error)
            raise refuse("E114", place=self._directory.address, cause=cause, next=next_) from error

    def drop(self, run_id: str, batch_id: int) -> None:
        """Remove the files that tasks of a batch wrote. Files that cannot be removed stay for the next opening."""
        self._directory.child(run_id).child(str(batch_id)).remove(NAME)

    def sweep(self, own: str, older: Collection[str]) -> None:
        """Remove files of other runs: of those known as ``older``, and of those without a change for a day."""
        for name in self._directory.names():
            run = self._directory.child(name)
            if name != own and (name in older or _left_alone(run) > ALONE_S):
                run.remove(NAME)


def older_runs(ledger: Ledger, pipeline: str, newest: int, generation: int) -> frozenset[str]:
    """Return ids of runs that wrote an epoch under a lower generation than that of this opening."""
    records = ledger.epochs(pipeline, max(1, newest - _LOOKS_BACK), newest)
    lineages = (record.epoch.lineage for record in records if record.fence.generation < generation)
    return frozenset(lineage.run_id for lineage in lineages if lineage is not None)


def _left_alone(run: Directory) -> float:
    """Seconds since the last change of any file in it, or 0 if the store does not report it."""
    if not isinstance(run, LocalDirectory):
        return 0.0
    return time.time() - max((_changed(path) for path in (run.path, *run.path.rglob("*"))), default=time.time())


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # a task that has just tidied up
        return time.time()
