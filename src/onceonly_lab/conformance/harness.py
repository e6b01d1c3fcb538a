"""Harness of a sink under test, and the definition of a claim.

Independent of test frameworks.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol
from unittest import SkipTest

from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import Batch, Sink, Task
from onceonly.protocol.batch import ArrowBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from onceonly.protocol.row_rules import Condition
    from onceonly_lab.conformance.type_table import Case, Cell, Kind


class ConformanceFailure(AssertionError):
    """A sink breaks a claim; the text is the evidence."""


class NotTested(SkipTest):
    """A claim cannot be tried on this destination; the text says why. The suite's result repeats it."""


class NotPromised(NotTested):
    """A claim depends on a transaction, and the sink has none. The text says what is missing."""


FENCES_NOBODY = "The sink takes rows one by one: such a store cannot fence a driver out for certain."
SHOWS_PARTS = "The sink takes rows one by one: parts of an epoch show until it is whole, or put again by its replay."
LANDS_LATE = "The sink takes rows one by one: a put that is still on its way may land at any time."
"""Why a claim is not promised by a sink that declares ``transactional=False``."""


class Wire(Protocol):
    """A wire between a sink and its destination that can hold statements."""

    def connect(self) -> Sink:
        """Another handle on the target, whose statements pass the wire; not opened."""
        ...

    def hold(self, number: int, call: Callable[[], object]) -> Callable[[], None]:
        """Hold the ``number``-th statement from now on, 1 for the next. Returns what lets it go on.

        Args:
            number: which statement.
            call: run once the statement is held; the destination has not seen it.
        """
        ...

    def hold_commit(self, call: Callable[[], object]) -> Callable[[], None]:
        """Hold the next statement that commits an epoch; as :meth:`hold`. It arrives even if its sender has gone."""
        ...


class SinkHarness(Protocol):
    """One fresh, empty target of the sink under test. Subclass it.

    The rows that the suite writes have the columns of :data:`onceonly_lab.conformance.COLUMNS`. ``id`` is unique over
    all epochs, so an upsert on ``id`` can be certified as well as an append. Some come again where the sink says by
    ``Capabilities.changes`` that it is one.

    What comes after :meth:`batch` is optional. A method that stays as it is here, or raises :class:`NotTested` with a
    reason of its own, leaves claims untried; the suite's result names them, with the reason.
    """

    moments: int = 200
    """At how many moments of a commit a driver is killed. Fewer take less time, and are sure of less.

    With fewer than 50, commits that are watched are fewer, too: four for each moment.
    """

    answers: frozenset[str] = frozenset()
    """Members of base classes that this sink must answer, out of ``claims_answers.ANSWERS``.

    A default means "cannot tell", so without this list a member that was lost looks like one that the sink never had.
    """

    @abstractmethod
    def connect(self) -> Sink:
        """Another handle on the same target, not open, as of another driver. Any thread may call."""
        ...

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """All rows of the target, read without the sink. Empty if there is no target. Any thread may call."""
        ...

    def maintain(self) -> None:
        """Do to the target what its owners do at night: VACUUM, OPTIMIZE, checkpoint and log clean-up; or nothing."""

    def batch(self, table: pa.Table, *, duplicate_attempts: bool = False, breaks_off: bool = False) -> Batch:
        """The rows as the sink gets them; by default from memory.

        Args:
            table: the rows.
            duplicate_attempts: every task runs twice, as after a lost executor; one attempt wins.
            breaks_off: the action fails before its end, whatever rows it has delivered.
        """
        if breaks_off:
            return BrokenOffBatch(table)
        return ArrowBatch(table, duplicate_attempt=duplicate_attempts)

    def start_method(self) -> str:
        """How a writer that is killed is started: ``fork``, or ``forkserver``.

        A client library with threads of its own does not live through ``fork``. With ``forkserver`` the harness is
        pickled. A store that lives in this process raises :class:`NotTested`.
        """
        return "fork"

    def another(self) -> SinkHarness:
        """Another fresh target of the same kind. The caller closes it."""
        raise NotTested("The harness makes no other target: it has no another().")

    def wire(self) -> AbstractContextManager[Wire]:
        """A wire between sink and target, as long as the block lasts."""
        raise NotTested("No statement can be held between sink and destination: the harness has no wire().")

    def values(self) -> list[Any]:
        """The column ``value`` of the target, read without the sink. Empty if there is no target."""
        raise NotTested("No type can be read back: the harness has no values().")

    def cell(self, kind: Kind, case: Case) -> Cell | None:
        """What the sink says it makes of a value; ``None``: the same, or a refusal of any code."""
        return None

    def forbid(self) -> str:
        """Have the target refuse some rows from now on. Return a ``note`` that no row may have."""
        raise NotTested("The target cannot be made to refuse a row: the harness has no forbid().")

    def forbid_by_rule(self) -> str:
        """As :meth:`forbid`, by a constraint that the sink's ``row_rules`` cover.

        Raise :class:`NotTested` with the reason if they leave every such constraint to the destination.
        """
        return self.forbid()

    def evaluate(self, conditions: Sequence[Condition], rows: pa.Table) -> Sequence[list[bool] | None]:
        """Evaluate conditions of ``row_rules`` on each row. Null counts as false.

        ``None`` for a condition that cannot be evaluated on these columns: a query then leaves it to the destination.
        By default Spark does it, in the running session or one of its own.
        """
        if find_spec("pyspark") is None:
            raise NotTested("Spark is not installed to evaluate a condition, and the harness has no evaluate().")
        from onceonly_lab.conformance import spark_conditions

        return spark_conditions.evaluate(conditions, rows)

    def replace(self) -> bool:
        """Take the target away and put an empty one in its place.

        Returns:
            Whether the destination let it happen; a sink that holds a lock since ``prepare`` prevents it.
        """
        raise NotTested("The target cannot be replaced: the harness has no replace().")

    def set_back(self, epoch: int) -> int:
        """Have the target hold the rows of an earlier epoch, or none. Markers stay.

        Returns:
            The epoch whose rows it holds then; 0 for none.
        """
        raise NotTested("The target cannot be set back under its markers: the harness has no set_back().")

    def intrude(self, table: pa.Table) -> None:
        """Add rows to the target as another program does: without the sink, under no marker."""
        raise NotTested("Nobody else can add rows to the target: the harness has no intrude().")

    def locked(self) -> AbstractContextManager[object]:
        """Lock the target against writers, for as long as the block lasts."""
        raise NotTested("The target cannot be locked: the harness has no locked().")

    def deadlocked(self) -> AbstractContextManager[object]:
        """Have the next commit fail in a way that passes. A deadlock above all."""
        raise NotTested("No commit can be made to fail in passing: the harness has no deadlocked().")

    def close(self) -> None:
        """Remove the target."""


