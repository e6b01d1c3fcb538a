"""Fixed windows over time, and whether rows can still arrive. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.machine.completeness import TimeWindow
from onceonly_checkpoints.epoch_time import Unit
from onceonly_checkpoints.period import milliseconds

Status = Literal["open", "complete", "closed"]
"""Rows may be missing, as of a writer that was left out; all are there but late ones; none is added or changed."""


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """A stretch of time.

    Attributes:
        start: its first moment, in the dataset's unit.
        end: the first moment behind it.
        status: whether rows of it may be missing.
    """

    start: int
    end: int
    status: Status


@checks_arguments
@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Windows of one size, side by side: ``FixedWindows("2 minutes")``, or of integers ``FixedWindows(1000)``.

    Attributes:
        size: a period in words, or a whole number.
        offset: how far after 0 a window begins; as ``size``.

    Raises:
        ConfigurationError: E110, a size that is none, or an offset that is not less than it.
    """

    size: str | int
    offset: str | int = 0

    def __post_init__(self) -> None:
        """Refuse what is no period."""
        size, offset = (_number(one) for one in (self.size, self.offset))
        mixed = self.offset != 0 and isinstance(self.size, str) != isinstance(self.offset, str)
        if size is None or offset is None or not 0 <= offset < size or mixed:
            raise refuse(
                "E110",
                problem=f"FixedWindows({self.size!r}, offset={self.offset!r}) is no size of windows.",
                cause="a size is a period in words or a whole number above 0, an offset the same and less than it",
                next='FixedWindows("2 minutes"), FixedWindows("1 hour", offset="15 minutes"); '
                "of integers: FixedWindows(1000)",
            )

    @property
    def unit(self) -> Unit:
        """What its numbers count."""
        return "ms" if isinstance(self.size, str) else "integer"

    def over(self, known: TimeWindow, since: int) -> Iterator[FixedWindow]:
        """The windows from the one that holds ``since`` to the one that holds the latest row, oldest first.

        Args:
            known: how far the dataset has come.
            since: a moment, in the dataset's unit.
        """
        size, offset = _number(self.size) or 1, _number(self.offset) or 0
        start = (since - offset) // size * size + offset
        while known.upper is not None and start <= known.upper:
            yield FixedWindow(start, start + size, status(known, start + size))
            start += size


def status(known: TimeWindow, end: int) -> Status:
    """Whether rows can still come before ``end``."""
    if known.closed is not None and end <= known.closed:
        return "closed"
    return "complete" if known.complete(end) else "open"


def _number(size: str | int) -> int | None:
    return milliseconds(size) if isinstance(size, str) else size
