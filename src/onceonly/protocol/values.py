"""Answers of a sink: capabilities, position, external changes. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.protocol.change_order import ONLY_ADDED, Changes
from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_checkpoints.strenum import StrEnum

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Names:
    """Which names of columns a destination tells apart. An empty name, or one name twice, fits nowhere.

    Attributes:
        most: bytes in UTF-8 of the longest name; what is longer the destination cuts. ``None``: any length.
        folds: whether names that differ in case alone are one name.
    """

    most: int | None = None
    folds: bool = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a sink can do; the guarantee is derived from it.

    Attributes:
        append_only: rows of an epoch are only ever added (not upserts, not merges).
        recountable: ``recount`` can tell rows per epoch.
        carries_ledger: ``commit`` can write the ledger's record in its own transaction when the ledger lies in the
            same database.
        committer: name of the way epochs are committed, for ``explain()``.
        readers: what a reader must do to see only whole epochs, for ``explain()``.
        dangers: what this destination, as configured, takes away from the promise, for ``explain()``; of the
            destination itself only once it was opened.
        foreign: what others may do to the target, and what they did and was let pass; empty where there is no choice.
        provable: whether what the rows of an epoch say can be proven although others may change them.
        transactional: rows and marker land together or not at all, and only where our fence and the previous chain
            stand. ``False``: each row is put by itself under its key, the marker last, once every row was acknowledged;
            an epoch that was cut off is put again by its replay. The promise is then a weaker one.
        records: whether a row becomes a record of columns ``key`` and ``value``, and other columns are left out.
        names: which names of columns it tells apart.
        changes: by which columns rows replace one another; none where they are only added, or by SQL of the user's own.
    """

    append_only: bool
    recountable: bool
    carries_ledger: bool
    committer: str
    readers: str
    dangers: tuple[str, ...] = ()
    foreign: str = ""
    provable: bool = True
    transactional: bool = True
    records: bool = False
    names: Names = Names()
    changes: Changes = ONLY_ADDED


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """Something that somebody else did to the target since our last receipt.

    Attributes:
        kind: ``restored``, ``recreated``, ``moved`` (with all it held, to another server), ``overwritten``, ``deleted``
            (rows), ``appended`` (rows), ``unknown`` (an operation that is not known), ``unreadable`` (the log range was
            cleaned away) or ``failed_over``.
        detail: evidence in words: version, operation, time.
        fatal: whether the pipeline must stop (R6) or only note it.
        at: where in the target's own count it happened, a table's version; ``None`` where nothing is counted.
        allowed: whether the sink was given leave for it.
        operation: its name in the target; empty where it has none.
        added: rows that it added; ``None`` where that is not known.
        removed: rows that it took away; ``None`` where that is not known.
        first: the first of several that are told as one, like ``at``, which is the last.
    """

    kind: str
    detail: str
    fatal: bool
    at: int | None = None
    allowed: bool = False
    operation: str = ""
    added: int | None = None
    removed: int | None = None
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a sink stands, read under our fence.

    Attributes:
        fence: the fence that stands.
        marker: newest marker of ours; ``None`` if there is none.
        epoch: number of the newest epoch; differs from ``marker`` only where the marker's text has been cleaned away
            (0: none).
        identity: what the target *is*; see ``Receipt.identity``. Empty while the target does not exist.
        has_rows: whether the target holds any row at all.
        disturbances: what others did since the receipt.
        writers: as in :class:`Peek`.
    """

    fence: Fence
    marker: Marker | None
    epoch: int
    identity: str
    has_rows: bool
    disturbances: tuple[ExternalChange, ...] = ()
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peek:
    """What stands in a sink, read without a fence: true when it was read, and perhaps no longer.

    Attributes:
        marker: newest marker of ours; ``None`` if there is none.
        epoch: number of the newest epoch; differs from ``marker`` as in :class:`Position`.
        strangers: whether the target holds rows and no epoch of ours; told only where there is no epoch.
        writers: pipelines that wrote epochs there, as far as a sink that is :class:`Shared` knows them.
        identity: what the target is, as in :class:`Position`; asked of a sink that is :class:`Identified`, and only
            where it holds less than it confirmed; else ``None``.
        content: the epoch whose rows stand, asked of a sink that is :class:`Settable`, and only where ``identity`` is
            another one than it confirmed; else ``None``.
    """

    marker: Marker | None
    epoch: int
    strangers: bool = False
    writers: tuple[str, ...] = ()
    identity: str | None = None
    content: int | None = None


@dataclass(frozen=True, slots=True)
class PrunedEpochs:
    """What the epochs were whose markers a sink has let go.

    Attributes:
        epoch: the newest of them.
        chain: its chain, which the next epoch names.
        rows: rows of those after ``accepted``.
        accepted: the newest of them in which an operator took this sink's content as it was; 0 for none.
    """

    epoch: int
    chain: str
    rows: int
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Rows that a sink removed, as it was told to, once the time was over for which they are kept; oldest first.

    Attributes:
        epoch: the newest epoch of which rows were removed: of those before it none is left.
        rows: rows of that epoch that were removed.
        total: rows that were removed, of all epochs.
        before_ms: only rows of epochs planned before this were old enough, milliseconds since 1970.
    """

    epoch: int
    rows: int
    total: int
    before_ms: int

    def gone(self, epoch: Epoch, held: int) -> int:
        """Rows of an epoch that were removed, of those that it brought; 0 where the epoch's own clock denies it."""
        old = epoch.lineage is not None and epoch.lineage.batch_timestamp_ms < self.before_ms
        if not old or epoch.number > self.epoch:
            return 0
        return held if epoch.number < self.epoch else min(held, self.rows)


