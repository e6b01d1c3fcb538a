"""Values that show themselves in a notebook as tables: the promise, and what the sinks answered."""

from __future__ import annotations

from onceonly_checkpoints.epoch import Receipt
from onceonly_checkpoints.htmlform import pairs, place, table, words


class Receipts(tuple[Receipt, ...]):
    """Receipts of one epoch, one per sink; in a notebook a table."""

    __slots__ = ()

    @property
    def html(self) -> str:
        """A row for each."""
        if not self:
            return words("no epoch was written in this process yet")
        rows = [(one.sink, one.epoch, one.rows, place(one.position), one.identity) for one in self]
        return table(("sink", "epoch", "rows", "position", "identity"), rows)

    def _repr_html_(self) -> str:
        return self.html


class Report(str):
    """What is promised, as text; in a notebook a table with a heading for each sink."""

    __slots__ = ()

    @property
    def html(self) -> str:
        """A line that is indented is a word and what it says; any other is a heading."""
        lines = (line.strip().partition(" ") if line.startswith(" ") else ("", "", line) for line in self.splitlines())
        return pairs((word, said.strip()) for word, _, said in lines)

    def _repr_html_(self) -> str:
        return self.html
