"""One finding of the checker: an anomaly, where, in words, with witnesses and the lines that show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onceonly_lab.checker.anomaly import MUST_HOLD, Anomaly

MOST_WITNESSES = 5
"""A finding names no more rows than somebody would look at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        anomaly: its name.
        sink: sink id; ``None`` if it concerns none, or all.
        epoch: the epoch it concerns; ``None`` if it concerns none.
        what: what was seen, in words and numbers.
        witnesses: identities of rows that show it, at most :data:`MOST_WITNESSES`.
        lines: lines of the history that show it; the header is line 1.
    """

    anomaly: Anomaly
    sink: str | None
    epoch: int | None
    what: str
    witnesses: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()

    @property
    def must_hold(self) -> str:
        """The promise that is broken."""
        return MUST_HOLD[self.anomaly]

    def to_json(self) -> dict[str, Any]:
        """Field names to values, with the promise."""
        return {
            "anomaly": str(self.anomaly),
            "must_hold": self.must_hold,
            "sink": self.sink,
            "epoch": self.epoch,
            "what": self.what,
            "witnesses": list(self.witnesses),
            "lines": list(self.lines),
        }


def found(
    anomaly: Anomaly,
    sink: str | None,
    epoch: int | None,
    what: str,
    *,
    rows: Iterable[str] = (),
    lines: Iterable[int] = (),
) -> Finding:
    """Make a finding; of the rows the first few in order are its witnesses."""
    return Finding(anomaly, sink, epoch, what, tuple(sorted(rows)[:MOST_WITNESSES]), tuple(sorted(set(lines))))


def counted(count: int, noun: str) -> str:
    """Spell a count: ``1 row``, ``2 rows``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
