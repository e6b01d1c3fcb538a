"""Classify the commits of others: append, change, rewrite or unknown.

Names decide only what actions leave open: a commit that adds files and removes none is an append, whatever its name.
An operation that is not known here and takes files away is let pass on no rung.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any


class ChangePolicy(IntEnum):
    """What others may do, each rung with those below it."""

    NOTHING = 0
    APPENDS = 1
    DELETES = 2
    CHANGES = 3

    @property
    def word(self) -> str:
        """As the user says it."""
        return self.name.lower()

    @property
    def words(self) -> str:
        """What it lets others do, in a sentence for ``explain()``."""
        may = {
            ChangePolicy.NOTHING: "others may not change a row",
            ChangePolicy.APPENDS: "others may add rows",
            ChangePolicy.DELETES: "others may add and delete rows",
            ChangePolicy.CHANGES: "others may add, delete and change rows",
        }
        return f'{may[self]} (foreign="{self.word}"); what else they do stops the query (E209)'

    @classmethod
    def of(cls, word: str) -> ChangePolicy | None:
        """The rung with a name; ``None`` if there is none."""
        return next((rung for rung in cls if rung.word == word), None)


class Effect(Enum):
    """What a commit did to the rows of a table."""

    NONE = "none"
    APPENDED = "appended"
    DELETED = "deleted"
    CHANGED = "overwritten"
    UNKNOWN = "unknown"

    @property
    def rung(self) -> ChangePolicy | None:
        """The lowest rung that lets it pass; ``None``: none does."""
        return _RUNGS[self]


_RUNGS: Mapping[Effect, ChangePolicy | None] = {
    Effect.NONE: ChangePolicy.NOTHING,
    Effect.APPENDED: ChangePolicy.APPENDS,
    Effect.DELETED: ChangePolicy.DELETES,
    Effect.CHANGED: ChangePolicy.CHANGES,
    Effect.UNKNOWN: None,
}


class ChangeEffect(Enum):
    """What an operation does with the rows of the files that it takes away."""

    REWRITES = "writes them again as they are"
    UPDATES = "writes each of them again, changed or not"
    DELETES = "writes again a part of them, and nothing else"
    REPLACES = "brings others, if no predicate chose them"
    MIXES = "brings others beside some of them"


_WAYS: Mapping[str, ChangeEffect] = {
    **dict.fromkeys(
        (
            "OPTIMIZE",
            "REORG",
            "COMPUTE STATS",
            "CLUSTER BY",
            "ROW TRACKING BACKFILL",
            "ROW TRACKING UNBACKFILL",
            "REMOVE COLUMN MAPPING",
        ),
        ChangeEffect.REWRITES,
    ),
    **dict.fromkeys(("DELETE", "TRUNCATE"), ChangeEffect.DELETES),
    "UPDATE": ChangeEffect.UPDATES,
    **dict.fromkeys(
        (
            "WRITE",
            "CREATE OR REPLACE TABLE",
            "CREATE OR REPLACE TABLE AS SELECT",
            "REPLACE TABLE",
            "REPLACE TABLE AS SELECT",
        ),
        ChangeEffect.REPLACES,
    ),
    **dict.fromkeys(("MERGE", "STREAMING UPDATE"), ChangeEffect.MIXES),
}
# FSCK is none of them: it takes files out of the log that are lost, and no rung lets others lose rows.


def way(operation: str) -> ChangeEffect | None:
    """What an operation does, by its name; ``None`` for one that is not known here."""
    return _WAYS.get(operation)


def effect(operation: str, *, adds: bool, removes: bool, changes: bool, shrinks: bool) -> Effect:
    """What a commit did.

    Args:
        operation: its name; empty where the writer did not say.
        adds: whether it adds files.
        removes: whether it removes files.
        changes: whether it says of one of them that data changed.
        shrinks: whether the files that it adds hold no more rows than were taken away with others.
    """
    if not removes:
        return Effect.APPENDED if adds and changes else Effect.NONE
    does = way(operation)
    if not changes:
        # Spark's writer compacts by hand: an overwrite with the option dataChange=false.
        return Effect.NONE if does in (ChangeEffect.REWRITES, ChangeEffect.REPLACES) else Effect.UNKNOWN
    if does is ChangeEffect.DELETES and shrinks:
        return Effect.DELETED
    return Effect.UNKNOWN if does in (None, ChangeEffect.REWRITES) else Effect.CHANGED


_DELETED = ("numDeletedRows", "num_deleted_rows")
_COPIED = ("numCopiedRows", "num_copied_rows")


def metric(metrics: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """A number of a commit's own metrics, which Spark writes as text."""
    found = next((metrics[name] for name in names if metrics.get(name) is not None), None)
    return int(str(found)) if str(found).isdigit() else None


def taken(
    adds: Mapping[str, tuple[int | None, int]],
    removes: Mapping[str, tuple[int | None, int]],
    metrics: Mapping[str, Any],
) -> tuple[int | None, bool]:
    """Rows that a commit took away in all, where that can be told, and whether it is certain that it added none.

    Args:
        adds: files that it adds.
        removes: files that it removes; many writers leave the records out.
        metrics: what the commit says of itself.
    """
    hidden = [adds[path][1] - removes[path][1] for path in adds.keys() & removes.keys()]
    written = [_left(file) for path, file in adds.items() if path not in removes]
    gone = [_left(file) for path, file in removes.items() if path not in adds]
    said, copied = metric(metrics, _DELETED), metric(metrics, _COPIED)
    grows = any(count < 0 for count in hidden) or None in written
    added = sum(count or 0 for count in written)
    if None not in gone:
        rows = sum(count or 0 for count in gone) - added
        return rows + sum(hidden), not grows and rows >= 0
    return said, not grows and (not written or (copied is not None and copied == added))


def _left(file: tuple[int | None, int]) -> int | None:
    records, vector = file
    return None if records is None else records - vector
