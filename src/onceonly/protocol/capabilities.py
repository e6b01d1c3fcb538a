"""Define the optional capabilities of a sink as base classes.

A sink inherits those that it has, and implements their abstract members. Every other member answers "cannot tell" by
default, and its docstring names the guarantee that is then missing. All are called after ``open`` and without a fence,
unless they say otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.protocol.sink import SinkBase
from onceonly.protocol.values import AppTransaction, ExpiredRows, ExternalChange, PrunedEpochs, ToleratedChanges, Total
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_checkpoints.model import SourceIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from onceonly.protocol.batch import AsOf, Batch, Estimate
    from onceonly.protocol.health import Check, Observed
    from onceonly.protocol.row_rules import Condition, Rule
    from onceonly.protocol.sink import Prepared, Recorder, Sink

Span = tuple[int, int]
"""First and last of the epochs that are meant, both included."""

EPOCH = "__onceonly_epoch"
"""Column of :meth:`ReadsRows.read_with_spark`."""

ID, AT = "id", "at"
"""Columns of a :class:`SeenIdsStore`: 16 bytes, and the clock of the epoch that brought it."""

STATE_KEY = ("key", "start", "stop")
"""Columns of a row of state that name its window. Others are ``body``, ``wake_clock``, ``wake_time`` and ``bucket``."""

CHANGED, SIGN = "_epoch", "_sign"
"""Columns of :meth:`ReadsRows.read_changes`, the first also of a row of state. They begin with ``_``, as a table of
window results has a ``sign``."""

GONE = "gone"
"""Column of a batch of state, and of no target: a row with true removes its window."""


def implements(sink: object, base: type, member: str) -> bool:
    """Whether a sink inherits this base class, and has its own ``member`` instead of the default."""
    return isinstance(sink, base) and getattr(type(sink), member) is not getattr(base, member)


class JoinsTransaction(ABC):
    """A sink whose epoch can be committed in another sink's transaction.

    Each keeps its own fence, head and marker: the transaction commits only where all of them match the demands of
    ``commit``. Without it sinks commit one after the other. Until the last has, readers see an epoch in some of them,
    and its rows are staged where they outlive a crash.
    """

    @abstractmethod
    def can_join(self, other: Sink) -> bool:
        """Whether one transaction can bring rows of both: the same destination under the same login.

        Called before ``open``. The relation is symmetric and transitive.
        """

    @abstractmethod
    def prepare_joined(
        self, batch: Batch, epoch: int, siblings: Sequence[tuple[Sink, Prepared]], span: Span | None = None
    ) -> Prepared:
        """As ``prepare``, in a transaction that is already prepared. With ``span`` as ``prepare_replacement``.

        ``siblings`` holds the other prepared sinks, each with its preparation. Rows of ``span`` leave. If this fails,
        the preparations beside it may be lost as well.
        """

    @abstractmethod
    def commit_joined(
        self,
        prepared: Prepared | None,
        marker: Marker,
        siblings: Sequence[tuple[Sink, Prepared | None, Marker]],
        ledger: Recorder | None = None,
    ) -> tuple[Receipt, ...]:
        """As ``commit``, with other sinks in the same transaction: all of it or nothing.

        Returns the receipts, ours first.
        """

    def fits_in_driver(self, size: Estimate) -> bool:
        """Whether a whole batch of this size may lie in driver memory. At once, on its way here.

        False: every epoch of several sinks is staged.
        """
        return False


class ReplacesRows(ABC):
    """A sink that can swap rows of epochs for others. In one transaction, for a full refresh.

    The marker names the epochs that leave (``Epoch.replaces``). ``commit`` removes rows of these epochs and brings
    those of its own, both or neither, for every caller, recovery included. Markers stay. Without it a full refresh can
    only stop the query.
    """

    @abstractmethod
    def cannot_replace(self, span: Span) -> str:
        """Why rows of these epochs cannot be distinguished or removed. Empty where they can.

        Called before any sink prepares anything of the epoch. Changes nothing.
        """

    @abstractmethod
    def prepare_replacement(self, batch: Batch, epoch: int, span: Span) -> Prepared:
        """As ``prepare``, for an epoch that replaces the rows of others."""

    def content_epoch(self) -> int | None:
        """Number of the epoch whose rows the target holds. 0 for none.

        It is the number of the newest marker, unless others put a lower one in its place. None: not known, and a rewind
        then does not help where a table was recreated beside its markers, or restored under them.
        """
        return None

    def reset_to(self, fence: Fence, epoch: int) -> None:
        """As ``install``. From then on ``epoch``, the answer of ``content_epoch``, is the newest, or none for 0.

        One transaction does both, and the marker of ``epoch`` stays unchanged. No row comes or goes. Where the content
        is another epoch, nothing happens. ``fence`` is strictly greater than the one found, which permits a lower
        epoch, or ours, which is already current. Never called where ``content_epoch`` returns None.

        Raises:
            Superseded: the current fence is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            ConfigurationError: E110, the target holds rows of another epoch by now.
        """
        raise TypeError(f"{type(self).__name__} cannot be put at an epoch")

    def expire_after(self, milliseconds: int) -> bool:
        """From the next opening on, remove rows of epochs older than this. Returns True.

        They leave in the transactions of later epochs, oldest epoch first and some rows each time. The clock is that of
        the epochs (``Lineage.batch_timestamp_ms``), which never goes back. False: rows stay until you remove them, and
        an audit reports those as missing.
        """
        return False

    def expired_rows(self) -> ExpiredRows | None:
        """The rows that were removed so. None if none were."""
        return None


class EpochExpired(Exception):
    """Rows as of an epoch were there once and are not all there any more. The words hold no secret.

    Attributes:
        reason: what is missing, and since when where that is known.
        cause: what may have taken it.
    """

    def __init__(self, reason: str, cause: str) -> None:
        super().__init__(reason)
        self.reason, self.cause = reason, cause


class NotVersioned(Exception):
    """A sink, as it was made, does not tell the rows of an epoch from later ones. The words hold no secret.

    Attributes:
        reason: why.
        option: what would make it tell them.
        newest: whether the rows of the newest epoch can be read, as of which it no longer stands.
    """

    def __init__(
        self,
        reason: str = "sinks of this kind are not read so",
        option: str = "read it with its destination's own means",
        *,
        newest: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason, self.option, self.newest = reason, option, newest


_SINCE = "read its later rows: onceonly.read_at(..., since=)"


def refuse_own(names: Iterable[str]) -> None:
    """Raise :class:`NotVersioned` if a column of a table has a name that its changes give to one of theirs."""
    if own := sorted({CHANGED, SIGN}.intersection(names)):
        reason = f"it has a column {own[0]}, and so have its changes"
        raise NotVersioned(reason, f"give the column another name than {own[0]}")


class ReadsRows(ABC):
    """A sink that gives its rows back: to audits, a quarantine's commands, and readers as of an epoch.

    Without it rows are counted at best, and you read them with the destination's own means.
    """

    @abstractmethod
    def read_by_epoch(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """Current rows that these epochs brought, behind their epoch's number. In any order, without Spark.

        They come piece by piece, however many there are. None: the target does not know its rows' epochs. Raises
        DestinationError also if its rows cannot be read this way.
        """

    def read_current(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """As ``read_by_epoch``, of rows that replace one another: those that these epochs wrote last.

        None: an audit does not compare the current row of a window with its state.
        """
        return None

    def read_with_spark(self, spark: SparkSession) -> DataFrame | None:
        """The current rows with their epoch as :data:`EPOCH`. Columns have the order and types of the batch's.

        Columns that were added later follow the others. A row whose epoch is not known carries null. So do all other
        rows of an epoch that may have brought it. None: no deep audit compares values with those that were written.
        """
        return None

    def total(self) -> Total | None:
        """Count of the current rows where ``recount`` gives none.

        None: a target that lost its rows looks like one that has them.
        """
        return None

    @property
    def location_columns(self) -> tuple[str, ...]:
        """Columns that say where and when a row lies, as offsets do. Rows of two targets are compared without them."""
        return ()

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """Check that rows as of an epoch can be read. Reads none.

        Rows of ``since`` and of epochs before it are left out. Rows as of an epoch are the same however often they are
        read: where that can no longer be, nothing is read.

        Raises:
            EpochExpired: not all of them are there any more.
            NotVersioned: the sink does not tell them, as by default.
            DestinationError: there is no answer.
        """
        raise NotVersioned

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Rows as of an epoch, in this process. Raises as :meth:`check_at`."""
        raise NotVersioned

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """Rows as of an epoch, which Spark reads later. The sink may be closed then. Raises as :meth:`check_at`."""
        raise NotVersioned

    def select_at(self, at: Receipt, since: Receipt | None = None) -> str:
        """The complete statement of SQL that reads rows as of an epoch. Raises as :meth:`check_at`."""
        raise NotVersioned("it is read by no statement of SQL", "read it by onceonly.reading.read_at()")

    def read_changes(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Signed rows that epochs brought and took, oldest epoch first.

        They are of a table with a key, and of epochs after ``since`` up to ``at``. Without the table's own column of
        epochs, behind them :data:`CHANGED` and :data:`SIGN`: 1 of a row that the epoch left, -1 of one that it
        replaced or removed. A key has one pair an epoch at most. The sum over the rows as of ``since`` is the rows as
        of ``at``. Without ``since`` it begins with the empty table. Raises as :meth:`check_at`.
        """
        raise NotVersioned("it has no rows with a key that replace one another", _SINCE)

    def seal(self, epoch: Epoch, pinned: int | None) -> None:
        """Note that all sinks hold ``epoch``, which this sink committed last. After it was recorded. Never raises.

        Some epochs come with ``pinned``, the oldest epoch that a reader has pinned in the ledger, 0 for none. With None
        remove no old rows. By default readers of several sinks take a read point.
        """
        return


class DetectsChanges(ABC):
    """A sink that shows changes by others to its target. Audits, readers of time and openings ask it.

    Without it only ``position``, at the next opening, and a recount notice such a change.
    """

    @abstractmethod
    def identity_now(self, recorded: str) -> str | None:
        """Identity of the target, as in :class:`Position`, beside ``recorded`` of a receipt. Empty without a target.

        Answer only if a look shows every confirmed epoch. Then an opening whose look shows less is refused without a
        fence: the target was restored, or is another one. None: only the opening under the fence can distinguish them.
        """

    def external_changes(self, since: Receipt | None) -> Sequence[ExternalChange]:
        """Changes by others since a receipt, oldest first. ``since`` None: as far back as the target remembers.

        Empty by default: an audit notices by counts alone that rows were removed or replaced.
        """
        return ()

    def tolerated_now(self) -> Sequence[ExternalChange]:
        """Changes that the newest commit let pass, oldest first, each reported once. Called after ``commit``.

        Empty by default: no change passes.
        """
        return ()

    def tolerated_changes(self) -> ToleratedChanges:
        """Changes that ever passed, and those that would now."""
        return ToleratedChanges()

    def absent(self) -> str:
        """Files that the target lists and that do not exist, in words. Empty: none, or an audit trusts the list."""
        return ""


class HasConstraints(ABC):
    """A sink that knows the row rules of its destination. Asked once a run where bad rows are kept.

    A row that breaks such a rule is bad: only the quarantine gets it. Without it the destination refuses the row, which
    stops the query although there is a quarantine.
    """

    @abstractmethod
    def row_rules(self, columns: pa.Schema) -> Sequence[Rule | Condition]:
        """Current demands of the destination on rows of these columns. A rule names one of them.

        Never more than the destination demands: a row that it would accept must not be withheld from it. ``prepare``
        refuses rows that break any further demand.

        Raises:
            DestinationError: there is no answer. E506: it cannot take such columns at all.
        """


class HostsStores:
    """A sink whose destination can hold seen ids or window state. Its methods are called before ``open``.

    Without it ``Dedupe`` and windows keep them in another sink, which must be one.
    """

    def seen_ids_store(self, seconds: int) -> SeenIdsStore | None:
        """The sink of ids in this target, which remembers each for ``seconds``. None: it holds no ids.

        Raises:
            ConfigurationError: E122, an option of this sink conflicts with it.
        """
        return None

    def window_store(self, *, separate: bool) -> WindowStore | None:
        """The sink of window state. None: it holds no state.

        ``separate``: in a target of its own, called after this one. Otherwise in this very target.

        Raises:
            ConfigurationError: E143, an option of this sink conflicts with it.
        """
        return None


Lookup = Callable[[Iterator[Sequence[bytes]]], Iterator[Collection[bytes]]]
"""Runs on an executor over the ids of one partition, piece by piece, and answers for each piece which of them are
known; each id 16 bytes. Picklable."""


class SeenIdsStore(SinkBase):
    """A sink that holds the ids of accepted rows, and finds known ones among given ids.

    It gets rows of :data:`ID` and :data:`AT`, an id at most once an epoch. A repeated id replaces its old row. A row
    past the retention time, by the clock of an epoch, may leave with that epoch.
    """

    @abstractmethod
    def lookup(self, as_of: AsOf) -> Lookup:
        """The lookup for executors, under our fence: ids of epochs from ``series`` on, below ``epoch``, not too old.

        Raises DestinationError also if the destination cannot hold ids.
        """


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Selection of rows of the state of windows: every row that a field selects, once.

    Attributes:
        places: windows by key, start and end.
        keys: all windows of these keys.
        wake_clock: windows with ``wake_clock`` at this or before. ``None`` for none.
        wake_time: windows with ``wake_time`` at this or before. ``None`` for none.
    """

    places: Sequence[tuple[str, int, int]] = ()
    keys: Sequence[str] = ()
    wake_clock: int | None = None
    wake_time: int | None = None

    def select(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[StateRow]:
        """Those of some rows that a field selects. Each has its columns by name, as for :meth:`StateRow.of`."""
        places, keys, clock, time = set(self.places), set(self.keys), self.wake_clock, self.wake_time
        for row in rows:
            by_clock = clock is not None and row["wake_clock"] is not None and row["wake_clock"] <= clock
            by_time = time is not None and row["wake_time"] <= time
            by_place = row["key"] in keys or (row["key"], row["start"], row["stop"]) in places
            if by_place or by_clock or by_time:
                yield StateRow.of(row)


@dataclass(frozen=True, slots=True)
class StateRow:
    """The current state of a window.

    Attributes:
        key: canonical JSON.
        body: the rest of it. Only its writer reads it.
        epoch: the epoch that wrote it. 0: none.
    """

    key: str
    start: int
    stop: int
    body: str
    epoch: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read columns by name. That of :data:`CHANGED` has the epoch."""
        return cls(row["key"], row["start"], row["stop"], row["body"], row[CHANGED] or 0)


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """An open window, for display.

    It acts without a row at clock ``wake_clock`` (milliseconds since 1970), or at noted time ``wake_time``. ``None``
    for none.
    """

    state: StateRow
    wake_clock: int | None
    wake_time: int


class WindowStore(SinkBase):
    """A sink that holds the state of windows and reads some of it back.

    It gets rows that are upserted by :data:`STATE_KEY` and removed by :data:`GONE`.
    """

    @abstractmethod
    def read_windows(self, request: StateWanted, as_of: AsOf) -> Sequence[StateRow]:
        """Rows as the epoch before ``as_of.epoch`` left them, under our fence, of epochs from ``series`` on.

        They need not be read at one moment: a commit based on them succeeds only if the head has not moved since.

        Raises:
            IdentityError: E226, a row was written by ``as_of.epoch`` or a later one.
        """

    def count_windows(self, since: int) -> int | None:
        """Number of open windows, of epochs from ``since`` on. None: an audit does not count them."""
        return None

    def open_windows(
        self, since: int, *, key: str | None = None, limit: int | None = None
    ) -> Iterator[OpenWindow] | None:
        """Open windows of epochs from ``since`` on, piece by piece, by the event time at which they next act.

        They are read at one moment, in which a running driver may have advanced. ``key`` selects one key, in canonical
        JSON. None: an audit does not compare state with results, and ``onceonly windows`` shows no window.
        """
        return None


class Inspectable(ABC):
    """A sink that shows place, condition and writers of its target. Checks and audits ask it.

    Without it two spellings of one target are two targets, and a check only opens the sink.
    """

    named: bool = True
    """Whether its id was given: then a second sink on one target is intended."""

    @abstractmethod
    def place(self) -> str:
        """``<kind>:<server or path, table>``, in one spelling. Empty where rows name the target."""

    def examine(self, observed: Observed) -> Sequence[Check] | None:
        """Check the destination: settings that break the guarantee, or will, and those that fit, in order of looking.

        ``observed`` holds the durations of past epochs, for limits that depend on them. Creates and changes nothing.
        None: such a setting shows only when it does harm. Raises DestinationError also if the destination cannot be
        used at all.
        """
        return None

    def pipelines(self) -> Sequence[str]:
        """Names of pipelines with an epoch in this target, ours included.

        Empty by default: rows of another pipeline belong to another writer, and a dataset must name its writers.
        """
        return ()

    def newest_markers(self) -> Sequence[Marker]:
        """The newest marker of each pipeline with an epoch in this target.

        Empty by default: pipelines are read one after the other, which takes longer and shows no one moment.
        """
        return ()

    def pruned_epochs(self) -> PrunedEpochs | None:
        """The epochs whose markers the sink has removed, in sum. None if none.

        By default a missing marker counts as a lost epoch.
        """
        return None

    def use_ledger_login(self, ledger: str) -> None:
        """Take the secret from a ledger's connection string. For the same user of the same database alone.

        Called before ``open``. Default: the environment holds the secret wherever a command reads the sink.
        """
        return

    def needs_spark(self) -> str | None:
        """Why only Spark can write the target. None if others can, or it was not opened.

        By default the refusal of such a target assumes a session.
        """
        return None


class StreamSource(ABC):
    """A sink whose target Spark reads as a stream. Its receipts compare with offsets.

    A query that continues from the target asks it (``FromUpstream``). Without it the part of the target that a stream's
    position has passed is unknown.
    """

    @abstractmethod
    def source_identity(self) -> str | None:
        """Identity of a source that reads the target (``SourceIdentity.identity``). None: there is no target yet."""

    def app_transaction(self, app: str) -> AppTransaction | None:
        """The last transaction of an application, as Delta records them. Writes nothing.

        None: an adoption asks you whether an older job wrote its last batch.
        """
        return None

    def keep_off(self, sources: Sequence[SourceIdentity]) -> None:
        """Refuse (E147) rows of this opening that name a source's input.

        Default: where rows name their target, they can be written back to their source.
        """
        return
