"""Values that a sink returns: abilities, position, disturbances. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_checkpoints.strenum import StrEnum

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- Order two changes of one key by ``sequence=``. Pure.
#
# Every sink with ``sequence=`` uses this one rule. A change replaces one that an earlier epoch brought, unless its
# sequence is lower. Of two that are equal the later epoch wins: a replay is skipped by proof, so a repeated change is
# a new one. Within one epoch two equal ones have no order, and they are refused (E505). So batch boundaries decide
# nothing.


@dataclass(frozen=True, slots=True)
class Changes:
    """Columns by which rows of a sink replace one another.

    Attributes:
        key: columns that identify a row. Empty where rows are only added.
        sequence: column that orders the changes of a key. ``None``: a later epoch wins.
        delete: boolean column of the batch. A row with true removes its key.
        remembers: whether a change that is older than the removal of its key is recognized as late.
    """

    key: tuple[str, ...] = ()
    sequence: str | None = None
    delete: str | None = None
    remembers: bool = False

    @property
    def forgets(self) -> bool:
        """Whether a change older than the removal restores its row, if it comes in a later epoch."""
        return self.sequence is not None and self.delete is not None and not self.remembers


ONLY_ADDED = Changes()
"""Of a sink whose rows replace none."""


def replaces(coming: str, current: str) -> str:
    """The rule in SQL, over two values of the sequence, as Postgres, Spark and DataFusion read it."""
    return f"({current} IS NULL OR {coming} >= {current})"


def order(value: Any) -> tuple[bool, bool, Any]:
    """A sort key in Python for a value of the sequence: null comes first and NaN last, as in SQL."""
    nan = value != value  # noqa: PLR0124  NaN alone is not itself
    return value is not None, nan, None if nan or value is None else value


# ---- Values that a sink returns: abilities, position, disturbances. Frozen.


@dataclass(frozen=True, slots=True)
class Names:
    """Which column names a destination distinguishes. An empty name, or one name twice, fits nowhere.

    Attributes:
        most: bytes in UTF-8 of the longest name. The destination cuts longer ones. ``None``: any length.
        folds: whether names that differ in case alone are one name.
    """

    most: int | None = None
    folds: bool = False


SOURCE = "source"
"""Order of rows by their offsets in the source."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Abilities of a sink. The guarantee is derived from them.

    Attributes:
        append_only: rows of an epoch are only ever added (not upserts, not merges).
        recountable: ``recount`` can count rows per epoch.
        carries_ledger: ``commit`` can write the ledger's record in its own transaction when both share a database.
        committer: name of the commit strategy, for ``explain()``.
        readers: how a reader sees only whole epochs, for ``explain()``.
        dangers: how this destination, as configured, weakens the guarantee, for ``explain()``. Facts of the destination
            itself are added once it was opened.
        foreign: changes that others may make to the target, and those that passed. Empty where there is no choice.
        provable: whether the values of an epoch's rows can be proven although others may change them.
        transactional: rows and marker land together or not at all, and only if our fence and the previous chain are
            current. ``False``: each row is put by itself under its key, the marker last, once every row was
            acknowledged. The replay of a cut-off epoch puts it again. The guarantee is then weaker.
        records: whether a row becomes a record of columns ``key`` and ``value``, and other columns are left out.
        changes: columns by which rows replace one another. None where they are only added, or by the user's own SQL.
        order: column by which rows follow each other, or :data:`SOURCE`; records only those of one key. Empty for any.
        judges: whether a commit may refuse an epoch by what the target then holds.
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
    order: str = ""
    judges: bool = False


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """A change by another writer to the target since our last receipt.

    Attributes:
        kind: ``restored``, ``recreated``, ``moved`` (with all rows, to another server), ``overwritten``, ``deleted``
            (rows), ``appended`` (rows), ``unknown`` (an operation that is not known), ``unreadable`` (the log range was
            cleaned away) or ``failed_over``.
        detail: evidence in words: version, operation, time.
        fatal: whether the pipeline must stop (R6) or only note it.
        at: the target's own version number of the change. ``None`` where the target has no versions.
        allowed: whether the sink was configured to let it pass.
        operation: its name in the target. Empty where it has none.
        added: number of rows that it added. ``None`` where that is not known.
        removed: number of rows that it removed. ``None`` where that is not known.
        first: first version of several changes that are merged. ``at`` is the last.
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
    """Position of a sink, read under our fence. ``has_rows``: of any writer, also of another pipeline.

    Attributes:
        marker: our newest marker. ``None`` if there is none.
        epoch: number of the newest epoch, 0 for none. Without its marker only where the text has been cleaned away.
        identity: see ``Receipt.identity``. Empty while the target does not exist.
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
    """A sink's newest marker, read without a fence. It may be outdated at once.

    Attributes:
        epoch: number of the newest epoch. Differs from ``marker`` as in :class:`Position`.
        strangers: whether the target holds rows and no epoch of ours. Set only where there is no epoch.
        writers: pipelines that wrote epochs there, as far as an :class:`Inspectable` sink knows them.
        identity: identity of the target, as in :class:`Position`. Set by a sink that :class:`DetectsChanges`, and only
            where it holds less than it confirmed. Otherwise ``None``.
        content: the epoch whose rows the target holds. Set by a sink that :class:`ReplacesRows`, and only where
            ``identity`` differs from the confirmed one. Otherwise ``None``.
    """

    marker: Marker | None
    epoch: int
    strangers: bool = False
    writers: tuple[str, ...] = ()
    identity: str | None = None
    content: int | None = None


