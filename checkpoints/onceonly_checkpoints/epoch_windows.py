"""Windows (panes) of an epoch: definition and open state.

They are part of the epoch's chain, beside the outputs that hold the rows of panes and of their state. An epoch of an
operator copies them: open windows stay open. Values in the one form of ``model``.
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
    """Schema of pane rows, by which they can be read without the program that wrote them.

    Attributes:
        key: name and kind of each column of the key, in the order of its spelling in state.
        values: name and kind of each result.
        accumulation: ``discarding``, ``accumulating`` or ``retracting``.
        upserts: whether a row replaces the previous one of its window.
        merges: whether windows merge, as sessions do.
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
        """Field names to values, without false ones."""
        return present(
            key=[list(column) for column in self.key],
            values=[list(column) for column in self.values],
            accumulation=self.accumulation,
            upserts=self.upserts or None,
            merges=self.merges or None,
        )


@dataclass(frozen=True, slots=True)
class ResultCounts:
    """Number of results that an epoch wrote, without retractions.

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
        """Field names to values, without zeros."""
        return present(early=self.early or None, on_time=self.on_time or None, late=self.late or None)


@dataclass(frozen=True, slots=True)
class EpochWindows:
    """Windows of one epoch.

    Attributes:
        definition: fingerprint of the user's complete definition.
        meaning: fingerprint of the meaning of current rows: without trigger and lateness, which may be changed while no
            window is open.
        open: digest of the rows of state after the epoch. It is that of the epoch before, without deleted or replaced
            rows, and with written ones. So no reader needs all of them.
        rows: of the batch that was aggregated.
        dropped: late rows, counted once for each closed window that they miss, and rows without a time, which are in no
            window.
        clock: the recorded clock that its timers ran to, milliseconds since 1970. It is never less than that of the
            epoch before, though the engine's may go back.
        since: the first epoch whose rows of state count. An operator may have given up all earlier ones.
        form: schema of the rows of its panes, ``None`` from an older version.
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
        """Field names to values, without empty ones."""
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
        """The state of an epoch that closes all windows: earlier rows of state count no more."""
        return replace(self, open=Digest(0), rows=0, dropped=0, since=epoch, results=ResultCounts())

    @property
    def text(self) -> str:
        """For people: ``12 windows open``, ``1 window open, 3 rows dropped``."""
        windows = "1 window" if self.open.rows == 1 else f"{self.open.rows} windows"
        dropped = f", {self.dropped} {'row' if self.dropped == 1 else 'rows'} dropped" if self.dropped else ""
        return f"{windows} open{dropped}"
