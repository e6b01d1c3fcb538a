"""Outcome of each epoch in each sink, and offset charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from onceonly.audit.catalogue import Severity, Verdict
from onceonly.audit.facts import Facts, SinkFacts
from onceonly.audit.finding import Finding, worst
from onceonly.audit.result import AuditResult, lines_of
from onceonly.audit.sink_history import SinkHistory
from onceonly.machine.source_order import numbers
from onceonly_checkpoints.epoch import Epoch, EpochRecord
from onceonly_checkpoints.model import SourceOffsets
from onceonly_checkpoints.strenum import StrEnum

# ---- What became of each epoch in each sink, and of neighbouring epochs that share one column of a picture. Pure.


class Outcome(StrEnum):
    """Outcome of one epoch in one sink, worst first: a column of several epochs shows its worst."""

    GAP = "gap"
    DOUBLED = "doubled"
    DOUBT = "in doubt"
    UNKNOWN = "cannot tell"
    ADOPTED = "adopted"
    MARKED = "rows not counted"
    PROVEN = "proven by the ledger"
    EXACT = "exactly once"
    ABSENT = "not a sink yet"

    @property
    def key(self) -> str:
        """Name of its colour and texture in the page's style sheet."""
        return self.name.lower()


_WORST_FIRST = tuple(Outcome)
_OF_VERDICT = {
    Verdict.GAPS: Outcome.GAP,
    Verdict.DUPLICATES: Outcome.DOUBLED,
    Verdict.IN_DOUBT: Outcome.DOUBT,
    Verdict.CANNOT_TELL: Outcome.UNKNOWN,
    Verdict.NOT_COUNTED: Outcome.MARKED,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One epoch, or several neighbours drawn as one.

    Attributes:
        began_ms: when the first was planned, milliseconds since 1970, or 0 if unknown.
        ended_ms: when the last was recorded, at least ``began_ms``.
        outcomes: the worst outcome, one per sink.
        surplus: counted minus committed rows, one per sink, or ``None`` if rows are not counted.
    """

    first: int
    last: int
    began_ms: int
    ended_ms: int
    rows: int
    outcomes: tuple[Outcome, ...]
    surplus: tuple[int | None, ...]
    codes: tuple[str, ...]

    @property
    def name(self) -> str:
        """``epoch 7``, or ``epochs 7 to 12``."""
        return named(self.first, self.last)


def named(first: int, last: int) -> str:
    """``epoch 7``, or ``epochs 7 to 12``."""
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Sinks in the order of the facts, by columns of ``width`` epochs, oldest first."""

    sinks: tuple[str, ...]
    columns: tuple[Column, ...]
    width: int = 1

    def pooled(self, at_most: int) -> Grid:
        """Return the grid in at most so many columns."""
        width = -(-len(self.columns) // at_most) or 1
        if width == 1:
            return self
        parts = (self.columns[start : start + width] for start in range(0, len(self.columns), width))
        return Grid(self.sinks, tuple(map(_pool, parts)), width)


def grid_of(facts: Facts, result: AuditResult) -> Grid:
    """Lay out every epoch that a marker, a record or an open intent names, one per column."""
    lines = {line.sink.id: _Lane.of(line) for line in lines_of(facts)}
    records = {record.epoch.number: record for record in facts.ledger.records} if facts.ledger else {}
    proven = {line.epoch.number: line.epoch for line in result.epochs}
    findings = _by_place(result.findings)
    numbers = proven.keys() | records.keys() | {cell[1] for cell, group in findings.items() if group}
    epochs = {number: proven.get(number) or records[number].epoch for number in proven.keys() | records.keys()}
    last = max(numbers, default=0)
    columns: list[Column] = []
    # Not from the first finding on: a sink that forgot its first million epochs has one finding about epoch 1.
    for number in range(min(epochs or numbers, default=1), last + 1):
        epoch = epochs.get(number)
        began, ended = _times(epoch, records.get(number), columns[-1].ended_ms if columns else 0)
        outcomes = tuple(_outcome(sink, lines.get(sink.id), number, findings) for sink in facts.sinks)
        surplus = tuple(_surplus(sink, number, epoch, lines.get(sink.id)) for sink in facts.sinks)
        codes = dict.fromkeys(finding.code for sink in (None, *lines) for finding in findings.get((sink, number), ()))
        rows = epoch.rows if epoch else 0
        columns.append(Column(number, number, began, ended, rows, outcomes, surplus, tuple(codes)))
    return Grid(tuple(sink.id for sink in facts.sinks), tuple(columns))


@dataclass(frozen=True, slots=True)
class _Lane:
    line: SinkHistory
    known: Mapping[int, Outcome]

    @classmethod
    def of(cls, line: SinkHistory) -> _Lane:
        held = Outcome.MARKED if line.sink.rows is None else Outcome.EXACT
        known = {epoch.number: Outcome.PROVEN for epoch in line.proven} | {epoch.number: held for epoch in line.held}
        adopted = {epoch.number: Outcome.ADOPTED for epoch in line.epochs if epoch.adoption is not None}
        return cls(line, known | adopted)


_FindingsByEpoch = Mapping[tuple[str | None, int], Sequence[Finding]]


def _by_place(findings: Sequence[Finding]) -> _FindingsByEpoch:
    placed: dict[tuple[str | None, int], list[Finding]] = {}
    for finding in findings:
        if finding.epoch is not None and finding.severity is not Severity.INFO:
            placed.setdefault((finding.sink, finding.epoch), []).append(finding)
    return placed


def _outcome(sink: SinkFacts, lane: _Lane | None, number: int, findings: _FindingsByEpoch) -> Outcome:
    if lane is None:
        return Outcome.UNKNOWN
    about = (*findings.get((sink.id, number), ()), *findings.get((None, number), ()))
    verdict = worst(finding.verdict for finding in about if finding.verdict is not None)
    quiet = _quiet(lane, number)
    if verdict is Verdict.EXACTLY_ONCE or (quiet is Outcome.GAP and verdict is not Verdict.IN_DOUBT):
        return quiet
    return _OF_VERDICT[verdict]


def _quiet(lane: _Lane, number: int) -> Outcome:
    """Return the outcome where no finding names this epoch: a finding over a range names only its first."""
    if number < lane.line.first:
        return Outcome.ABSENT
    return lane.known.get(number, Outcome.UNKNOWN if number < lane.line.oldest else Outcome.GAP)


def _surplus(sink: SinkFacts, number: int, epoch: Epoch | None, lane: _Lane | None) -> int | None:
    if sink.rows is None or epoch is None or number > sink.counted:
        return None
    series = lane.line.series if lane else 1
    expected = epoch.digest_in(sink.id).rows - sink.gone(epoch) if number >= series else 0
    return sink.rows.get(number, 0) - expected


def _times(epoch: Epoch | None, record: EpochRecord | None, before: int) -> tuple[int, int]:
    recorded = record.recorded_ms if record else 0
    began = (epoch.lineage.batch_timestamp_ms if epoch and epoch.lineage else 0) or recorded or before
    return began, max(began, recorded)


def _pool(columns: Sequence[Column]) -> Column:
    lanes = zip(*(column.outcomes for column in columns), strict=True)
    surpluses = zip(*(column.surplus for column in columns), strict=True)
    return Column(
        columns[0].first,
        columns[-1].last,
        columns[0].began_ms,
        max(column.ended_ms for column in columns),
        sum(column.rows for column in columns),
        tuple(min(lane, key=_WORST_FIRST.index) for lane in lanes),
        # The largest difference: in a sum a gap and a duplicate would cancel out.
        tuple(max((some for some in lane if some is not None), key=abs, default=None) for lane in surpluses),
        tuple(dict.fromkeys(code for column in columns for code in column.codes)),
    )


# ---- The offset chart: where each partition of a source stood, epoch by epoch, and where it broke. Pure.


@dataclass(frozen=True, slots=True)
class Break:
    """An epoch that does not start at the end before it: a hole, an overlap, or a position that an operator moved."""

    epoch: int
    low: float
    high: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class OffsetChart:
    """Offset of one partition by epoch. ``name`` is source id and path of the offset, ``events/0``.

    Points are ``(epoch, offset at its end)``, oldest first, preceded by the start of the first epoch.
    """

    name: str
    points: tuple[tuple[int, float], ...]
    breaks: tuple[Break, ...]

    @property
    def sound(self) -> bool:
        """Whether every step starts at the end of the one before it, or where an operator moved it."""
        return all(jump.outcome is Outcome.ADOPTED for jump in self.breaks)

    def thinned(self, at_most: int) -> OffsetChart:
        """Return the chart with at most so many points, and all points beside a break."""
        width = -(-len(self.points) // at_most) or 1
        neighbours = {jump.epoch + step for jump in self.breaks for step in (-1, 0)}
        last = len(self.points) - 1
        points = (
            point
            for index, point in enumerate(self.points)
            if index % width == 0 or index == last or point[0] in neighbours
        )
        return OffsetChart(self.name, tuple(points), self.breaks)


@dataclass(slots=True)
class _Climb:
    name: str
    points: list[tuple[int, float]] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)

    def step(self, epoch: Epoch, start: float | None, end: float) -> None:
        moved = epoch.adoption is not None
        before = self.points[-1][1] if self.points else None
        if before is None:
            self.points.append((epoch.number - 1, end if start is None else start))
        elif start is not None and start != before:
            torn = Outcome.GAP if start > before else Outcome.DOUBLED
            self._broken(epoch, before, start, Outcome.ADOPTED if moved else torn)
        if moved and before is not None and end != before:
            self._broken(epoch, before, end, Outcome.ADOPTED)
        self.points.append((epoch.number, end))

    def _broken(self, epoch: Epoch, before: float, other: float, outcome: Outcome) -> None:
        self.breaks.append(Break(epoch.number, min(before, other), max(before, other), outcome))


def offset_charts(epochs: Sequence[Epoch]) -> tuple[OffsetChart, ...]:
    """Return one chart per number in the offsets, broken ones first. Offsets that are not JSON give none."""
    climbs: dict[tuple[str, str], _Climb] = {}
    for epoch in epochs:
        starts, ends = _leaves(epoch.written.start), _leaves(epoch.written.end)
        for partition, end in ends.items():
            climb = climbs.setdefault(partition, _Climb(_name(partition, len(epoch.written.end.entries))))
            climb.step(epoch, starts.get(partition), end)
    charts = [OffsetChart(climb.name, tuple(climb.points), tuple(climb.breaks)) for climb in climbs.values()]
    return tuple(sorted(charts, key=lambda chart: chart.sound))


@lru_cache(maxsize=1)
def _leaves(offsets: SourceOffsets) -> Mapping[tuple[str, str], float]:
    """Parse offsets, each once: the end of one epoch is nearly always the start of the next."""
    read = ((source, numbers(text) or {}) for source, text in offsets.entries)
    return {(source, path): value for source, values in read for path, value in values.items()}


def _name(partition: tuple[str, str], sources: int) -> str:
    source, path = partition
    inner = path.removeprefix("/") or "offset"
    return inner if sources == 1 else f"{source}: {inner}"
