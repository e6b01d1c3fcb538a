"""What is on record of the epochs that are run again."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager

from onceonly.errors import refuse
from onceonly_checkpoints.epoch import EpochRecord
from onceonly_checkpoints.ledger import Ledger
from onceonly_checkpoints.ledger.sql import SqlLedger

Place = str | os.PathLike[str] | Ledger
"""Where a pipeline is recorded: an SQLAlchemy URL, the path of a SQLite file, or an opened ledger."""


@contextmanager
def opened(ledger: Place) -> Generator[Ledger]:
    """Open the ledger, and close it at the end unless it was open before."""
    if isinstance(ledger, str | os.PathLike):
        with closing(SqlLedger(os.fspath(ledger))) as made:
            yield made
    else:
        yield ledger


def demanded(pipeline: str, records: Sequence[EpochRecord], epochs: range | None, begun: int = 1) -> range:
    """Return the numbers of the requested epochs. ``None`` means all from ``begun`` on.

    Raises:
        ConfigurationError: E110, some are not on record.
    """
    numbers = [record.epoch.number for record in records]
    every = range(max(begun, min(numbers, default=1)), max(numbers, default=0) + 1)
    wanted = every if epochs is None else epochs
    lacking = set(wanted) - set(numbers)
    if not wanted or lacking:
        held = f"it holds epochs {min(numbers)}..{max(numbers)}" if numbers else "it holds none"
        missing = f"epoch {min(lacking)} of" if lacking else "an epoch of"
        raise refuse(
            "E110",
            problem=f'The ledger does not hold {missing} "{pipeline}".',
            cause=held,
            next="name epochs that are on record, the first and the last one",
        )
    return wanted


def checkpoint(records: Sequence[EpochRecord], told: str | os.PathLike[str] | None) -> str:
    """Return the user's checkpoint, or by default that of the newest batch."""
    if told is not None:
        return os.fspath(told)
    lineages = (record.epoch.lineage for record in reversed(records))
    return next((lineage.checkpoint for lineage in lineages if lineage), "")
