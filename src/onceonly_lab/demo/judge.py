"""The judge: holds every row of a sink against the input, and sinks against each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Finding:
    """How a sink differs from its input.

    Attributes:
        rows: rows in the sink.
        missing: input rows that the sink does not hold, in every column as they were.
        doubled: rows in the sink beyond the first copy of an input row.
        foreign: rows in the sink that are no input row: altered, or of a number that was never given.
    """

    rows: int
    missing: int
    doubled: int
    foreign: int

    @property
    def exact(self) -> bool:
        """Whether the sink holds every input row once and nothing else."""
        return self.missing == self.doubled == self.foreign == 0


def judge(given: pa.Table, found: pa.Table) -> Finding:
    """Compare all columns of all rows.

    Args:
        given: the input; column ``row`` counts 1, 2, 3 ... in order.
        found: the sink's rows in any order, with at least the columns of ``given``.

    Raises:
        KeyError: a column is missing in the sink.
        ValueError: the input is not numbered, or a column cannot be read as the input's type.
    """
    import pyarrow as pa

    pc = _compute()
    if given["row"].to_pylist() != list(range(1, given.num_rows + 1)):
        raise ValueError("the input's rows are not numbered 1, 2, 3 ...")
    found = found.select(given.column_names).cast(given.schema)
    numbered = pc.and_kleene(pc.greater_equal(found["row"], 1), pc.less_equal(found["row"], given.num_rows))
    candidates = found.filter(pc.fill_null(numbered, False))
    expected = given.take(pc.subtract(candidates["row"], 1))
    same = pa.repeat(True, candidates.num_rows)
    for column in given.column_names:
        same = pc.and_(same, _equal(candidates[column], expected[column]))
    genuine = candidates.filter(same)
    distinct = pc.count_distinct(genuine["row"]).as_py()
    return Finding(
        rows=found.num_rows,
        missing=given.num_rows - distinct,
        doubled=genuine.num_rows - distinct,
        foreign=found.num_rows - genuine.num_rows,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """One epoch in one sink.

    Attributes:
        chain: of its marker; it covers the epoch's rows and all epochs before it.
        rows: as counted in the sink; ``None`` if the sink cannot count.
    """

    chain: str
    rows: int | None


def differing(sinks: Sequence[Mapping[int, Held]]) -> tuple[int, ...]:
    """Numbers of the epochs that not every sink holds under the same chain with the same, counted rows."""
    numbers = set[int]().union(*sinks)
    return tuple(number for number in sorted(numbers) if not _alike([held.get(number) for held in sinks]))


def _alike(held: Sequence[Held | None]) -> bool:
    return len(set(held)) == 1 and held[0] is not None and held[0].rows is not None


def _equal(left: Any, right: Any) -> Any:
    """Whether values are the same, where null is the same as null."""
    pc = _compute()
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(pc.equal(left, right), False))


def _compute() -> Any:
    """Arrow's functions, whose published types know few of their uses."""
    import pyarrow.compute

    return pyarrow.compute
