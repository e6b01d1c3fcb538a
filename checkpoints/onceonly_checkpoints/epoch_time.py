"""Event time and windows in the record of an epoch.

It has two statements that are never mixed. ``complete_until`` is the writer's promise that all earlier rows are
written. ``max_time`` is the latest time that was written so far. Pravega keeps both of what was *read* (noteTime and
TimeWindow, PDP-33). These are of what was *committed*, in the transaction of the rows and under the epoch's chain.
Values in the one form of ``model``.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.model import OPTIONAL, Record

if TYPE_CHECKING:
    from typing_extensions import Self

Unit = Literal["ms", "integer"]
"""What numbers of time count: milliseconds since 1970 in UTC, by floor; or any count that only grows."""

END = 2**63 - 1
"""The time after which nothing follows: a writer that notes it is gone for good."""


def now_ms() -> int:
    """This moment, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def clock(milliseconds: int) -> str:
    """Format milliseconds since 1970 as a readable time in UTC, or ``-`` for 0."""
    if not milliseconds:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True, slots=True)
class WriterProgress(Record):
    """The last known state of a dataset's writer, in a commit of another writer or its own.

    Attributes:
        epoch: its newest known epoch, 0 for a writer that was declared and not seen.
        complete_until: every row of its epochs before this time is written, ``None`` before the first promise.
        batch_timestamp_ms: the clock that the engine recorded for that epoch, for epoch 0 that of the declaring epoch.
        resets: number of its resets. Marks are compared as (resets, epoch), so that an epoch after a cut is newer than
            any that was cut off.
    """

    writer: str
    epoch: int
    complete_until: int | None = field(metadata=OPTIONAL)
    batch_timestamp_ms: int
    resets: int = 0


@dataclass(frozen=True, slots=True)
class EpochTime(Record):
    """Event time of one epoch. Numbers are 64-bit integers in ``unit``, but for the recorded clock.

    Attributes:
        unit: fixed by the first epoch with a time.
        complete_until: every row before it is in this epoch or an earlier one. ``None`` before the first promise. It
            goes back only with a reset.
        dataset_complete_until: the dataset is complete before it, as this commit knows it. With one writer, equal to
            ``complete_until``.
        max_time: the greatest ``latest`` so far, or without a column the greatest ``complete_until``.
        closed_until: nothing before it changes any more, ``None`` if that is not enforced.
        earliest: the least time of the epoch's rows, ``None`` without rows.
        latest: the greatest one.
        late_before: rows before it are late in this epoch: the later of ``complete_until`` and
            ``dataset_complete_until`` before it.
        rows_without_time: rows whose time is null: never late, and in none of the figures above.
        batch_timestamp_ms: the clock that the engine recorded for the newest batch, since 1970. It may go back.
        writers: every writer of the dataset that was ever seen, by name, empty if there is only one.
        timed_out: those of them that were timed out at this commit.
        resets: number of resets (a rewind, a restored sink, a new series).
        column: the time column's name among the epoch's rows, ``None`` for none.
        idle_since: the recorded clock of the newest epoch with input, in later ones without, if ``idle=`` is given.
    """

    unit: Unit
    complete_until: int | None = field(metadata=OPTIONAL)
    dataset_complete_until: int | None = field(metadata=OPTIONAL)
    max_time: int | None = field(metadata=OPTIONAL)
    closed_until: int | None = None
    earliest: int | None = None
    latest: int | None = None
    late_before: int | None = None
    late_rows: int = 0
    rows_without_time: int = 0
    batch_timestamp_ms: int = 0
    writers: tuple[WriterProgress, ...] = ()
    timed_out: tuple[str, ...] = ()
    resets: int = 0
    column: str | None = None
    idle_since: int | None = None


# ---- Windows of an epoch: definition and open state.
#
# They are part of the epoch's chain, beside the outputs that hold results and state. An epoch of an operator copies
# them: open windows stay open. Values in the one form of ``model``.


@dataclass(frozen=True, slots=True)
class ResultSchema(Record):
    """Schema of pane rows, by which they can be read without the program that wrote them.

    Attributes:
        key: name and kind of each column of the key, in the order of its spelling in state.
        values: name and kind of each result.
        accumulation: ``discarding``, ``accumulating`` or ``retracting``.
        upserts: whether a row replaces the previous one of its window.
        merges: whether windows merge, as sessions do.
    """

    key: tuple[tuple[str, str], ...] = field(metadata=OPTIONAL)
    values: tuple[tuple[str, str], ...] = field(metadata=OPTIONAL)
    accumulation: str
    upserts: bool = False
    merges: bool = False


@dataclass(frozen=True, slots=True)
class ResultCounts(Record):
    """Number of results that an epoch wrote, without retractions.

    ``early`` ones came before the end of their window was noted, ``on_time`` with the epoch that noted it, ``late``
    after.
    """

    early: int = 0
    on_time: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class EpochWindows(Record):
    """Windows of one epoch.

    Attributes:
        definition: fingerprint of the user's complete definition.
        result_definition: fingerprint of the meaning of current rows: without trigger and lateness, which may be
            changed while no window is open.
        open: digest of the rows of state after the epoch. It is that of the epoch before, without deleted or replaced
            rows, and with written ones. So no reader needs all of them.
        rows: of the batch that was aggregated.
        dropped: late rows, counted once for each closed window that they miss, and rows without a time, which are in no
            window.
        clock: the recorded clock that its timers ran to, milliseconds since 1970. It is never less than that of the
            epoch before, though the engine's may go back.
        since: the first epoch whose rows of state count. An operator may have given up all earlier ones.
        result_schema: schema of its results, to read them without the program. ``None`` from an older version.
    """

    definition: str
    result_definition: str
    open: Digest
    rows: int = field(metadata=OPTIONAL)
    dropped: int = field(metadata=OPTIONAL)
    clock: int
    since: int = 1
    result_schema: ResultSchema | None = None
    result_counts: ResultCounts = ResultCounts()

    def given_up(self, epoch: int) -> Self:
        """The state of an epoch that closes all windows: earlier rows of state count no more."""
        return replace(self, open=Digest(0), rows=0, dropped=0, since=epoch, result_counts=ResultCounts())

    @property
    def text(self) -> str:
        """For people: ``12 windows open``, ``1 window open, 3 rows dropped``."""
        windows = "1 window" if self.open.rows == 1 else f"{self.open.rows} windows"
        dropped = f", {self.dropped} {'row' if self.dropped == 1 else 'rows'} dropped" if self.dropped else ""
        return f"{windows} open{dropped}"


_PERIOD = re.compile(r"\s*(0|[1-9][0-9]{0,8}) *([a-z]+)\s*")
_MILLISECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 604_800_000),
}


def milliseconds(period: object) -> int | None:
    """Length of a period such as ``2 minutes``, ``2min`` or ``0s``, as Spark spells it, or ``None`` if it is none."""
    match = _PERIOD.fullmatch(period) if isinstance(period, str) else None
    unit = _MILLISECONDS.get(match[2]) if match else None
    return int(match[1]) * unit if match and unit else None
