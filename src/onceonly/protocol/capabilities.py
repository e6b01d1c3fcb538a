"""Optional capabilities of sinks, each with what its absence costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from onceonly.protocol.row_rules import Condition, Rule
from onceonly.protocol.values import AppTransaction, ExpiredRows, ExternalChange, PrunedEpochs, ToleratedChanges, Total
from onceonly_checkpoints.epoch import Epoch, Fence, Marker, Receipt
from onceonly_checkpoints.model import SourceIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from onceonly.protocol.batch import AsOf, Batch, Estimate
    from onceonly.protocol.health import Check, Observed
    from onceonly.protocol.sink import Prepared, Recorder, Sink


@runtime_checkable
class Forgets(Protocol):
    """A sink that lets old markers go and knows what they were. Optional; an audit goes on from there.

    Without it markers that are gone are epochs that are lost.
    """

    def milestone(self) -> PrunedEpochs | None:
        """What went; ``None`` if nothing did."""
        ...


@runtime_checkable
class Expires(Protocol):
    """A sink that can remove rows once they are older than a time, and says which. Optional; a quarantine may be one.

    It does so in the transactions of its epochs, oldest epoch first and some rows each time, by the clock of the
    epochs (``Lineage.batch_timestamp_ms``), which never goes back: a row of the epoch that is committed is no older
    than itself. Without it rows stay until somebody removes them, and an audit misses them.
    """

    def keep_for(self, milliseconds: int) -> None:
        """From the next opening on, remove rows of epochs that were planned longer ago than this."""
        ...

    def expired(self) -> ExpiredRows | None:
        """What was removed so; ``None`` if nothing was. After ``open``, without a fence."""
        ...


@runtime_checkable
class Witness(Protocol):
    """A sink that can say, without a fence, what others did to its target. Optional; an audit asks those that can.

    Without it such a change is told by ``position`` alone, at the next opening, and by a recount.
    """

    def disturbances(self, since: Receipt | None) -> Sequence[ExternalChange]:
        """What others did since a receipt, oldest first; ``None``: since ever, as far back as it is known."""
        ...


@runtime_checkable
class Permissive(Protocol):
    """A sink that lets others change its target, as far as it was told. Optional; runner and audit ask those that do.

    What was let pass is an event of the pipeline, never silence. Without it nothing is let pass.
    """

    def passed(self) -> Sequence[ExternalChange]:
        """What the newest commit let pass, oldest first; asked after it, each is told once."""
        ...

    def allowed(self) -> ToleratedChanges:
        """What was ever let pass, and would be now. Needs no fence."""
        ...


Span = tuple[int, int]
"""First and last of the epochs that are meant, both included."""


@runtime_checkable
class Replaces(Protocol):
    """A sink that takes rows of epochs away in the transaction that brings others. Optional; asked at a full refresh.

    What leaves is said by the marker (``Epoch.replaces``): ``commit`` takes rows of these epochs away and brings those
    of its own, both or neither, whoever calls it, a healer included. Markers stay. Without it a full refresh can only
    stop the query.
    """

    def keeps_from_replacing(self, span: Span) -> str:
        """Why rows of these epochs cannot be told from all others, or not be removed; empty where they can.

        Asked of the open sink before anything of the epoch is prepared in any sink; changes nothing.
        """
        ...

    def prepare_replacing(self, batch: Batch, epoch: int, span: Span) -> Prepared:
        """As ``prepare``, for an epoch in whose transaction the rows of others leave."""
        ...


@runtime_checkable
class Settable(Protocol):
    """A sink whose markers can outlive its rows, and that can be told to stand at the epoch of these. Optional.

    A rewind asks it, where a table was made anew beside its markers, or set back to an older version under them.
    Without it such markers are not taken for rows, and nothing brings the rows back.
    """

    def content(self) -> int | None:
        """Number of the epoch whose rows the target holds: 0 for none, ``None`` where that is not known.

        That of the newest marker, but where others put a lower one in its place. Asked after ``open``, without a fence.
        """
        ...

    def stand_at(self, fence: Fence, epoch: int) -> None:
        """As ``install``; from then on ``epoch`` is the newest, with its marker as it was, or none for 0.

        One transaction does both. No row comes or goes, and where ``content`` is another one nothing happens.

        Args:
            fence: strictly greater than the one found, which permits a lower epoch, or ours, which stands so already.
            epoch: what ``content`` said.

        Raises:
            Superseded: a fence stands that is neither lower nor this one.
            OutcomeUnknown: the answer was lost.
            ConfigurationError: E110, the target holds rows of another epoch by now.
        """
        ...


@runtime_checkable
class Enlists(Protocol):
    """A sink whose rows and marker can be committed in the transaction of another sink. Optional; asked before a run.

    Each keeps its own fence, head and marker: the transaction holds only where all of them are what ``commit`` demands.
    Without it sinks commit one after the other: until the last has, readers see an epoch in some of them, and its rows
    are staged where they outlive a crash.
    """

    def shares(self, other: Sink) -> bool:
        """Whether one transaction can bring rows of both: the same destination under the same login.

        The destination is not asked. Both sinks say the same, and of three sinks each two.
        """
        ...

    def holds(self, size: Estimate) -> bool:
        """Whether a batch of this size may lie in the driver's memory, all of it at once, on its way here."""
        ...

    def prepare_beside(
        self, batch: Batch, epoch: int, beside: Sequence[tuple[Sink, Prepared]], span: Span | None = None
    ) -> Prepared:
        """As ``prepare``, or with ``span`` as ``prepare_replacing``, in the transaction of what is prepared already.

        Where this fails, what is prepared beside it may be lost as well.

        Args:
            batch: the rows.
            epoch: its number.
            beside: the other sinks that are prepared, each with what it has prepared.
            span: epochs whose rows leave.
        """
        ...

    def commit_beside(
        self,
        prepared: Prepared | None,
        marker: Marker,
        beside: Sequence[tuple[Sink, Prepared | None, Marker]],
        ledger: Recorder | None = None,
    ) -> tuple[Receipt, ...]:
        """As ``commit``, with the rows and markers of other sinks in the same transaction: all of it or nothing.

        Returns:
            The receipts, ours first.
        """
        ...


