"""Ways that take turns: each in every round, in rotating order, compared with one of them in the same round."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.data import Shape

HEAD = (
    "| rows per epoch | way | median | against | times | spread | limit |",
    "|--:|---|--:|---|--:|--:|--:|",
)


@dataclass(frozen=True, slots=True)
class More:
    """A limit in milliseconds above the peer."""

    ms: float


@dataclass(frozen=True, slots=True)
class Job:
    """One input and who is compared on it.

    Attributes:
        shape: the input.
        settling: epochs at the beginning that are not counted.
        peer: what the others are compared with.
        limits: the most that each of them may take, in times of the peer or in milliseconds more; ``None``: nothing is
            demanded.
    """

    shape: Shape
    settling: int
    peer: str
    limits: Mapping[str, float | More | None]


def rows(job: Job, rounds: int, measure: Callable[[str, Path], float], root: Path) -> list[str]:
    """Measure all ways of a job, and say what was found as rows of a table.

    Args:
        job: what is compared.
        rounds: how many count, after one that does not.
        measure: the time of a way in ms, in a directory that is removed after it.
        root: where that directory is.
    """
    ways = [job.peer, *job.limits]
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            took = measure(way, root / "run")
            shutil.rmtree(root / "run", ignore_errors=True)
            if number:
                found[way].append(took)
        print(f"{job.shape.name} {number}: { {way: times[-1:] for way, times in found.items()} }", file=sys.stderr)
    return table_of(job, found)


def table_of(job: Job, found: Mapping[str, Sequence[float]]) -> list[str]:
    """Rows of the table.

    Args:
        job: what was measured.
        found: a time for each round, in ms, by way.
    """
    lines = [f"| {job.shape.rows:,} | {job.peer} | {median(found[job.peer]):,.0f} ms | | | | |"]
    for way, limit in job.limits.items():
        both = list(zip(found[way], found[job.peer], strict=True))
        times, more = [one / peer for one, peer in both], [one - peer for one, peer in both]
        lower, _, upper = quantiles(times, n=4)
        middle, spread, said = f"{median(times):.2f}", f"{lower:.2f}-{upper:.2f}", ""
        if isinstance(limit, More):
            lower, _, upper = quantiles(more, n=4)
            middle, spread = f"{middle}, {median(more):+.1f} ms", f"{spread}, {lower:+.1f} to {upper:+.1f} ms"
            said = f"{limit.ms:g} ms more, {'holds' if lower <= limit.ms else 'missed'}"
        elif limit is not None:
            said = f"{limit:g}{'' if lower <= limit else ', missed'}"
        lines.append(
            f"| {job.shape.rows:,} | {way} | {median(found[way]):,.0f} ms | {job.peer} | {middle} | {spread} | {said} |"
        )
    return lines
