"""What the suite needs to know about a sink under test, and what a claim is. Knows no test framework."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from onceonly.batch import ArrowBatch
from onceonly.errors import OnceOnlyError, mask
from onceonly.protocol import Batch, Sink, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class ConformanceFailure(AssertionError):
    """A sink breaks a claim; the text is the evidence."""


class SinkHarness(Protocol):
    """One fresh, empty target of the sink under test. Subclass it, or match it.

    The rows that the suite writes have the columns of :data:`onceonly_sinks.conformance.COLUMNS`. ``id`` is unique over
    all epochs, so an upsert on ``id`` can be certified as well as an append.
    """

    @abstractmethod
    def connect(self) -> Sink:
        """Another handle on the same target, as another driver would make it; not opened. Any thread may call."""
        ...

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """All rows of the target, read without the sink; none if it does not exist. Any thread may call."""
        ...

    def maintain(self) -> None:
        """Do to the target what its owners do at night: VACUUM, OPTIMIZE, checkpoint and log clean-up; or nothing."""

    def batch(self, table: pa.Table, *, duplicate_attempts: bool = False, breaks_off: bool = False) -> Batch:
        """The rows as the sink gets them; by default from memory.

        Args:
            table: the rows.
            duplicate_attempts: every task runs twice, as after a lost executor; one attempt wins.
            breaks_off: the action fails after its first rows.
        """
        if breaks_off:
            return BrokenOffBatch(table)
        return ArrowBatch(table, duplicate_attempt=duplicate_attempts)

    def close(self) -> None:
        """Remove the target."""


class BrokenOff(RuntimeError):
    """The failure in the middle of a batch."""


class BrokenOffBatch(ArrowBatch):
    """A batch whose action fails after the first partition's rows."""

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Deliver some rows, then fail."""
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
        run: raises :class:`ConformanceFailure` with evidence if the claim does not hold.
    """

    name: str
    text: str
    run: Callable[[SinkHarness], None]

    def check(self, harness: SinkHarness, seconds: float = 120.0) -> None:
        """Run the claim against a fresh target; a sink that hangs fails it.

        Raises:
            ConformanceFailure: the claim does not hold, or did not end within ``seconds``.
        """
        failure: list[Exception] = []
        thread = threading.Thread(target=_run, args=(self, harness, failure), name=self.name, daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            raise ConformanceFailure(f"{self.text} It did not end within {seconds:g} s.")
        if failure:
            raise ConformanceFailure(f"{self.text} {_evidence(failure[0])}") from failure[0]


def _run(claim: Claim, harness: SinkHarness, failure: list[Exception]) -> None:
    try:
        claim.run(harness)
    except Exception as error:  # noqa: BLE001  handed to the thread that waits
        failure.append(error)


def _evidence(error: Exception) -> str:
    if isinstance(error, ConformanceFailure):
        return str(error)
    return f"Unexpected {told(error)}."


def told(error: Exception) -> str:
    """Name an error in one line without secrets."""
    what = error.what if isinstance(error, OnceOnlyError) else str(error)
    return mask(f"{type(error).__name__}: {what}")


def claims_of(*functions: Callable[[SinkHarness], None]) -> tuple[Claim, ...]:
    """Make claims of functions; the first line of a function's text is the claim."""
    return tuple(Claim(function.__name__, (function.__doc__ or "").splitlines()[0], function) for function in functions)