Lookup = Callable[[Iterator[Sequence[bytes]]], Iterator[Collection[bytes]]]
"""Runs on an executor over the ids of one partition, piece by piece, and answers for each piece which of them are
known; each id 16 bytes. Picklable."""


@runtime_checkable
class Remembers(Protocol):
    """A sink that holds the ids of rows that were let through, and says which of some it holds.

    It gets rows of :data:`ID` and :data:`AT`, an id at most once an epoch; one that comes again takes the place of its
    old row. A row that is older than the time ids are kept for, by the clock of an epoch, may leave with that epoch.
    """

    def lookup(self, as_of: AsOf) -> Lookup:
        """What executors ask, under our fence: ids of epochs from ``series`` on, below ``epoch``, not too old.

        Raises:
            DestinationError: the destination does not answer, or cannot hold ids.
        """
        ...


ID, AT = "id", "at"
"""Columns of what a sink holds that :class:`Remembers`: 16 bytes, and the clock of the epoch that brought it."""


@runtime_checkable
class Keeps(Protocol):
    """A sink whose target can hold ids that were seen, and be asked for them. Optional; asked by ``Dedupe``.

    Without it rows that a producer sends twice are two rows, whatever sinks they go to.
    """

    def keeper(self, seconds: int) -> Sink:
        """The sink of ids in this target, which :class:`Remembers`. The destination is not asked.

        Args:
            seconds: for how long an id is known.

        Raises:
            ConfigurationError: E122, this sink was told something that does not go with it.
        """
        ...


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Which rows of the state of windows are asked for: all that one of these names, each once.

    Attributes:
        places: windows by key, start and end.
        keys: all windows of these keys.
        wake_clock: windows with ``wake_clock`` at this or before; ``None`` for none.
        wake_time: windows with ``wake_time`` at this or before; ``None`` for none.
    """

    places: Sequence[tuple[str, int, int]] = ()
    keys: Sequence[str] = ()
    wake_clock: int | None = None
    wake_time: int | None = None


@dataclass(frozen=True, slots=True)
class StateRow:
    """The state of a window, as it stands.

    Attributes:
        key: of the window, canonical JSON.
        start: where it begins.
        stop: where it ends.
        body: the rest of it; only who wrote it reads it.
        epoch: that wrote it.
    """

    key: str
    start: int
    stop: int
    body: str
    epoch: int


STATE_KEY = ("key", "start", "stop")
"""Columns of a row of state that name its window. Others are ``body``, ``wake_clock``, ``wake_time`` and ``bucket``."""

GONE = "gone"
"""Column of a batch of state, and of no target: a row with true removes its window."""


@runtime_checkable
class RecallsState(Protocol):
    """A sink that holds the state of windows, and gives some of it back.

    It gets rows that are upserted by :data:`STATE_KEY` and removed by :data:`GONE`.
    """

    def recall(self, wanted: StateWanted, as_of: AsOf) -> Sequence[StateRow]:
        """Rows as the epoch before ``as_of.epoch`` left them, under our fence; of epochs from ``series`` on.

        They need not be read at one moment: whoever commits by them does so only if the head has not moved since.

        Raises:
            DestinationError: the destination does not answer.
            IdentityError: E226, a row was written by ``as_of.epoch`` or a later one.
        """
        ...


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window that is open, as people are shown it.

    Attributes:
        state: its row.
        wake_clock: at which clock it has something to do without a row, milliseconds since 1970; ``None`` for none.
        wake_time: what must be noted for that.
    """

    state: StateRow
    wake_clock: int | None
    wake_time: int


