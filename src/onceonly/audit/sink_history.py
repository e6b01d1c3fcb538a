"""Merge one sink's markers and proven ledger records into one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onceonly.audit.facts import LedgerFacts, SinkFacts
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import STATE
from onceonly_checkpoints.epoch import Epoch, EpochRecord


class Evidence(NamedTuple):
    """What a rule found. ``sink`` is missing if it is about no sink, or about the one sink that the rule was given."""

    code: str
    epoch: int | None
    text: str
    last: int | None = None
    sink: SinkFacts | None = None


@dataclass(frozen=True, slots=True)
class SinkHistory:
    """Expected history of a sink.

    Attributes:
        first: first epoch to judge: where the sink joined, where its markers begin, or ``since``.
        held: epochs with a marker in the sink, each number once, oldest first.
        proven: epochs without a marker whose record in the ledger hashes into the next epoch of the line.
    """

    sink: SinkFacts
    first: int
    held: tuple[Epoch, ...]
    proven: tuple[Epoch, ...]

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Held and proven epochs, oldest first."""
        return tuple(sorted((*self.held, *self.proven), key=lambda epoch: epoch.number))

    @property
    def lost(self) -> tuple[int, ...]:
        """Numbers between the first and the newest epoch that have no marker."""
        held = {epoch.number for epoch in self.held}
        return tuple(number for number in range(self.first, self.newest + 1) if number not in held)

    @property
    def series(self) -> int:
        """First epoch whose rows are current: a full refresh replaces those of all earlier epochs."""
        return self.held[-1].series if self.held else 1

    @property
    def accepted(self) -> int:
        """Newest epoch in which an operator accepted this sink's content as it was, or 0 for none."""
        return max((epoch.number for epoch in self.epochs if epoch.accepts(self.sink.id)), default=0)

    @property
    def committed(self) -> int:
        """Rows committed by the epochs of the series, including those whose markers were pruned."""
        pruned = self.sink.milestone
        gone = pruned.rows if pruned and self.series <= pruned.epoch else 0
        return gone + sum(epoch.digest_in(self.sink.id).rows for epoch in self.epochs if epoch.number >= self.series)

    @property
    def kind(self) -> str:
        """Name of the sink's output, or empty if it gets all rows."""
        outputs = (epoch.output(self.sink.id) for epoch in reversed(self.epochs))
        return next((output.name for output in outputs if output), "")

    @property
    def aged(self) -> tuple[int, ...]:
        """Proven epochs with rows that the sink can no longer count, because it has forgotten their commits."""
        rows, upto = self.sink.rows or {}, self.oldest if self.first < self.oldest else 0
        early = (epoch for epoch in self.epochs if self.series <= epoch.number <= upto and epoch.number not in rows)
        return tuple(
            epoch.number for epoch in early if epoch.digest_in(self.sink.id).rows and not self.sink.gone(epoch)
        )

    @property
    def is_counted(self) -> bool:
        """Whether missing rows are detected: by epoch, in sum, or in onceonly's own tables."""
        sink = self.sink
        if (sink.rows is not None and not self.aged) or sink.allowed.sums is not None:
            return True
        if sink.total is None or self.kind == STATE:
            return sink.total is not None
        alone = not (sink.others or sink.disturbances or sink.allowed.changes)
        return sink.append_only and alone and sink.total.rows == self.committed

    @property
    def unaltered(self) -> tuple[Epoch, ...]:
        """Held epochs whose rows were counted, and which neither a refresh, an acceptance nor retention has touched."""
        begun = max(self.accepted + 1, self.first, self.series)
        counted = (epoch for epoch in self.held if begun <= epoch.number <= self.sink.counted)
        return tuple(epoch for epoch in counted if epoch.digest_in(self.sink.id).rows and not self.sink.gone(epoch))

    def miscounted(self, epoch: Epoch) -> bool:
        """Check whether the number of an epoch's rows is wrong already, which another rule reports."""
        rows = self.sink.rows
        return rows is not None and rows.get(epoch.number, 0) != epoch.digest_in(self.sink.id).rows

    @property
    def oldest(self) -> int:
        """Number of the oldest marker, or 0 without any."""
        return self.held[0].number if self.held else 0

    @property
    def newest(self) -> int:
        """Number of the newest marker, or 0 without any."""
        return self.held[-1].number if self.held else 0


def line_of(sink: SinkFacts, ledger: LedgerFacts | None, since: int = 1) -> SinkHistory:
    """Lay out the line of one sink."""
    held = {epoch.number: epoch for epoch in reversed(sink.epochs)}
    newest = held[max(held)] if held else None
    joined = dict(newest.sinks).get(sink.id, 1) if newest else 1
    first = max(since, joined, sink.milestone.epoch + 1 if sink.milestone else 1)
    records = {record.epoch.number: record for record in ledger.records} if ledger else {}
    return SinkHistory(sink, first, tuple(held[number] for number in sorted(held)), _proven(held, first, records))


def _proven(held: Mapping[int, Epoch], first: int, records: Mapping[int, EpochRecord]) -> tuple[Epoch, ...]:
    """Walk back from the newest marker: a record whose hash the next epoch names is as good as a marker."""
    proven: list[Epoch] = []
    following: Epoch | None = None
    for number in range(max(held, default=0), first - 1, -1):
        epoch = held.get(number)
        record = records.get(number)
        follows = record and following and record.epoch.chain == following.previous_chain
        if epoch is None and record and follows and chain.sound(record.epoch):
            epoch = record.epoch
            proven.append(epoch)
        following = epoch
    return tuple(reversed(proven))


def links(lines: Sequence[SinkHistory]) -> Iterator[tuple[SinkFacts, Epoch | None, Epoch]]:
    """Yield each epoch once, as sinks hold the same ones: its sink, the epoch that it follows, and itself.

    ``None`` in place of the epoch before it where that link is missing: another rule says so.
    """
    judged: set[str] = set()
    for line in lines:
        before: Epoch | None = None
        for epoch in line.epochs:
            if epoch.chain not in judged:
                yield line.sink, before if before and epoch.previous_chain == before.chain else None, epoch
            judged.add(epoch.chain)
            before = epoch


def ranges(numbers: tuple[int, ...]) -> str:
    """Spell ascending numbers in words: ``3``, ``3 to 5``, ``3 to 5, 9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
