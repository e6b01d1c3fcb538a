"""Test helpers for claims: drivers, consecutive epochs, looks at the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import faults
from onceonly.errors import OnceOnlyError
from onceonly.faults import InjectedFault, Point
from onceonly.protocol import OutcomeUnknown, Position, Prepared, ReplacesRows, Sink, SinkBase, Superseded
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.chain import GENESIS, fingerprint, linked
from onceonly_checkpoints.epoch import Epoch, Fence, Lineage, Marker, Receipt
from onceonly_checkpoints.model import Slice, SourceOffsets
from onceonly_lab.conformance.harness import ConformanceFailure, SinkHarness, told

if TYPE_CHECKING:
    import pyarrow as pa

PIPELINE = "conformance"
"""Name of the pipeline that the suite writes."""
COLUMNS = (("id", "int64"), ("step", "int64"), ("note", "string"))
"""Name and Arrow type of the columns of every row the suite writes. ``step`` is the epoch's number."""


def is_default(sink: Sink, member: str) -> bool:
    """Whether a sink leaves a member at the default of :class:`SinkBase`."""
    own, base = getattr(type(sink), member, None), getattr(SinkBase, member)
    return getattr(own, "__func__", own) is getattr(base, "__func__", base)


def expect(holds: object, evidence: str) -> None:
    """Fail with the evidence unless something holds."""
    if not holds:
        raise ConformanceFailure(evidence)


def refused(what: str, act: Callable[[], object], *kinds: type[Exception]) -> Exception:
    """Do something that must be refused; return the refusal."""
    try:
        answer = act()
    except ConformanceFailure:
        raise
    except kinds as error:
        return error
    except Exception as error:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ConformanceFailure(f"{what} was answered with {told(error)}; expected {names}.") from error
    raise ConformanceFailure(f"{what} was not refused; the answer was {answer!r}.")


def refused_as(code: str, what: str, act: Callable[[], object]) -> None:
    """Do something that must be refused with the code that all sinks have for it: :mod:`onceonly.protocol.guard`."""
    error = refused(what, act, OnceOnlyError)
    actual_code = getattr(error, "code", None)
    expect(actual_code == code, f"{what} was refused with {actual_code}; every sink says {code} to it.")


def replayed(driver: Driver, planned: PlannedEpoch) -> Receipt | None:
    """Write an epoch that stands already; ``None`` if that is refused in words."""
    try:
        return driver.tries(planned)
    except OnceOnlyError:
        return None
    except Exception as error:
        raise ConformanceFailure(f"The replay was answered with {told(error)}.") from error


def superseded(what: str, act: Callable[[], object], by: Fence) -> None:
    """Do something that must be refused because another fence stands, and check that the refusal names it."""
    error = refused(what, act, Superseded)
    named_fence = getattr(error, "current_fence", None)
    expect(named_fence == by, f"{what} was refused naming {named_fence}, but {by} stands.")


def unknown(point: Point, act: Callable[[], object]) -> None:
    """Do something whose answer is lost after its effect; the sink must call its outcome unknown."""
    passed: list[Point] = []

    def lose() -> None:
        passed.append(point)
        raise InjectedFault("the answer was lost")

    def answered() -> object:
        answer = act()
        expect(passed, f"The sink never passed the fault point {point.value}.")
        return answer

    faults.arm(point, lose)
    try:
        refused(f"With the answer lost at {point.value} the outcome", answered, OutcomeUnknown)
    finally:
        faults.disarm()
    expect(passed, f"The outcome is called unknown, but the sink never passed the fault point {point.value}.")


@dataclass(frozen=True, slots=True)
class PlannedEpoch:
    """One epoch that a driver is about to write, with its rows."""

    epoch: Epoch
    table: pa.Table

    @property
    def ids(self) -> list[int]:
        """The rows' ids."""
        return [row["id"] for row in self.table.to_pylist()]

    def with_note(self, row: int, note: str) -> PlannedEpoch:
        """The same epoch with another note in a row."""
        import pyarrow as pa

        notes = self.table.column("note").to_pylist()
        notes[row] = note
        index = self.table.schema.get_field_index("note")
        return PlannedEpoch(self.epoch, self.table.set_column(index, "note", pa.array(notes, pa.string())))


def plan(after: Epoch | None, sink: str, rows: int = 3, salt: int = 0, first: int = 1) -> PlannedEpoch:
    """Plan the epoch that follows another.

    Args:
        after: the epoch before; ``None`` for the first.
        sink: id of the sink.
        rows: how many rows.
        salt: another salt gives the epoch other rows and so another chain.
        first: the number of the sink's first epoch.
    """
    number = after.number + 1 if after else first
    table = _table(number, rows, salt)
    slice_ = Slice(_offsets(number - 1), _offsets(number))
    digest, schema = ArrowBatch(table).digest(), fingerprint(COLUMNS)
    previous = after.chain if after else GENESIS
    lineage = Lineage("query", "run", "file:/checkpoint", number - 1, 1_700_000_000_000 + number, 0)
    series = after.series if after else 1
    made = Epoch(number, slice_, "", previous, digest, schema, ((sink, first),), lineage, series=series)
    return PlannedEpoch(linked(made), table)


def _offsets(end: int) -> SourceOffsets:
    return SourceOffsets.of({"0": f'{{"events":{{"0":{end}}}}}'})