@runtime_checkable
class ShowsState(Protocol):
    """A sink that shows the state of windows without Spark and without a fence. Optional; ``onceonly panes`` asks it.

    Without it what is open is counted by the epochs alone. Both methods are called after ``open``, and look at rows
    of epochs from ``since`` on; each sees one moment, in which a running driver may have come further.
    """

    def count_windows(self, since: int) -> int:
        """How many windows are open.

        Raises:
            DestinationError: there is no answer.
        """
        ...

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> Iterator[OpenWindow]:
        """Windows that are open, piece by piece: by what must be noted until they have something to do, least first.

        Args:
            since: the first epoch whose rows count.
            key: only windows of this key, canonical JSON.
            limit: at most so many; ``None`` for all.

        Raises:
            DestinationError: there is no answer.
        """
        ...


@runtime_checkable
class KeepsState(Protocol):
    """A sink beside whose target the state of windows can be held. Optional; asked where ``panes=`` is given.

    Without it another sink of the call, or ``Panes(state=)``, must be one.
    """

    def state_keeper(self, *, beside: bool) -> Sink:
        """The sink of state, which :class:`RecallsState`. The destination is not asked.

        Args:
            beside: in a target of its own, called after this one; else in this very target.

        Raises:
            ConfigurationError: E143, this sink was told something that does not go with it.
        """
        ...


@runtime_checkable
class Demanding(Protocol):
    """A sink that knows what its destination demands of values. Optional; asked once a run where bad rows are kept.

    A row that breaks such a rule is bad: no sink gets it but the quarantine. Without it the destination refuses the
    row, which stops the query although there is a quarantine.
    """

    def demands(self, columns: pa.Schema) -> Sequence[Rule | Condition]:
        """What rows of these columns must be, as the destination stands now; after ``open``, without a fence.

        Never more than the destination demands: a row that it would have held must not be kept from it. What it
        demands beyond is refused by ``prepare``.

        Raises:
            DestinationError: there is no answer; E506, it cannot take such columns at all.
        """
        ...


EPOCH = "__onceonly_epoch"
"""Column of :meth:`Legible.read_back`."""


@runtime_checkable
class Legible(Protocol):
    """A sink whose rows come back as they went in, each with its epoch. Optional; a deep audit asks those that can.

    Without it rows are counted at best: that what they say is what was written, nobody proves.
    """

    def read_back(self, spark: SparkSession) -> DataFrame | None:
        """The rows that stand, in the order and types of the batch's columns, then the epoch as :data:`EPOCH`.

        Columns that were added later stand after the others. A row of which it is not known whose it is carries null,
        and so do all others of an epoch that may have brought it. ``None``: the target does not tell.
        """
        ...


