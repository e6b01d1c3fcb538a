"""Define the contract between the runner and a sink.

:class:`Sink` is the interface that the runner calls. A sink of your own inherits from :class:`SinkBase`, which asks for
eight members. For each other member its docstring lists the guarantees that its default lacks. Optional abilities are
small protocols in :mod:`onceonly.protocol.capabilities`. Each of them also lists the guarantees that its absence costs.

Calls and their order
---------------------
The runner calls a sink from one thread at a time, in this order. ``audit`` calls only the reading half.

Opening (once per start of a query, and again after an unresolved answer):

1. ``open(pipeline)``: connect and check that the destination answers. Creates nothing. May repeat. Optional.
2. ``fence()``: the newest installed fence of any owner. An unlocked read: a hint for the next generation.
3. ``look()``: the newest marker, by an unlocked read that changes nothing and disturbs no other driver. The answer is
   stale at once. An opening that would be refused under any fence is refused by it, so that a refused driver does not
   stop a healthy one. The runner writes, heals or skips nothing because of it. Optional.
4. ``install(fence)``: make ``fence`` the newest, only where its generation is *strictly* greater than the one found.
   Before: any state. After it returns, no effect of an older fence can appear in the sink any more, and the last marker
   is still readable. Raise :class:`Superseded` if the generation found is greater or equal and not ours. Raise
   :class:`OutcomeUnknown` if the answer was lost. Installing a fence that is already current with *our* owner token
   succeeds: this is how a lost answer is looked up.
5. ``position(since)``, under our fence: fence, newest marker, identity, whether there are rows, and changes by others
   to the target since the receipt. Must raise :class:`Superseded` if the fence found is no longer ours.

Writing (once per epoch):

6. ``prepare(batch)``: run the batch's one action and bring the rows as near to the destination as possible while no
   reader sees them. Returns the counts of the bytes. May be called again with the same epoch after ``abandon``. Raise
   :class:`Superseded` if a newer driver ended the preparation.
7. ``commit(prepared, marker, ledger)``: rows and marker in ONE transaction of the destination, conditional on our fence
   *and* on the previous chain being the sink's newest. Only at the sink's own first epoch, which the marker names, any
   lower epoch may be the newest instead. ``prepared=None`` commits the marker alone. Returns the receipt when the
   answer was yes. The ledger, if there is one, has the epoch before the next one is committed under the same
   ``position``. Raise :class:`Superseded` if a higher generation or another owner was *read*. Raise
   :class:`OutcomeUnknown` for every other failure after the commit was sent. Raise any other error only when the commit
   was certainly not sent or certainly refused. Raise :class:`Conflict`, here and in ``prepare``, if the destination
   rolled the transaction back in favour of another writer's: the coordinator opens again and writes the epoch anew.
8. ``look_up(marker)``, after an unknown answer and under our fence: the receipt if that very epoch (number, chain,
   fence) is there. ``None`` if it certainly is not and a late commit cannot land any more. Raise
   :class:`OutcomeUnknown` if neither is certain.
9. ``sweep()``: remove staging that older generations left. Never touches staging that a marker names. Optional.

Sinks that share a transaction (``JoinsTransaction``) prepare and commit together: ``prepare_joined`` for each but the
first one, and one ``commit_joined``. It demands of each the conditions of ``commit``, and commits all or nothing.

A sink never retries a commit by itself, never compares by number alone, never swallows an error of the commit path.

A destination that takes puts by key and has no conditional transaction declares ``transactional=False``, and its
guarantee is weaker. There ``commit`` puts each row by itself under its key. It puts the marker last, under a key of its
own epoch, once every row was acknowledged. ``install`` and ``commit`` read the current fence and marker before they
put. Rows that a cut-off epoch has put do not count as ``has_rows`` of a stranger: its replay puts them again. All else
holds as written here.

Reading (no fence, no Spark, for audit, resolve and rebuild):

10. ``history(after)``: markers with receipts, oldest first, numbers greater than ``after``, as far back as the
    destination remembers.
11. ``recount()``: rows per epoch counted in the destination itself. ``None`` where it cannot count them by epoch
    (upserts, no epoch column). Under 0: rows that no epoch of ours brought, where it can count those. Optional.
12. ``external_changes(since)``, where a sink can (``DetectsChanges``): changes by others to the target since a receipt,
    as in ``position``.
13. ``read_with_spark(spark)``, where a sink can (``ReadsRows``): the current rows, each with its epoch, through Spark.
14. ``examine(observed)``, where a sink can (``Inspectable``): settings of the destination that break the guarantee, or
    will.

Ideas: Estuary's materialize protocol (the marker is updated in the transaction that stores the rows, demanding exactly
one row), MillWheel's strong productions, Kafka's producer epochs (KIP-98).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from onceonly.errors.options import misused, typed
from onceonly.protocol.batch import Batch
from onceonly.protocol.values import Capabilities, Peek, Position
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker, Receipt

if TYPE_CHECKING:
    from typing_extensions import Self


class Superseded(Exception):
    """The sink holds a fence that is not ours, and not lower."""

    def __init__(self, sink: str, fence: Fence) -> None:
        super().__init__(f"{sink} is fenced by generation {fence.generation}")
        self.sink = sink
        self.current_fence = fence


class Conflict(Exception):
    """The destination rolled our transaction back in favour of another one: nothing was written, nothing is unknown.

    A retry from the fence may succeed. ``blocker`` is the other writer, as far as it is known. It and ``reason`` must
    hold no secret.
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


