"""The contract between the core and a sink, in prose and types.

Who calls what, and when
------------------------
The runner calls a sink from one thread at a time, in this order; ``audit`` calls only the reading half.

Opening (once per start of a query, and again after an unresolved answer):

1. ``open(pipeline)``: connect and check that the destination answers. Creates nothing. May repeat.
2. ``fence()``: the newest installed fence, whoever owns it. An unlocked read: a hint for the next generation.
3. ``look()``: the newest marker, by an unlocked read that changes nothing and disturbs nobody. It is stale at once: an
   opening that would be refused whatever the fence says is refused by it, so that nobody who is himself refused stops
   a healthy driver; nothing is written, healed or skipped by it.
4. ``install(fence)``: make ``fence`` the newest, only where its generation is *strictly* greater than the one found.
   Before: any state. After, when it returns: no effect of an older fence can appear in the sink any more, and the
   last marker is still readable. :class:`Superseded` if the generation found is greater or equal and not ours;
   :class:`OutcomeUnknown` if the answer was lost. Installing a fence that already stands with *our* owner token
   succeeds: this is how a lost answer is looked up.
5. ``position(since)``: under our fence: fence, newest marker, identity, whether there are rows, and what others did
   to the target since the receipt. Must raise :class:`Superseded` if the fence found is no longer ours.

Writing (once per epoch):

6. ``prepare(batch)``: run the batch's one action and bring the rows as near to the destination as can be without
   anybody seeing them. Returns what was counted in the bytes. May be called again with the same epoch after
   ``abandon``. :class:`Superseded` if a newer driver ended what was being prepared.
7. ``commit(prepared, marker, ledger)``: rows and marker in ONE transaction of the destination, conditional on our
   fence *and* on the previous chain standing there; only at the sink's own first epoch, which the marker names, any
   lower epoch may stand instead. ``prepared=None`` commits the marker alone. Returns the receipt when the answer was
   yes; the ledger, if there is one, has the epoch before the next one is committed under the same ``position``.
   :class:`Superseded` if a higher generation or another owner was *read*;
   :class:`OutcomeUnknown` for every other failure after the commit was sent; any other error only when the commit was
   certainly not sent or certainly refused. :class:`Conflict`, here and in ``prepare``, if the destination took the
   transaction back in favour of another writer's: the coordinator opens again and writes the epoch anew.
8. ``look_up(marker)``: after an unknown answer, under our fence: the receipt if that very epoch (number, chain,
   fence) is there, ``None`` if it certainly is not and a late commit cannot land any more. :class:`OutcomeUnknown` if
   it cannot be said.
9. ``sweep()``: remove staging that older generations left. Never touches what a marker names.

A sink never retries a commit by itself, never compares by number alone, never swallows an error of the commit path.

A destination that takes puts by key and has no conditional transaction declares ``transactional=False``, and less is
promised of it. There ``commit`` puts each row by itself under its key and the marker last, under a key of its own
epoch, once every row was acknowledged; ``install`` and ``commit`` look at what stands before they put. What a cut-off
epoch has put is not ``has_rows`` of a stranger: its replay puts it again. All else holds as it is written here.

Reading (no fence, no Spark; for audit, resolve and rebuild):

10. ``history(after)``: markers with receipts, oldest first, numbers greater than ``after``, as far back as the
   destination remembers.
11. ``recount()``: rows per epoch counted in the destination itself, or ``None`` where it cannot tell (upserts, no
   epoch column). Under 0: rows that no epoch of ours brought, where it can tell.
12. ``disturbances(since)``, where a sink can (:class:`Witness`): what others did to the target since a receipt, as
   in ``position``.
13. ``read_back(spark)``, where a sink can (:class:`Legible`): the rows that stand, each with its epoch, through Spark.
14. ``examine(observed)``, where a sink can (:class:`Examinable`): what in the destination breaks the promise, or will.

Ideas: Estuary's materialize protocol (the marker is updated in the transaction that stores the rows, demanding
exactly one row); MillWheel's strong productions; Kafka's producer epochs (KIP-98).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from onceonly_checkpoints.epoch import Digest, EpochRecord, Fence, Marker, Receipt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from onceonly.doctor import Check, Observed


class Superseded(Exception):
    """A fence that is not ours, and not lower than ours, was read in the sink."""

    def __init__(self, sink: str, found: Fence) -> None:
        super().__init__(f"{sink} is fenced by generation {found.generation}")
        self.sink = sink
        self.found = found


class Conflict(Exception):
    """The destination took our transaction back for the sake of another one; nothing of it stands, nothing is unknown.

    The same may go through when it is tried again, from the fence. ``reason`` and ``blocker`` must hold no secret.

    Attributes:
        sink: sink id.
        reason: what the destination said.
        blocker: who stood in the way, as far as it is known.
    """

    def __init__(self, sink: str, reason: str, blocker: str) -> None:
        super().__init__(f"{sink}: {reason}; {blocker}")
        self.sink = sink
        self.reason = reason
        self.blocker = blocker


class OutcomeUnknown(Exception):
    """A fence or a commit was sent and its answer never came. ``reason`` must hold no secret."""

    def __init__(self, sink: str, reason: str) -> None:
        super().__init__(f"{sink}: {reason}")
        self.sink = sink
        self.reason = reason


class TooLargeForDriver(Exception):
    """The engine refuses to bring a batch's rows to the driver; the text is its own, and holds no secret."""


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


