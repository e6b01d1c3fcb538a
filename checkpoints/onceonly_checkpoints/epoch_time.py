"""Event time of an epoch: completeness, watermark and late rows.

It has two statements that are never mixed. ``noted`` is the writer's promise that all earlier rows are written.
``high`` is the latest time that was written so far. Pravega keeps both of what was *read* (noteTime and TimeWindow,
PDP-33). These are of what was *committed*, in the transaction of the rows and under the epoch's chain. Values in the
one form of ``model``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onceonly_checkpoints.model import known, present

if TYPE_CHECKING:
    from typing_extensions import Self

Unit = Literal["ms", "integer"]
"""What numbers of time count: milliseconds since 1970 in UTC, by floor; or any count that only grows."""

END = 2**63 - 1
"""The time after which nothing follows: a writer that notes it is gone for good."""


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """The last known state of a dataset's writer, in a commit of another writer or its own.

    Attributes:
        epoch: its newest known epoch, 0 for a writer that was declared and not seen.
        noted: noted time of that epoch, ``None`` before the first.
        ingest: the clock that the engine recorded for that epoch, or for epoch 0 that of the declaring epoch.
        turn: number of its resets. Marks are compared as (turn, epoch), so that an epoch after a cut is newer than any
            that was cut off.
    """

    writer: str
    epoch: int
    noted: int | None
    ingest: int
    turn: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "writer", "epoch", "noted", "ingest", "turn")
        return cls(value["writer"], value["epoch"], value.get("noted"), value["ingest"], value.get("turn", 0))

    def to_json(self) -> dict[str, Any]:
        """Field names to values."""
        turn = self.turn or None
        return present(writer=self.writer, epoch=self.epoch, noted=self.noted, ingest=self.ingest, turn=turn)


@dataclass(frozen=True, slots=True)
class EpochTime:
    """Event time of one epoch. Numbers are 64-bit integers in ``unit``, but for the recorded clock.

    Attributes:
        unit: fixed by the first epoch with a time.
        noted: every row before it is in this epoch or an earlier one. ``None`` before the first promise. Within one
            ``turn`` it never goes back.
        lower: the dataset is complete before it, as this commit knows it. With one writer, equal to ``noted``.
        high: the greatest ``last`` so far, or without a column the greatest ``noted``.
        closed: nothing before it changes any more, ``None`` if that is not enforced.
        first: the least time of the epoch's rows, ``None`` without rows.
        last: the greatest one.
        horizon: rows before it are late in this epoch. It is ``noted`` and the dataset's ``lower`` before this epoch.
        late: number of late rows.
        untimed: rows whose time is null: never late, and in none of the figures above.
        ingest: the clock that the engine recorded for the newest batch, milliseconds since 1970. It may go back.
        observed: every writer of the dataset that was ever seen, by name, empty if there is only one.
        silent: those of them that were timed out at this commit.
        turn: number of resets (a rewind, a restored sink, a new series).
        column: the time column's name among the epoch's rows, ``None`` for none.
    """

    unit: Unit
    noted: int | None
    lower: int | None
    high: int | None
    closed: int | None = None
    first: int | None = None
    last: int | None = None
    horizon: int | None = None
    late: int = 0
    untimed: int = 0
    ingest: int = 0
    observed: tuple[WriterProgress, ...] = ()
    silent: tuple[str, ...] = ()
    turn: int = 0
    column: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`. Raises :class:`UnreadableMarker` for an unknown member."""
        known(value, *_MEMBERS)
        return cls(
            value["unit"],
            noted=value.get("noted"),
            lower=value.get("lower"),
            high=value.get("high"),
            closed=value.get("closed"),
            first=value.get("first"),
            last=value.get("last"),
            horizon=value.get("horizon"),
            late=value.get("late", 0),
            untimed=value.get("untimed", 0),
            ingest=value.get("ingest", 0),
            observed=tuple(WriterProgress.from_json(mark) for mark in value.get("observed", ())),
            silent=tuple(value.get("silent", ())),
            turn=value.get("turn", 0),
            column=value.get("column"),
        )

    def to_json(self) -> dict[str, Any]:
        """Field names to values. ``late``, ``untimed`` and ``turn`` only past 0."""
        return present(
            unit=self.unit,
            noted=self.noted,
            lower=self.lower,
            high=self.high,
            closed=self.closed,
            first=self.first,
            last=self.last,
            horizon=self.horizon,
            late=self.late or None,
            untimed=self.untimed or None,
            ingest=self.ingest,
            observed=[mark.to_json() for mark in self.observed],
            silent=list(self.silent),
            turn=self.turn or None,
            column=self.column,
        )


_MEMBERS = (
    "unit",
    "noted",
    "lower",
    "high",
    "closed",
    "first",
    "last",
    "horizon",
    "late",
    "untimed",
    "ingest",
    "observed",
    "silent",
    "turn",
    "column",
)