def _table(number: int, rows: int, salt: int) -> pa.Table:
    import pyarrow as pa

    start = salt * 100_000_000 + number * 10_000
    return pa.table(
        {
            "id": pa.array(range(start, start + rows), pa.int64()),
            "step": pa.array([number] * rows, pa.int64()),
            "note": pa.array([f"row {row} of {number}" for row in range(rows)], pa.string()),
        }
    )


class Driver:
    """One driver with its handle and, once it has fenced, its fence."""

    def __init__(self, harness: SinkHarness, fence: Fence, pipeline: str = PIPELINE, sink: Sink | None = None) -> None:
        self.fence = fence
        self.sink = sink or harness.connect()
        self.sink.open(pipeline)
        self._harness = harness
        self._pipeline = pipeline

    def fences(self) -> Position:
        """Install the fence and read the position under it."""
        self.sink.install(self.fence)
        return self.position()

    def opens_again(self, fence: Fence) -> Position:
        """Open the same handle once more, under another fence."""
        self.fence = fence
        self.sink.open(self._pipeline)
        return self.fences()

    def position(self) -> Position:
        """The position under our fence."""
        return self.sink.position(None)

    def plan(self, rows: int = 3, salt: int = 0, after: Epoch | None = None) -> PlannedEpoch:
        """Plan the epoch after ``after``; by default, after the newest one in the sink."""
        if after is None and (newest := self.position().marker):
            after = newest.epoch
        return plan(after, self.sink.id, rows, salt)

    def marker(self, epoch: Epoch) -> Marker:
        """The marker of an epoch under our fence."""
        return Marker(self._pipeline, self.sink.id, self.fence, epoch)

    def prepares(
        self, planned: PlannedEpoch, *, duplicate_attempts: bool = False, breaks_off: bool = False
    ) -> Prepared:
        """Run the action of an epoch."""
        batch = self._harness.batch(planned.table, duplicate_attempts=duplicate_attempts, breaks_off=breaks_off)
        span = planned.epoch.replaces
        if span and isinstance(self.sink, ReplacesRows):
            return self.sink.prepare_replacement(batch, planned.epoch.number, span)
        return self.sink.prepare(batch, planned.epoch.number)

    def commits(self, planned: PlannedEpoch, prepared: Prepared | None) -> Receipt:
        """Commit an epoch."""
        return self.sink.commit(prepared, self.marker(planned.epoch))

    def writes(self, rows: int = 3) -> PlannedEpoch:
        """Plan, prepare and commit the next epoch."""
        planned = self.plan(rows)
        self.tries(planned)
        return planned

    def tries(self, planned: PlannedEpoch) -> Receipt:
        """Prepare and commit an epoch; what is refused is given up."""
        prepared = self.prepares(planned)
        try:
            return self.commits(planned, prepared)
        except Exception:
            prepared.abandon()
            raise

    def looks_up(self, planned: PlannedEpoch) -> Receipt | None:
        """Look an epoch up after an unknown answer."""
        return self.sink.look_up(self.marker(planned.epoch))


class Scenario:
    """A target's life. Drivers are numbered by generation; all their handles are closed at the end."""

    def __init__(self, harness: SinkHarness) -> None:
        self.harness = harness
        self._generation = 0
        self._sinks: list[Sink] = []

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, *_: object) -> None:
        for sink in self._sinks:
            sink.close()

    def stranger(self, generation: int, owner: str, pipeline: str = PIPELINE) -> Driver:
        """A driver that has opened its handle and installed nothing."""
        driver = Driver(self.harness, Fence(generation, owner), pipeline)
        self._sinks.append(driver.sink)
        return driver

    def newcomer(self, generation: int | None = None) -> Driver:
        """A driver that is about to fence the target, by default with the next generation."""
        self._generation = generation or self._generation + 1
        return self.stranger(self._generation, f"owner-{self._generation}")

    def driver(self, generation: int | None = None) -> Driver:
        """A driver that fenced the target."""
        driver = self.newcomer(generation)
        driver.fences()
        return driver

    def reader(self) -> Sink:
        """A handle that never fences."""
        return self.stranger(0, "reader").sink

    def holds(self, *plans: PlannedEpoch) -> None:
        """Check that the target holds the rows of these epochs, and their markers, once each and nothing else."""
        self.has_rows_of(*plans)
        history = [marker.epoch for marker, _ in self.reader().history()]
        expected = [planned.epoch for planned in plans]
        expect(history == expected, f"History lists {_names(history)}; expected {_names(expected)}.")

    def has_rows_of(self, *plans: PlannedEpoch) -> None:
        """Check that the target holds the rows of these epochs once each and nothing else."""
        actual = Counter(row["id"] for row in self.harness.rows())
        expected = Counter(id_ for planned in plans for id_ in planned.ids)
        missing, surplus = sorted((expected - actual).elements()), sorted((actual - expected).elements())
        expect(
            actual == expected, f"Of {expected.total()} rows {_few(missing)} are missing; {_few(surplus)} are too many."
        )


def _few(ids: list[int]) -> str:
    return f"{len(ids)} {ids[:6]}" if ids else "none"


def _names(epochs: list[Epoch]) -> str:
    return ", ".join(f"{epoch.number} ({epoch.chain[:6]})" for epoch in epochs) or "no epoch"
