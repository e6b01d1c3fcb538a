"""Required coverage of a campaign: number of kills, cells, or both.

A campaign with less coverage proves nothing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly_lab.checker.finding import counted

if TYPE_CHECKING:
    from typing_extensions import Self

_PART = re.compile(r"(\d+)\s+(kill|cell)s?")


@dataclass(frozen=True, slots=True)
class Least:
    """A campaign that went through less has proved little, whatever it found.

    Attributes:
        kills: drivers that SIGKILL ended.
        cells: pairs of a point and what went wrong there.
    """

    kills: int = 0
    cells: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``3 cells``, ``20 kills`` or ``20 kills, 8 cells``.

        Raises:
            ConfigurationError: E110, it is something else.
        """
        matches = [_PART.fullmatch(part.strip()) for part in text.split(",")]
        counts = {part[2]: int(part[1]) for part in matches if part}
        if len(counts) < len(matches):
            problem, cause = f"at_least={text!r} is no number of kills or cells.", "a campaign counts these two"
            raise refuse("E110", problem=problem, cause=cause, next='at_least="20 kills, 8 cells"')
        return cls(counts.get("kill", 0), counts.get("cell", 0))

    def lacking(self, kills: int, cells: int, possible: int) -> Iterator[str]:
        """What a campaign lacks, in words.

        Args:
            kills: that it had.
            cells: that were struck.
            possible: cells in which something can come to act.
        """
        required = min(self.cells, possible)
        if kills < self.kills:
            yield f"proved little: {counted(kills, 'kill')}, at least {self.kills} were asked for"
        if cells < required:
            yield f"proved little: {cells} of {counted(possible, 'cell')} struck, at least {required} were asked for"


DEFAULT = "3 cells"
"""What a campaign goes through if nobody says otherwise, and nobody chose what it plays."""
