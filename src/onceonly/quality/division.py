"""Divide the rows of a query: outputs, routes, expectations, quarantine, deduplication.

``exactly_once()`` loads this module when it was given one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onceonly.errors import OnceOnlyError, RowsRefused
from onceonly.protocol import HasConstraints, Sink
from onceonly.protocol.batch import Trim
from onceonly.protocol.row_rules import Check
from onceonly.quality import outputs as output_argument
from onceonly.quality import quality as dedupe_argument
from onceonly.quality import quality as quality_argument
from onceonly.quality import spark_outputs
from onceonly.quality.outputs import Output, Route, expecting
from onceonly.quality.quality import Dedupe, Quality
from onceonly.quality.spark_dedupe import DedupingBatch
from onceonly.quality.spark_outputs import DividedBatch, Forecast, OutputSpec, ResolvedOutput
from onceonly.quality.spark_row_rules import Demanded, EpochChecks, Expectation, Expectations
from onceonly.spark import expression_check, frames
from onceonly.spark.engine import QueryPlan
from onceonly.spark.fingerprint import Determinism
from onceonly.spark.row_times import RowLimit
from onceonly_checkpoints.digests import BAD, SEEN_IDS

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame
    from onceonly.spark.input import Input


@dataclass(frozen=True, slots=True)
class Division:
    """The checked arguments of a call that divide its rows.

    The outputs of a route are among ``outputs``. ``routes`` holds the columns that route rows. ``limit``: of the times
    of good rows, if others are set aside.
    """

    outputs: tuple[Output, ...] = ()
    quality: Quality | None = None
    dedupe: Dedupe | None = None
    routes: tuple[str, ...] = ()
    limit: RowLimit | None = None

    @property
    def row_sinks(self) -> tuple[Sink, ...]:
        """The quarantine, if there is one."""
        return (self.quality.quarantine,) if self.quality and self.quality.quarantine else ()

    @property
    def state_sinks(self) -> tuple[Sink, ...]:
        """The sink of ids, if there is one."""
        return (self.dedupe.keeper,) if self.dedupe else ()

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Every sink that does not get all rows."""
        return (*(sink for output in self.outputs for sink in output.sinks), *self.row_sinks, *self.state_sinks)

    @property
    def reshaped(self) -> tuple[Sink, ...]:
        """The sinks that get other columns than the rows have."""
        return (*(sink for output in self.outputs if output.select for sink in output.sinks), *self.row_sinks)

    @property
    def contents(self) -> dict[str, str]:
        """Contents of each sink that holds something else than good rows, in words, by sink id."""
        bad = {sink.id: "bad rows" for sink in self.row_sinks}
        return bad | {sink.id: "ids" for sink in self.state_sinks}

    @property
    def max_bad(self) -> int | float | None:
        """Limit of bad rows in an epoch, as a number or a share. ``None`` without expectations."""
        return self.quality.most if self.quality else None

    @property
    def argument(self) -> str:
        """The argument that a refusal names, in words."""
        if self.dedupe:
            return "was given dedupe="
        return f"has output {self.outputs[0].name!r}" if self.outputs else "was given quality="

    @property
    def arguments(self) -> dict[str, object]:
        """The keyword arguments, by name."""
        values = {"quality": self.quality, "dedupe": self.dedupe}
        return {name: value for name, value in values.items() if value}

    def promise(self, sinks: Sequence[Sink]) -> tuple[dict[str, tuple[str, str]], str, str]:
        """Its part of the guarantee, where ``sinks`` get rows.

        By sink id, the name and the words of the rows that it gets. Then the rules that a bad row breaks, and the
        identity by which rows repeat, both empty for none.
        """
        outputs = {sink.id: (output.name, output.text) for output in self.outputs for sink in output.sinks}
        expected = once = ""
        if self.quality:
            limits = [self.limit.words] if self.limit else []
            expected = " or ".join(filter(None, (self.quality.breaks(sinks), *limits)))
            bad = f"every row that breaks {expected}" if expected else ""
            if self.quality.quarantine:
                aside = "all rows of an epoch that breaks a check" if self.aside else ""
                text = f"{' and '.join(filter(None, (bad, aside)))}{self.quality.retention_text}"
                outputs[self.quality.quarantine.id] = BAD, text
        if self.dedupe:
            once = f"{self.dedupe.named}, of which one was let through in the {self.dedupe.within} before"
            outputs[self.dedupe.keeper.id] = (
                SEEN_IDS,
                f"the id of each row that was let through, for {self.dedupe.within}",
            )
        return outputs, expected, once

    @property
    def checks(self) -> tuple[Check, ...]:
        """Conditions on the rows of an epoch together."""
        quality = self.quality.checks if self.quality else {}
        of_outputs = [Check(name, sql, output.name) for output in self.outputs for name, sql in output.checks.items()]
        return (*(Check(name, sql) for name, sql in quality.items()), *of_outputs)

    @property
    def aside(self) -> tuple[str, ...]:
        """Names of the checks for which, if they do not hold, all rows of an epoch are bad."""
        chosen = self.quality is not None and self.quality.on_broken == "quarantine"
        return tuple(dict.fromkeys(check.name for check in self.checks)) if chosen else ()

    def demanded(self, sinks: Sequence[Sink], pipeline: str, rows: DataFrame) -> tuple[Demanded, ...]:
        """Rules that each sink of good rows imposes on its rows. Empty without a quarantine.

        ``rows`` are a batch as it is written, without outputs. A sink is asked once a run.
        """
        selected = {sink.id: output.output_spec for output in self.outputs for sink in output.sinks}
        rules: list[Demanded] = []
        for sink in self.quality.demanding(sinks) if self.quality else ():
            if not isinstance(sink, HasConstraints):
                continue
            output = selected.get(sink.id)
            columns = frames.arrow_schema(rows if output is None else output.of(rows))
            sink.open(pipeline)
            try:
                rules.append(Demanded(sink.id, output, tuple(sink.row_rules(columns))))
            except RowsRefused:
                # Columns that it cannot take are refused once it is known whether the batch is one to write.
                continue
        return tuple(rules)

    @expression_check.quietly()
    def resolve(
        self,
        plan: QueryPlan,
        pipeline: str,
        rows: DataFrame,
        left_out: frozenset[str],
        demanded: Sequence[Demanded] = (),
    ) -> ResolvedDivision:
        """Apply outputs, expectations and rules of sinks to the rows (E121: an expression is not one on a row)."""
        for by in self.routes:
            expression_check.check_route(pipeline, rows, by)
        outputs = tuple(output.output_spec for output in self.outputs)
        if self.dedupe:
            outputs = (*outputs, self.dedupe.repeats.output_spec(pipeline, rows))
        checking = EpochChecks(self.checks, pipeline) if self.checks else None
        specs = None
        if self.quality:
            expectations = self.quality.expectations(demanded)
            expectations.check(pipeline, rows)
            specs = partial(self._specs, expectations, rows, outputs)
        resolved = spark_outputs.resolve(plan, pipeline, rows, specs(0, ()) if specs else outputs, left_out)
        if checking:
            checking.check(rows, outputs)
        forecast = spark_outputs.forecast(rows, resolved) if self.row_sinks else None
        return ResolvedDivision(resolved, specs, self.limit is not None, checking, forecast)

    def _specs(
        self,
        expectations: Expectations,
        rows: DataFrame,
        outputs: Sequence[OutputSpec],
        clock_ms: int,
        aside: Sequence[str],
    ) -> tuple[OutputSpec, ...]:
        """The outputs of good rows and of bad ones. Of ``rows`` only the columns count."""
        within = [Expectation(AHEAD, self.limit.sql(clock_ms), by_batch=True)] if self.limit else []
        broken = [Expectation(name, "false", by_batch=True, by="check") for name in aside]
        return replace(expectations, expect=(*expectations.expect, *within, *broken)).divide(rows, outputs)

    def batch(
        self,
        rows: DataFrame,
        divided: ResolvedDivision,
        read: Input,
        determinism: Determinism,
        without: Callable[[Trim], DataFrame],
    ) -> DividedBatch:
        """A micro-batch with its outputs. ``without`` makes the rows of a trimmed batch."""
        outputs = partial(divided.at, read.lineage.batch_timestamp_ms)
        checking = replace(divided.checking, aside=outputs) if divided.checking else None
        arguments = (rows, outputs(), read.estimate, determinism.left_out, without)
        if self.dedupe:
            return DedupingBatch(*arguments, repeats=self.dedupe.repeats, checking=checking, forecast=divided.forecast)
        return DividedBatch(*arguments, checking=checking, forecast=divided.forecast)

    def reword(self, refused: OnceOnlyError) -> OnceOnlyError:
        """Replace a destination's refusal of a bad row by one about the quarantine (E524)."""
        return quality_argument.refusal_text(self.quality, refused)


