"""Classify Delta commits of other writers by their effect.

A commit's actions decide first. Its operation's name decides only cases that they leave open. A commit that adds files
and removes none is an append under any name. No rung permits an unknown operation that removes files.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any


class ChangePolicy(IntEnum):
    """Changes that other writers may make. Each rung includes those below it."""

    NOTHING = 0
    APPENDS = 1
    DELETES = 2
    CHANGES = 3

    @property
    def word(self) -> str:
        """The name that users write."""
        return self.name.lower()

    @property
    def words(self) -> str:
        """A sentence for ``explain()`` about permitted changes."""
        may = {
            ChangePolicy.NOTHING: "others may not change a row",
            ChangePolicy.APPENDS: "others may add rows",
            ChangePolicy.DELETES: "others may add and delete rows",
            ChangePolicy.CHANGES: "others may add, delete and change rows",
        }
        return f'{may[self]} (external_changes="{self.word}"); their other changes stop the query (E209)'


class Effect(Enum):
    """Effect of a commit on the rows of a table."""

    NONE = "none"
    APPENDED = "appended"
    DELETED = "deleted"
    CHANGED = "overwritten"
    UNKNOWN = "unknown"

    @property
    def rung(self) -> ChangePolicy | None:
        """The lowest rung that permits it. ``None``: none does."""
        return _RUNGS[self]


_RUNGS: Mapping[Effect, ChangePolicy | None] = {
    Effect.NONE: ChangePolicy.NOTHING,
    Effect.APPENDED: ChangePolicy.APPENDS,
    Effect.DELETED: ChangePolicy.DELETES,
    Effect.CHANGED: ChangePolicy.CHANGES,
    Effect.UNKNOWN: None,
}


class ChangeEffect(Enum):
    """How an operation treats the rows of files that it removes."""

    REWRITES = "writes them again as they are"
    UPDATES = "writes each of them again, changed or not"
    DELETES = "writes again a part of them, and nothing else"
    REPLACES = "brings others, if no predicate chose them"
    MIXES = "brings others next to some of them"


CHANGE_EFFECTS: Mapping[str, ChangeEffect] = {
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


def effect(operation: str, *, adds: bool, removes: bool, changes: bool, shrinks: bool) -> Effect:
    """Classify a commit.

    ``operation`` is empty if the writer gave none. ``changes`` is true if one of its actions has ``dataChange``.
    ``shrinks`` is true if its added files hold no more rows than its removed ones.
    """
    if not removes:
        return Effect.APPENDED if adds and changes else Effect.NONE
    does = CHANGE_EFFECTS.get(operation)
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
    number = next((metrics[name] for name in names if metrics.get(name) is not None), None)
    return int(str(number)) if str(number).isdigit() else None


def count_removed(
    adds: Mapping[str, tuple[int | None, int]],
    removes: Mapping[str, tuple[int | None, int]],
    metrics: Mapping[str, Any],
) -> tuple[int | None, bool]:
    """Count rows that a commit removed in total, or ``None``. The flag is true if it certainly added none.

    ``adds`` and ``removes`` map paths to records and hidden records. Many writers leave the records of removed files
    out.
    """
    hidden = [adds[path][1] - removes[path][1] for path in adds.keys() & removes.keys()]
    written = [_left(file) for path, file in adds.items() if path not in removes]
    gone = [_left(file) for path, file in removes.items() if path not in adds]
    deleted, copied = metric(metrics, _DELETED), metric(metrics, _COPIED)
    grows = any(count < 0 for count in hidden) or None in written
    added = sum(count or 0 for count in written)
    if None not in gone:
        rows = sum(count or 0 for count in gone) - added
        return rows + sum(hidden), not grows and rows >= 0
    return deleted, not grows and (not written or (copied is not None and copied == added))


def _left(file: tuple[int | None, int]) -> int | None:
    records, vector = file
    return None if records is None else records - vector