class Recorder(Protocol):
    """Access to the ledger, for a sink in the ledger's own database."""

    @property
    def address(self) -> str:
        """Where the ledger lies, without secrets, for messages."""
        ...

    def record(self, record: EpochRecord, connection: Any = None) -> None:
        """Record the epoch on ``connection`` (an SQLAlchemy ``Connection``), inside the sink's transaction."""
        ...


class Prepared(Protocol):
    """The result of ``prepare``: rows near the destination, invisible."""

    @property
    def rows(self) -> int:
        """Rows counted in the bytes that will be committed."""
        ...

    def abandon(self) -> None:
        """Roll back. Remove files, after ``OutcomeUnknown`` none that a marker may name. Never raises. May repeat."""
        ...


P = TypeVar("P", bound=Prepared)


def check_prepared_by(prepared: Prepared | None, *kinds: type[P]) -> P | None:
    """Return the preparation in the sink's own types. ``None`` where a marker is committed alone.

    :class:`TypeError` if another sink prepared it.
    """
    if prepared is not None and not isinstance(prepared, kinds):
        raise TypeError(f"prepared by another sink: {type(prepared).__name__}")
    return prepared


@runtime_checkable
class Sink(Protocol):
    """A destination, as the runner calls it. The text above lists the calls in order.

    Inherit from :class:`SinkBase` to implement eight of these members. A class that has them all needs no base.
    """

    @property
    def id(self) -> str:
        """One logical write, unique in the pipeline. Default: ``<kind>:<leaf of the target>``."""
        ...

    @property
    def address(self) -> str:
        """``<kind>:<target>`` without secrets, enough for ``from_address`` to find the target again."""
        ...

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Abilities of this sink, as configured."""

    @property
    def ledger_url(self) -> str | None:
        """SQLAlchemy URL, with secrets, of a database that can hold the ledger. ``None`` if there is none."""
        ...

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find a sink again for reading. Secrets come from the environment."""
        ...

    def open(self, pipeline: str) -> None:
        """Connect and check that the destination answers. Creates nothing."""
        ...

    @abstractmethod
    def fence(self) -> Fence | None:
        """Return the newest installed fence of any owner. ``None`` if there is none."""

    def look(self) -> Peek:
        """The newest marker, by an unlocked read. It waits for no other driver and changes nothing."""
        ...

    @abstractmethod
    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest where it is strictly greater."""

    @abstractmethod
    def position(self, since: Receipt | None) -> Position:
        """The sink's position under our fence. Changes by others since the receipt, or since the newest marker."""

    @abstractmethod
    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Run the action and bring the rows near the destination, invisible."""

    @abstractmethod
    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Rows and marker in one transaction. With ``ledger``, its record too (``carries_ledger`` only)."""

    @abstractmethod
    def look_up(self, marker: Marker) -> Receipt | None:
        """After an unknown answer: the receipt if it landed, ``None`` if it never will."""

    def sweep(self) -> None:
        """Remove staging of older generations."""
        ...

    @abstractmethod
    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, each epoch once. As far back as the destination remembers."""

    def recount(self) -> Mapping[int, int] | None:
        """Rows per epoch, counted in the destination. Epochs without rows may be absent. ``None``: cannot count."""
        ...

    def close(self) -> None:
        """Release connections. May repeat."""
        ...


UNADDRESSED = "unaddressed"
"""Kind in the address of a sink that no address leads to; no kind of sink is called so."""


class SinkBase(Sink, ABC):
    """A sink that implements the eight abstract members. The others document the guarantees that they lack.

    Args:
        id: unique in the pipeline, and durable: markers and ledger hold it.

    Attributes:
        pipeline: the pipeline's name, once the sink was opened. Empty before.
    """

    def __init__(self, id: str) -> None:
        self._id = id
        self.pipeline = ""

    _arguments: Mapping[str, Any] = {}
    """Arguments that it was made with, by name. Empty for one that was found by its address."""

    def __repr__(self) -> str:
        name = type(self).__name__
        return typed(name, type(self).__init__, self._arguments) if self._arguments else f"{name}({self.address!r})"

    def __copy__(self) -> Self:
        """Another handle on the target, made as this one was. Only a sink that was never opened can be copied."""
        # Not by pickling, as Python copies otherwise: a sink may refuse to leave its process.
        made: Self = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(made, name, value)
        return made

    @property
    def id(self) -> str:
        """One logical write, unique in the pipeline."""
        return self._id

    @property
    def address(self) -> str:
        """The sink's id under the kind ``unaddressed``: it leads nowhere.

        Not guaranteed: that a command finds the target again (audit, doctor, resolve, adopt, rebuild), nor
        that a sink of the same id on another target is noticed before its fence. Implement it with ``from_address``.
        """
        return f"{UNADDRESSED}:{self._id}"

    @classmethod
    def from_address(cls, address: str) -> Self:
        """Find no target. See ``address``.

        Raises:
            ConfigurationError: E110, always.
        """
        raise misused(
            f"{cls.__name__} is not found by an address: {address!r}.",
            "the class has no from_address() of its own",
            "implement address and from_address(); until then use the sink in the query that makes it",
        )

    @property
    def ledger_url(self) -> str | None:
        """None: the destination holds no ledger. Not guaranteed: that an epoch and its record are one transaction."""
        return None

    def open(self, pipeline: str) -> None:
        """Remember the pipeline whose markers this sink reads.

        Not guaranteed: that a destination which is away is noticed before other sinks are fenced.
        """
        self.pipeline = pipeline

    def look(self) -> Peek:
        """The newest marker of ``history``, all of which is read.

        Not guaranteed: that rows of a stranger are refused before a fence is installed. They are refused under the
        fence.
        """
        marker = None
        for marker, _ in self.history():  # noqa: B007  the last one is what is looked for
            pass
        return Peek(marker, marker.epoch.number if marker else 0)

    def sweep(self) -> None:
        """Do nothing. Not guaranteed: that staging of killed drivers is ever removed."""
        return

    def recount(self) -> Mapping[int, int] | None:
        """None: cannot count. Not guaranteed: that an audit notices rows which others took away or put twice."""
        return None

    def close(self) -> None:
        """Do nothing. Not guaranteed: that connections end before the process does."""
        return