class BrokenOff(RuntimeError):
    """The failure of a batch's action."""


class BrokenOffBatch(ArrowBatch):
    """A batch whose action fails after its last row, before it ends."""

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Deliver all rows, then fail."""
        yield from super().arrow()
        raise BrokenOff

    def on_executors(self, task: Task) -> list[Mapping[str, Any]]:
        """Run every task to its end, then fail: no answer reaches the driver."""
        super().on_executors(task)
        raise BrokenOff


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing every sink must do.

    Attributes:
        name: the function's name; in pytest ``test_<name>``.
        text: the claim in one sentence.
        run: raises :class:`ConformanceFailure` with evidence if the claim does not hold, :class:`NotTested` if it
            cannot be tried. May return a note on how it was tried.
        transaction: why a sink that declares ``transactional=False`` does not promise it; empty: every sink does.
        of: base class of which it is a claim. A sink that does not inherit it is not tried.
    """

    name: str
    text: str
    run: Callable[[SinkHarness], str | None]
    transaction: str = ""
    of: type | None = None

    def check(self, harness: SinkHarness, seconds: float = 120.0) -> str | None:
        """Run the claim against a fresh target; a sink that hangs fails it.

        Returns:
            A note on how it was tried, if there is one.

        Raises:
            ConformanceFailure: the claim does not hold, or did not end within ``seconds``.
            NotTested: it cannot be tried on this destination.
            NotPromised: it hangs on a transaction, and the sink declares that it has none.
        """
        ended: list[Exception | str | None] = []
        thread = threading.Thread(target=_run, args=(self, harness, ended), name=self.name, daemon=True)
        thread.start()
        thread.join(seconds)
        if not ended:
            raise ConformanceFailure(f"{self.text} It did not end within {seconds:g} s.")
        if isinstance(ended[0], NotTested):
            raise ended[0]
        if isinstance(ended[0], Exception):
            raise ConformanceFailure(f"{self.text} {_evidence(ended[0])}") from ended[0]
        return ended[0]


def _run(claim: Claim, harness: SinkHarness, ended: list[Exception | str | None]) -> None:
    try:
        if claim.transaction and is_idempotent(harness):
            raise NotPromised(claim.transaction)
        if claim.of and not _inherits(harness, claim.of):
            raise NotTested(f"The sink does not inherit {claim.of.__name__}.")
        ended.append(claim.run(harness))
    except Exception as error:  # noqa: BLE001  handed to the thread that waits
        ended.append(error)


def _evidence(error: Exception) -> str:
    if isinstance(error, ConformanceFailure):
        return str(error)
    return f"Unexpected {told(error)}."


def told(error: Exception) -> str:
    """Name an error in one line without secrets."""
    what = error.what if isinstance(error, OnceOnlyError) else str(error)
    return mask(f"{type(error).__name__}: {what}")


def is_idempotent(harness: SinkHarness) -> bool:
    """Whether the sink under test declares that it takes rows one by one; one that cannot even be made does not."""
    with suppress(Exception), closing(harness.connect()) as sink:
        return not sink.capabilities.transactional
    return False


def _inherits(harness: SinkHarness, base: type) -> bool:
    """Whether the sink under test inherits this base class. One that cannot even be made is tried all the same."""
    with suppress(Exception), closing(harness.connect()) as sink:
        return isinstance(sink, base)
    return True


def claims_of(
    *functions: Callable[[SinkHarness], str | None], transaction: str = "", of: type | None = None
) -> tuple[Claim, ...]:
    """Make claims of functions; the first line of a function's text is the claim.

    Args:
        functions: which raise what breaks them.
        transaction: as in :class:`Claim`, for all of them.
        of: likewise.
    """
    return tuple(
        Claim(function.__name__, (function.__doc__ or "").splitlines()[0], function, transaction, of)
        for function in functions
    )
