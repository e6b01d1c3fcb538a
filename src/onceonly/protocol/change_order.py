"""``sequence=``: which of two changes of a key wins. Pure.

A change takes the place of one that an earlier epoch brought, unless its sequence is lower. Of two that are equal the
later epoch wins: a replay is skipped by proof, so a change that comes again is a new one. Within one epoch nothing
tells which of two equal ones is later, and they are refused (E505). So where a batch is cut decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Changes:
    """By which columns rows of a sink replace one another.

    Attributes:
        key: columns that identify a row; empty where rows are only added.
        sequence: column that orders the changes of a key; ``None``: a later epoch wins.
        delete: boolean column of the batch; a row with true removes its key.
        remembers: whether a change that is older than the removal of its key is known as late.
    """

    key: tuple[str, ...] = ()
    sequence: str | None = None
    delete: str | None = None
    remembers: bool = False

    @property
    def forgets(self) -> bool:
        """Whether such a change brings its row back, if it comes in a later epoch than the removal."""
        return self.sequence is not None and self.delete is not None and not self.remembers


ONLY_ADDED = Changes()
"""Of a sink whose rows replace none."""


def replaces(coming: str, standing: str) -> str:
    """The rule in SQL, over two values of the sequence; as Postgres, Spark and DataFusion read it."""
    return f"({standing} IS NULL OR {coming} >= {standing})"


def order(value: Any) -> tuple[bool, bool, Any]:
    """A value of the sequence as Python compares it: null comes before all others, NaN behind them, as in SQL."""
    nan = value != value  # noqa: PLR0124  NaN alone is not itself
    return value is not None, nan, None if nan or value is None else value