@dataclass(frozen=True, slots=True)
class Disturbance:
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
        writers: as in :class:`Sight`.
    """

    fence: Fence
    marker: Marker | None
    epoch: int
    identity: str
    has_rows: bool
    disturbances: tuple[Disturbance, ...] = ()
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """What stands in a sink, read without a fence: true when it was read, and perhaps no longer.

    Attributes:
        marker: newest marker of ours; ``None`` if there is none.
        epoch: number of the newest epoch; differs from ``marker`` as in :class:`Position`.
        strangers: whether the target holds rows and no epoch of ours; told only where there is no epoch.
        writers: pipelines that wrote epochs there, as far as a sink that is :class:`Shared` knows them.
        identity: what the target is, as in :class:`Position`; asked of a sink that is :class:`Identified`, and only
            where it holds less than it confirmed; else ``None``.
    """

    marker: Marker | None
    epoch: int
    strangers: bool = False
    writers: tuple[str, ...] = ()
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """Names one execution of one partition on an executor; unique even when Spark runs a task twice.

    Attributes:
        partition: partition index in the action.
        attempt: Spark's task attempt id, unique in the application.
    """

    partition: int
    attempt: int


Task = Callable[["Attempt", Iterator["pa.RecordBatch"]], Mapping[str, Any]]
"""Runs on an executor over one partition, consumes it all, returns a small mapping of JSON types. Picklable."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How large a batch is expected to be, before any action; ``None`` where nothing is known.

    Attributes:
        rows: expected rows.
        size: expected bytes in Arrow form.
    """

    rows: int | None
    size: int | None


class Batch(Protocol):
    """The rows of one epoch; an attempt runs exactly one of ``arrow``, ``on_executors``, ``dataframe``."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: what ``arrow`` and ``on_executors`` deliver."""
        ...

    @property
    def estimate(self) -> Estimate:
        """Expected size, known before the action."""
        ...

    @property
    def dataframe(self) -> DataFrame:
        """Spark's DataFrame, observed: an action on it fills ``digest``. Only for sinks that write through Spark."""
        ...

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Bring the rows to the driver, partition results as they arrive, in no particular order.

        Raises:
            TooLargeForDriver: the engine refuses to bring so many.
        """
        ...

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run ``task`` over every partition and return the answers of the attempts that won, one per partition."""
        ...

    def digest(self) -> Digest:
        """Digest of the rows, from the same action. Valid only after the action has been consumed to its end."""
        ...


@runtime_checkable
class InFiles(Protocol):
    """A batch whose rows lie in Parquet files already; a sink of such files may take them over by link or copy.

    The files themselves are not the sink's: they go when every sink holds the epoch after this one.
    """

    @property
    def paths(self) -> Sequence[Path]:
        """The files, on a disk that driver and executors share; each holds rows."""
        ...


class Recorder(Protocol):
    """The one thing that a sink in the ledger's own database may do with the ledger."""

    @property
    def address(self) -> str:
        """Where the ledger lies, without secrets; for the words of a refusal."""
        ...

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record the epoch on ``connection`` (an SQLAlchemy ``Connection``), inside the sink's transaction."""
        ...