@dataclass(frozen=True, slots=True)
class PrunedEpochs:
    """Sum of the epochs, up to ``epoch``, whose markers a sink has let go.

    Attributes:
        chain: the chain of ``epoch``, which the next epoch names.
        rows: rows of those after ``accepted``.
        accepted: the newest of them in which an operator accepted this sink's content. 0 for none.
    """

    epoch: int
    chain: str
    rows: int
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Rows that a sink removed after their retention time, oldest first.

    Attributes:
        epoch: the newest epoch with removed rows. No row of the epochs before it is left.
        rows: removed rows of that epoch.
        total: removed rows of all epochs.
        before_ms: only rows of epochs planned before this were old enough, milliseconds since 1970.
    """

    epoch: int
    rows: int
    total: int
    before_ms: int

    def gone(self, epoch: Epoch, held: int) -> int:
        """Number of removed rows of an epoch that brought ``held``. 0 where the epoch's own clock is too young."""
        old = epoch.lineage is not None and epoch.lineage.batch_timestamp_ms < self.before_ms
        if not old or epoch.number > self.epoch:
            return 0
        return held if epoch.number < self.epoch else min(held, self.rows)


@dataclass(frozen=True, slots=True)
class RowTotals:
    """Total rows of a target that does not know their epochs: current ones, and those that others removed or added.

    Attributes:
        added: before our first epoch or since.
        accepted: rows that changes removed which an operator accepted after a stop. Negative where they added rows.
    """

    current_rows: int
    removed: int
    added: int
    accepted: int = 0


class Leaves(StrEnum):
    """How many rows an epoch leaves in a target until a later epoch comes, with any earlier content."""

    ALL = "all"
    """A row each: an epoch removes none, and no two of its rows meet."""
    SOME = "some"
    """One row at least, where the epoch had any: an epoch removes none, and of those of one key the newest stays."""
    ANY = "any"
    """Perhaps none: an epoch can remove rows, or a function of the user's says what becomes of them."""

    @classmethod
    def by(cls, *, sequence: bool, removes: bool) -> Self:
        """For an upsert, with or without an order of the changes of a key and removals."""
        return cls(cls.ANY if removes else cls.SOME if sequence else cls.ALL)


@dataclass(frozen=True, slots=True)
class Total:
    """Total rows of a target that does not distinguish them by the epoch that brought them.

    Attributes:
        rows: current rows, of all writers.
        written: rows by the epoch that wrote them last. ``None`` where the target does not know it.
    """

    rows: int
    leaves: Leaves
    written: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ToleratedChanges:
    """Changes by others that passed, as far back as the target remembers.

    Attributes:
        removed: rows of each epoch that they removed, where the target knows their epochs.
        sums: totals, where it does not. ``None`` where neither is known, or ``removed`` is.
    """

    changes: tuple[ExternalChange, ...] = ()
    removed: Mapping[int, int] = field(default_factory=dict[int, int])
    sums: RowTotals | None = None


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """The last write of another application, from the target's own record.

    Attributes:
        version: the newest version that it wrote under, in its own count. ``None`` if it never wrote.
        since: later changes by others that may have removed rows, oldest first.
    """

    version: int | None
    since: tuple[ExternalChange, ...]