@dataclass(frozen=True, slots=True)
class ResolvedDivision:
    """Resolved outputs. ``specs`` makes them for the clock of a batch and for the checks that it broke.

    ``clocked``: whether an expectation is over that clock.
    """

    outputs: tuple[ResolvedOutput, ...]
    specs: Callable[[int, Sequence[str]], tuple[OutputSpec, ...]] | None = None
    clocked: bool = False
    checking: EpochChecks | None = None
    forecast: Forecast | None = None

    def at(self, clock_ms: int, aside: Sequence[str] = ()) -> tuple[ResolvedOutput, ...]:
        """The outputs of a batch with that clock, of which all rows are bad because of the checks in ``aside``."""
        if self.specs is None or not (self.clocked or aside):
            return self.outputs
        pairs = zip(self.outputs, self.specs(clock_ms, aside), strict=True)
        return tuple(replace(output, spec=spec, column=spec.column()) for output, spec in pairs)


AHEAD = "ahead of the clock"
"""Name of the reason of rows beyond ``EventTime(ahead=)``."""


def divide(
    sinks: Sequence[Sink | Output | Route],
    quality: Quality | None,
    dedupe: Dedupe | None,
    check_sinks: Callable[[tuple[Sink, ...]], None],
    row_limit: RowLimit | None = None,
) -> tuple[tuple[Sink, ...], Division]:
    """The sinks of a call, those in outputs and routes among them, and how its rows are divided.

    ``check_sinks`` refuses sinks that form no epoch. It sees the sinks of the call, then all. Rows beyond ``row_limit``
    are bad where there is a quarantine. Raises E110: an argument is not understood. E120: the outputs form no epoch.
    E122: no ids can be kept.
    """
    routes = [sink for sink in sinks if isinstance(sink, Route)]
    taking = [part for sink in sinks for part in (sink.outputs if isinstance(sink, Route) else (sink,))]
    outputs = tuple(part for part in taking if isinstance(part, Output))
    output_argument.check(outputs)
    named = tuple(sink for part in taking for sink in (part.sinks if isinstance(part, Output) else (part,)))
    check_sinks(named)
    quality_argument.check_kind(quality)
    quality = expecting(quality, routes)
    quarantine = [quality.quarantine] if quality and quality.quarantine else []
    dedupe_argument.check_dedupe(dedupe, (*named, *quarantine))
    quality = dedupe.with_id_expectation(quality) if dedupe else quality
    limit = row_limit if quality and quality.quarantine else None
    checked = any(output.checks for output in outputs)
    quality_argument.check(quality, named, limited=limit is not None, checked=checked)
    division = Division(outputs, quality, dedupe, tuple(route.by for route in routes), limit)
    all_sinks = (*named, *division.row_sinks, *division.state_sinks)
    check_sinks(all_sinks)
    quality_argument.keeping(quality)
    return all_sinks, division