class Prepared(Protocol):
    """What ``prepare`` made: rows near the destination, invisible."""

    @property
    def rows(self) -> int:
        """Rows counted in the bytes that will be committed."""
        ...

    def abandon(self) -> None:
        """Give the preparation up: roll back, remove files. Never raises; may repeat."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A destination. See the module's text for who calls what."""

    @property
    def id(self) -> str:
        """One logical write, unique in the pipeline; default ``<kind>:<leaf of the target>``."""
        ...

    @property
    def address(self) -> str:
        """``<kind>:<target>`` without secrets, enough for ``from_address`` to find the target again."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this sink can do, as configured."""
        ...

    @property
    def ledger_url(self) -> str | None:
        """SQLAlchemy URL, with secrets, of a database that can hold the ledger; ``None`` if there is none."""
        ...

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a sink again for reading; secrets come from the environment."""
        ...

    def open(self, pipeline: str) -> None:
        """Connect and check that the destination answers; creates nothing."""
        ...

    def fence(self) -> Fence | None:
        """Return the newest installed fence, whoever owns it; ``None`` if there is none."""
        ...

    def look(self) -> Sight:
        """The newest marker as anybody sees it; waits for nobody, changes nothing."""
        ...

    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest where it is strictly greater."""
        ...

    def position(self, since: Receipt | None) -> Position:
        """Where the sink stands, under our fence; disturbances since the receipt, or since the newest marker."""
        ...

    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Run the action; rows near the destination, invisible."""
        ...

    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Rows and marker in one transaction; with ``ledger``, its record too (``carries_ledger`` only)."""
        ...

    def look_up(self, marker: Marker) -> Receipt | None:
        """After an unknown answer: the receipt if it landed, ``None`` if it never will."""
        ...

    def sweep(self) -> None:
        """Remove staging of older generations."""
        ...

    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, as far back as the destination remembers; each epoch once."""
        ...

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch, counted in the destination; epochs without rows may be absent. ``None``: cannot tell."""
        ...

    def close(self) -> None:
        """Release connections. May repeat."""
        ...


@dataclass(frozen=True, slots=True)
class Milestone:
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


@runtime_checkable
class Forgets(Protocol):
    """A sink that lets old markers go and knows what they were. Optional; an audit goes on from there."""

    def milestone(self) -> Milestone | None:
        """What went; ``None`` if nothing did."""
        ...


@runtime_checkable
class Witness(Protocol):
    """A sink that can say, without a fence, what others did to its target. Optional; an audit asks those that can."""

    def disturbances(self, since: Receipt | None) -> Sequence[Disturbance]:
        """What others did since a receipt, oldest first; ``None``: since ever, as far back as it is known."""
        ...


@dataclass(frozen=True, slots=True)
class Sums:
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


@dataclass(frozen=True, slots=True)
class Allowed:
    """What others did to a target and was let pass, as far back as the target remembers.

    Attributes:
        changes: oldest first.
        removed: rows of each epoch that they took away, where the target tells whose they were.
        sums: of the whole target, where it does not; ``None`` where neither is known, or the other one is.
    """

    changes: tuple[Disturbance, ...] = ()
    removed: Mapping[int, int] = field(default_factory=dict[int, int])
    sums: Sums | None = None


@runtime_checkable
class Permissive(Protocol):
    """A sink that lets others change its target, as far as it was told. Optional; runner and audit ask those that do.

    What was let pass is an event of the pipeline, never silence.
    """

    def passed(self) -> Sequence[Disturbance]:
        """What the newest commit let pass, oldest first; asked after it, each is told once."""
        ...

    def allowed(self) -> Allowed:
        """What was ever let pass, and would be now. Needs no fence."""
        ...


EPOCH = "__onceonly_epoch"
"""Column of :meth:`Legible.read_back`."""


@runtime_checkable
class Legible(Protocol):
    """A sink whose rows come back as they went in, each with its epoch. Optional; a deep audit asks those that can."""

    def read_back(self, spark: SparkSession) -> DataFrame | None:
        """The rows that stand, in the order and types of the batch's columns, then the epoch as :data:`EPOCH`.

        Columns that were added later stand after the others. A row of which it is not known whose it is carries null,
        and so do all others of an epoch that may have brought it. ``None``: the target does not tell.
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
    """A sink whose target shows by its markers which pipelines write there. May be left out."""

    def writers(self) -> Sequence[str]:
        """Names of the pipelines with an epoch in this very target, ours among them."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A sink whose look is whole: what it has confirmed, a look shows. May be left out.

    So where a look shows less, the target was set back or is another one, and that can be said without a fence.
    """

    def identity_beside(self, known: str) -> str:
        """What the target is, as in :class:`Position`, beside the identity in a receipt; empty where nothing is."""
        ...


@runtime_checkable
class LogsIn(Protocol):
    """A sink that proves who it is by a secret, which no address holds. May be left out."""

    def log_in_like(self, ledger: str) -> None:
        """Take the secret out of a ledger's connection string, for the same user of the same database alone."""
        ...
