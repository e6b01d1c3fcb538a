"""Judge of the demo: compare sinks with the input and each other.

It checks every row of a sink, and builds the report. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.audit import Facts, Verdict
from onceonly.audit.finding import worst

if TYPE_CHECKING:
    import pyarrow as pa


# ---- The judge: holds every row of a sink against the input, and sinks against each other. Pure.


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


def judge(source_rows: pa.Table, sink_rows: pa.Table) -> Finding:
    """Compare all columns of all rows.

    Args:
        source_rows: the input; column ``row`` counts 1, 2, 3 ... in order.
        sink_rows: the sink's rows in any order, with at least the columns of ``source_rows``.

    Raises:
        KeyError: a column is missing in the sink.
        ValueError: the input is not numbered, or a column cannot be read as the input's type.
    """
    import pyarrow as pa

    pc = _compute()
    if source_rows["row"].to_pylist() != list(range(1, source_rows.num_rows + 1)):
        raise ValueError("the input's rows are not numbered 1, 2, 3 ...")
    sink_rows = sink_rows.select(source_rows.column_names).cast(source_rows.schema)
    numbered = pc.and_kleene(
        pc.greater_equal(sink_rows["row"], 1), pc.less_equal(sink_rows["row"], source_rows.num_rows)
    )
    candidates = sink_rows.filter(pc.fill_null(numbered, False))
    expected = source_rows.take(pc.subtract(candidates["row"], 1))
    same = pa.repeat(True, candidates.num_rows)
    for column in source_rows.column_names:
        same = pc.and_(same, _equal(candidates[column], expected[column]))
    genuine = candidates.filter(same)
    distinct = pc.count_distinct(genuine["row"]).as_py()
    return Finding(
        rows=sink_rows.num_rows,
        missing=source_rows.num_rows - distinct,
        doubled=genuine.num_rows - distinct,
        foreign=sink_rows.num_rows - genuine.num_rows,
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


# ---- The demo's report: counts per sink, one verdict, one exit code. Pure.

SCHEMA_VERSION = 1
"""Version of the JSON form."""

EXACT, WRONG, UNANSWERED = 0, 1, 2
"""Exit codes."""


def exit_code(verdict: Verdict) -> int:
    """0 every row once, 1 rows or epochs are wrong, 2 it cannot be told."""
    untold = dict.fromkeys((Verdict.CANNOT_TELL, Verdict.NOT_COUNTED), UNANSWERED)
    return {Verdict.EXACTLY_ONCE: EXACT, **untold}.get(verdict, WRONG)


@dataclass(frozen=True, slots=True)
class SinkResult:
    """One sink after one run.

    Attributes:
        finding: every row compared with the input.
        epochs: wrapped: epochs that the sink holds, by its own markers; plain: different batches that Spark offered.
        replayed: batches that Spark offered again after a restart.
        skipped: of these, batches proven to be written already, by the ledger's events; a plain job proves none.
        audit: the audit's verdict; ``None`` for the plain job, which has nothing to audit.
        facts: what the audit judged, for its page; not part of the document.
    """

    finding: Finding
    epochs: int
    replayed: int
    skipped: int
    audit: Verdict | None = None
    facts: Facts | None = field(default=None, repr=False)

    @property
    def verdict(self) -> Verdict:
        """What the rows say; where they are right, what the audit says."""
        if self.finding.missing:
            return Verdict.GAPS
        if not self.finding.exact:
            return Verdict.DUPLICATES
        return self.audit or Verdict.EXACTLY_ONCE

    @property
    def cells(self) -> tuple[str, ...]:
        """Of the table: counts and verdict."""
        counts = (self.finding.rows, self.finding.missing, self.finding.doubled, self.epochs, self.replayed)
        skipped = "-" if self.audit is None else f"{self.skipped:,}"
        return (*(f"{count:,}" for count in counts), skipped, str(self.verdict))

    def to_json(self) -> dict[str, Any]:
        """Field names to values, flat."""
        return {
            "rows": self.finding.rows,
            "missing": self.finding.missing,
            "doubled": self.finding.doubled,
            "foreign": self.finding.foreign,
            "epochs": self.epochs,
            "replayed": self.replayed,
            "skipped": self.skipped,
            "audit": None if self.audit is None else str(self.audit),
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    """One variant of the job.

    Attributes:
        sinks: by kind.
        kills: in words, the kills that ended a driver.
        restarts: drivers started after a kill.
        seconds: wall time of the run.
    """

    sinks: Mapping[str, SinkResult]
    kills: Sequence[str]
    restarts: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """By kind of sink."""
        return {kind: sink.to_json() for kind, sink in self.sinks.items()}


@dataclass(frozen=True, slots=True)
class SeveralResult:
    """One query into several sinks.

    Attributes:
        run: its sinks, each with the audit's verdict on the whole pipeline.
        differing: numbers of the epochs that the sinks do not hold alike: same chain, same counted rows.
    """

    run: RunResult
    differing: tuple[int, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its sinks; where they are right one by one, whether they agree about every epoch."""
        worst = _worst(self.run)
        return Verdict.IN_DOUBT if self.differing and worst is Verdict.EXACTLY_ONCE else worst

    @property
    def sentence(self) -> str:
        """The counts of each sink, and whether they are alike."""
        epochs = max(sink.epochs for sink in self.run.sinks.values())
        unlike = f"epochs {', '.join(map(str, self.differing))} are not alike in all"
        alike = unlike if self.differing else f"{epochs} epochs, alike in all"
        return f"one query into {len(self.run.sinks)} sinks, {_after(self.run)}; {alike}"

    def to_json(self) -> dict[str, Any]:
        """``{"sinks", "epochs_differing", "kills", "restarts", "verdict"}``; ``sinks`` by kind, as of other runs."""
        return {
            "sinks": self.run.to_json(),
            "epochs_differing": list(self.differing),
            "kills": len(self.run.kills),
            "restarts": self.run.restarts,
            "verdict": str(self.verdict),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What the demo found. What was left out is ``None``.

    Attributes:
        seed: of the kills.
        rows_in: rows of the input.
        onceonly: the wrapped job, with a query for each sink.
        plain: the job as users have it today, under the same kills.
        seconds: wall time of the demo.
        several: one wrapped query into several sinks.
    """

    seed: int
    rows_in: int
    onceonly: RunResult | None
    plain: RunResult | None
    seconds: float
    several: SeveralResult | None = None

    @property
    def runs(self) -> dict[str, RunResult]:
        """What was run, by name, in order."""
        several = self.several.run if self.several else None
        runs_by_name = {"plain": self.plain, "onceonly": self.onceonly, "several": several}
        return {name: run for name, run in runs_by_name.items() if run}

    @property
    def moments(self) -> dict[str, Sequence[str]]:
        """The kills of each run, in words."""
        return {name: run.kills for name, run in self.runs.items()}

    @property
    def outcomes(self) -> dict[str, tuple[Verdict, str]]:
        """Verdict and counts of each run."""
        return {name: (_worst(run), _after(run)) for name, run in self.runs.items()}

    @property
    def pictures(self) -> dict[str, str]:
        """This act has none."""
        return {}

    @property
    def heads(self) -> tuple[str, ...]:
        """Of the table."""
        return ("job", "sink", "rows", "missing", "doubled", "epochs", "replayed", "skipped", "verdict")

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row for each sink of each run."""
        return [(name, kind, *sink.cells) for name, run in self.runs.items() for kind, sink in run.sinks.items()]

    @property
    def facts(self) -> tuple[Facts, ...]:
        """What was audited, one entry per pipeline."""
        sinks = (sink for run in self.runs.values() for sink in run.sinks.values())
        return tuple({sink.facts.pipeline: sink.facts for sink in sinks if sink.facts}.values())

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of what is wrapped."""
        verdicts = [_worst(self.onceonly)] if self.onceonly else []
        verdicts += [self.several.verdict] if self.several else []
        return worst(verdicts)

    @property
    def exit_code(self) -> int:
        """As of its verdict."""
        return exit_code(self.verdict)

    @property
    def sentence(self) -> str:
        """The verdict with its counts, in one line."""
        sentences = [_after(self.onceonly)] if self.onceonly else []
        sentences += [self.several.sentence] if self.several else []
        contrast = f" {_contrast(self.plain)}" if self.plain else ""
        return f"{self.verdict}: {self.rows_in:,} flights in; {'; '.join(sentences)}.{contrast}"

    def to_json(self) -> dict[str, Any]:
        """The document that ``--output json`` prints."""
        forms = {name: run.to_json() for name, run in self.runs.items()}
        if self.several:
            forms["several"] = self.several.to_json()
        counted = self.onceonly or self.runs["several"]
        return {
            "schema_version": SCHEMA_VERSION,
            "seed": self.seed,
            "rows_in": self.rows_in,
            "kills": len(counted.kills),
            "restarts": counted.restarts,
            **forms,
            "moments": {name: list(kills) for name, kills in self.moments.items()},
            "seconds": {
                **{name: round(run.seconds, 1) for name, run in self.runs.items()},
                "total": round(self.seconds, 1),
            },
            "verdict": str(self.verdict),
        }


def unanswered(seed: int, reason: str) -> dict[str, Any]:
    """The document of a demo that could not answer."""
    return {"schema_version": SCHEMA_VERSION, "seed": seed, "verdict": str(Verdict.CANNOT_TELL), "reason": reason}


def _worst(run: RunResult) -> Verdict:
    return worst(sink.verdict for sink in run.sinks.values())


def _after(run: RunResult) -> str:
    kills = f"{len(run.kills)} SIGKILL{'s' if len(run.kills) != 1 else ''}"
    return f"after {kills}: " + ", ".join(f"{kind} {_counts(sink.finding)}" for kind, sink in run.sinks.items())


def _counts(finding: Finding) -> str:
    foreign = f", {finding.foreign:,} altered" if finding.foreign else ""
    return f"{finding.rows:,} rows, {finding.missing:,} missing, {finding.doubled:,} doubled{foreign}"


def _contrast(plain: RunResult) -> str:
    missing = sum(sink.finding.missing for sink in plain.sinks.values())
    doubled = sum(sink.finding.doubled for sink in plain.sinks.values())
    return f"Plain foreachBatch, same kills: {missing:,} missing, {doubled:,} doubled."