@dataclass(frozen=True, slots=True)
class RowTotals:
    """Rows of a target in all, where it does not tell whose they are.

    Attributes:
        standing: rows that stand.
        removed: rows that others took away.
        added: rows that others added, before our first epoch or since.
        accepted: rows that went with changes which stopped the query until an operator accepted them; negative where
            they brought rows.
    """

    standing: int
    removed: int
    added: int
    accepted: int = 0


class Leaves(StrEnum):
    """What the rows of an epoch leave in a target, whatever stood there, until a later epoch comes."""

    ALL = "all"
    """A row each: an epoch removes none, and no two of its rows meet."""
    SOME = "some"
    """One row at least, where the epoch had any: an epoch removes none, and of those of one key the newest stays."""
    ANY = "any"
    """Perhaps none: an epoch can remove rows, or a function of the user's says what becomes of them."""

    @classmethod
    def by(cls, *, sequence: bool, removes: bool) -> Self:
        """What an upsert leaves: with an order of the changes of a key, and with removals."""
        return cls(cls.ANY if removes else cls.SOME if sequence else cls.ALL)


@dataclass(frozen=True, slots=True)
class Total:
    """Rows of a target in all, where it does not tell them by the epoch that brought them.

    Attributes:
        rows: that stand, whoever brought them.
        leaves: what the rows of an epoch leave at least.
        written: rows by the epoch that wrote them last; ``None`` where the target does not tell.
    """

    rows: int
    leaves: Leaves
    written: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ToleratedChanges:
    """What others did to a target and was let pass, as far back as the target remembers.

    Attributes:
        changes: oldest first.
        removed: rows of each epoch that they took away, where the target tells whose they were.
        sums: of the whole target, where it does not; ``None`` where neither is known, or the other one is.
    """

    changes: tuple[ExternalChange, ...] = ()
    removed: Mapping[int, int] = field(default_factory=dict[int, int])
    sums: RowTotals | None = None


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """What another application last wrote, by the target's own record of it.

    Attributes:
        version: the newest version that it wrote under, in its own count; ``None`` if it never wrote.
        since: what others did to the target after that write and may have taken rows away, oldest first.
    """

    version: int | None
    since: tuple[ExternalChange, ...]
