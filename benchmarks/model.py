"""What was measured and what is asked of it: medians, ratios with their spread, bars. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median


@dataclass(frozen=True, slots=True)
class Run:
    """One variant in one round.

    Attributes:
        shape: name of the input.
        variant: who wrote it.
        number: number of the round, from 1.
        rows: rows written, counted in the target.
        seconds: from ``start()`` to the end of the query.
        epochs_ms: duration of each settled epoch.
        cpu: seconds of processor, by the query with its workers and by the servers. Zero: not measured.
        others: processors that others used meanwhile, on average.
    """

    shape: str
    variant: str
    number: int
    rows: int
    seconds: float
    epochs_ms: tuple[float, ...]
    cpu: tuple[float, float] = (0.0, 0.0)
    others: float = 0.0

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def epoch_ms(self) -> float:
        """Median epoch."""
        return median(self.epochs_ms)


class Rule(Enum):
    """How two sides are compared."""

    RATE = "x rows/s"
    TIME = "x time per epoch"
    ADDED_MS = "ms more per epoch"
    ADDED_MB = "MB more"
    GROWTH = "x time of an early epoch"
    SECONDS = "s"
    SHARE = "% of it"


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the table.

    Attributes:
        name: for ``--only``.
        job: what is done.
        ours: variant.
        peers: variants; the one with the best median counts. None for :attr:`Rule.SECONDS`, which stands for itself.
        rule: how they are compared.
        limit: at least this for :attr:`Rule.RATE`, at most this for the others.
        shape: name of the input; empty for jobs that bring their own.
    """

    name: str
    job: str
    ours: str
    peers: tuple[str, ...]
    rule: Rule
    limit: float
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides of one round, in the rule's own unit."""

    ours: float
    peer: float


@dataclass(frozen=True, slots=True)
class Result:
    """A bar with what was measured.

    Attributes:
        bar: the bar.
        peer: the peer that was compared with.
        pairs: one per round.
    """

    bar: Bar
    peer: str
    pairs: tuple[Pair, ...]

    @property
    def each(self) -> list[float]:
        """The compared value of each round."""
        if self.bar.rule is Rule.SECONDS:
            return [pair.ours for pair in self.pairs]
        if self.bar.rule is Rule.SHARE:
            return [100 * pair.ours / pair.peer for pair in self.pairs]
        added = self.bar.rule in (Rule.ADDED_MS, Rule.ADDED_MB)
        return [pair.ours - pair.peer if added else pair.ours / pair.peer for pair in self.pairs]

    @property
    def value(self) -> float:
        """Median over the rounds."""
        return median(self.each)

    @property
    def met(self) -> bool:
        """Whether the median clears the bar."""
        return self.value >= self.bar.limit if self.bar.rule is Rule.RATE else self.value <= self.bar.limit

    @property
    def ours(self) -> float:
        """Median of our side."""
        return median(pair.ours for pair in self.pairs)

    @property
    def theirs(self) -> float:
        """Median of the peer."""
        return median(pair.peer for pair in self.pairs)


def compare(bar: Bar, runs: Sequence[Run]) -> Result:
    """Judge a bar by the runs of its shape, round by round.

    Raises:
        ValueError: a side was not measured.
    """
    worth: Callable[[Run], float] = (lambda run: run.rate) if bar.rule is Rule.RATE else (lambda run: run.epoch_ms)
    sides = {name: _by_round(bar, name, runs, worth) for name in (bar.ours, *bar.peers)}
    best = max if bar.rule is Rule.RATE else min
    peer = best(bar.peers, key=lambda name: median(sides[name].values()))
    ours, theirs = sides[bar.ours], sides[peer]
    return Result(bar, peer, tuple(Pair(ours[number], theirs[number]) for number in sorted(ours)))


def _by_round(bar: Bar, variant: str, runs: Sequence[Run], worth: Callable[[Run], float]) -> dict[int, float]:
    found = {run.number: worth(run) for run in runs if (run.shape, run.variant) == (bar.shape, variant)}
    if not found:
        raise ValueError(f"{bar.name}: {variant} was not measured")
    return found