@runtime_checkable
class Readable(Protocol):
    """A sink whose rows come back by epoch, without Spark and without a fence. Optional; a quarantine is shown by it.

    Without it the rows are looked at with the destination's own means.
    """

    def read_rows(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """Rows that these epochs brought and that still stand, each behind the number of its epoch, in any order.

        They come piece by piece, however many there are. ``None``: the target does not tell whose rows are whose.

        Args:
            span: first and last epoch, both included.

        Raises:
            DestinationError: there is no answer, or the target is not one whose rows can be read so.
        """
        ...


@runtime_checkable
class Totals(Protocol):
    """A sink that counts all rows of its target where ``recount`` cannot tell. Optional; an audit asks it then.

    Without it a target that lost its rows looks like one that has them.
    """

    def total(self) -> Total | None:
        """The rows that stand. ``None``: they cannot be counted. After ``open``, without a fence.

        Raises:
            DestinationError: there is no answer.
        """
        ...


@runtime_checkable
class Filed(Protocol):
    """A sink whose target lists the files that hold its rows. Optional; an audit asks whether they are there.

    Without it what the list says of its rows is taken for what stands.
    """

    def absent(self) -> str:
        """Files that the target lists and that are not there, in words; empty for none. After ``open``; no fence.

        Raises:
            DestinationError: there is no answer.
        """
        ...


@runtime_checkable
class StandingRows(Protocol):
    """A sink whose rows replace one another, and that shows those that stand. Optional; an audit of windows asks it.

    Without it what stands of each window is not compared with its state.
    """

    def standing_rows(self, span: Span) -> Iterator[tuple[int, Mapping[str, Any]]] | None:
        """Rows that these epochs wrote last, each behind the number of its epoch, in any order.

        They come piece by piece. ``None``: the target does not tell who wrote a row last. After ``open``, without a
        fence.

        Args:
            span: first and last epoch, both included.

        Raises:
            DestinationError: there is no answer.
        """
        ...


@runtime_checkable
class Examinable(Protocol):
    """A sink that knows what its destination must be. Optional; ``onceonly doctor`` and ``sink check`` ask it.

    A sink without it is opened, and no more is known of it.
    """

    def examine(self, observed: Observed) -> Sequence[Check]:
        """What was seen of the destination of the open sink: what breaks the promise, or will, and what fits.

        Args:
            observed: what past epochs took, for limits that are measured by it.

        Returns:
            Checks in the order of looking; creates and changes nothing.

        Raises:
            DestinationError: there is no answer, or it cannot be used at all.
        """
        ...


@runtime_checkable
class Shared(Protocol):
    """A sink whose target shows by its markers which pipelines write there. May be left out.

    Without it rows of another pipeline are a stranger's, and the refusal names nobody.
    """

    def writers(self) -> Sequence[str]:
        """Names of the pipelines with an epoch in this very target, ours among them."""
        ...


@runtime_checkable
class Peered(Protocol):
    """A sink that reads the newest markers of all pipelines of its target at once. Optional; a reader of time asks it.

    Without it pipelines are looked at one after the other, which takes longer and shows none of them as of one moment.
    """

    def peers(self) -> Sequence[Marker]:
        """The newest marker of each pipeline with an epoch in this very target. After ``open``; needs no fence."""
        ...


@runtime_checkable
class Feeds(Protocol):
    """A sink whose target Spark reads as a stream, by offsets that its receipts compare with. Optional.

    A query that goes on from the target asks it (``FromUpstream``). Without it nobody can say what of the target a
    position of a stream has passed.
    """

    def feeds(self) -> str | None:
        """What a source that reads the target is identified by (``SourceIdentity.identity``); after ``open``.

        ``None``: there is no target yet. Needs no fence.
        """
        ...


@runtime_checkable
class Placed(Protocol):
    """A sink that says where its target is, in one way however that was spelled. Optional; asked at an opening.

    Without it two spellings of one target are two targets.
    """

    @property
    def named(self) -> bool:
        """Whether its id was given: then a second sink on one target is meant."""
        ...

    def place(self) -> str:
        """``<kind>:<server or path, table>``; empty where rows name it. After ``open``, without a fence."""
        ...


@runtime_checkable
class Spreads(Protocol):
    """A sink whose rows may name their target. Optional; told at an opening what the query reads.

    Without it rows can go to what they came from.
    """

    def keep_off(self, sources: Sequence[SourceIdentity]) -> None:
        """Refuse (E147) a row of this opening that names what one of these sources reads."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A sink whose look is whole: what it has confirmed, a look shows. May be left out.

    So where a look shows less, the target was set back or is another one, and that can be said without a fence.
    Without it which of the two it is, is told under the fence.
    """

    def identity_beside(self, known: str) -> str:
        """What the target is, as in :class:`Position`, beside the identity in a receipt; empty where nothing is."""
        ...


@runtime_checkable
class LogsIn(Protocol):
    """A sink that proves who it is by a secret, which no address holds. May be left out.

    Without it the secret is in the environment wherever a command reads the sink.
    """

    def log_in_like(self, ledger: str) -> None:
        """Take the secret out of a ledger's connection string, for the same user of the same database alone."""
        ...


@runtime_checkable
class KeepsTransactions(Protocol):
    """A sink whose target records application transactions, as Delta does. Optional; asked by ``queries adopt``."""

    def transaction(self, app: str) -> AppTransaction:
        """What an application last wrote. After ``open``; needs no fence and writes nothing."""
        ...


@runtime_checkable
class NeedsSpark(Protocol):
    """A sink whose target may be one that only Spark can write. Optional; asked where there is no session.

    Without it such a target is refused in words that suppose a session.
    """

    def needs_spark(self) -> str | None:
        """Why only Spark can write the target, once that was opened; ``None`` if others can, or it was not."""
        ...


# ---- Reading a sink as of an epoch: what those that can are asked, and how they say that they cannot.


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

    def __init__(self, reason: str, option: str, *, newest: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.option, self.newest = reason, option, newest


@runtime_checkable
class Versioned(Protocol):
    """A sink whose rows can be read as of an epoch. Optional; ``onceonly.reading.read_at`` asks it.

    Each method is called after ``open``, without a fence, with the receipt of an epoch, and with that of an earlier one
    whose rows, and those before it, are left out. Rows as of an epoch are the same however often they are read: where
    that can no longer be, nothing is read. Without it a sink is read with its destination's own means.
    """

    def check_at(self, at: Receipt, since: Receipt | None = None) -> None:
        """See that rows can be read as of an epoch, as far as that shows without reading them.

        Raises:
            EpochExpired: not all of them are there any more.
            NotVersioned: the sink does not tell them.
            DestinationError: there is no answer.
        """
        ...

    def read_at(self, at: Receipt, since: Receipt | None = None) -> pa.Table:
        """Rows as of an epoch, in this process.

        Raises:
            EpochExpired, NotVersioned, DestinationError: as :meth:`check_at`.
        """
        ...

    def frame_at(self, spark: SparkSession, at: Receipt, since: Receipt | None = None) -> DataFrame:
        """Rows as of an epoch, by Spark, when they are asked for; the sink may be closed before.

        Raises:
            EpochExpired, NotVersioned, DestinationError: as :meth:`check_at`.
        """
        ...


@runtime_checkable
class Seals(Protocol):
    """A sink that shows readers no epoch before all sinks hold it, or keeps old rows for them. Optional.

    Without it readers of several sinks take a read point.
    """

    def seal(self, epoch: Epoch, pinned: int | None) -> None:
        """Take note that all sinks hold an epoch; after it was recorded. Never raises.

        Args:
            epoch: the one that this sink has committed last.
            pinned: the oldest epoch that a reader has pinned, 0 for none; ``None`` where nobody has looked.
        """
        ...


@runtime_checkable
class Selectable(Protocol):
    """A sink whose rows as of an epoch can be read by one statement of SQL. Optional."""

    def select_at(self, at: Receipt, since: Receipt | None = None) -> str:
        """The statement, complete, for whoever reads the target with its own means. After ``open``, without a fence.

        Raises:
            EpochExpired, NotVersioned, DestinationError: as :meth:`Versioned.check_at`.
        """
        ...


@runtime_checkable
class Locates(Protocol):
    """A sink some of whose columns say where and when a row lies, as offsets do. Optional.

    Rows of two targets are compared without them: the same row lies elsewhere in each.
    """

    @property
    def location_columns(self) -> tuple[str, ...]:
        """Their names."""
        ...
