"""Windows of an epoch: their definition and the state left open.

It stands under the epoch's chain, beside the outputs that hold the rows of panes and of their state. An epoch of an
operator copies it: what is open stays open. Values in the one form of ``model``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.model import known, present

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class ResultSchema:
    """What rows of panes consist of: by it they are read without the program that wrote them.

    Attributes:
        key: name and kind of each column of the key, in the order in which state spells it.
        values: name and kind of each result.
        accumulation: ``discarding``, ``accumulating`` or ``retracting``.
        upserts: whether a row takes the place of the one before it of its window.
        merges: whether windows do, as sessions.
    """

    key: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, str], ...]
    accumulation: str
    upserts: bool = False
    merges: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "key", "values", "accumulation", "upserts", "merges")
        key, values = (tuple((name, kind) for name, kind in value[part]) for part in ("key", "values"))
        return cls(key, values, value["accumulation"], value.get("upserts", False), value.get("merges", False))

    def to_json(self) -> dict[str, Any]:
        """Field names to values; what is not so is left out."""
        return present(
            key=[list(column) for column in self.key],
            values=[list(column) for column in self.values],
            accumulation=self.accumulation,
            upserts=self.upserts or None,
            merges=self.merges or None,
        )


@dataclass(frozen=True, slots=True)
class ResultCounts:
    """How many results an epoch wrote: those that take others back are none.

    Attributes:
        early: before the end of their window was noted.
        on_time: with the epoch that noted it.
        late: after that.
    """

    early: int = 0
    on_time: int = 0
    late: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "early", "on_time", "late")
        return cls(value.get("early", 0), value.get("on_time", 0), value.get("late", 0))

    def to_json(self) -> dict[str, Any]:
        """Field names to values; what there is none of is left out."""
        return present(early=self.early or None, on_time=self.on_time or None, late=self.late or None)


@dataclass(frozen=True, slots=True)
class EpochWindows:
    """Windows of one epoch.

    Attributes:
        definition: fingerprint of all that the user said of them.
        meaning: fingerprint of what the rows that stand mean: without trigger and lateness, which may be changed while
            no window is open.
        open: digest of the rows of state that stand behind the epoch: those of the epoch before without those that it
            took away or replaced, and with those that it wrote. So nobody needs to read them all.
        rows: of the batch that was aggregated.
        dropped: rows that came after their window was closed, counted once for each such window, and rows without a
            time, which are in no window.
        clock: the recorded clock that its timers ran to, milliseconds since 1970: never less than that of the epoch
            before, though the engine's may go back.
        since: the first epoch whose rows of state count; an operator may have given up those of all before.
        form: what the rows of its panes consist of; ``None`` where an older version wrote it.
        results: that its windows wrote.
    """

    definition: str
    meaning: str
    open: Digest
    rows: int
    dropped: int
    clock: int
    since: int = 1
    form: ResultSchema | None = None
    results: ResultCounts = ResultCounts()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "definition", "meaning", "open", "rows", "dropped", "clock", "since", "form", "results")
        counted = (value.get("rows", 0), value.get("dropped", 0), value["clock"], value.get("since", 1))
        form = ResultSchema.from_json(value["form"]) if "form" in value else None
        results = ResultCounts.from_json(value.get("results", {}))
        return cls(value["definition"], value["meaning"], Digest.from_json(value["open"]), *counted, form, results)

    def to_json(self) -> dict[str, Any]:
        """Field names to values; what is nothing is left out."""
        return present(
            definition=self.definition,
            meaning=self.meaning,
            open=self.open.to_json(),
            rows=self.rows or None,
            dropped=self.dropped or None,
            clock=self.clock,
            since=self.since if self.since > 1 else None,
            form=self.form.to_json() if self.form else None,
            results=self.results.to_json() or None,
        )

    def given_up(self, epoch: int) -> Self:
        """What an epoch says behind which no window is open: what was open before it counts no more."""
        return replace(self, open=Digest(0), rows=0, dropped=0, since=epoch, results=ResultCounts())

    @property
    def text(self) -> str:
        """For people: ``12 windows open``, ``1 window open, 3 rows dropped``."""
        windows = "1 window" if self.open.rows == 1 else f"{self.open.rows} windows"
        dropped = f", {self.dropped} {'row' if self.dropped == 1 else 'rows'} dropped" if self.dropped else ""
        return f"{windows} open{dropped}"
