"""The contract between the runner and a sink, in prose and types.

:class:`Sink` is what the runner calls. A sink of your own inherits from :class:`SinkBase`, which asks for eight members
and says of each of the others what is not guaranteed as long as it is left as it is. What only some sinks can do has a
small protocol each, in :mod:`onceonly.protocol.capabilities`, and says the same.

Who calls what, and when
------------------------
The runner calls a sink from one thread at a time, in this order; ``audit`` calls only the reading half.

Opening (once per start of a query, and again after an unresolved answer):

1. ``open(pipeline)``: connect and check that the destination answers. Creates nothing. May repeat. Optional.
2. ``fence()``: the newest installed fence, whoever owns it. An unlocked read: a hint for the next generation.
3. ``look()``: the newest marker, by an unlocked read that changes nothing and disturbs nobody. It is stale at once: an
   opening that would be refused whatever the fence says is refused by it, so that nobody who is himself refused stops
   a healthy driver; nothing is written, healed or skipped by it. Optional.
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
9. ``sweep()``: remove staging that older generations left. Never touches what a marker names. Optional.

Sinks that share a transaction (``Enlists``) are asked for 6 and 7 together: ``prepare_beside`` for each but the first
one, and one ``commit_beside``, which demands of each of them what ``commit`` does, and commits all or nothing.

A sink never retries a commit by itself, never compares by number alone, never swallows an error of the commit path.

A destination that takes puts by key and has no conditional transaction declares ``transactional=False``, and less is
promised of it. There ``commit`` puts each row by itself under its key and the marker last, under a key of its own
epoch, once every row was acknowledged; ``install`` and ``commit`` look at what stands before they put. What a cut-off
epoch has put is not ``has_rows`` of a stranger: its replay puts it again. All else holds as it is written here.

Reading (no fence, no Spark; for audit, resolve and rebuild):

10. ``history(after)``: markers with receipts, oldest first, numbers greater than ``after``, as far back as the
   destination remembers.
11. ``recount()``: rows per epoch counted in the destination itself, or ``None`` where it cannot tell (upserts, no
    epoch column). Under 0: rows that no epoch of ours brought, where it can tell. Optional.
12. ``disturbances(since)``, where a sink can (``Witness``): what others did to the target since a receipt, as
   in ``position``.
13. ``read_back(spark)``, where a sink can (``Legible``): the rows that stand, each with its epoch, through Spark.
14. ``examine(observed)``, where a sink can (``Examinable``): what in the destination breaks the promise, or will.

Ideas: Estuary's materialize protocol (the marker is updated in the transaction that stores the rows, demanding
exactly one row); MillWheel's strong productions; Kafka's producer epochs (KIP-98).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from onceonly.errors import refuse
from onceonly.protocol.batch import Batch
from onceonly.protocol.values import Capabilities, Peek, Position
from onceonly_checkpoints.epoch import EpochRecord, Fence, Marker, Receipt

if TYPE_CHECKING:
    from typing_extensions import Self


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


P = TypeVar("P", bound=Prepared)


def check_prepared_by(prepared: Prepared | None, *kinds: type[P]) -> P | None:
    """What a sink prepared itself, in its own types; ``None`` where a marker is committed alone.

    Raises:
        TypeError: another sink prepared it.
    """
    if prepared is not None and not isinstance(prepared, kinds):
        raise TypeError(f"prepared by another sink: {type(prepared).__name__}")
    return prepared


@runtime_checkable
class Sink(Protocol):
    """A destination, as the runner calls it. See the module's text for who calls what.

    Inherit from :class:`SinkBase` to implement eight of these members; a class that has them all needs no base.
    """

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

    def look(self) -> Peek:
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


UNADDRESSED = "unaddressed"
"""Kind in the address of a sink that no address leads to; no kind of sink is called so."""


class SinkBase(ABC):
    """A sink that implements eight members: those that are abstract here. The others say what is missing as they are.

    Args:
        id: the sink's id, unique in the pipeline; a durable name: markers and ledger hold it.

    Attributes:
        pipeline: the pipeline's name, once the sink was opened; empty before.
    """

    def __init__(self, id: str) -> None:
        self._id = id
        self.pipeline = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def __copy__(self) -> Self:
        """Another handle on the target, made as this one was; only one that was never opened is copied."""
        # Not by pickling, as Python copies otherwise: a sink may refuse to leave its process.
        made: Self = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(made, name, value)
        return made

    # ---- what every sink must do

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this sink can do, as configured."""

    @abstractmethod
    def fence(self) -> Fence | None:
        """Return the newest installed fence, whoever owns it; ``None`` if there is none."""

    @abstractmethod
    def install(self, fence: Fence) -> None:
        """Make ``fence`` the newest where it is strictly greater."""

    @abstractmethod
    def position(self, since: Receipt | None) -> Position:
        """Where the sink stands, under our fence; disturbances since the receipt, or since the newest marker."""

    @abstractmethod
    def prepare(self, batch: Batch, epoch: int) -> Prepared:
        """Run the action; rows near the destination, invisible."""

    @abstractmethod
    def commit(self, prepared: Prepared | None, marker: Marker, ledger: Recorder | None = None) -> Receipt:
        """Rows and marker in one transaction; ``ledger`` is ``None`` unless the sink ``carries_ledger``."""

    @abstractmethod
    def look_up(self, marker: Marker) -> Receipt | None:
        """After an unknown answer: the receipt if it landed, ``None`` if it never will."""

    @abstractmethod
    def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
        """Markers with receipts, oldest first, as far back as the destination remembers; each epoch once."""

    # ---- what it may do

    @property
    def id(self) -> str:
        """One logical write, unique in the pipeline."""
        return self._id

    @property
    def address(self) -> str:
        """The sink's id under a kind that is nobody's: it leads nowhere, whatever the id reads like.

        Not guaranteed: that a command finds the target again (audit, doctor, resolve, adopt, rebuild), nor that a sink
        of the same id on another target is noticed before its fence. Implement it with ``from_address``.
        """
        return f"{UNADDRESSED}:{self._id}"

    @classmethod
    def from_address(cls, address: str) -> Self:
        """No target is found by an address; see ``address``.

        Raises:
            ConfigurationError: E110, always.
        """
        raise refuse(
            "E110",
            problem=f"{cls.__name__} is not found by an address: {address!r}.",
            cause="the class has no from_address() of its own",
            next="implement address and from_address(); until then use the sink in the query that makes it",
        )

    @property
    def ledger_url(self) -> str | None:
        """None: the destination holds no ledger. Not guaranteed: that an epoch and its record are one transaction."""
        return None

    def open(self, pipeline: str) -> None:
        """Remember whose markers are meant.

        Not guaranteed: that a destination which is away is told before other sinks are fenced.
        """
        self.pipeline = pipeline

    def look(self) -> Peek:
        """The newest marker of ``history``, all of which is read.

        Not guaranteed: that rows of a stranger are refused before a fence is installed. They are, under the fence.
        """
        marker = None
        for marker, _ in self.history():  # noqa: B007  the last one is what is looked for
            pass
        return Peek(marker, marker.epoch.number if marker else 0)

    def sweep(self) -> None:
        """Do nothing. Not guaranteed: that what killed drivers prepared is ever removed."""
        return

    def recount(self) -> Mapping[int, int] | None:
        """None: cannot tell. Not guaranteed: that an audit notices rows which others took away or put twice."""
        return None

    def close(self) -> None:
        """Do nothing. Not guaranteed: that connections end before the process does."""
        return


def is_default(sink: Sink, member: str) -> bool:
    """Whether a sink leaves a member as it is in :class:`SinkBase`."""
    own, base = getattr(type(sink), member, None), getattr(SinkBase, member)
    return getattr(own, "__func__", own) is getattr(base, "__func__", base)
